"""Where logits are kept for their statistics: in the memory of weight_grad, as far as it goes, then in the workspace.

They are kept as float16 where the gradients are of a half type, less the largest logit of their tile: what counts in
the softmax is close to that, so that this loses no more than the rounding of p does.

`InWeightGrad`: a block of rows of weight_grad holds H tokens' logits of that block. Block after block is then turned
into p, outside, and overwritten by its share of weight_grad, which is complete at once; input_grad is summed over the
blocks in float32.

`InWorkspace`: a chunk of tokens at a time has its logits in the workspace, and these are turned into p there.
weight_grad is added up over the chunks: in float32 if such sums are within their limit, else in its own dtype. It may
borrow the chunk's rows of input_grad for sums that options want, until p is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32, Call
from aclgrad.core.words import counted
from aclgrad.gpu.operands import Given, NamedKernel
from aclgrad.gpu.products import TILE

from .. import choose
from ..choose import Chunk
from ..choose_rows import Terms, packed_columns, reads_as_it_lies, sums_are_cut
from ..column_sums import ColumnSums
from ..columns import ColumnVectors
from ..layout import LEADING, round_up
from ..options import LogitOptions
from ..probabilities.from_kept_logits import kept_dtype, probabilities_of_span
from ..products import Factor, GradientSums, weight_factor
from ..statistics.compute import Statistics
from ..statistics.merge import merging_for_training
from ..statistics.tiles import Strip, TileStatistics
from ..tokens import TokenVectors, of_rows


def _strip(call: Call, tokens: int, budget: int, scratch: Scratch) -> Strip | None:
    size, columns = choose.strip_bytes(call, budget), packed_columns(call["weight"], call.dims.BT)
    return Strip(tokens, min(call.dims.V, columns), F32, size, scratch) if size else None


class InWeightGrad:
    """The first tokens, whose logits are kept in the memory of weight_grad."""

    def __init__(self, call: Call, tokens: int, budget: int, results: Mapping[str, int]) -> None:
        """`results` are the strides of what is wanted of every token, for `merging_for_training`."""
        features, vocabulary = call.dims[1:]
        dtype, device, weight = call["input"].dtype, call.device, call["weight"]
        scratch = Scratch()
        self._tokens = slice(0, tokens)
        x, w = Factor(call["input"], tokens, scratch), weight_factor(weight, call.dims.BT, scratch)
        columns = choose.block_columns(call, tokens, budget)
        self._spans = [(v, min(v + columns, vocabulary)) for v in range(0, vocabulary, columns)]
        tiles = TileStatistics(tokens, vocabulary, scratch, LogitOptions.of(call), kept=True)
        strip = _strip(call, tokens, budget, scratch)
        self._statistics, self._fills, self._bias_grad = [], [], []
        for start, end in self._spans:
            logits = Meta((tokens, end - start), (end - start, 1), kept_dtype(dtype), device)
            rows = Meta((end - start, features), weight.strides, dtype, device)
            self._statistics.append(
                Statistics(tokens, x, w, rows, logits, tiles, scratch, start, exact=True, strip=strip)
            )  # fmt: skip
            self._fills.append(probabilities_of_span(call, tiles, tokens, (start, end), end - start, columns))
            if call["bias_grad"] is not None:
                self._bias_grad.append(ColumnSums(call, Chunk(0, tokens, start, end), columns, begins=True))
        self._merge = merging_for_training(call, tiles, tokens, results, weighs=True)
        self._p = scratch.tensor((tokens, columns), dtype)
        heights = [end - start for start, end in self._spans]
        self._weight_grad = GradientSums(call["weight_grad"], Terms(heights, 1), scratch)
        self._input_grad = None
        if call["input_grad"] is not None:
            self._input_grad = GradientSums(call["input_grad"], Terms([tokens], len(heights)), scratch)
        self.workspace = scratch.size

    def __call__(self, given: Given, of_all: TokenVectors, columns: ColumnVectors, workspace: torch.Tensor) -> None:
        """Compute; `of_all` are the vectors of all tokens."""
        here = self._tokens
        x, tokens = given["input"][here], of_rows(of_all, here)
        weight, input_grad, weight_grad = given["weight"], given["input_grad"], given["weight_grad"]
        memory = weight_grad.view(kept_dtype(weight_grad.dtype))
        blocks = [
            memory[start:end].view(-1)[: len(x) * (end - start)].view(len(x), end - start) for start, end in self._spans
        ]
        for (start, end), statistics, logits in zip(self._spans, self._statistics, blocks, strict=True):
            tiles = statistics(x, weight[start:end], logits, tokens["own"], columns, workspace)
        self._merge({**columns, **tokens, **tiles})
        final = self._spans[-1]
        for index, (span, fill, logits) in enumerate(zip(self._spans, self._fills, blocks, strict=True)):
            rows = slice(*span)
            p = self._p.view(workspace)[:, : rows.stop - rows.start]
            maxima = None if p.dtype == F32 else tiles["maxima"][:, rows.start // TILE[1] :]
            fill({**columns, **tokens, "source": logits, "p": p, "maxima": maxima})
            if self._bias_grad:
                self._bias_grad[index](given["bias_grad"][rows], p)
            self._weight_grad(weight_grad[rows], p.t(), x, workspace, first=True, last=True)
            if self._input_grad is not None:
                out = input_grad[here]
                self._input_grad(out, p, weight[rows], workspace, first=rows.start == 0, last=span == final)

    def describe(self) -> str:
        """In words."""
        tokens, spans = self._tokens.stop, len(self._spans)
        return f"{counted(tokens, 'token')} with logits kept in weight_grad, p in {counted(spans, 'span')} of columns"


class InWorkspace:
    """The tokens from `start` on, whose logits are kept in the workspace, a chunk of tokens at a time."""

    def __init__(self, call: Call, start: int, budget: int, results: Mapping[str, int], *, borrows: bool) -> None:
        """`results` as above."""
        tokens, _, vocabulary = call.dims
        dtype, device = call["input"].dtype, call.device
        scratch = Scratch()
        rows, leading = choose.chunk_rows(call, budget, borrows=borrows), round_up(vocabulary, LEADING)
        w = self._w = weight_factor(call["weight"], tokens, scratch)
        self._x = Factor(call["input"], rows, scratch)
        step = w.rows if w.packs else vocabulary
        self._spans = [slice(v, min(v + step, vocabulary)) for v in range(0, vocabulary, step)]
        self._borrows = borrows
        tiles = TileStatistics(rows, vocabulary, scratch, LogitOptions.of(call), kept=True, borrows=borrows)
        strip = _strip(call, rows, budget, scratch)
        self._p = scratch.tensor((rows, leading), dtype)
        self._chunks = [slice(t, min(t + rows, tokens)) for t in range(start, tokens, rows)]
        heights = [chunk.stop - chunk.start for chunk in self._chunks]
        self._plans: dict[int, tuple[Statistics, NamedKernel, NamedKernel]] = {}
        for height in heights:
            if height not in self._plans:
                logits = Meta((height, vocabulary), (leading, 1), kept_dtype(dtype), device)
                self._plans[height] = (
                    Statistics(
                        height, self._x, w, call["weight"], logits, tiles, scratch, exact=True, strip=strip
                    ),
                    merging_for_training(call, tiles, height, results, weighs=True),
                    probabilities_of_span(call, tiles, height, (0, vocabulary), leading, leading),
                )  # fmt: skip
        self._begun = start > 0  # somebody wrote to weight_grad and bias_grad before
        self._bias_grad = []
        if call["bias_grad"] is not None:
            self._bias_grad = [
                ColumnSums(call, Chunk(0, height, 0, vocabulary), leading, begins=not (index or self._begun))
                for index, height in enumerate(heights)
            ]
        needing_p = ("input_grad", "weight_grad", "bias_grad", "correct")
        self._fills = any(call[name] is not None for name in needing_p)
        lies = reads_as_it_lies(call["weight"], tokens)
        cuts = sums_are_cut(dtype, vocabulary)
        self._input_grad, self._weight_grad = (
            GradientSums(call[name], terms, scratch) if call[name] is not None else None
            for name, terms in (
                ("input_grad", Terms(heights, len(self._spans), cuts=cuts, as_it_lies=lies)),
                ("weight_grad", Terms([vocabulary], len(heights) + self._begun, choose.WEIGHT_GRAD_SUMS, False, lies)),
            )
        )
        self.workspace = scratch.size

    def __call__(self, given: Given, of_all: TokenVectors, columns: ColumnVectors, workspace: torch.Tensor) -> None:
        """Compute; `of_all` are the vectors of all tokens."""
        x, weight, input_grad, weight_grad = (given[name] for name in ("input", "weight", "input_grad", "weight_grad"))
        for index, here in enumerate(self._chunks):
            statistics, merge, fill = self._plans[here.stop - here.start]
            tokens = of_rows(of_all, here)
            p = self._p.view(workspace)[: here.stop - here.start, : len(weight)]
            logits = p.view(kept_dtype(p.dtype))
            lent = input_grad[here] if self._borrows else None
            packed = self._x(x[here], workspace)
            tiles = statistics(packed, weight, logits, tokens["own"], columns, workspace, lent)
            merge({**columns, **tokens, **tiles})
            if not self._fills:
                continue
            maxima = None if p.dtype == F32 else tiles["maxima"]
            fill({**columns, **tokens, "source": logits, "p": p, "maxima": maxima})
            if self._bias_grad:
                self._bias_grad[index](given["bias_grad"], p)
            if self._input_grad is not None:
                for span in self._spans:
                    w = self._w.wide(self._w(weight[span], workspace))
                    begins, ends = span == self._spans[0], span == self._spans[-1]
                    self._input_grad(input_grad[here], p[:, span], w, workspace, first=begins, last=ends)
            if self._weight_grad is not None:
                first, last = here == self._chunks[0], here == self._chunks[-1]
                self._weight_grad(
                    weight_grad, p.t(), self._x.wide(packed), workspace, first=first, last=last, begun=self._begun
                )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        chunks = len(self._chunks)
        tokens = self._chunks[-1].stop - self._chunks[0].start
        return f"{counted(tokens, 'token')} with logits kept in the workspace, in {counted(chunks, 'chunk')} of tokens"
