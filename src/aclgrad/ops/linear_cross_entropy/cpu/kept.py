"""A shard of the vocabulary whose logits are made once: kept in the memory of weight_grad until all ranks have met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from aclgrad.core import memory
from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.plan import Remembered
from aclgrad.core.spec import Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import THREAD_GROUP
from aclgrad.cpu.gemm import gemm_for
from aclgrad.cpu.workspace import ThreadWorkspace

from ..spec_shards import shard_statistics
from .choose import GRAIN, SUM_ROWS, Kept, kept_as, training_parts
from .gradient_plan import GradientPlan, places, plan_gradient
from .kept_gradients import WeightGradPlan, kept_input_grad_kernel, kept_weight_grad_kernel
from .losses import wide_of
from .shards import ShardStatistics


class KeptLogits(NamedTuple):
    """What waits between the passes of one call."""

    plan: KeptPlan
    memory: Tensor  # [V, H]: logits, then slopes, then weight_grad
    tops: Tensor  # of every part of the columns and token: the largest logit


class KeptPlan:
    """How a shard of these sizes is computed: `keep`, then `input_grad`, then `weight_grad`."""

    def __init__(self, call: Call) -> None:
        """`call` is one of `shard_statistics`."""
        self.call = call
        tokens, features, vocabulary = call.dims
        gemm, self._dtype, self._wide = gemm_for(call["input"].dtype), call["input"].dtype, wide_of(call)
        wanted = {
            "input_grad": Meta((tokens, features), (features, 1), self._wide, call.device),
            "weight_grad": Meta((vocabulary, features), (features, 1), self._dtype, call.device),
        }
        self._metas = {**wanted, "found": call["found"]}
        every = Kept(tokens, pitch=features)
        self._gradient = plan_gradient(self._of_gradient(wanted["input_grad"]), gemm, every, training_parts(gemm))
        kept = every._replace(block=self._gradient.block_columns)
        self._statistics = ShardStatistics(call, kept)
        self._weight_grad = self._plan_weight_grad()
        wide = self._wide
        self._input_kernel = cpu_threads.compile(
            kept_input_grad_kernel(self._dtype),
            (
                THREAD_GROUP, wide, self._dtype, int, *[wide] * 8, kept_as(self._dtype), self._dtype, wide, wide,
                *map(type, self._gradient),
            ),
        )  # fmt: skip
        self._weight_kernel = cpu_threads.compile(
            kept_weight_grad_kernel(self._dtype),
            (THREAD_GROUP, wide, self._dtype, self._dtype, *map(type, self._weight_grad)),
        )

    def _of_gradient(self, input_grad: Meta) -> Call:
        """The call of a gradient that has no need of the input, as if the softmax were given."""
        tokens, _, vocabulary = self.call.dims
        vector = Meta((tokens,), (1,), self._wide, self.call.device)
        absent = dict.fromkeys(("target_mask", "weight_grad", "bias_grad", "logits_max", "sum_exp_logits"))
        given = {"grad": vector, "masked_target": self.call["row"], "input_grad": input_grad}
        softmax = Meta((tokens, vocabulary), (vocabulary, 1), self._wide, self.call.device)
        matrices = {"input": self.call["input"], "weight": self.call["weight"], "softmax": softmax}
        return Call(self.call.spec, {**absent, **given, **matrices}, strict=False)

    def _plan_weight_grad(self) -> WeightGradPlan:
        tokens, features, vocabulary = self.call.dims
        gemm, columns = gemm_for(self._dtype), self._gradient.block_columns
        rows = min(columns, gemm.rows * max(1, SUM_ROWS // gemm.rows))
        sizes = {
            "x": gemm.packed_b_bytes(features, tokens),
            "p": -(-columns // gemm.rows) * gemm.rows * gemm.units(tokens) * gemm.operand.unit,
            "sums": rows * features * gemm.operand.unit,
        }
        strides = self.call["input"].strides
        return WeightGradPlan(tokens, features, vocabulary, columns, rows, *strides, **places(sizes, "size"))

    def _scratch(self, size: int = 0) -> Tensor:
        """A workspace for any of the passes: each asking for a little more would make it grow by more than that."""
        plan = self._gradient
        space = ThreadWorkspace(plan.shared, plan.each, math.prod(self.call.dims), GRAIN)
        most = max(size, self._statistics.workspace, space.size, self._weight_grad.size)
        scratch = memory.workspace(most, self.call.device)
        assert scratch is not None  # every token has a place there
        return scratch

    def keep(self, args: Sequence[Any]) -> tuple[Tensor, KeptLogits]:
        """What the shard finds of its tokens; its logits are kept."""
        found, kept = memory.empty(self._metas["found"]), memory.empty(self._metas["weight_grad"])
        scratch = self._scratch()
        self._statistics(args, (found,), scratch, kept.data_ptr())
        start = self._statistics.shared
        tops = scratch[start : start + self._statistics.measure.kept_bytes].clone()
        memory.give_back(scratch)
        return found, KeptLogits(self, kept, tops)

    def input_grad(
        self, kept: KeptLogits, weight: Tensor, row: Tensor, vectors: Sequence[Tensor], classes: Tensor | None,
        changes_slopes: bool, bias_grad: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """input_grad of the shard, unrounded; `bias_grad` is filled.

        `vectors` are top, total, alpha, own_slope, beta and delta [BT] without gaps; the last two, and `classes` [V],
        count if the call `changes_slopes`.
        """
        plan = self._numbers(changes_slopes, bias_grad is not None)
        if plan.on and classes is None:
            classes = weight.new_ones(len(weight), dtype=self._wide)
        result = memory.empty(self._metas["input_grad"])
        space = ThreadWorkspace(plan.shared, plan.each, math.prod(self.call.dims), GRAIN)
        scratch = self._scratch(space.size)
        anything, place = scratch.data_ptr(), kept.memory.data_ptr()
        self._input_kernel(
            space.threads(scratch), anything, weight.data_ptr(), row.data_ptr(),
            *(vector.data_ptr() for vector in vectors), anything if classes is None else classes.data_ptr(),
            kept.tops.data_ptr(), place, place, anything if bias_grad is None else bias_grad.data_ptr(),
            result.data_ptr(), *plan,
        )  # fmt: skip
        memory.give_back(scratch)
        return result

    def _numbers(self, changes_slopes: bool, wants_bias_grad: bool) -> GradientPlan:
        """The plan of input_grad for these options."""
        call, plan = self.call, self._gradient
        changed = changes_slopes or call["softcap"] != 0 or call["logit_scale"] != 1
        sums = wants_bias_grad * -(-plan.tokens // (2 * plan.height)) * plan.block_columns
        behind = Scratch()
        behind.reserve(plan.shared)
        bias_sums = behind.reserve(sums * self._wide.itemsize)
        return plan._replace(
            bias_sums=bias_sums, shared=behind.size, wants_bias_grad=int(wants_bias_grad), bias_grad=1,
            on=int(changed), softcap=float(call["softcap"]), logit_scale=float(call["logit_scale"]),
        )  # fmt: skip

    def weight_grad(self, kept: KeptLogits, input: Tensor) -> Tensor:
        """weight_grad of the shard, after `input_grad`."""
        plan = self._weight_grad
        scratch = self._scratch()
        threads = cpu_threads.thread_count(math.prod(self.call.dims), GRAIN)
        self._weight_kernel(threads, scratch.data_ptr(), input.data_ptr(), kept.memory.data_ptr(), *plan)
        memory.give_back(scratch)
        return kept.memory


def can_keep(input: Tensor, weight: Tensor) -> bool:
    """Whether the memory of weight_grad has place for the logits of all tokens."""
    return input.is_cpu and 0 < input.shape[0] <= input.shape[1] and weight.shape[0] > 0


plan_kept = Remembered(KeptPlan, shard_statistics)
"""The plan for arguments of `shard_statistics`."""
