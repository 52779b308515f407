"""What one shard computes, forward and backward: by the operators, or where a device has a better way by that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ....core.dispatch import is_plain
from ..spec import LinearDims
from .formulas import Options, Slopes


class Shard(NamedTuple):
    """Some rows of the vocabulary."""

    weight: Tensor  # [V, H]
    bias: Tensor | None  # [V]
    classes: Tensor | None  # their weights [V], where all classes count
    row: Tensor  # [BT]: the own target's, if it is here

    def of_logits(self, options: Options) -> tuple[Any, ...]:
        """As the operators take what makes logits."""
        return self.bias, self.classes, options.softcap, options.logit_scale


class Wants(NamedTuple):
    """Which gradients are wanted."""

    input: bool
    weight: bool
    bias: bool


class Gradients(Protocol):
    """The backward pass of a shard, chunk after chunk of the tokens: first `input_grad`, then `weight_grad` of each."""

    def input_grad(self, chunk: int) -> Tensor | None:
        """The shard's part of the gradient of these tokens, unrounded."""

    def weight_grad(self, chunk: int) -> None:
        """Add what these tokens count."""

    def found(self) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of weight and bias, after the last chunk."""


class Way(Protocol):
    """How a shard is computed."""

    def statistics(self, x: Tensor, shard: Shard, options: Options, *, smooths: bool, finds: bool) -> Tensor:
        """What the shard finds of the tokens, [K, BT]."""

    def gradients(
        self,
        x: Tensor,
        shard: Shard,
        options: Options,
        statistics: Sequence[Tensor],
        slopes: Slopes,
        wants: Wants,
        rows: int,
    ) -> Gradients:
        """Begin the backward pass; `statistics` are top and total of the whole vocabulary, `rows` those of a chunk."""


class _All:
    """All gradients at once."""

    def __init__(self, rows: int, found: Sequence[Tensor | None]) -> None:
        self._rows = rows
        self._input_grad, *self._others = found

    def input_grad(self, chunk: int) -> Tensor | None:
        if self._input_grad is None:
            return None
        return self._input_grad[chunk * self._rows : (chunk + 1) * self._rows]

    def weight_grad(self, chunk: int) -> None:
        """It is there."""

    def found(self) -> tuple[Tensor | None, Tensor | None]:
        weight_grad, bias_grad = self._others
        return weight_grad, bias_grad


class ByOperators:
    """On any device, also where it is traced."""

    def statistics(self, x: Tensor, shard: Shard, options: Options, *, smooths: bool, finds: bool) -> Tensor:
        """See `Way`."""
        logits = shard.of_logits(options)
        found: Tensor = torch.ops.aclgrad.shard_statistics(x, shard.weight, shard.row, *logits, smooths, finds)
        return found

    def gradients(
        self,
        x: Tensor,
        shard: Shard,
        options: Options,
        statistics: Sequence[Tensor],
        slopes: Slopes,
        wants: Wants,
        rows: int,
    ) -> Gradients:
        """See `Way`."""
        logits = shard.of_logits(options)
        results = torch.ops.aclgrad.shard_gradients(x, shard.weight, shard.row, *statistics, *slopes, *logits, *wants)
        return _All(rows, [found if want else None for found, want in zip(results, wants, strict=True)])


class KeepingLogits:
    """On a CPU: the logits wait in the memory of weight_grad, and what is summed over the ranks is ready first."""

    def __init__(self) -> None:
        self._kept: Any = None

    def statistics(self, x: Tensor, shard: Shard, options: Options, *, smooths: bool, finds: bool) -> Tensor:
        """See `Way`."""
        from ..cpu.kept import plan_kept

        args = (x, shard.weight, shard.row, *shard.of_logits(options), smooths, finds)
        found, self._kept = plan_kept(args).keep(args)
        return found

    def gradients(
        self,
        x: Tensor,
        shard: Shard,
        options: Options,
        statistics: Sequence[Tensor],
        slopes: Slopes,
        wants: Wants,
        rows: int,
    ) -> Gradients:
        """See `Way`."""
        kept, self._kept = self._kept, None
        if kept is None or not wants.weight:  # used up by an earlier pass over a graph that was kept
            return ByOperators().gradients(x, shard, options, statistics, slopes, wants, rows)
        return _FromKept(kept, x, shard, statistics, slopes, wants)


class _FromKept:
    def __init__(
        self, kept: Any, x: Tensor, shard: Shard, statistics: Sequence[Tensor], slopes: Slopes, wants: Wants
    ) -> None:
        self._kept, self._x, self._shard, self._wants = kept, x, shard, wants
        self._classes = None if shard.classes is None else shard.classes.contiguous()
        alpha, own_slope, beta, delta = slopes
        self._changes = beta is not None or delta is not None
        zeros = torch.zeros_like(alpha)
        vectors = (*statistics, alpha, own_slope, zeros if beta is None else beta, zeros if delta is None else delta)
        self._vectors = [vector.contiguous() for vector in vectors]
        self._bias_grad = alpha.new_empty(shard.weight.shape[0]) if wants.bias else None
        self._weight_grad: Tensor | None = None

    def input_grad(self, chunk: int) -> Tensor | None:  # noqa: ARG002
        shard = self._shard
        return self._kept.plan.input_grad(  # type: ignore[no-any-return]
            self._kept, shard.weight, shard.row, self._vectors, self._classes, self._changes, self._bias_grad
        )

    def weight_grad(self, chunk: int) -> None:  # noqa: ARG002
        self._weight_grad = self._kept.plan.weight_grad(self._kept, self._x)

    def found(self) -> tuple[Tensor | None, Tensor | None]:
        return self._weight_grad, self._bias_grad


class InChunks(ByOperators):
    """On a GPU: what is summed over the ranks is ready chunk by chunk, before the weight's gradient of the chunk."""

    def gradients(
        self,
        x: Tensor,
        shard: Shard,
        options: Options,
        statistics: Sequence[Tensor],
        slopes: Slopes,
        wants: Wants,
        rows: int,
    ) -> Gradients:
        """See `Way`."""
        from ..triton.shard_chunks import can_chunk

        if not can_chunk(x, shard.weight):
            return super().gradients(x, shard, options, statistics, slopes, wants, rows)
        args = (x, shard.weight, shard.row, *statistics, *slopes, *shard.of_logits(options), *wants)
        return _OfChunks(args, wants, rows)


