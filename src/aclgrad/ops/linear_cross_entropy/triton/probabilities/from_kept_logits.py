"""p = (softmax − one-hot) · grad from logits that were kept until their statistics were complete."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from aclgrad.core.spec import F16, F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.products import TILE

from ..choose import LINE
from ..maths import exponential
from ..statistics.tiles import TileStatistics
from .slopes import column_slopes


def kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a logit is kept as, in the memory of an element of this dtype."""
    return F32 if dtype == F32 else F16


@jit
def probabilities_from_kept(
    source_ptr, p_ptr, maxima_ptr, own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, delta_ptr, classes_ptr,
    correct_ptr, first, columns, source_row, p_row, maxima_row, cap, correct_stride,
    EXACT: tl.constexpr, LINE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`LINE` columns of p of a token; column 0 is row `first` of the weight.

    `source` holds logits, less the largest of their tile if there are `maxima`. A token whose own target comes behind
    a column as large as the largest is not `correct`; all lines that find one say the same.
    """
    token = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * LINE
    tile = tl.arange(0, LINE // WIDTH)
    column = start + tile[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = column < columns
    x = tl.load(source_ptr + token * source_row + column, inside, other=0.0).to(tl.float32)
    shift = tl.load(top_ptr + token) + tl.zeros((LINE // WIDTH,), tl.float32)
    logits = x
    if maxima_ptr is not None:
        maxima = maxima_ptr + token * maxima_row + start // WIDTH + tile
        highest = tl.load(maxima, start + tile * WIDTH < columns, other=0.0)
        highest = tl.where(highest == float("-inf"), 0.0, highest)
        shift -= highest
        logits = x + highest[:, None]
    if correct_ptr is not None:
        undefined = (shift != shift)[:, None] & (x != x)  # an infinite one less itself
        ahead = ((x == shift[:, None]) | undefined) & (column < tl.load(own_ptr + token) - first) & inside
        late = tl.max(tl.max(ahead.to(tl.int32), 1), 0) > 0
        tl.store(correct_ptr + token * correct_stride, False, late)
    e = exponential(x - shift[:, None], EXACT)
    sums = tl.load(total_ptr + token)
    x = (tl.div_rn(e, sums) if EXACT else e * (1.0 / sums)) * tl.load(scale_ptr + token)
    x = column_slopes(x, logits, token, first + column, inside, delta_ptr, classes_ptr, cap)
    x = tl.where(column == tl.load(own_ptr + token) - first, tl.load(own_p_ptr + token), x)
    tl.store(p_ptr + token * p_row + column, x.to(p_ptr.dtype.element_ty), inside)


def probabilities_of_span(
    call: Call, tiles: TileStatistics, rows: int, span: tuple[int, int], source_row: int, p_row: int
) -> NamedKernel:
    """Kept logits of rows `source_row` elements apart to p of rows `p_row` apart, of the columns of a span."""
    dtype, columns, options = call["input"].dtype, span[1] - span[0], tiles.options
    operands = (
        Operand("source", kept_dtype(dtype)), Operand("p", dtype), Operand("maxima", None if dtype == F32 else F32),
        Operand("own", I64), *(Operand(name, F32) for name in ("scale", "top", "total", "own_p")),
        Operand("delta", F32 if options.smoothing else None),
        Operand("classes", F32 if options.weighs_classes else None), Operand.of(call, "correct"),
    )  # fmt: skip
    numbers = {
        "first": span[0], "columns": columns, "source_row": source_row, "p_row": p_row, "maxima_row": tiles.count,
        "cap": options.cap or None, "correct_stride": call["correct"].strides[0] if options.statistics else None,
    }  # fmt: skip
    return NamedKernel(
        probabilities_from_kept, (rows, triton.cdiv(columns, LINE)), call.device, operands, numbers,
        {"EXACT": dtype == F32, "LINE": LINE, "WIDTH": TILE[1]},
    )  # fmt: skip
