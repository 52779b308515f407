"""Where logits wait for their statistics: in the memory of weight_grad, as far as it goes, then in the workspace.

They wait as float16 where the gradients are of a half type, less the largest logit of their tile: what counts in the
softmax is close to that, so that this loses no more than the rounding of p does.

`Borrowed` tokens have their logits where weight_grad will be: a block of its rows has room for H tokens' logits of that
block. Block after block is then turned into p, outside, and overwritten by its share of weight_grad, which is complete
at once; input_grad is summed over the blocks in float32.

Tokens `InTurn` have their logits in the workspace, a chunk of tokens at a time, and these are turned into p there.
weight_grad is added up over the chunks: in float32 if there is room for such sums, else in its own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import F16, F32, I64, Call
from aclgrad.gpu.launch import ALIGNED, Kernel, jit, multiprocessors

from ...spec import LinearDims
from ..choose import LEADING, MIB, TILE, ceil_div, on_hopper, round_up, row_major, steps
from ..probabilities.elementwise import exponential
from ..products import Gradient, Operand
from ..statistics.compute import STRIP_COLUMNS, Statistics, Strip, Tiles, log1p, merged

SUMS = 32 * MIB  # of the workspace, for float32 sums of weight_grad
BORROWED_SUMS = 96 * MIB  # of the workspace, for float32 sums of input_grad
SLACK = 4096  # bytes lost between the pieces of a workspace
STRIP_SHARE, RESERVE_SHARE = 4, 512  # of the budget, for float32 logits: where all pass through them, or only odd ones
LINE = 2048  # columns of p that a program takes


def _tile_bytes(vocabulary: int) -> int:
    """Room that a token's statistics take, tile by tile."""
    return (2 * ceil_div(vocabulary, TILE[1]) + 1) * F32.itemsize


