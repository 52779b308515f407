"""Metadata of tensors: what a plan may depend on. It is hashable, so it is also the key of the plan cache."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch


class Meta(NamedTuple):
    """One tensor seen without its data. Strides count elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    format: int | None = None  # aclFormat of a handle; a torch tensor has none and passes as ND

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for a handle's type that torch lacks, which only an ignored argument may have."""
        return self.dtype.itemsize if isinstance(self.dtype, torch.dtype) else 0

    @property
    def span(self) -> int:
        """Bytes from the first element to one past the last; 0 when empty."""
        if self.numel == 0:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize

    def describes(self, tensor: torch.Tensor) -> bool:
        """Whether it is the metadata of a torch tensor."""
        return (
            tensor.shape == self.shape
            and tensor.stride() == self.strides
            and tensor.dtype == self.dtype
            and tensor.device == self.device
        )

    def is_dense(self) -> bool:
        """True if the elements fill their span without gaps or overlap, in whatever order of dimensions."""
        expected = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if stride != expected:
                return False
            expected *= size
        return True

    def overlaps_itself(self) -> bool:
        """True unless two different indices provably address different elements."""
        reach = 0
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if stride <= reach:
                return self.numel > 0
            reach += (size - 1) * stride
        return False

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}{list(self.shape)}"


Value: TypeAlias = "Meta | tuple[Meta | None, ...] | tuple[bool, ...] | bool | int | float | None"


def meta_of(tensor: torch.Tensor) -> Meta:
    """Metadata of a torch tensor."""
    return Meta(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, as torch gives them (an empty dimension counts as one)."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):  # the first size is never looked at, so that it may be unknown to a tracer
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def dtype_name(dtype: object) -> str:
    """`float16` for torch.float16; other vocabularies (aclDataType members) by their own name."""
    return str(dtype).removeprefix("torch.")
