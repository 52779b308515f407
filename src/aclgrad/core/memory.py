"""The only allocator, and the only judge of aliasing.

Every output and every workspace the package allocates comes from here, so that tests can poison them at one point.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .errors import InvalidArgument
from .meta import Meta, meta_of
from .spec import Call

ALIGNMENT = 64
KEPT_WORKSPACE = 72 << 20
"""Bytes of a workspace that a thread keeps. The C library maps what is larger than 32 MiB anew in every call, and each
page costs more than filling it; this is what an LSTM of 1,024 units takes in float64."""

EXACT_CHECK_WORK = 100_000  # steps numpy may spend on deciding whether two interleaved views share an element


CPU = torch.device("cpu")
_modes = torch._C._len_torch_dispatch_stack
_empty_on_cpu: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)


def empty(meta: Meta) -> torch.Tensor:
    """An uninitialised tensor with this metadata; a fake one under a mode that makes such."""
    shape, strides, dtype, device, _ = meta
    if device == CPU and _empty_on_cpu is not None and not _modes():
        made: torch.Tensor = _empty_on_cpu(tuple(shape), tuple(strides), dtype)  # past the dispatcher
        return made
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


class _Kept(threading.local):
    """A thread's workspace between its calls."""

    block: torch.Tensor | None = None


_kept = _Kept()


def workspace(size: int, device: torch.device) -> torch.Tensor | None:
    """Scratch memory of `size` bytes or more for one launch; torch aligns it to at least `ALIGNMENT`.

    On a CPU a thread uses one again from call to call. The C library cuts an aligned block out of a larger one, so that
    the hole it leaves may be too small for the next of its size, and every call would take new memory. A thread that
    needs a larger one doubles it, so that this happens a few times only. While a call uses it, it is nobody else's, not
    even another call's of this thread. A GPU's allocator finds its blocks again.
    """
    if size == 0:
        return None
    if device != CPU or size > KEPT_WORKSPACE:
        return torch.empty(size, dtype=torch.uint8, device=device)
    block, _kept.block = _kept.block, None
    if block is None or block.numel() < size:
        if block is not None:
            size = max(size, min(2 * block.numel(), KEPT_WORKSPACE))
            del block  # before there is another
        with torch.inference_mode(False):  # what is made for inference could be written by nothing else
            block = torch.empty(size, dtype=torch.uint8, device=device)
    return block


def give_back(block: torch.Tensor | None) -> None:
    """Keep a workspace for the thread's next call; the launch it was made for has ended well."""
    if type(block) is not torch.Tensor or not block.is_cpu or block.numel() > KEPT_WORKSPACE:
        return
    kept = _kept.block
    if kept is None or kept.numel() < block.numel():
        _kept.block = block


def drop_workspace() -> None:
    """Free what this thread keeps, so that the next call's workspace is allocated where a memory meter sees it."""
    _kept.block = None


def tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    """All tensors among these values, lists flattened."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found


class Scratch:
    """Lays out named pieces in one workspace: sized in phase one, viewed in phase two."""

    def __init__(self) -> None:
        self.size = self.end = 0  # of the workspace; where the next piece begins

    def reserve(self, nbytes: int) -> int:
        """The offset of a new aligned piece of `nbytes`."""
        offset = self.end
        self.end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(self.size, self.end)
        return offset

    def free_from(self, offset: int) -> None:
        """What lies from there on is over when the next pieces are written: they may lie there, too."""
        self.end = offset

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Piece:
        """A piece that holds a contiguous tensor."""
        count = int(np.prod(shape, dtype=np.int64)) if len(shape) else 1
        return Piece(self.reserve(count * dtype.itemsize), count * dtype.itemsize, tuple(shape), dtype)


class Piece:
    """One tensor inside a workspace."""

    __slots__ = ("dtype", "nbytes", "offset", "shape")

    def __init__(self, offset: int, nbytes: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.offset, self.nbytes, self.shape, self.dtype = offset, nbytes, shape, dtype

    def view(self, workspace: torch.Tensor) -> torch.Tensor:
        """The piece as a tensor over the workspace's memory."""
        return workspace[self.offset : self.offset + self.nbytes].view(self.dtype).view(self.shape)


