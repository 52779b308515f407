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
from aclgrad.cpu.lanes import DTYPE_CODES, address_of, cast, pointer_at
from aclgrad.cpu.procedures import named
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import barrier, share
from aclgrad.cpu.vectors import vector_copy

from .channel_sums import Pieces, channel_sums
from .elementwise import Elementwise, _differentiate, _normalise, _vector
from .reduce_backward import _add_up, _products
from .stats import _moments, _unite, moving_statistics

SCRATCH = 3  # arrays of sums, in float64


@cache
def _forward(in_order: bool) -> Any:
    """The kernel that goes in order of the indices or not."""
    moments, copy, move = channel_sums(_moments, in_order, in_order), vector_copy(), moving_statistics()

    def kernel(
        thread: int, threads: int, group: Any, loops: Any, staging: Any,
        x: Any, centre: Any, scale: Any, shift: Any, out: Any,
        layouts: Any, channels: int, spacing: int, coefficients: int, weights: int, biases: int,
        pieces: Any, gathering: Any, source: Any, centres: Any, sums: Any, squares: Any, formats: Any,
        mean: int, invstd: int, running_mean: int, running_var: int, momentum: float, eps: float,
    ) -> None:  # fmt: skip
        """`centre`, `scale` and `shift` are read where `coefficients`, `spacing` elements apart, was written.

        `formats` holds the code and the stride of every result; running statistics without an address are not moved.
        """
        moments(thread, threads, pieces, gathering, (source,), None, 0, 0, centres, sums, squares)
        barrier(group)
        elements, block = pieces[1], pieces[2]
        written = pointer_at(coefficients, centre)
        first, last = share(channels, 1, thread, threads)
        _unite(first, last, channels, elements, block, centres, sums, squares)
        move(running_mean, running_var, formats + 4, sums, centres, squares, elements, momentum, first, last)
        for c in range(first, last):
            squares[c] = 1.0 / math.sqrt(squares[c] / elements + eps)
            weight = _vector(layouts, 0, weights, c, centre) if weights != 0 else cast(1.0, centre)
            written[c] = cast(centres[c], centre)
            written[c + spacing] = cast(squares[c], centre) * weight
            written[c + 2 * spacing] = _vector(layouts, 1, biases, c, centre) if biases != 0 else cast(0.0, centre)
        copy(mean, formats[0], formats[1], address_of(centres), first, last, 1)
        copy(invstd, formats[2], formats[3], address_of(squares), first, last, 1)
        barrier(group)
        _normalise(thread, threads, loops, staging, (x, centre, scale, shift, out))

    return named(kernel, f"batch_norm_{in_order}")


@cache
def _backward(in_order: bool) -> Any:
    """The kernel that goes in order of the indices or not."""
    products, copy = channel_sums(_products, in_order, False), vector_copy()

    def kernel(
        thread: int, threads: int, group: Any, loops: Any, staging: Any,
        grad: Any, x: Any, centre: Any, offset: Any, slope: Any, scale: Any, out: Any,
        layouts: Any, channels: int, spacing: int, coefficients: int, means: int, invstds: int, weights: int,
        pieces: Any, gathering: Any, grad_source: Any, source: Any, centres: Any, sums: Any, deviations: Any,
        formats: Any, grad_weight: int, grad_bias: int,
    ) -> None:  # fmt: skip
        """`centre`, `offset`, `slope` and `scale` are read where `coefficients`, `spacing` apart, was written.

        `formats` holds the code and the stride of every result; one without an address is not wanted.
        """
        at = (grad_source, source)
        products(thread, threads, pieces, gathering, at, means, layouts[0], layouts[1], centres, sums, deviations)
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
            deviations[c] *= cast(invstd, 0.0)
        if grad_weight != 0:
            copy(grad_weight, formats[0], formats[1], address_of(deviations), first, last, 1)
        if grad_bias != 0:
            copy(grad_bias, formats[2], formats[3], address_of(sums), first, last, 1)
        barrier(group)
        _differentiate(thread, threads, loops, staging, (grad, x, centre, offset, slope, scale, out))

    return named(kernel, f"batch_norm_backward_{in_order}")


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
        metas = [call[name] for name in results]
        formats = [(0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in metas]
        self._formats = table([number for layout in formats for number in layout])
        signature: Signature = (
            *pieces.signature, *[torch.float64] * SCRATCH, torch.int64, *[int] * len(results), *more
        )  # fmt: skip
        kernel = make(pieces.in_order)
        super().__init__(call, kernel, inputs, output, vectors, coefficients, signature)
        scratch = Scratch()
        offsets = [scratch.reserve(pieces.blocks * pieces.channels * 8) for _ in range(SCRATCH)]
        self._scratch = [self.workspace + offset for offset in offsets]
        self.workspace += scratch.size

    def _sums(
        self, batches: Sequence[torch.Tensor], results: Sequence[torch.Tensor | None], workspace: torch.Tensor | None
    ) -> list[int]:
        """What the kernel is given beside what every element-wise one is."""
        scratch = 0 if workspace is None else workspace.data_ptr()
        return [
            *self._pieces.head, *[batch.data_ptr() for batch in batches],
            *[scratch + offset for offset in self._scratch], self._formats.data_ptr(),
            *[0 if result is None else result.data_ptr() for result in results],
        ]  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return f"sums over {self._pieces.describe()}; {super().describe()}"


class BatchNorm(_Training):
    """Phase two of `batch_norm`."""

    def __init__(self, call: Call) -> None:
        results = ("mean", "invstd", "running_mean", "running_var")
        super().__init__(call, _forward, ("input",), "output", ("weight", "bias"), 3, results, (float, float))
        self._numbers_of_training = (call["momentum"], call["eps"])

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        x, weight, bias, running_mean, running_var, *_ = args
        output, mean, invstd = outs
        if not self._pieces.elements:
            mean.zero_()
            invstd.fill_(torch.nan)
            return
        sums = self._sums((x,), (mean, invstd, running_mean, running_var), workspace)
        self._run((x, output), (weight, bias), workspace, *sums, *self._numbers_of_training)


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
        self._run((grad, x, grad_input), (mean, invstd, weight), workspace, *self._sums((grad, x), vectors, workspace))
