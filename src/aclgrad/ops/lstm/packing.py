"""Packed sequences as operators take them: rows as they lie, and where the data are how many each time has."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...core.dispatch import is_plain
from ...core.errors import InvalidArgument

_on_devices: Any = WeakTensorKeyDictionary()  # counts to their version and their copies by device
_read_by_graphs: list[Tensor] = []


class Packing(NamedTuple):
    """What says which rows belong to which sequence."""

    batch: int
    batch_sizes: Tensor  # [T] on the data's device

    @classmethod
    def of(cls, batch_sizes: Tensor, data: Tensor) -> Packing:
        """From the counts of a `PackedSequence`, which live on the CPU, and its rows."""
        name = "input.batch_sizes"
        if batch_sizes.dim() != 1 or not len(batch_sizes):
            raise InvalidArgument(f"{name} has shape {list(batch_sizes.shape)}, expected at least one step", name)
        batch = int(batch_sizes[0])
        require_packed(batch_sizes, len(data), batch, name, "input.data")
        return cls(batch, copied_to(data.device, batch_sizes))

    def last_rows(self) -> Tensor:
        """The last row of each sequence [N]."""
        sequence = torch.arange(self.batch, device=self.batch_sizes.device)
        steps = self.batch_sizes.shape[0]
        last = steps - 1 - torch.searchsorted(self.batch_sizes.flip(0), sequence, right=True)
        return (self.batch_sizes.cumsum(0) - self.batch_sizes)[last] + sequence


def copied_to(device: torch.device, batch_sizes: Tensor) -> Tensor:
    """Counts on the data's device, copied once as long as they are the same.

    So batches of the same lengths wait for no copy, and a CUDA graph can capture a call that another one came before: a
    copy from memory of the host it could not.
    """
    if batch_sizes.device == device or torch.compiler.is_compiling() or not is_plain(batch_sizes):
        return batch_sizes.to(device)
    version, copies = _on_devices.get(batch_sizes, (None, {}))
    if version != batch_sizes._version:
        version, copies = _on_devices[batch_sizes] = batch_sizes._version, {}
    if device not in copies:
        copies[device] = batch_sizes.to(device)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        _read_by_graphs.append(copies[device])  # at every replay, whatever becomes of the counts
    return copies[device]  # type: ignore[no-any-return]


def require_packed(batch_sizes: Tensor, total: int, batch: int, name: str, data: str) -> None:
    """Counts of `batch` packed sequences that have `total` rows together."""
    sizes = batch_sizes.tolist()
    _require_counts(sizes, batch, name)
    if sum(sizes) != total:  # rows would move to other steps, or be missing
        raise InvalidArgument(f"{name} add up to {sum(sizes)}, expected {total} like the rows of {data}", name)


def require_lengths(batch_sizes: Tensor, batch: int, name: str = "batch_sizes") -> None:
    """Sequences sorted by decreasing length: counts that never rise, between 0 and N."""
    _require_counts(batch_sizes.tolist(), batch, name)


def _require_counts(sizes: list[int], batch: int, name: str) -> None:
    if not sizes or (sizes[0] <= batch and sizes[-1] >= 0 and sizes == sorted(sizes, reverse=True)):
        return
    for t, size in enumerate(sizes):
        if size < 0 or size > max(batch, 0):
            raise InvalidArgument(f"{name}[{t}] is {size}, expected 0 to {max(batch, 0)}", name)
        if t and size > sizes[t - 1]:
            raise InvalidArgument(
                f"{name}[{t}] is {size} after {sizes[t - 1]}, expected values that never increase", name
            )