class _OfChunks:
    def __init__(self, args: Sequence[Any], wants: Wants, rows: int) -> None:
        from ..triton.shard_chunks import plan_chunks

        self._plan, self._wants = plan_chunks(args, rows), wants
        self._begun = self._plan.begin(args)

    def input_grad(self, chunk: int) -> Tensor | None:
        return self._plan.input_grad(self._begun, chunk, wanted=self._wants.input)

    def weight_grad(self, chunk: int) -> None:
        self._plan.weight_grad(self._begun, chunk)

    def found(self) -> tuple[Tensor | None, Tensor | None]:
        return self._begun.weight_grad, self._begun.bias_grad


def way_for(x: Tensor, weight: Tensor, wants_weight_grad: bool) -> Way:
    """The best way for a shard, whose backward pass is wanted or not."""
    if not is_plain(x, weight):
        return ByOperators()
    if x.is_cuda:
        return InChunks()
    if wants_weight_grad:
        from ..cpu.kept import can_keep

        if can_keep(x, weight):
            return KeepingLogits()
    return ByOperators()


def chunk_tokens(x: Tensor, most_rows: int) -> int:
    """Tokens of a chunk, the same on all ranks, of which none has more than `most_rows` of the vocabulary.

    On a CPU all: what a rank computes meanwhile keeps the cores from the sum over the ranks.
    """
    if not (x.is_cuda and is_plain(x)) or 0 in (*x.shape, most_rows):
        return len(x)
    from ..triton.choose_training import chunk_tokens as of_budget

    return of_budget(LinearDims(len(x), x.shape[1], most_rows), x.dtype, x.device)
