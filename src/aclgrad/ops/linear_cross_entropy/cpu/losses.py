"""Losses of tokens on CPUs: the statistics of their logits, and what follows from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta, Value
from aclgrad.core.spec import U8, Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.gemm import gemm_for
from aclgrad.cpu.steps import WORKSPACE, Place, Step

from .. import spec_forward
from ..spec_training import OF_TOKENS, STATISTICS
from .choose import Kept
from .options import ClassVectors, RowOptions
from .statistics import Statistics, StatisticsOperands
from .tokens import FoundStrides, TokenNumbers, find_tokens

Given = Mapping[str, Any]
"""A call's tensors, or their metadata, by name."""

Found: TypeAlias = "tuple[dict[str, Place], tuple[Place, Place]]"
"""Places: of vectors of tokens by name, and of bias and class weights."""

MEASURED = (*STATISTICS, "predicted_logits")
ASIDE = ("product_sum", "weighed", "won")
"""Sums for the entropy and for label smoothing, and whether the own target wins."""


def wide_of(call: Call) -> torch.dtype:
    """The dtype of sums."""
    return gemm_for(call["input"].dtype).sums


class Vectors:
    """Numbers of every token [BT], by name: in an argument or output where the call has it, else in the workspace."""

    def __init__(self, call: Call, names: Sequence[str], scratch: Scratch) -> None:
        tokens, wide = (call.dims.BT,), wide_of(call)
        dtypes = {name: U8 if name in ("won", "correct") else wide for name in names}
        self._pieces = {name: scratch.tensor(tokens, dtypes[name]) for name in names if call[name] is None}
        self.metas = {
            name: Meta(tokens, (1,), dtypes[name], call.device) if name in self._pieces else call[name]
            for name in names
        }  # fmt: skip

    def places(self, given: Mapping[str, Place]) -> dict[str, Place]:
        """Where they lie, by what is known of the call's tensors."""
        pieces = self._pieces
        return {
            name: WORKSPACE.at(pieces[name].offset) if name in pieces else given[name] for name in self.metas
        }  # fmt: skip

    def stride(self, name: str) -> int:
        """Elements from a token's number to the next."""
        return self.metas[name].strides[0]


class Losses:
    """Statistics of every token, its loss, and what was asked for beside it."""

    def __init__(self, call: Call, loss: str, scratch: Scratch, kept: Kept) -> None:
        """`loss` is the name of the output for losses of tokens."""
        wide, target = wide_of(call), call["target"]
        self._loss = loss
        self.vectors = Vectors(call, (*MEASURED, *ASIDE, loss, *OF_TOKENS, "correct"), scratch)
        self.classes = ClassVectors(call, wide, scratch, RowOptions.of(call))
        whole: dict[str, Value] = {"vocab_start_index": 0, "vocab_end_index": call.dims.V}
        values = {**whole, **self.vectors.metas, **{name: call[name] for name in ("input", "weight", "target")}}
        measured = Call(spec_forward.linear_online_max_sum.spec, values, strict=False)
        self.measure = Statistics(measured, kept, RowOptions.of(call))
        strides = (self.vectors.stride(name) for name in (*MEASURED, loss, *OF_TOKENS, "correct"))
        numbers = (*TokenNumbers.of(call), *FoundStrides(target.strides[0], *strides))
        signature = (int, *[wide] * 6, U8, *[wide] * 5, U8, *map(type, numbers))
        self._find = cpu_threads.compile(find_tokens, signature).fixed(*numbers)

    def steps(self, given: Mapping[str, Place], behind: Place, kept: Place) -> tuple[Found, list[Step]]:
        """The places of (the vectors, bias and class weights) and what finds them, in the memory of `behind`."""
        found, (bias, classes) = self.vectors.places(given), self.classes.places()
        matrices = {name: given[name] for name in ("input", "weight", "target")}
        statistics = {name: found[name] for name in (*MEASURED, *ASIDE)}
        operands = StatisticsOperands(**matrices, **statistics, bias=bias, classes=classes, kept=kept)
        results = (found[name] for name in (self._loss, *OF_TOKENS, "correct"))
        find = Step(self._find, [matrices["target"], *statistics.values(), classes, *results])
        return (found, (bias, classes)), [self.measure.step(operands, behind), find]
