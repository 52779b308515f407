"""The element-wise gradient of batch norm on the CPU: each channel's coefficients, then one pass over any layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu.compiler import jit
from ...cpu.lanes import DTYPE_CODES, cast, load_any, pointer_at
from ...cpu.strided import TILE, Loops, element_offset, elementwise
from ...cpu.threads import TEAM, Kernel, barrier, share, team_size

COEFFICIENTS = 4
ALIGNMENT = 16  # elements; each coefficient starts on a cache line
VECTORS = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")


@jit
def _gradient(grad: Any, x: Any, mean: Any, offset: Any, slope: Any, scale: Any) -> Any:
    return ((grad - offset) - (x - mean) * slope) * scale


_loops = elementwise(_gradient)


@jit
def _total(counter: int, code: int, table: Any, count: int) -> float:
    total = 0.0
    for k in range(count):
        total += load_any(counter, code, element_offset(table, k))
    return total


@jit
def _vector(vectors: Any, k: int, address: int, channel: int, like: Any) -> Any:
    """An element of the k-th vector; `vectors` holds the code and the stride of each."""
    return cast(load_any(address, vectors[2 * k], channel * vectors[2 * k + 1]), like)


def _kernel(
    thread: int, threads: int, team: Any, table: Any, vectors: Any, counts: Any,
    grad: Any, x: Any, mean: Any, offset: Any, slope: Any, scale: Any, out: Any,
    channels: int, spacing: int, coefficients: int,
    means: int, invstds: int, weights: int, sums_dy: int, sums_dy_xmu: int,
    counter: int, counter_code: int, counter_size: int,
) -> None:  # fmt: skip
    """`mean`, `offset`, `slope` and `scale` are read where `coefficients`, `spacing` elements apart, was written."""
    written = pointer_at(coefficients, mean)
    n = cast(_total(counter, counter_code, counts, counter_size), mean)
    first, last = share(channels, 1, thread, threads)
    for c in range(first, last):
        invstd = _vector(vectors, 1, invstds, c, mean)
        weight = _vector(vectors, 2, weights, c, mean) if weights != 0 else cast(1.0, mean)
        written[c] = _vector(vectors, 0, means, c, mean)
        written[c + spacing] = _vector(vectors, 3, sums_dy, c, mean) / n
        written[c + 2 * spacing] = _vector(vectors, 4, sums_dy_xmu, c, mean) / n * (invstd * invstd)
        written[c + 3 * spacing] = invstd * weight
    barrier(team)
    _loops(thread, threads, table, (grad, x, mean, offset, slope, scale, out))


class BatchNormElemtBackward:
    """Phase two of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call) -> None:
        batches = [call[name] for name in ("grad_out", "input", "grad_input")]
        wide = torch.float64 if any(meta.dtype == torch.float64 for meta in batches) else torch.float32
        grad, x, out = batches
        along_channels = tuple(int(dim == 1) for dim in range(x.rank))
        loops = Loops.over(x.shape, grad.strides, x.strides, *[along_channels] * COEFFICIENTS, out.strides)
        pointers = loops.arguments(grad.dtype, x.dtype, *[wide] * COEFFICIENTS, out.dtype)
        counter = call["counter"]
        counts = Loops.over(counter.shape, counter.strides)
        vectors = [call[name] for name in VECTORS]
        layouts = [(0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in vectors]

        channels = x.shape[1]
        spacing = -(-channels // ALIGNMENT) * ALIGNMENT
        self.workspace = COEFFICIENTS * spacing * wide.itemsize
        self._count = loops.count
        self._tables = (loops.table(), torch.tensor(layouts, dtype=torch.int64), counts.table())  # keeps them alive
        self._table_addresses = tuple(table.data_ptr() for table in self._tables)
        self._coefficients = tuple(k * spacing * wide.itemsize for k in range(COEFFICIENTS))
        self._sizes = (channels, spacing)
        self._counter = (DTYPE_CODES[counter.dtype], counts.count)
        addresses = (int,) * (1 + len(VECTORS) + 1)
        tables = (torch.int64,) * len(self._tables)
        self._kernel = Kernel(_kernel, (TEAM, *tables, *pointers, int, int, *addresses, int, int))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        if self._count == 0 or workspace is None:
            return
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in args]
        scratch = workspace.data_ptr()
        self._kernel(
            team_size(self._count, TILE), *self._table_addresses,
            *addresses[:2], *[scratch + offset for offset in self._coefficients], outs[0].data_ptr(),
            *self._sizes, scratch, *addresses[2:], *self._counter,
        )  # fmt: skip


def batch_norm_elemt_backward(call: Call) -> Launch:
    """Any mix of float dtypes, any strides, any numeric counter."""
    return BatchNormElemtBackward(call)
