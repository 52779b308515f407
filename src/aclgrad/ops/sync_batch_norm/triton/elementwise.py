"""The element-wise operators of batch norm on a GPU: one pass over any layout, the coefficients made on the way.

The same kernels serve both directions: without a gradient they normalise a batch, with one they differentiate.

Where all batches are gapless and laid out alike, the channels recur in memory with a period: C·H·W elements if they are
planes, C if they are innermost. Memory is then a matrix whose rows are a multiple of the period long, and an element's
channel depends on its column alone: a program makes the coefficients of its columns once, for several rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.loops import Loops
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import Number, few, jit
from aclgrad.gpu.operands import CallKernel, Operand
from aclgrad.gpu.strided import INT32, Tiles, offsets, place

from .choose import FEW_COUNTS, SHORT_COUNTER, THREADS, elementwise_cut

VECTORS = ("mean", "invstd", "weight", "bias", "sum_dy", "sum_dy_xmu")
OPTIONS = {"num_warps": THREADS // 32, "enable_fp_fusion": False}  # what is fused would depend on the layout


@jit
def _load_vector(vector_ptr, at, inside):
    return tl.load(vector_ptr + at, inside, 0.0).to(tl.float32)


@jit
def _coefficients(vector_ptrs, strides, channel, inside, counter_ptr, counts, COUNTS: tl.constexpr):
    """(mean, scale, offset, slope) of some channels; `counts` are the counter's size, at most `COUNTS`, and stride.

    Without a counter the offset is the bias, and the slope of no account.
    """
    mean_ptr, invstd_ptr, weight_ptr, bias_ptr, sum_dy_ptr, sum_dy_xmu_ptr = vector_ptrs
    centre = _load_vector(mean_ptr, channel * strides[0], inside)
    scale = _load_vector(invstd_ptr, channel * strides[1], inside)
    if counter_ptr is None:
        slope = scale
        offset = tl.zeros_like(scale) if bias_ptr is None else _load_vector(bias_ptr, channel * strides[3], inside)
    else:
        at = tl.arange(0, COUNTS)
        share = 1.0 / tl.sum(tl.load(counter_ptr + at * counts[1], at < counts[0], 0).to(tl.float64)).to(tl.float32)
        offset = _load_vector(sum_dy_ptr, channel * strides[4], inside) * share
        slope = _load_vector(sum_dy_xmu_ptr, channel * strides[5], inside) * share * (scale * scale)
    if weight_ptr is not None:
        scale *= _load_vector(weight_ptr, channel * strides[2], inside)
    return centre, scale, offset, slope


@jit
def _result(grad_ptr, grad, x, coefficients):
    """(x − mean)·scale + offset, or ((grad − offset) − (x − mean)·slope)·scale if a gradient is differentiated."""
    mean, scale, offset, slope = coefficients
    if grad_ptr is None:
        result = tl.fma(x.to(tl.float32) - mean, scale, offset)
    else:
        result = tl.fma(mean - x.to(tl.float32), slope, grad.to(tl.float32) - offset) * scale
    return result


@jit
def _load_batch(batch_ptr, at, inside, otherwise):
    """Elements of a batch; of a missing one, something else."""
    return otherwise if batch_ptr is None else tl.load(batch_ptr + at, inside)


@jit
def _walk(
    grad_ptr, x_ptr, out_ptr, at, step, rest, vector_ptrs, strides, channel, known, real, counter_ptr, counts,
    HEIGHT: tl.constexpr, ROWS: tl.constexpr, COUNTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Some rows at a time of some columns. Rows are asked for one step ahead, the first before the coefficients."""
    inside = known if WHOLE else known & (at < rest)
    values = tl.load(x_ptr + at, inside)
    gradients = _load_batch(grad_ptr, at, inside, values)
    coefficients = _coefficients(vector_ptrs, strides, channel, real, counter_ptr, counts, COUNTS)
    for row in range(ROWS, HEIGHT + ROWS, ROWS):
        ahead = at + step
        follows = known & (row < HEIGHT) if WHOLE else known & (row < HEIGHT) & (ahead < rest)
        next_values = tl.load(x_ptr + ahead, follows)
        next_gradients = _load_batch(grad_ptr, ahead, follows, next_values)
        tl.store(out_ptr + at, _result(grad_ptr, gradients, values, coefficients).to(out_ptr.dtype.element_ty), inside)
        at, inside, gradients, values = ahead, follows, next_gradients, next_values


