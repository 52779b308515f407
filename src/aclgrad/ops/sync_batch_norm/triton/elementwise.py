"""The element-wise operators of batch norm on a GPU: one pass over any layout, the coefficients made on the way.

The same kernels serve both directions: without a gradient they normalise a batch, with one they differentiate.

Where all batches are gapless and laid out alike, the channels recur in memory with a period: C·H·W elements if they are
planes, C if they are innermost. Memory is then a matrix whose rows are a multiple of the period long, and an element's
channel depends on its column alone: a program makes the coefficients of its columns once, for several rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from aclgrad.core.loops import Loops
from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import Kernel, Number, jit, multiprocessors
from aclgrad.gpu.strided import INT32, Tiles, offsets, place

VECTORS = ("mean", "invstd", "weight", "bias", "sum_dy", "sum_dy_xmu")
THREADS = 128  # of a program
MOST_ROWS = 8  # of a program
MANY_PROGRAMS = 8  # on a multiprocessor: where there would be fewer, each takes fewer rows
FEW_LEFT_OVER = 32  # programs along a row whose last one is not full, so that its idle threads do not count
WIDEST = 16  # bytes that a thread loads at once
ALIGNMENT = 16  # elements; rows start where accesses may be wide
SHORT_COUNTER = 1024  # elements that every program may add up for itself
OPTIONS = {"num_warps": THREADS // 32, "enable_fp_fusion": False}  # what is fused would depend on the layout


@jit
def _vector(vector, at, inside):  # type: ignore[no-untyped-def]
    return tl.load(vector + at, inside, 0.0).to(tl.float32)


@jit
def _coefficients(  # type: ignore[no-untyped-def]
    vectors, strides, channel, inside, counter, counts, COUNTS: tl.constexpr
):
    """(mean, scale, offset, slope) of some channels; `counts` are the counter's size, at most `COUNTS`, and stride.

    Without a counter the offset is the bias, and the slope of no account.
    """
    mean, invstd, weight, bias, sum_dy, sum_dy_xmu = vectors
    centre = _vector(mean, channel * strides[0], inside)
    scale = _vector(invstd, channel * strides[1], inside)
    if counter is None:
        slope = scale
        offset = tl.zeros_like(scale) if bias is None else _vector(bias, channel * strides[3], inside)
    else:
        at = tl.arange(0, COUNTS)
        share = 1.0 / tl.sum(tl.load(counter + at * counts[1], at < counts[0], 0).to(tl.float64)).to(tl.float32)
        offset = _vector(sum_dy, channel * strides[4], inside) * share
        slope = _vector(sum_dy_xmu, channel * strides[5], inside) * share * (scale * scale)
    if weight is not None:
        scale *= _vector(weight, channel * strides[2], inside)
    return centre, scale, offset, slope


@jit
def _result(differentiated, grad, x, coefficients):  # type: ignore[no-untyped-def]
    """(x − mean)·scale + offset, or ((grad − offset) − (x − mean)·slope)·scale if a gradient is differentiated."""
    mean, scale, offset, slope = coefficients
    if differentiated is None:
        result = tl.fma(x.to(tl.float32) - mean, scale, offset)
    else:
        result = tl.fma(mean - x.to(tl.float32), slope, grad.to(tl.float32) - offset) * scale
    return result


@jit
def _load(batch, at, inside, otherwise):  # type: ignore[no-untyped-def]
    """Elements of a batch; of a missing one, something else."""
    return otherwise if batch is None else tl.load(batch + at, inside)


@jit
def _walk(  # type: ignore[no-untyped-def]
    grad, x, out, at, step, rest, vectors, strides, channel, known, real, counter, counts,
    HEIGHT: tl.constexpr, ROWS: tl.constexpr, COUNTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Some rows at a time of some columns. Rows are asked for one step ahead, the first before the coefficients."""
    inside = known if WHOLE else known & (at < rest)
    values = tl.load(x + at, inside)
    gradients = _load(grad, at, inside, values)
    coefficients = _coefficients(vectors, strides, channel, real, counter, counts, COUNTS)
    for row in range(ROWS, HEIGHT + ROWS, ROWS):
        ahead = at + step
        follows = known & (row < HEIGHT) if WHOLE else known & (row < HEIGHT) & (ahead < rest)
        next_values = tl.load(x + ahead, follows)
        next_gradients = _load(grad, ahead, follows, next_values)
        tl.store(out + at, _result(grad, gradients, values, coefficients).to(out.dtype.element_ty), inside)
        at, inside, gradients, values = ahead, follows, next_gradients, next_values


