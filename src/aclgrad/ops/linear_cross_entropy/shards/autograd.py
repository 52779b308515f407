"""The head over shards of the vocabulary as one differentiable function.

Forward, every shard looks at its own rows; what they found of the tokens comes together in one collective, and is
united by the same formulas everywhere. Backward, every shard has its part of the input's gradient, which is summed over
the ranks while it computes the gradient of its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....core.autograd import final
from ....core.collectives import Collective, Pending
from ....core.dispatch import is_watched
from ....core.errors import InvalidArgument
from ..spec_shards import Found
from ..spec_training import counts
from .formulas import Options, Results, United, results_of, slopes_of, unite
from .tokens import TokenSplit
from .work import Gradients, Shard, Wants, Way, chunk_tokens, way_for

ONCE = "the gradient of a head over shards of a vocabulary cannot be differentiated again; that of a whole one can"


class Problem(NamedTuple):
    """One call, but for its differentiable tensors. It has no properties, since torch 2.10 does not compile them."""

    collective: Collective
    ranges: tuple[tuple[int, int], ...]  # of all ranks: the first row of the vocabulary, and one past the last
    target: Tensor  # [BT] of all tokens, in the order of the rows
    class_weight: Tensor | None  # [V] of the whole vocabulary
    ignore_index: int
    options: Options
    finds: bool  # log-probabilities, entropies, …
    split: TokenSplit | None  # of the tokens over the ranks, if they are
    sums_input_grad: bool
    records: bool  # whether there will be a backward pass
    biased: bool

    def smooths(self) -> bool:
        """Whether every class counts."""
        return self.options.label_smoothing > 0

    def places(self) -> Found:
        """What shards find."""
        return Found.asked(self.smooths(), self.finds)

    def own_class(self) -> Tensor | None:
        """The class weight of each target."""
        if self.class_weight is None:
            return None
        return self.class_weight[self.target.long().clamp(0, len(self.class_weight) - 1)].double()

    def class_sums(self) -> Tensor:
        """Σ class weight of every shard's rows, [W]."""
        if self.class_weight is None:
            sizes, device = tuple(stop - start for start, stop in self.ranges), self.target.device
            return torch.tensor(sizes, dtype=torch.float64, device=device) if is_watched() else _sizes(sizes, device)
        return torch.stack([self.class_weight[start:stop].sum(dtype=torch.float64) for start, stop in self.ranges])

    def shards(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Shard]:
        """Those of this process."""
        found = []
        for k, rank in enumerate(self.collective.ranks):
            start, stop = self.ranges[rank]
            classes = self.class_weight[start:stop] if self.class_weight is not None and self.smooths() else None
            found.append(Shard(weights[k], biases[k] if self.biased else None, classes, self.target - start))
        return found

    def tokens(self, inputs: Sequence[Tensor]) -> Tensor:
        """All rows of the input, [BT, H]."""
        if self.split is None:
            return inputs[0]
        parts = [self.split.filled(part) for part in inputs]
        return self.collective.gather("the input's rows", parts).flatten(0, -2)


