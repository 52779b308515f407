"""The sums of batch norm's backward pass on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import Kernel, jit, overlaps
from aclgrad.gpu.strided import offsets

from . import channel_sums
from .channel_sums import Matrix, block_of, grouped, keep, kept, strip_of


@jit
def _products(  # type: ignore[no-untyped-def]
    grad, x, mean, sums, products,
    strips, inner, width, rows, height, results, sizes, row_strides, column_strides, mean_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, AT_ONCE: tl.constexpr,
    FLAT: tl.constexpr, SPLIT: tl.constexpr, FULL: tl.constexpr, LONG: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """For every group of columns the sum of the gradients, and that of their products with the input's deviations."""
    block, start, count = block_of(strips, rows, height, LONG)
    _, _, grad_at = strip_of(strips, inner, width, column_strides[0], COLUMNS, FLAT, SPLIT, LONG)
    channel, known, at = strip_of(strips, inner, width, column_strides[1], COLUMNS, FLAT, SPLIT, LONG)
    row = tl.arange(0, ROWS)[:, None]
    centre = tl.load(mean + (channel + tl.zeros_like(at)) * mean_stride, known, 0.0).to(tl.float32)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    total_product = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = 0
    while first < height:
        for k in tl.static_range(AT_ONCE):
            r = first + k * ROWS + row
            source = x + offsets(start + r, 0, sizes, row_strides[1]) + at
            grad_source = grad + offsets(start + r, 0, sizes, row_strides[0]) + grad_at
            if FULL:
                gradient = tl.load(grad_source).to(tl.float32)
                deviation = tl.load(source).to(tl.float32) - centre
            else:
                inside = (r < count) & known
                gradient = tl.load(grad_source, inside, 0.0).to(tl.float32)
                deviation = tl.where(inside, tl.load(source, inside, 0.0).to(tl.float32) - centre, 0.0)
            total += gradient
            total_product = tl.fma(gradient, deviation, total_product)
        first += ROWS * AT_ONCE
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    keep(sums, grouped(total, GROUP), strips, block, results)
    keep(products, grouped(total_product, GROUP), strips, block, results)


@jit
def _unite(  # type: ignore[no-untyped-def]
    sums, products, invstd, sum_dy, sum_dy_xmu, grad_weight, grad_bias, channels, parts, blocks, strides,
    LINES: tl.constexpr, CHANNELS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The sums of some channels from those of their groups and blocks, into whichever results are wanted."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < channels
    total = tl.zeros([LINES, CHANNELS], tl.float64)
    total_product = tl.zeros([LINES, CHANNELS], tl.float64)
    step = 0
    while step * LINES < blocks * parts:
        _, _, at, inside = kept(step, channels, parts, blocks, LINES, CHANNELS)
        total += tl.load(sums + at, inside, 0.0).to(tl.float64)
        total_product += tl.load(products + at, inside, 0.0).to(tl.float64)
        step += 1
    dy, dy_xmu = tl.sum(total, 0).to(tl.float32), tl.sum(total_product, 0).to(tl.float32)
    if sum_dy is not None:
        tl.store(sum_dy + channel * strides[1], dy.to(sum_dy.dtype.element_ty), exists)
        tl.store(sum_dy_xmu + channel * strides[2], dy_xmu.to(sum_dy_xmu.dtype.element_ty), exists)
    if grad_weight is not None:
        scale = tl.load(invstd + channel * strides[0], exists, 0.0).to(tl.float32)
        tl.store(grad_weight + channel * strides[3], (dy_xmu * scale).to(grad_weight.dtype.element_ty), exists)
    if grad_bias is not None:
        tl.store(grad_bias + channel * strides[4], dy.to(grad_bias.dtype.element_ty), exists)


class BatchNormReduceBackward:
    """Phase two of `batch_norm_reduce_backward`."""

    def __init__(self, call: Call) -> None:
        grad, x, mean, invstd, *results = (
            call[name] for name in ("grad_out", "input", "mean", "invstd", *call.spec.out_names)
        )
        cut, overlap, single = Matrix.of(grad, x), overlaps(call.device), torch.float32
        scratch = Scratch()
        self._kept = [scratch.tensor((cut.results,), single) for _ in range(2)]
        self.workspace = scratch.size
        self._sum = Kernel(
            _products, (cut.strips * cut.blocks,), call.device, (grad.dtype, x.dtype, mean.dtype, single, single),
            (*cut.numbers, mean.strides[0]), {**cut.constants, "OVERLAP": overlap},
            num_warps=channel_sums.THREADS // 32,
        )  # fmt: skip
        programs, at_a_time, warps = cut.fold
        strides = (invstd.strides[0], *(0 if meta is None else meta.strides[0] for meta in results))
        dtypes = (single, single, invstd.dtype, *(None if meta is None else meta.dtype for meta in results))
        self._unite = Kernel(
            _unite, (programs,), call.device, dtypes, (cut.channels, cut.parts, cut.blocks, strides),
            {**at_a_time, "OVERLAP": overlap}, launch_pdl=overlap, num_warps=warps,
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None
        grad, x, mean, invstd, *_ = args
        results = [placed(piece, workspace) for piece in self._kept]
        self._sum(grad, x, mean, *results)
        self._unite(*results, invstd, *outs)
