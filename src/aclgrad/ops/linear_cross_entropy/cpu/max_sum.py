"""Statistics of one shard of the vocabulary, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import Call

from ..empty import Nothing
from .choose import Kept
from .statistics import Statistics, StatisticsOperands


class LinearOnlineMaxSum:
    """Phase two of `linear_online_max_sum`."""

    __slots__ = ("_names", "_statistics")

    def __init__(self, call: Call) -> None:
        logits: Meta | None = call["vocab_parallel_logits"]
        kept = Kept(0) if logits is None else Kept(call.dims.BT, *logits.strides)
        self._statistics = Statistics(call, kept)
        self._names = tuple(
            "kept" if name == "vocab_parallel_logits" else name if name in StatisticsOperands._fields else None
            for name in call.spec.params
        )

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._statistics.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        given = zip(self._names, (*args, *outs), strict=True)
        addresses = {name: value.data_ptr() for name, value in given if name is not None and value is not None}
        self._statistics.run(StatisticsOperands(**addresses), workspace)

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


def linear_online_max_sum(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return LinearOnlineMaxSum(call) if call.dims.BT else Nothing()