@cache
def _sizes(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Numbers of rows on a device, copied there once: a copy would wait for it."""
    return torch.tensor(sizes, dtype=torch.float64, device=device)


def over_shards(
    problem: Problem, inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor] = ()
) -> Results:
    """Losses of all tokens and what else was asked for, [BT] each in the dtype of sums, in the order of the rows.

    `inputs` is one [BT, H] that all shards have, or where tokens are split the part of each shard of this process.
    """
    if len(weights) != len(problem.collective.ranks):
        raise ValueError(f"{len(weights)} weights for {len(problem.collective.ranks)} shards")
    leaves = (*inputs, *weights, *biases)
    return Results(*_OverShards.apply(problem, len(inputs), *leaves))  # type: ignore[no-untyped-call]


class _OverShards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: Problem, count: int, *leaves: Tensor) -> tuple[Tensor | None, ...]:
        shards = len(problem.collective.ranks)
        inputs, weights, biases = leaves[:count], leaves[count : count + shards], leaves[count + shards :]
        x = problem.tokens(inputs)
        wanted = [problem.records and weight.requires_grad for weight in weights]
        ways = [way_for(x, weight, want) for weight, want in zip(weights, wanted, strict=True)]
        asked = {"smooths": problem.smooths(), "finds": problem.finds}
        found = [
            way.statistics(x, shard, problem.options, **asked)
            for way, shard in zip(ways, problem.shards(weights, biases), strict=True)
        ]
        gathered = _gathered(problem, found)
        class_sums = problem.class_sums() if problem.smooths() else None
        of = unite(gathered, problem.places(), class_sums)
        _require_targets(problem, of)
        total = 0.0 if class_sums is None else class_sums.sum()
        counted = counts(problem.target, problem.ignore_index)
        results = results_of(of, counted, problem.own_class(), total, problem.options)
        if problem.records:
            ctx.problem, ctx.count, ctx.ways = problem, count, ways
            ctx.united = [name for name, value in of._asdict().items() if value is not None]
            ctx.save_for_backward(*leaves, *(getattr(of, name) for name in ctx.united))
        ctx.set_materialize_grads(False)
        if results.correct is not None:
            ctx.mark_non_differentiable(results.correct)
        wide = found[0].dtype
        return tuple(value.to(wide) if value is not None and value.is_floating_point() else value for value in results)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        problem, count, shards = ctx.problem, ctx.count, len(ctx.problem.collective.ranks)
        saved = ctx.saved_tensors  # a checkpoint has them computed again, and gives each once
        leaves, united = saved[: -len(ctx.united)], saved[-len(ctx.united) :]
        if all(g is None for g in upstream[:4]):
            return (None,) * (2 + len(leaves))
        of = United(**{**dict.fromkeys(United._fields), **dict(zip(ctx.united, united, strict=True))})
        inputs, weights, biases = leaves[:count], leaves[count : count + shards], leaves[count + shards :]
        needs = ctx.needs_input_grad[2:]
        wants = [
            Wants(any(needs[:count]), needs[count + k], problem.biased and needs[count + shards + k])
            for k in range(shards)
        ]
        ways, ctx.ways = ctx.ways, [way_for(inputs[0], weight, wants_weight_grad=False) for weight in weights]
        with torch.no_grad():
            found = _backward(problem, of, upstream[:4], inputs, problem.shards(weights, biases), ways, wants)
        given = [gradient if need else None for gradient, need in zip(found, needs, strict=True)]
        return None, None, *final(ONCE, given, *leaves, *(g for g in upstream[:4] if g is not None))


def _backward(
    problem: Problem, of: United, upstream: Sequence[Tensor | None], inputs: Sequence[Tensor], shards: Sequence[Shard],
    ways: Sequence[Way], wants: Sequence[Wants],
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of inputs, weights and biases."""
    x = problem.tokens(inputs)
    wide = torch.promote_types(x.dtype, torch.float32)
    total = problem.class_sums().sum() if problem.smooths() else 0.0
    counted = counts(problem.target, problem.ignore_index)
    exact = slopes_of(of, upstream, counted, problem.own_class(), total, problem.options)
    slopes = exact._replace(**{name: value.to(wide) for name, value in exact._asdict().items() if value is not None})
    statistics = [of.top.to(wide), of.total.to(wide)]
    rows = max(1, chunk_tokens(x, max(stop - start for start, stop in problem.ranges)))
    begun = [
        way.gradients(x, shard, problem.options, statistics, slopes, want, rows)
        for way, shard, want in zip(ways, shards, wants, strict=True)
    ]
    chunks = range(-(-len(x) // rows)) or range(1)
    input_grads = _input_grads(problem, begun, chunks, x, wants[0].input)
    found = [gradients.found() for gradients in begun]
    biases = [bias_grad for _, bias_grad in found] if problem.biased else []
    return [*input_grads, *(weight_grad for weight_grad, _ in found), *biases]


def _input_grads(
    problem: Problem, begun: Sequence[Gradients], chunks: Sequence[int], x: Tensor, wanted: bool
) -> list[Tensor | None]:
    """Gradients of the inputs: the ranks' parts are summed while each computes the gradient of its weight.

    Rows that every rank shall have are summed chunk by chunk, those that are split again all at once.
    """
    split, collective = problem.split, problem.collective
    ready: list[list[Any]] = [[] for _ in begun]
    pending: list[Pending] = []
    summed: list[list[Tensor]] = []
    for chunk in chunks:
        for parts, gradients in zip(ready, begun, strict=True):
            parts.append(gradients.input_grad(chunk))
        if wanted and (split is None or chunk == chunks[-1]):
            whole = [_joined(parts) for parts in ready]
            ready = [[] for _ in begun]
            what = f"the gradient of {len(whole[0])} rows of the input"
            if split is not None:
                pending.append(collective.start_scatter(what, whole))
            elif problem.sums_input_grad:
                pending.append(collective.start_sum(what, whole))
            else:
                pending.append(partial(list, whole))
            del whole
        for gradients in begun:
            gradients.weight_grad(chunk)
        while len(pending) > (chunk != chunks[-1]):  # one is under way while the next chunk is computed
            summed.append([part.to(x.dtype) for part in pending.pop(0)()])
    if not wanted:
        return [None] * (1 if split is None else len(begun))
    rows = [_joined(parts) for parts in zip(*summed, strict=True)]
    if split is None:
        return [rows[0]]
    return [split.part(rank, part) for rank, part in zip(collective.ranks, rows, strict=True)]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def _gathered(problem: Problem, found: Sequence[Tensor]) -> Tensor:
    """What all shards found [W, K, BT], or on a GPU nothing a target could be in if they looked at other targets.

    Each sends a number that tells its targets from others along: ranks that were given different batches are the
    mistake that is easily made and never seen.
    """
    target, (rows, tokens) = problem.target.long(), found[0].shape
    places = torch.arange(1, tokens + 1, device=target.device)
    mark = (((target + 7) * places).sum() & _MARK).to(found[0].dtype).view(1)
    parts = [torch.cat([each.view(-1), mark]) for each in found]
    joined = problem.collective.gather(f"statistics of {tokens} tokens", parts)
    gathered, marks = joined[:, :-1].view(len(joined), rows, tokens), joined[:, -1]
    if not (target.is_cpu and not is_watched()):
        return torch.where((marks == marks[0]).all(), gathered, torch.nan)
    differing = (marks != marks.mode().values).nonzero().flatten().tolist()
    if differing:
        ranks = ", ".join(map(str, differing))
        raise InvalidArgument(
            f"target differs on rank {ranks} from that of other ranks, expected all the same", "target"
        )
    return gathered


_MARK = (1 << 23) - 1
"""Integers up to here are exact in float32."""


def _require_targets(problem: Problem, of: United) -> None:
    """On a CPU: raise unless every target that counts is in one shard. Elsewhere its loss is NaN."""
    if not problem.target.is_cpu or is_watched():
        return
    wrong = (counts(problem.target, problem.ignore_index) & ~of.here()).nonzero()
    if wrong.numel():
        token, rows = int(wrong[0]), problem.options.classes
        expected = f"0 to {rows - 1} or ignore_index = {problem.ignore_index}"
        raise InvalidArgument(f"target[{token}] is {int(problem.target[token])}, expected {expected}", "target")
