"""Where logits wait for their statistics: in the memory of weight_grad, as far as it goes, then in the workspace.

`Borrowed` tokens have their logits where weight_grad will be: a block of its rows has room for H tokens' logits of that
block. Block after block is then turned into p, outside, and overwritten by its share of weight_grad, which is complete
at once; input_grad is summed over the blocks in float32.

Tokens `InTurn` have their logits in the workspace, a chunk of tokens at a time, and these are turned into p there.
weight_grad is added up over the chunks: in float32 if there is room for such sums, else in its own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...core.memory import Scratch
from ...core.meta import Meta
from ...core.spec import F32, I64, Call
from ...gpu.launch import ALIGNED, Kernel, multiprocessors
from .spec import LinearDims
from .triton_elements import LINE, probabilities
from .triton_plan import LEADING, MIB, TILE, ceil_div, round_up, row_major, steps
from .triton_products import Gradient, Operand
from .triton_statistics import STRIP_COLUMNS, Statistics, Tiles

SUMS = 32 * MIB  # of the workspace, for float32 sums of weight_grad
BORROWED_SUMS = 96 * MIB  # of the workspace, for float32 sums of input_grad
SLACK = 4096  # bytes lost between the pieces of a workspace


def _tile_bytes(vocabulary: int) -> int:
    """Room that a token's statistics take, tile by tile."""
    return (2 * ceil_div(vocabulary, TILE[1]) + 1) * F32.itemsize


def _fill(call: Call, rows: int, span: tuple[int, int], source: int, leading: int) -> Kernel:
    """Logits of rows `source` elements apart to p of rows `leading` apart, of the columns of a span."""
    dtype = call["input"].dtype
    return Kernel(
        probabilities, (rows, ceil_div(span[1] - span[0], LINE)), call.device, [dtype, dtype, I64, F32, F32, F32],
        [span[0], span[1] - span[0], source, 1, leading], {"EXACT": dtype == F32, "BLOCK": LINE},
    )  # fmt: skip


def chunk_rows(call: Call, budget: int) -> int:
    """Tokens of a chunk in turn: as few chunks as the budget allows, of equal size."""
    tokens, features, vocabulary = call.dims
    itemsize = call["input"].itemsize
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
    budget -= tokens * _tile_bytes(vocabulary) + SLACK
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
        tiles = Tiles(tokens, vocabulary, scratch)
        self._statistics, self._fills = [], []
        for start, end in self._spans:
            logits = Meta((tokens, end - start), (end - start, 1), dtype, device)
            rows = Meta((end - start, features), weight.strides, dtype, device)
            self._statistics.append(Statistics(tokens, x, w, rows, logits, tiles, scratch, start))
            self._fills.append(_fill(call, tokens, (start, end), end - start, columns))
        logits = Meta((tokens, vocabulary), (1, 1), dtype, device)
        self._merge = tiles.merging(tokens, logits, (1, 1, 1), device, (vocabulary, columns, features))
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
        """Compute. `of_tokens` are own targets, scales, maxima, sums and predicted logits of all tokens."""
        here = self._tokens
        x, (own, scale, *results) = x[here], [each[here] for each in of_tokens]
        input_grad, weight_grad = gradients
        assert weight_grad is not None  # it lends its memory
        blocks = [
            weight_grad[start:end].view(-1)[: len(x) * (end - start)].view(len(x), end - start)
            for start, end in self._spans
        ]
        for (start, end), statistics, logits in zip(self._spans, self._statistics, blocks, strict=True):
            views = statistics(x, weight[start:end], logits, own, workspace)
        self._merge(own, *views, weight_grad, *results)
        final = self._spans[-1]
        for span, fill, logits in zip(self._spans, self._fills, blocks, strict=True):
            rows = slice(*span)
            p = self._p.view(workspace)[:, : rows.stop - rows.start]
            fill(logits, p, own, scale, *results[:2])
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
        self._p = scratch.tensor((rows, leading), dtype)
        self._chunks = [slice(t, min(t + rows, tokens)) for t in range(start, tokens, rows)]
        heights = [chunk.stop - chunk.start for chunk in self._chunks]
        self._plans: dict[int, tuple[Statistics, Kernel, Kernel]] = {}
        for height in heights:
            if height not in self._plans:
                logits = Meta((height, vocabulary), (leading, 1), dtype, device)
                self._plans[height] = (
                    Statistics(height, self._x, w, call["weight"], logits, tiles, scratch),
                    tiles.merging(height, logits, (1, 1, 1), device),
                    _fill(call, height, (0, vocabulary), leading, leading),
                )
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
        """Compute. `of_tokens` are own targets, scales, maxima, sums and predicted logits of all tokens."""
        input_grad, weight_grad = gradients
        for here in self._chunks:
            statistics, merge, fill = self._plans[here.stop - here.start]
            own, scale, *results = (each[here] for each in of_tokens)
            p = self._p.view(workspace)[: len(own), : len(weight)]
            views = statistics(self._x(x[here], workspace), weight, p, own, workspace)
            merge(own, *views, p, *results)
            fill(p, p, own, scale, *results[:2])
            if self._input_grad is not None and input_grad is not None:
                self._input_grad(input_grad[here], p, weight, workspace, first=True, last=True)
            if self._weight_grad is not None and weight_grad is not None:
                first, last = here == self._chunks[0], here == self._chunks[-1]
                self._weight_grad(
                    weight_grad, p.t(), x[here], workspace, first=first, last=last, begun=self._begun
                )  # fmt: skip
