"""Phase two where there is nothing to multiply, on any device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...core.spec import Call
from .spec_shards import ELSEWHERE, Found


class Zeros:
    """A sum has no terms: every output that has elements is zero."""

    workspace = 0

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Fill the outputs."""
        for out in outs:
            if out is not None:
                out.zero_()

    def describe(self) -> str:
        """In words."""
        return "nothing to sum: zeros"


class Nothing:
    """There are no tokens, and every output is one of tokens."""

    workspace = 0

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Write nothing."""

    def describe(self) -> str:
        """In words."""
        return "nothing to compute: there are no tokens"


class NoTokens:
    """There are no tokens: the loss is a sum of nothing, or the mean of nothing."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        self._loss = math.nan if call["mean"] else 0.0
        divides = call["normalizer"] is not None
        self._normalizer = list(call.spec.params).index("normalizer") if divides else None

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Fill the outputs."""
        loss, *gradients = outs
        if self._normalizer is None:
            loss.fill_(self._loss)
        else:
            loss.zero_().div_(args[self._normalizer])
        Zeros()(args, gradients, workspace)

    def describe(self) -> str:
        """In words."""
        return "nothing to compute: there are no tokens"


class NothingFound:
    """Phase two of `shard_statistics` without rows of the weight."""

    workspace = 0

    def __init__(self, places: Found) -> None:
        self._places = places

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Fill the output."""
        (found,) = outs
        found.zero_()
        found[self._places.top] = -torch.inf
        found[self._places.predicted] = ELSEWHERE

    def describe(self) -> str:
        """In words."""
        return "nothing to compute: the shard has no rows"
