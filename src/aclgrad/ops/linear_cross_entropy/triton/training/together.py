"""The loss of a whole vocabulary with both gradients on GPUs: `loss_and_gradients`.

When the statistics of the logits are complete, these are turned into p = (softmax − one-hot) · scale and used up by two
products of the library. Logits are kept for that (`kept_logits.py`), which saves the fourth product, or made twice,
where that costs less than to go through the weight for every chunk of tokens (`choose.makes_logits_twice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, I64, U8, Call

from ...empty import NoTokens
from ...spec_training import differentiates
from .. import choose
from ..columns import Columns, ColumnVectors
from ..gradient import Gradients
from ..layout import holds_float32
from ..options import LogitOptions
from ..statistics.compute import ExactStatistics
from ..statistics.merge import merging_for_training
from ..tokens import TokenVectors, views
from .kept_logits import InWeightGrad, InWorkspace
from .losses import OUTPUTS, LossAlone, adding, result_strides, sharing


class LossVectors:
    """What is known of every token: what p needs, and what the caller wants to know."""

    def __init__(self, call: Call, options: LogitOptions, scratch: Scratch) -> None:
        self._names = tuple(call.spec.params)
        needed = ["scale", "top", "total", "own_p", *(["delta"] if options.smoothing else [])]
        if call["losses"] is None:
            needed.append("loss")
        dtypes = {"own": I64, **dict.fromkeys(needed, F32)}
        self._pieces = {name: scratch.tensor((call.dims.BT,), dtype) for name, dtype in dtypes.items()}
        self.results = {"top": 1, "total": 1, "loss": 1, **result_strides(call, {"loss": "losses", **OUTPUTS})}
        """The strides of what is wanted of every token, for `merging_for_training`."""
        self._share = sharing(call, self._pieces["own"], self._pieces["scale"])
        self._add = adding(call, self._pieces.get("loss"), self.results["loss"])

    def begin(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[dict[str, Any], TokenVectors]:
        """What is given, by name, and the vectors, of which own targets and scales are there."""
        given = dict(zip(self._names, (*args, *outs), strict=True))
        wanted = {"loss": given["losses"], **{name: given[output] for name, output in OUTPUTS.items()}}
        self._share(args, outs, workspace)
        tokens = {"target": given["target"], **views(self._pieces, workspace)}
        return given, {**tokens, **{name: output for name, output in wanted.items() if output is not None}}

    def end(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor, given: Mapping[str, Any],
        tokens: TokenVectors,
    ) -> None:  # fmt: skip
        """The loss of all tokens, and a copy of what p needs without gaps."""
        self._add(args, outs, workspace)
        if given["logits_max"] is not None:
            given["logits_max"].copy_(tokens["top"])
            given["sum_exp_logits"].copy_(tokens["total"])


class LossAndGradients:
    """Phase two of `loss_and_gradients` where logits are kept."""

    def __init__(self, call: Call) -> None:
        scratch, options = Scratch(), LogitOptions.of(call)
        self._tokens = LossVectors(call, options, scratch)
        self._columns = Columns(call, options, scratch)
        results, budget = self._tokens.results, choose.BUDGET - scratch.size
        self._phases = self._elsewhere = self._plan(call, budget, results, borrows=False)
        if choose.borrows(call, budget):
            self._phases = self._plan(call, budget, results, borrows=True)
        phases = (*self._phases, *self._elsewhere)
        self._shared = scratch.tensor((max(phase.workspace for phase in phases),), U8)  # by one phase at a time
        self.workspace = scratch.size

    @staticmethod
    def _plan(
        call: Call, budget: int, results: Mapping[str, int], *, borrows: bool
    ) -> list[InWeightGrad | InWorkspace]:
        first = choose.tokens_in_weight_grad(call, budget, borrows=borrows)
        phases: list[InWeightGrad | InWorkspace] = [InWeightGrad(call, first, budget, results)] if first else []
        if first < call.dims.BT:
            phases.append(InWorkspace(call, first, budget, results, borrows=borrows))
        return phases

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        given, tokens = self._tokens.begin(args, outs, workspace)
        columns = self._columns(args, outs, workspace)
        borrows = self._phases is not self._elsewhere and holds_float32(given["input_grad"])
        for phase in self._phases if borrows else self._elsewhere:
            phase(given, tokens, columns, self._shared.view(workspace))
        self._tokens.end(args, outs, workspace, given, tokens)

    def describe(self) -> str:
        """In words."""
        return "; ".join(phase.describe() for phase in self._phases)


class FirstLogits:
    """The vectors of tokens where logits are made twice: the losses are found by those that are made first."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        options = LogitOptions.of(call)
        self._tokens = LossVectors(call, options, scratch)
        self._columns = Columns(call, options, scratch)
        start = scratch.end
        self._statistics = ExactStatistics(call, options, scratch)
        tiles = self._statistics.tiles
        self._merge = merging_for_training(call, tiles, call.dims.BT, self._tokens.results, weighs=True)
        scratch.free_from(start)

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[TokenVectors, ColumnVectors]:
        """What p needs to know; see `TokensOfCall`."""
        given, tokens = self._tokens.begin(args, outs, workspace)
        _, known = self._statistics(args, outs, tokens["own"], workspace)
        self._merge({**known, **tokens})
        self._tokens.end(args, outs, workspace, given, tokens)
        of_all = {name: vector for name, vector in tokens.items() if name not in ("target", "correct")}
        return of_all, self._columns(args, outs, workspace)


class Twice(Gradients):
    """Phase two of `loss_and_gradients` where logits are made twice."""

    def __init__(self, call: Call) -> None:
        beside = {"softmax": None, "entropy_grad": None}
        super().__init__(Call(call.spec, {**call.values, **beside}, call.strict, call.soc), FirstLogits)

    def describe(self) -> str:
        """In words."""
        return f"logits for the loss, then {super().describe()}"


def loss_and_gradients(call: Call) -> Launch:
    """Phase one: matrices in float16, bfloat16 and float32."""
    if not call.dims.BT:
        return NoTokens(call)
    if not differentiates(call):
        return LossAlone(call)
    if choose.makes_logits_twice(call):
        twice = Twice(call)
        if twice.workspace <= choose.BUDGET + choose.OF_A_TOKEN * call.dims.BT:
            return twice
    return LossAndGradients(call)
