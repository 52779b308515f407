"""Batch norm of one process on the CPU: a kernel that sums over the batch and then goes through it once more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.cpu.compiler import Signature
from aclgrad.cpu.lanes import cast, pointer_at
from aclgrad.cpu.operands import Operands
from aclgrad.cpu.procedures import named
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import barrier, share

from .channel_sums import Pieces, channel_sums
from .elementwise import Elementwise, _differentiate, _normalise, _vector
from .reduce_backward import _add_up, _products
from .stats import _moments, _move, _unite

SCRATCH = 3  # arrays of sums, in float64


@cache
def _forward(by_rows: bool, in_order: bool) -> Any:
    """The kernel for lines along rows or not, in order of the indices or not."""
    moments = channel_sums(_moments, by_rows, in_order, in_order)

    def kernel(
        thread: int, threads: int, group: Any, loops: Any, layouts: Any,
        x: Any, centre: Any, scale: Any, shift: Any, out: Any,
        channels: int, spacing: int, coefficients: int, weights: int, biases: int,
        pieces: Any, source: Any, centres: Any, sums: Any, squares: Any,
        mean: Any, invstd: Any, running_mean: Any, running_var: Any, strides: Any, momentum: float, eps: float,
    ) -> None:  # fmt: skip
        """`centre`, `scale` and `shift` are read where `coefficients`, `spacing` elements apart, was written."""
        moments(thread, threads, pieces, (source,), None, 0, 0, centres, sums, squares)
        barrier(group)
        elements, block = pieces[1], pieces[2]
        written = pointer_at(coefficients, centre)
        first, last = share(channels, 1, thread, threads)
        _unite(first, last, channels, elements, block, centres, sums, squares)
        for c in range(first, last):
            inverse = 1.0 / math.sqrt(squares[c] / elements + eps)
            mean[c * strides[0]] = centres[c]
            invstd[c * strides[1]] = inverse
            if running_mean is not None:
                _move(running_mean + c * strides[2], centres[c], momentum)
                _move(running_var + c * strides[3], squares[c] / (elements - 1.0), momentum)
            weight = _vector(layouts, 0, weights, c, centre) if weights != 0 else cast(1.0, centre)
            written[c] = cast(centres[c], centre)
            written[c + spacing] = cast(inverse, centre) * weight
            written[c + 2 * spacing] = _vector(layouts, 1, biases, c, centre) if biases != 0 else cast(0.0, centre)
        barrier(group)
        _normalise(thread, threads, loops, (x, centre, scale, shift, out))

    return named(kernel, f"batch_norm_{by_rows}_{in_order}")


@cache
def _backward(by_rows: bool, in_order: bool) -> Any:
    """The kernel for lines along rows or not, in order of the indices or not."""
    products = channel_sums(_products, by_rows, in_order, False)

    def kernel(
        thread: int, threads: int, group: Any, loops: Any, layouts: Any,
        grad: Any, x: Any, centre: Any, offset: Any, slope: Any, scale: Any, out: Any,
        channels: int, spacing: int, coefficients: int, means: int, invstds: int, weights: int,
        pieces: Any, grad_source: Any, source: Any, centres: Any, sums: Any, deviations: Any,
        grad_weight: Any, grad_bias: Any, strides: Any,
    ) -> None:  # fmt: skip
        """`centre`, `offset`, `slope` and `scale` are read where `coefficients`, `spacing` apart, was written."""
        at = (grad_source, source)
        products(thread, threads, pieces, at, means, layouts[0], layouts[1], centres, sums, deviations)
        barrier(group)
        elements, block = pieces[1], pieces[2]
        blocks = (elements + block - 1) // block
        written = pointer_at(coefficients, centre)
        n = cast(elements, centre)
        first, last = share(channels, 1, thread, threads)
        _add_up(first, last, channels, blocks, sums)
        _add_up(first, last, channels, blocks, deviations)
        for c in range(first, last):
            invstd = _vector(layouts, 1, invstds, c, centre)
            weight = _vector(layouts, 2, weights, c, centre) if weights != 0 else cast(1.0, centre)
            written[c] = _vector(layouts, 0, means, c, centre)
            written[c + spacing] = cast(sums[c], centre) / n
            written[c + 2 * spacing] = cast(deviations[c], centre) / n * (invstd * invstd)
            written[c + 3 * spacing] = invstd * weight
            if grad_weight is not None:
                grad_weight[c * strides[0]] = deviations[c] * cast(invstd, 0.0)
            if grad_bias is not None:
                grad_bias[c * strides[1]] = sums[c]
        barrier(group)
        _differentiate(thread, threads, loops, (grad, x, centre, offset, slope, scale, out))

    return named(kernel, f"batch_norm_backward_{by_rows}_{in_order}")


class _Training(Elementwise):
    """What both passes have in common: sums first, the coefficients they give, one loop over the batches."""

    def __init__(
        self,
        call: Call,
        make: Any,
        inputs: tuple[str, ...],
        output: str,
        vectors: tuple[str, ...],
        coefficients: int,
        results: tuple[str, ...],
        more: Signature = (),
    ) -> None:
        self._pieces = pieces = Pieces(*(call[name] for name in inputs))
        kernel = make(pieces.by_rows, pieces.in_order)
        self._results = Operands(call, kernel, *results)
        steps = [0 if call[name] is None else call[name].strides[0] for name in results]
        signature = (
            torch.int64, *pieces.arguments, *[torch.float64] * SCRATCH, *self._results.dtypes, torch.int64, *more
        )  # fmt: skip
        super().__init__(call, kernel, inputs, output, vectors, coefficients, signature)
        scratch = Scratch()
        offsets = [scratch.reserve(pieces.blocks * pieces.channels * 8) for _ in range(SCRATCH)]
        self._scratch = [self.workspace + offset for offset in offsets]
        self.workspace += scratch.size
        self._strides = table(steps)
        self._strides_address = self._strides.data_ptr()

    def _more(
        self, args: Sequence[Any], outs: Sequence[Any], batches: Sequence[torch.Tensor], workspace: torch.Tensor | None
    ) -> list[int]:
        """What the kernel is given beside what every element-wise one is: the sums' operands, then the results."""
        scratch = 0 if workspace is None else workspace.data_ptr()
        return [
            self._pieces.table, *[batch.data_ptr() for batch in batches],
            *[scratch + offset for offset in self._scratch], *self._results.addresses(args, outs),
            self._strides_address,
        ]  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return f"sums over {self._pieces.describe()}; {super().describe()}"