class Spans:
    """Where tensors lie whose metadata are known: those that are not empty, also in lists."""

    def __init__(self, metas: Sequence[Any]) -> None:
        self._alone = [(k, value.span) for k, value in enumerate(metas) if type(value) is Meta and value.span]
        lists = [(k, value) for k, value in enumerate(metas) if type(value) is tuple]
        self._lists = [(k, [meta.span for meta in members if type(meta) is Meta]) for k, members in lists]

    def ranges(self, values: Sequence[Any]) -> list[tuple[int, int]]:
        """(first byte, one past the last) of each."""
        found = [(start := values[k].data_ptr(), start + span) for k, span in self._alone]
        for k, members in self._lists:
            starts = [tensor.data_ptr() for tensor in tensors_in(values[k])]
            found += [(start, start + span) for start, span in zip(starts, members, strict=True) if span]
        return found


def refuse_overlaps(
    touched: list[tuple[int, int]], call: Call, args: Sequence[Any], outs: Sequence[Any],
    scratch: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Like `refuse_aliases`, which is asked where the ranges of all that is touched do not decide."""
    touched.sort()
    previous = 0
    for start, end in touched:
        if start < previous:  # inputs may share, so look closer
            refuse_aliases(call, args, outs, scratch)
            break
        previous = end


def refuse_aliases(call: Call, args: Sequence[Any], outs: Sequence[Any], scratch: torch.Tensor | None = None) -> None:
    """Raise if what is written, the workspace included, shares memory with an input or with anything else written.

    A pointwise operator may write an output over an input that is exactly the same view.
    """
    spec = call.spec
    read = [k for k in range(len(args)) if k not in spec.updated]
    inputs = list(_placed(call, [spec.args[k] for k in read], [args[k] for k in read]))
    outputs = list(_placed(call, [spec.params[name] for name in spec.written_names], spec.written(args, outs)))
    for k, (label, low, high, out) in enumerate(outputs):
        tolerated = [call.spec.pointwise] * len(inputs) + [False] * k
        others = (*inputs, *outputs[:k])
        for same_view_allowed, (other_label, other_low, other_high, other) in zip(tolerated, others, strict=True):
            if low < other_high and other_low < high and _share_an_element(out, other):
                if same_view_allowed and _same_view(out, other):
                    continue
                raise InvalidArgument(f"{label} shares memory with {other_label}, expected memory of its own", label)
    if scratch is None or not scratch.numel():
        return
    start = scratch.data_ptr()
    for label, low, high, _ in (*inputs, *outputs):
        if low < start + scratch.numel() and start < high:
            raise InvalidArgument(f"{label} shares memory with the workspace, expected memory of its own", label)


def _placed(call: Call, params: Iterable[Any], values: Sequence[Any]) -> Iterator[tuple[str, int, int, torch.Tensor]]:
    """(label, first byte, one past the last byte, tensor) of every non-empty tensor."""
    for param, value in zip(params, values, strict=True):
        members = value if isinstance(value, list | tuple) else (value,)
        for k, item in enumerate(members):
            if isinstance(item, torch.Tensor) and item.numel():
                label = call.label(param.name) + (f"[{k}]" if item is not value else "")
                span = meta_of(item).span
                start = item.data_ptr()
                yield label, start, start + span, item


def _same_view(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()


def _share_an_element(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.device != b.device:
        return False
    try:
        return bool(np.shares_memory(_shadow(a), _shadow(b), max_work=EXACT_CHECK_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Shadow:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _shadow(tensor: torch.Tensor) -> Any:
    """A numpy array over the same addresses, of which nothing is ever read (the memory may be a device's)."""
    size = tensor.element_size()
    return np.asarray(
        _Shadow(
            {
                "version": 3,
                "shape": tuple(tensor.shape),
                "typestr": f"|V{size}",
                "data": (tensor.data_ptr(), True),
                "strides": tuple(stride * size for stride in tensor.stride()),
            }
        )
    )
