"""The sums of batch norm's backward pass on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.devices import overlaps
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors
from aclgrad.gpu.strided import offsets

from .channel_sums import block_of, grouped, keep, kept, strip_of
from .choose import THREADS, ReductionCut


@jit
def gradient_products(
    grad_ptr, x_ptr, mean_ptr, sums_ptr, products_ptr,
    strips, inner, width, rows, height, results, sizes, row_strides, column_strides, mean_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, AT_ONCE: tl.constexpr,
    FLAT: tl.constexpr, SPLIT: tl.constexpr, FULL: tl.constexpr, LONG: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """For every group of columns the sum of the gradients, and that of their products with the input's deviations."""
    block, start, count = block_of(strips, rows, height, LONG)
    _, _, grad_at = strip_of(strips, inner, width, column_strides[0], COLUMNS, FLAT, SPLIT, LONG)
    channel, known, at = strip_of(strips, inner, width, column_strides[1], COLUMNS, FLAT, SPLIT, LONG)
    row = tl.arange(0, ROWS)[:, None]
    centre = tl.load(mean_ptr + (channel + tl.zeros_like(at)) * mean_stride, known, 0.0).to(tl.float32)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    total_product = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = 0
    while first < height:
        for k in tl.static_range(AT_ONCE):
            r = first + k * ROWS + row
            source = x_ptr + offsets(start + r, 0, sizes, row_strides[1]) + at
            grad_source = grad_ptr + offsets(start + r, 0, sizes, row_strides[0]) + grad_at
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
    keep(sums_ptr, grouped(total, GROUP), strips, block, results)
    keep(products_ptr, grouped(total_product, GROUP), strips, block, results)


@jit
def unite_products(
    sums_ptr, products_ptr, invstd_ptr, sum_dy_ptr, sum_dy_xmu_ptr, grad_weight_ptr, grad_bias_ptr,
    channels, parts, blocks, strides,
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
        total += tl.load(sums_ptr + at, inside, 0.0).to(tl.float64)
        total_product += tl.load(products_ptr + at, inside, 0.0).to(tl.float64)
        step += 1
    dy, dy_xmu = tl.sum(total, 0).to(tl.float32), tl.sum(total_product, 0).to(tl.float32)
    if sum_dy_ptr is not None:
        tl.store(sum_dy_ptr + channel * strides[1], dy.to(sum_dy_ptr.dtype.element_ty), exists)
        tl.store(sum_dy_xmu_ptr + channel * strides[2], dy_xmu.to(sum_dy_xmu_ptr.dtype.element_ty), exists)
    if grad_weight_ptr is not None:
        scale = tl.load(invstd_ptr + channel * strides[0], exists, 0.0).to(tl.float32)
        tl.store(
            grad_weight_ptr + channel * strides[3],
            (dy_xmu * scale).to(grad_weight_ptr.dtype.element_ty),
            exists,
        )
    if grad_bias_ptr is not None:
        tl.store(grad_bias_ptr + channel * strides[4], dy.to(grad_bias_ptr.dtype.element_ty), exists)


class BatchNormReduceBackward:
    """Phase two of `batch_norm_reduce_backward`."""

    def __init__(self, call: Call) -> None:
        cut, overlap = ReductionCut.of(call["grad_out"], call["input"]), overlaps(call.device)
        scratch = Scratch()
        kept = [Operand.at(name, scratch.tensor((cut.results,), torch.float32)) for name in ("sums", "products")]
        self.workspace = scratch.size
        batches = [Operand.of(call, "grad", "grad_out"), Operand.of(call, "x", "input")]
        self._sum = CallKernel(
            call, gradient_products, (cut.strips * cut.blocks,), [*batches, Operand.of(call, "mean"), *kept],
            {**cut.numbers, "mean_stride": call["mean"].strides[0]}, {**cut.constants, "OVERLAP": overlap},
            num_warps=THREADS // 32,
        )  # fmt: skip
        programs, at_a_time, warps = cut.fold
        results, strides = vectors(call, "invstd", "sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
        self._unite = CallKernel(
            call, unite_products, (programs,), [*kept, *results],
            {"channels": cut.channels, "parts": cut.parts, "blocks": cut.blocks, "strides": tuple(strides.values())},
            {**at_a_time, "OVERLAP": overlap}, launch_pdl=overlap, num_warps=warps,
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._sum(args, outs, workspace)
        self._unite(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return f"{self._sum.describe()}; {self._unite.describe()}"