class BatchNorm(_Training):
    """Phase two of `batch_norm`."""

    def __init__(self, call: Call) -> None:
        results = ("mean", "invstd", "running_mean", "running_var")
        super().__init__(call, _forward, ("input",), "output", ("weight", "bias"), 3, results, (float, float))
        self._numbers = (call["momentum"], call["eps"])

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        x, weight, bias, *_ = args
        output, mean, invstd = outs
        if not self._pieces.elements:
            mean.zero_()
            invstd.fill_(torch.nan)
            return
        more = self._more(args, outs, (x,), workspace)
        self._run((x, output), (weight, bias), workspace, *more, *self._numbers)


class BatchNormBackward(_Training):
    """Phase two of `batch_norm_backward` where the gradient of the input is wanted."""

    def __init__(self, call: Call) -> None:
        super().__init__(
            call, _backward, ("grad_out", "input"), "grad_input", ("mean", "invstd", "weight"), 4,
            ("grad_weight", "grad_bias"),
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x, weight, mean, invstd, *_ = args
        grad_input, *vectors = outs
        if not self._pieces.elements:
            for vector in vectors:
                if vector is not None:
                    vector.zero_()
            return
        more = self._more(args, outs, (grad, x), workspace)
        self._run((grad, x, grad_input), (mean, invstd, weight), workspace, *more)