@jit
def batch_norm_matrix(
    grad_ptr, x_ptr, out_ptr, mean_ptr, invstd_ptr, weight_ptr, bias_ptr, sum_dy_ptr, sum_dy_xmu_ptr, counter_ptr,
    strides, counts, total, width, inner, channels,
    HEIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """Some columns of `HEIGHT` rows: `total` elements in rows of `width`, `inner` of a channel side by side.

    `GROUP` columns are known to belong to one channel.
    """
    vector_ptrs = (mean_ptr, invstd_ptr, weight_ptr, bias_ptr, sum_dy_ptr, sum_dy_xmu_ptr)
    across = tl.cdiv(width, COLUMNS)
    first = (tl.program_id(0) % across) * COLUMNS
    start = (tl.program_id(0) // across).to(tl.int64) * HEIGHT * width
    if GROUP == 1:
        leader = first + tl.arange(0, COLUMNS)[None, :]
        column = leader
        row = tl.arange(0, ROWS)[:, None].to(tl.int64)
    else:
        leader = first + tl.arange(0, COLUMNS // GROUP)[None, :, None] * GROUP
        column = leader + tl.arange(0, GROUP)[None, None, :]
        row = tl.arange(0, ROWS)[:, None, None].to(tl.int64)
    channel = (leader // inner) % channels
    at = row * width + column
    known = column < width
    real = leader < width
    rest = total - start
    step = tl.cast(width, tl.int64) * ROWS
    if grad_ptr is not None:
        grad_ptr += start
    x_ptr += start
    out_ptr += start
    if tl.cast(width, tl.int64) * HEIGHT <= rest:  # a mask by the end would cost all rows their wide accesses
        _walk(
            grad_ptr, x_ptr, out_ptr, at, step, rest, vector_ptrs, strides, channel, known, real, counter_ptr, counts,
            HEIGHT, ROWS, COUNTS, True,
        )  # fmt: skip
    else:
        _walk(
            grad_ptr, x_ptr, out_ptr, at, step, rest, vector_ptrs, strides, channel, known, real, counter_ptr, counts,
            HEIGHT, ROWS, COUNTS, False,
        )  # fmt: skip


@jit
def batch_norm_tile(
    grad_ptr, x_ptr, out_ptr, mean_ptr, invstd_ptr, weight_ptr, bias_ptr, sum_dy_ptr, sum_dy_xmu_ptr, counter_ptr,
    strides, counts, sizes, grad_strides, x_strides, out_strides, channel_strides, down,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """A tile of batches of any strides."""
    rows, columns, inside = place(down, sizes, ROWS, COLUMNS, WIDE)
    values = tl.load(x_ptr + offsets(rows, columns, sizes, x_strides), inside)
    gradients = _load_batch(grad_ptr, offsets(rows, columns, sizes, grad_strides), inside, values)
    channel = offsets(rows, columns, sizes, channel_strides)
    vector_ptrs = (mean_ptr, invstd_ptr, weight_ptr, bias_ptr, sum_dy_ptr, sum_dy_xmu_ptr)
    coefficients = _coefficients(vector_ptrs, strides, channel, inside, counter_ptr, counts, COUNTS)
    result = _result(grad_ptr, gradients, values, coefficients).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offsets(rows, columns, sizes, out_strides), result, inside)


@jit
def sum_counter(counter_ptr, total_ptr, count, sizes, strides, LINE: tl.constexpr):
    """The sum of a counter of any size and layout; `sizes` begins with a loop of one column."""
    sums = tl.zeros([LINE], tl.float64)
    index = tl.arange(0, LINE)
    while tl.min(index) < count:
        sums += tl.load(counter_ptr + offsets(index, 0, sizes, strides), index < count, 0).to(tl.float64)
        index += LINE
    tl.store(total_ptr, tl.sum(sums))


class Elementwise:
    """Phase two of `batch_norm_elemt` and of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call, output: str) -> None:
        grad, x, out = (call[name] for name in ("grad_out", "input", output))
        vectors = [call[name] for name in VECTORS]
        scratch = Scratch()
        counter, counts = self._plan_counter(call, scratch)
        self.workspace = scratch.size
        operands = [
            Operand.of(call, "grad", "grad_out"), Operand.of(call, "x", "input"), Operand.of(call, "out", output),
            *(Operand.of(call, name) for name in VECTORS), counter,
        ]  # fmt: skip
        numbers: dict[str, Number] = {
            "strides": tuple(0 if meta is None else meta.strides[0] for meta in vectors),
            "counts": counts,
        }
        least = FEW_COUNTS if few(x.numel) else 1
        constants: dict[str, Any] = {"COUNTS": triton.next_power_of_2(max(least, counts[0]))}

        batch_strides = ((x if grad is None else grad).strides, x.strides, out.strides)
        loops = Loops.over(x.shape, *batch_strides)
        channels, inner = x.shape[1], x.strides[1] if x.shape[1] > 1 else 1
        cut = elementwise_cut(loops.count, channels * inner, inner, x)
        if loops.flat and cut.width < INT32:
            grid = triton.cdiv(loops.count, cut.height * cut.width) * triton.cdiv(cut.width, cut.columns)
            numbers |= {"total": loops.count, "width": cut.width, "inner": inner, "channels": channels}
            sizes = {"HEIGHT": cut.height, "ROWS": cut.rows, "COLUMNS": cut.columns, "GROUP": cut.group}
            function = batch_norm_matrix
        else:
            along_channels = tuple(int(dim == 1) for dim in range(x.rank))
            tiles = Tiles.of(Loops.over(x.shape, *batch_strides, along_channels))
            names = ("grad_strides", "x_strides", "out_strides", "channel_strides")
            numbers |= {"sizes": tiles.sizes, **dict(zip(names, tiles.strides, strict=True)), "down": tiles.down}
            grid, sizes, function = tiles.count, tiles.constants, batch_norm_tile
        self._kernel = CallKernel(
            call, function, (grid,), operands, numbers, {**sizes, **constants}, known=("width",), **OPTIONS
        )

    def _plan_counter(self, call: Call, scratch: Scratch) -> tuple[Operand, tuple[int, int]]:
        """What the programs add up, its size and its stride: the counter, or its sum if it is long."""
        self._sum: CallKernel | None = None
        counter = call["counter"]
        if counter is None:
            return Operand("counter", None), (0, 0)
        loops = Loops.over(counter.shape, counter.strides)
        if call["input"].numel == 0 or (len(loops.sizes) < 2 and loops.count <= SHORT_COUNTER):
            return Operand.of(call, "counter"), (loops.count, loops.strides[0][0] if loops.sizes else 1)
        total = scratch.tensor((1,), torch.float64)
        numbers: dict[str, Number] = {
            "count": loops.count,
            "sizes": (1, *reversed(loops.sizes)),
            "strides": (0, *reversed(loops.strides[0])),
        }
        operands = [Operand.of(call, "counter"), Operand.at("total", total)]
        self._sum = CallKernel(call, sum_counter, (1,), operands, numbers, {"LINE": SHORT_COUNTER})
        return Operand.at("counter", total), (1, 1)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        if self._sum is not None:
            self._sum(args, outs, workspace)
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()


class BatchNormElemt(Elementwise):
    """Phase two of `batch_norm_elemt`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, "output")


class BatchNormElemtBackward(Elementwise):
    """Phase two of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, "grad_input")