@jit
def _matrix(  # type: ignore[no-untyped-def]
    grad, x, out, mean, invstd, weight, bias, sum_dy, sum_dy_xmu, counter,
    strides, counts, total, width, inner, channels,
    HEIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """Some columns of `HEIGHT` rows: `total` elements in rows of `width`, `inner` of a channel side by side.

    `GROUP` columns are known to belong to one channel.
    """
    vectors = (mean, invstd, weight, bias, sum_dy, sum_dy_xmu)
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
    if grad is not None:
        grad += start
    x += start
    out += start
    if tl.cast(width, tl.int64) * HEIGHT <= rest:  # a mask by the end would cost all rows their wide accesses
        _walk(
            grad, x, out, at, step, rest, vectors, strides, channel, known, real, counter, counts,
            HEIGHT, ROWS, COUNTS, True,
        )  # fmt: skip
    else:
        _walk(
            grad, x, out, at, step, rest, vectors, strides, channel, known, real, counter, counts,
            HEIGHT, ROWS, COUNTS, False,
        )  # fmt: skip


@jit
def _tile(  # type: ignore[no-untyped-def]
    grad, x, out, mean, invstd, weight, bias, sum_dy, sum_dy_xmu, counter,
    strides, counts, sizes, grad_strides, x_strides, out_strides, channel_strides, down,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """A tile of batches of any strides."""
    rows, columns, inside = place(down, sizes, ROWS, COLUMNS, WIDE)
    values = tl.load(x + offsets(rows, columns, sizes, x_strides), inside)
    gradients = _load(grad, offsets(rows, columns, sizes, grad_strides), inside, values)
    channel = offsets(rows, columns, sizes, channel_strides)
    vectors = (mean, invstd, weight, bias, sum_dy, sum_dy_xmu)
    coefficients = _coefficients(vectors, strides, channel, inside, counter, counts, COUNTS)
    result = _result(grad, gradients, values, coefficients).to(out.dtype.element_ty)
    tl.store(out + offsets(rows, columns, sizes, out_strides), result, inside)


@jit
def _sum(
    counter: tl.tensor, total: tl.tensor, count: tl.tensor, sizes: tl.tuple, strides: tl.tuple, LINE: tl.constexpr
) -> None:
    """The sum of a counter of any size and layout; `sizes` begins with a loop of one column."""
    sums = tl.zeros([LINE], tl.float64)
    index = tl.arange(0, LINE)
    while tl.min(index) < count:
        sums += tl.load(counter + offsets(index, 0, sizes, strides), index < count, 0).to(tl.float64)
        index += LINE
    tl.store(total, tl.sum(sums))


class Cut(NamedTuple):
    """A matrix of rows of some width, and what a program takes: its rows, how many at a time, its columns.

    A group of columns belongs to one channel.
    """

    width: int
    height: int
    rows: int
    columns: int
    group: int


class Elementwise:
    """Phase two of `batch_norm_elemt` and of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call, output: str) -> None:
        grad, x, out = batches = [call[name] for name in ("grad_out", "input", output)]
        vectors = [call[name] for name in VECTORS]
        self._sum, counter, counts = _counting(call["counter"], x.numel)
        scratch = Scratch()
        self._total = scratch.tensor((0 if self._sum is None else 1,), torch.float64)
        self.workspace = scratch.size
        dtypes = [*(None if meta is None else meta.dtype for meta in (*batches, *vectors)), counter]
        strides = tuple(0 if meta is None else meta.strides[0] for meta in vectors)
        constants: dict[str, Any] = {"COUNTS": triton.next_power_of_2(max(1, counts[0]))}

        batch_strides = ((x if grad is None else grad).strides, x.strides, out.strides)
        loops = Loops.over(x.shape, *batch_strides)
        channels, inner = x.shape[1], x.strides[1] if x.shape[1] > 1 else 1
        cut = _cut(loops.count, channels * inner, inner, x)
        if loops.flat and cut.width < INT32:
            grid = triton.cdiv(loops.count, cut.height * cut.width) * triton.cdiv(cut.width, cut.columns)
            numbers: tuple[Number, ...] = (strides, counts, loops.count, cut.width, inner, channels)
            constants |= {"HEIGHT": cut.height, "ROWS": cut.rows, "COLUMNS": cut.columns, "GROUP": cut.group}
            self._kernel = Kernel(_matrix, (grid,), call.device, dtypes, numbers, constants, **OPTIONS)
        else:
            along_channels = tuple(int(dim == 1) for dim in range(x.rank))
            tiles = Tiles.of(Loops.over(x.shape, *batch_strides, along_channels))
            numbers = (strides, counts, tiles.sizes, *tiles.strides, tiles.down)
            constants |= tiles.constants
            self._kernel = Kernel(_tile, (tiles.count,), call.device, dtypes, numbers, constants, **OPTIONS)


class BatchNormElemt(Elementwise):
    """Phase two of `batch_norm_elemt`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, "output")

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        x, weight, bias, mean, invstd, _ = args
        self._kernel(None, x, outs[0], mean, invstd, weight, bias, None, None, None)


class BatchNormElemtBackward(Elementwise):
    """Phase two of `batch_norm_elemt_backward`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, "grad_input")

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counter = args
        if self._sum is not None and workspace is not None:
            total = placed(self._total, workspace)
            self._sum(counter, total)
            counter = total
        self._kernel(grad, x, outs[0], mean, invstd, weight, None, sum_dy, sum_dy_xmu, counter)


def _counting(counter: Meta | None, elements: int) -> tuple[Kernel | None, torch.dtype | None, tuple[int, int]]:
    """(the kernel that sums a long counter in advance, the dtype, the size and stride) of what the programs add up."""
    if counter is None:
        return None, None, (0, 0)
    loops = Loops.over(counter.shape, counter.strides)
    if elements == 0 or (len(loops.sizes) < 2 and loops.count <= SHORT_COUNTER):
        return None, counter.dtype, (loops.count, loops.strides[0][0] if loops.sizes else 1)
    numbers = (loops.count, (1, *reversed(loops.sizes)), (0, *reversed(loops.strides[0])))
    dtypes = (counter.dtype, torch.float64)
    return Kernel(_sum, (1,), counter.device, dtypes, numbers, {"LINE": SHORT_COUNTER}), torch.float64, (1, 1)


def _cut(total: int, period: int, inner: int, x: Meta) -> Cut:
    """The matrix of `total` elements whose channels recur with a period and have `inner` elements side by side."""
    group = math.gcd(inner, WIDEST // x.itemsize)
    rows, columns = (2, THREADS * group) if group * x.itemsize == WIDEST else (4, 4 * THREADS)
    width = math.lcm(period, ALIGNMENT)
    full, enough = math.lcm(width, columns), FEW_LEFT_OVER * columns
    width = full if full <= enough else width * max(1, enough // width)
    height = MOST_ROWS
    while height > rows and total < height * columns * MANY_PROGRAMS * multiprocessors(x.device):
        height //= 2
    return Cut(width, height, rows, columns, group)
