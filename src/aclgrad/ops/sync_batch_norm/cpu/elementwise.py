"""The element-wise operators of batch norm on the CPU: each channel's coefficients, then one pass over any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aclgrad.core.spec import Call
from aclgrad.core.words import counted
from aclgrad.cpu.compiler import Signature, jit
from aclgrad.cpu.lanes import DTYPE_CODES, cast, load_any, pointer_at
from aclgrad.cpu.strided import Loops, Reach, element_offset, elementwise
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier, share
from aclgrad.cpu.vecmath import multiply_add

ALIGNMENT = 16  # elements; each coefficient starts on a cache line


@jit
def _vector(layouts: Any, k: int, address: int, channel: int, like: Any) -> Any:
    """An element of the k-th vector; `layouts` holds the code and the stride of each."""
    return cast(load_any(address, layouts[2 * k], channel * layouts[2 * k + 1]), like)


@jit
def _normalised(x: Any, mean: Any, scale: Any, bias: Any) -> Any:
    return multiply_add(x - mean, scale, bias)


_normalise = elementwise(_normalised, constants=3)


def _forward(
    thread: int, threads: int, group: Any, table: Any, staging: Any,
    x: Any, mean: Any, scale: Any, bias: Any, out: Any,
    layouts: Any, channels: int, spacing: int, coefficients: int,
    weights: int, biases: int, means: int, invstds: int,
) -> None:  # fmt: skip
    """`mean`, `scale` and `bias` are read where `coefficients`, `spacing` elements apart, was written."""
    written = pointer_at(coefficients, mean)
    first, last = share(channels, 1, thread, threads)
    for c in range(first, last):
        weight = _vector(layouts, 0, weights, c, mean) if weights != 0 else cast(1.0, mean)
        written[c] = _vector(layouts, 2, means, c, mean)
        written[c + spacing] = _vector(layouts, 3, invstds, c, mean) * weight
        written[c + 2 * spacing] = _vector(layouts, 1, biases, c, mean) if biases != 0 else cast(0.0, mean)
    barrier(group)
    _normalise(thread, threads, table, staging, (x, mean, scale, bias, out))


@jit
def _gradient(grad: Any, x: Any, mean: Any, offset: Any, slope: Any, scale: Any) -> Any:
    return multiply_add(-(x - mean), slope, grad - offset) * scale


_differentiate = elementwise(_gradient, constants=4)


@jit
def _total(counter: int, code: int, table: Any, count: int) -> float:
    total = 0.0
    for k in range(count):
        total += load_any(counter, code, element_offset(table, k))
    return total


def _backward(
    thread: int, threads: int, group: Any, table: Any, staging: Any,
    grad: Any, x: Any, mean: Any, offset: Any, slope: Any, scale: Any, out: Any,
    layouts: Any, channels: int, spacing: int, coefficients: int,
    means: int, invstds: int, weights: int, sums_dy: int, sums_dy_xmu: int,
    counter: int, counts: Any, counter_code: int, counter_size: int,
) -> None:  # fmt: skip
    """`mean`, `offset`, `slope` and `scale` are read where `coefficients`, `spacing` elements apart, was written."""
    written = pointer_at(coefficients, mean)
    n = cast(_total(counter, counter_code, counts, counter_size), mean)
    first, last = share(channels, 1, thread, threads)
    for c in range(first, last):
        invstd = _vector(layouts, 1, invstds, c, mean)
        weight = _vector(layouts, 2, weights, c, mean) if weights != 0 else cast(1.0, mean)
        written[c] = _vector(layouts, 0, means, c, mean)
        written[c + spacing] = _vector(layouts, 3, sums_dy, c, mean) / n
        written[c + 2 * spacing] = _vector(layouts, 4, sums_dy_xmu, c, mean) / n * (invstd * invstd)
        written[c + 3 * spacing] = invstd * weight
    barrier(group)
    _differentiate(thread, threads, table, staging, (grad, x, mean, offset, slope, scale, out))


class Elementwise:
    """Batches and coefficients of the channels go through one loop.

    `inputs` and `output` name the batches, `vectors` what the `coefficients` are made of. A subclass may have more
    for its kernel to know, described by `more`.
    """

    def __init__(
        self,
        call: Call,
        kernel: Callable[..., None],
        inputs: Sequence[str],
        output: str,
        vectors: Sequence[str],
        coefficients: int,
        more: Signature = (),
    ) -> None:
        *given, out = batches = [call[name] for name in (*inputs, output)]
        wide = torch.float64 if any(meta.dtype == torch.float64 for meta in batches) else torch.float32
        along_channels = tuple(int(dim == 1) for dim in range(out.rank))
        strides = [meta.strides for meta in given]
        loops = Loops.over(out.shape, *strides, *[along_channels] * coefficients, out.strides)
        dtypes = [*[meta.dtype for meta in given], *[wide] * coefficients, out.dtype]
        self._reach = Reach(loops, dtypes, 1, coefficients)
        metas = [call[name] for name in vectors]
        layouts = [(0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in metas]

        channels = out.shape[1]
        spacing = -(-channels // ALIGNMENT) * ALIGNMENT
        self.workspace = coefficients * spacing * wide.itemsize
        self._layouts = table(layouts)
        self._coefficients = tuple(k * spacing * wide.itemsize for k in range(coefficients))
        self._numbers = (self._layouts.data_ptr(), channels, spacing)
        addresses = (int,) * (1 + len(vectors))
        self._kernel = Kernel(kernel, (THREAD_GROUP, *self._reach.signature, torch.int64, int, int, *addresses, *more))

    def _run(
        self,
        batches: Sequence[torch.Tensor],
        vectors: Sequence[torch.Tensor | None],
        workspace: torch.Tensor | None,
        *more: float,
    ) -> None:
        if self._reach.count == 0 or workspace is None:
            return
        *inputs, out = [batch.data_ptr() for batch in batches]
        scratch = workspace.data_ptr()
        self._reach.run(
            self._kernel, (*inputs, *[scratch + offset for offset in self._coefficients], out),
            *self._numbers, scratch, *[0 if vector is None else vector.data_ptr() for vector in vectors], *more,
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return f"coefficients of {counted(self._numbers[1], 'channel')}, then {self._reach.describe()}"


class BatchNormElemt(Elementwise):
    """Phase two of `batch_norm_elemt`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, _forward, ("input",), "output", ("weight", "bias", "mean", "invstd"), 3)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        x, *vectors, _ = args
        self._run((x, outs[0]), vectors, workspace)


class BatchNormElemtBackward(Elementwise):
    """Phase two of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call) -> None:
        vectors = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")
        more = (int, torch.int64, int, int)
        super().__init__(call, _backward, ("grad_out", "input"), "grad_input", vectors, 4, more)
        counter = call["counter"]
        counts = Loops.over(counter.shape, counter.strides)
        self._counts = counts.table()
        self._counter = (self._counts.data_ptr(), DTYPE_CODES[counter.dtype], counts.count)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x, *vectors, counter = args
        self._run((grad, x, outs[0]), vectors, workspace, counter.data_ptr(), *self._counter)