@jit
def merge_for_training(  # type: ignore[no-untyped-def]
    own, scale, maxima, sums, chosen, logits_max, sum_exp, others, loss, own_p,
    count, max_stride, sum_stride, others_stride, loss_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics and loss from those of its tiles, which left out its own target; p of that, if wanted.

    The loss log Σ exp(logit − largest) − predicted is that of the sum less 1: what the others add up to, if the own
    target is the largest.
    """
    token = tl.program_id(0).to(tl.int64)
    top, rest = merged(maxima + token * count, sums + token * count, count, BLOCK)
    here = tl.load(own + token) >= 0
    predicted = tl.where(here, tl.load(chosen + token, here, other=0.0) - top, 0.0)
    mine = exponential(predicted, True)
    total = tl.where(here, rest + mine, rest)
    weight = tl.load(scale + token)
    each = log1p(rest + tl.where(predicted == 0.0, 0.0, mine - 1.0)) - predicted
    tl.store(loss + token * loss_stride, tl.where(weight == 0.0, 0.0, tl.where(here, each, float("nan"))))
    tl.store(logits_max + token * max_stride, top)
    tl.store(sum_exp + token * sum_stride, total)
    if others is not None:
        tl.store(others + token * others_stride, rest)
    if own_p is not None:
        tl.store(own_p + token, -(rest / total) * weight)


@jit
def waiting_probabilities(  # type: ignore[no-untyped-def]
    source, p, tops, own, scale, top, total, own_p, first, columns, source_row, p_row, stride,
    EXACT: tl.constexpr, LINE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """P = (softmax − one-hot) · grad for `LINE` columns of a token; column 0 is row `first` of the weight.

    `source` holds logits, less the largest of their tile if there are `tops`.
    """
    token = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * LINE
    tile = tl.arange(0, LINE // WIDTH)
    column = start + tile[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = column < columns
    x = tl.load(source + token * source_row + column, inside, other=0.0).to(tl.float32)
    shift = tl.load(top + token) + tl.zeros((LINE // WIDTH,), tl.float32)
    if tops is not None:
        highest = tl.load(tops + token * stride + start // WIDTH + tile, start + tile * WIDTH < columns, other=0.0)
        shift -= tl.where(highest == float("-inf"), 0.0, highest)
    e = exponential(x - shift[:, None], EXACT)
    sums = tl.load(total + token)
    x = (tl.div_rn(e, sums) if EXACT else e * (1.0 / sums)) * tl.load(scale + token)
    x = tl.where(column == tl.load(own + token) - first, tl.load(own_p + token), x)
    tl.store(p + token * p_row + column, x.to(p.dtype.element_ty), inside)


def waiting(dtype: torch.dtype) -> torch.dtype:
    """What a logit waits as, in the memory of an element of this dtype."""
    return F32 if dtype == F32 else F16


def merging(tiles: Tiles, tokens: int, strides: Sequence[int], device: torch.device, *, others: bool) -> Kernel:
    """A kernel of own targets and scales, the views of the tiles, and results: four of these strides, and `own_p`.

    Sums over the others, or p of the own targets instead.
    """
    dtypes = [I64, *[F32] * 6, F32 if others else None, F32, None if others else F32]
    return Kernel(merge_for_training, (tokens,), device, dtypes, [tiles.count, *strides], {"BLOCK": tiles.block})


def strip_bytes(call: Call, budget: int) -> int:
    """Bytes of float32 logits on their way to where they wait; float32 ones are there already."""
    dtype = call["input"].dtype
    return 0 if dtype == F32 else budget // (RESERVE_SHARE if on_hopper(dtype, call.device) else STRIP_SHARE)


def _strip(call: Call, tokens: int, budget: int, scratch: Scratch) -> Strip | None:
    size = strip_bytes(call, budget)
    return Strip(tokens, min(call.dims.V, STRIP_COLUMNS), F32, size, scratch) if size else None


def _fill(call: Call, tiles: Tiles, rows: int, span: tuple[int, int], source: int, leading: int) -> Kernel:
    """Logits of rows `source` elements apart to p of rows `leading` apart, of the columns of a span."""
    dtype, columns = call["input"].dtype, span[1] - span[0]
    return Kernel(
        waiting_probabilities, (rows, ceil_div(columns, LINE)), call.device,
        [waiting(dtype), dtype, None if dtype == F32 else F32, I64, F32, F32, F32, F32],
        [span[0], columns, source, leading, tiles.count], {"EXACT": dtype == F32, "LINE": LINE, "WIDTH": TILE[1]},
    )  # fmt: skip


def chunk_rows(call: Call, budget: int) -> int:
    """Tokens of a chunk in turn: as few chunks as the budget allows, of equal size."""
    tokens, features, vocabulary = call.dims
    itemsize = call["input"].itemsize
    budget -= strip_bytes(call, budget)
    sums = vocabulary * features * F32.itemsize
    if call["weight_grad"] is not None and sums <= SUMS:
        budget -= sums
    packed = 0 if row_major(call["input"]) else round_up(features, LEADING) * itemsize
    row = round_up(vocabulary, LEADING) * itemsize + _tile_bytes(vocabulary) + packed
    if not row_major(call["weight"]):
        budget -= STRIP_COLUMNS * round_up(features, LEADING) * itemsize
    most = max(1, (budget - SLACK) // row)
    chunks = ceil_div(tokens, max(1, most // TILE[0] * TILE[0]))
    return int(min(most, round_up(ceil_div(tokens, chunks), TILE[0])))


def block_columns(call: Call, tokens: int, budget: int) -> int:
    """Columns of a block of borrowed memory: what takes the least time within the budget."""
    _, features, vocabulary = call.dims
    budget -= strip_bytes(call, budget) + tokens * _tile_bytes(vocabulary) + SLACK
    if call["input_grad"] is not None:
        budget -= tokens * features * F32.itemsize
    most = min(budget // (tokens * call["input"].itemsize * TILE[1]), ceil_div(vocabulary, TILE[1]))
    sizes = [TILE[1] * count for count in range(max(1, most), max(0, most // 2), -1)]
    dims, workers = LinearDims(tokens, features, vocabulary), multiprocessors(call.device)
    return min(sizes, key=lambda size: steps(dims, True, size, workers))


def borrowable(call: Call, budget: int) -> int:
    """How many tokens are to borrow the memory of weight_grad; 0 where that is impossible or not worth it."""
    tokens, features, vocabulary = call.dims
    weight_grad, itemsize = call["weight_grad"], call["input"].itemsize
    in_order = all(meta is not None and row_major(meta) for meta in (call["input"], call["weight"], weight_grad))
    if not features or not in_order or weight_grad.strides[0] != features or vocabulary * itemsize % ALIGNED:
        return 0
    rows = chunk_rows(call, budget)
    most = min(tokens, features, BORROWED_SUMS // (features * F32.itemsize))
    if most < tokens:
        most = most // TILE[0] * TILE[0]
    summed = vocabulary * features * F32.itemsize <= SUMS
    return 0 if rows >= tokens or most <= rows or summed else int(most)


class Borrowed:
    """The first tokens, whose logits wait in the memory of weight_grad."""

    def __init__(self, call: Call, tokens: int, budget: int) -> None:
        features, vocabulary = call.dims[1:]
        dtype, device, weight = call["input"].dtype, call.device, call["weight"]
        scratch = Scratch()
        self._tokens = slice(0, tokens)
        x, w = Operand(call["input"], tokens, scratch), Operand(weight, STRIP_COLUMNS, scratch)
        columns = block_columns(call, tokens, budget)
        self._spans = [(v, min(v + columns, vocabulary)) for v in range(0, vocabulary, columns)]
        self._tiles = tiles = Tiles(tokens, vocabulary, scratch)
        strip = _strip(call, tokens, budget, scratch)
        self._statistics, self._fills = [], []
        for start, end in self._spans:
            logits = Meta((tokens, end - start), (end - start, 1), waiting(dtype), device)
            rows = Meta((end - start, features), weight.strides, dtype, device)
            self._statistics.append(
                Statistics(tokens, x, w, rows, logits, tiles, scratch, start, exact=True, strip=strip)
            )  # fmt: skip
            self._fills.append(_fill(call, tiles, tokens, (start, end), end - start, columns))
        self._merge = merging(tiles, tokens, (1, 1, 1, 1), device, others=False)
        self._p = scratch.tensor((tokens, columns), dtype)
        heights = [end - start for start, end in self._spans]
        self._weight_grad = Gradient(call["weight_grad"], heights, 1, scratch)
        self._input_grad = None
        if call["input_grad"] is not None:
            self._input_grad = Gradient(call["input_grad"], [tokens], len(heights), scratch)
        self.workspace = scratch.size

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, gradients: Sequence[torch.Tensor | None],
        of_tokens: Sequence[torch.Tensor], workspace: torch.Tensor,
    ) -> None:  # fmt: skip
        """Compute. `of_tokens` are own targets, scales, maxima, sums, losses and p of the own targets of all tokens."""
        here = self._tokens
        x, of_tokens = x[here], [each[here] for each in of_tokens]
        own, scale, top, total, loss, own_p = of_tokens
        input_grad, weight_grad = gradients
        assert weight_grad is not None  # it lends its memory
        memory = weight_grad.view(waiting(weight_grad.dtype))
        blocks = [
            memory[start:end].view(-1)[: len(x) * (end - start)].view(len(x), end - start) for start, end in self._spans
        ]
        for (start, end), statistics, logits in zip(self._spans, self._statistics, blocks, strict=True):
            views = statistics(x, weight[start:end], logits, own, workspace)
        self._merge(own, scale, *views, top, total, None, loss, own_p)
        final = self._spans[-1]
        for span, fill, logits in zip(self._spans, self._fills, blocks, strict=True):
            rows = slice(*span)
            p = self._p.view(workspace)[:, : rows.stop - rows.start]
            tops = None if p.dtype == F32 else views[0][:, rows.start // TILE[1] :]
            fill(logits, p, tops, own, scale, top, total, own_p)
            self._weight_grad(weight_grad[rows], p.t(), x, workspace, first=True, last=True)
            if self._input_grad is not None and input_grad is not None:
                out = input_grad[here]
                self._input_grad(out, p, weight[rows], workspace, first=rows.start == 0, last=span == final)


class InTurn:
    """The tokens from `start` on, whose logits wait in the workspace."""

    def __init__(self, call: Call, start: int, budget: int) -> None:
        tokens, _, vocabulary = call.dims
        dtype, device = call["input"].dtype, call.device
        scratch = Scratch()
        rows, leading = chunk_rows(call, budget), round_up(vocabulary, LEADING)
        w = Operand(call["weight"], STRIP_COLUMNS, scratch)
        self._x = Operand(call["input"], rows, scratch)
        tiles = Tiles(rows, vocabulary, scratch)
        strip = _strip(call, rows, budget, scratch)
        self._p = scratch.tensor((rows, leading), dtype)
        self._chunks = [slice(t, min(t + rows, tokens)) for t in range(start, tokens, rows)]
        heights = [chunk.stop - chunk.start for chunk in self._chunks]
        self._plans: dict[int, tuple[Statistics, Kernel, Kernel]] = {}
        for height in heights:
            if height not in self._plans:
                logits = Meta((height, vocabulary), (leading, 1), waiting(dtype), device)
                self._plans[height] = (
                    Statistics(
                        height, self._x, w, call["weight"], logits, tiles, scratch, exact=True, strip=strip
                    ),
                    merging(tiles, height, (1, 1, 1, 1), device, others=False),
                    _fill(call, tiles, height, (0, vocabulary), leading, leading),
                )  # fmt: skip
        self._begun = start > 0  # somebody wrote to weight_grad before
        self._input_grad, self._weight_grad = (
            None if call[name] is None else Gradient(call[name], rows_of, additions, scratch, room=SUMS)
            for name, rows_of, additions in (
                ("input_grad", heights, 1),
                ("weight_grad", [vocabulary], len(heights) + self._begun),
            )
        )
        self.workspace = scratch.size

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, gradients: Sequence[torch.Tensor | None],
        of_tokens: Sequence[torch.Tensor], workspace: torch.Tensor,
    ) -> None:  # fmt: skip
        """Compute. `of_tokens` are own targets, scales, maxima, sums, losses and p of the own targets of all tokens."""
        input_grad, weight_grad = gradients
        for here in self._chunks:
            statistics, merge, fill = self._plans[here.stop - here.start]
            own, scale, top, total, loss, own_p = (each[here] for each in of_tokens)
            p = self._p.view(workspace)[: len(own), : len(weight)]
            logits = p.view(waiting(p.dtype))
            views = statistics(self._x(x[here], workspace), weight, logits, own, workspace)
            merge(own, scale, *views, top, total, None, loss, own_p)
            fill(logits, p, None if p.dtype == F32 else views[0], own, scale, top, total, own_p)
            if self._input_grad is not None and input_grad is not None:
                self._input_grad(input_grad[here], p, weight, workspace, first=True, last=True)
            if self._weight_grad is not None and weight_grad is not None:
                first, last = here == self._chunks[0], here == self._chunks[-1]
                self._weight_grad(
                    weight_grad, p.t(), x[here], workspace, first=first, last=last, begun=self._begun
                )  # fmt: skip
