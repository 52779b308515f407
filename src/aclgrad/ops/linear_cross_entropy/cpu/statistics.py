"""CPU kernel of the statistics: the logits are never held, unless somebody wants them.

A thread packs a part of the vocabulary's columns and walks down the tokens, a strip at a time: while the strip's logits
are in cache they leave of every token the part's largest logit and Σ exp(logit − largest). In the end each token's
parts are merged, in one order whatever the number of threads.

The document's operator rounds logits first. Training does not, and it sums the own target's exponential last: what the
others add up to is p(target) − 1 of a confident token, which a difference would lose.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch

from aclgrad.core.spec import U8, Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import THREAD_GROUP, inlined, jit
from aclgrad.cpu.gemm import gemm_for
from aclgrad.cpu.lanes import address_of, apart, pointer_at
from aclgrad.cpu.procedures import named
from aclgrad.cpu.reductions import LANES, largest
from aclgrad.cpu.steps import Place, Step
from aclgrad.cpu.threads import barrier, share
from aclgrad.cpu.vecmath import exp
from aclgrad.cpu.workspace import ThreadWorkspace

from .choose import GRAIN, TASKS, Kept, kept_as
from .options import RowOptions, bend
from .statistics_merge import is_largest, merge, merge_products, merge_sum, shift_of
from .statistics_plan import StatisticsPlan, plan_statistics
from .statistics_rows import (
    NOTHING,
    ZERO,
    largest_rounded,
    product,
    sum_of_exponentials,
    sum_of_products,
    weighed_sum,
    wins,
)  # fmt: skip
from .targets import put_target, target_at


@jit
def _copy(out: Any, step: int, source: Any, count: int, shift: Any) -> None:
    if step == 1:
        for k in range(count):
            out[k] = source[k] - shift
    else:
        for k in range(count):
            out[k * step] = source[k] - shift


@jit
def _keep(
    plan: StatisticsPlan, logits: Any, like: Any, token: int, column: int, values: Any, count: int, shift: Any
) -> None:
    """Copy a row's logits, from a column on, to where they are wanted: in a matrix, of elements as `like` has them."""
    if plan.kept_block == 0:
        at = pointer_at(address_of(logits), like) + (token * plan.kept_row + column * plan.kept_column)
        _copy(at, plan.kept_column, values, count, ZERO)
    else:
        block = column // plan.kept_block * plan.kept_block
        width = min(plan.kept_block, plan.vocabulary - block)
        _copy(logits + (block * plan.kept_pitch + token * width + column - block), 1, values, count, shift)


@jit
def _own_row(plan: StatisticsPlan, target: int, token: int) -> int:
    """The row of `weight` that is the token's target, -1 if the shard's range does not have it."""
    wanted = target_at(target, plan.wide_target, token * plan.target)
    return wanted - plan.start if plan.start <= wanted < plan.stop else -1


@jit
def _pad(plan: StatisticsPlan, logits: Any, n: int) -> None:
    """Fill up the lines of a strip of `n` columns, which products leave as they are."""
    for i in range(2 * plan.height):
        for j in range(n, (n + LANES - 1) // LANES * LANES):
            logits[i * plan.stride + j] = NOTHING


@inlined
def _reduce(
    plan: StatisticsPlan, values: Any, top: Any, token: int, v: int, n: int, lanes: Any, tops: Any, totals: Any,
    chosen: Any, target: int, kept: Any, like: Any, products: Any, weighed: Any, won: Any, classes: Any,
) -> None:  # fmt: skip
    """Statistics of a token's logits in the columns [v, v + n), the largest of which is `top`."""
    padded = (n + LANES - 1) // LANES * LANES
    shift = shift_of(top)
    at = v // plan.part * plan.tokens + token
    own = _own_row(plan, target, token) - v
    if plan.smooths:
        weighed[at] = weighed_sum(lanes, values, classes + v, n, shift)
    if 0 <= own < n:
        chosen[token] = values[own]
        if plan.finds:
            won[token] = 1 if wins(values, own, n) else 0
        if plan.exact:
            values[own] = NOTHING
    if plan.finds:
        products[at] = sum_of_products(lanes, values, padded, shift)
    tops[at], totals[at] = top, sum_of_exponentials(lanes, values, padded, shift)
    if token < plan.kept:
        _keep(plan, kept, like, token, v, values, n, shift)


@cache
def _statistics_strip(dtype: torch.dtype) -> Any:
    """`strip(...)`: statistics of the tokens [row, row + m) and the columns [v, v + n)."""
    gemm = gemm_for(dtype)
    multiply, width, depth, unit = gemm.multiply, gemm.width, gemm.operand.depth, gemm.operand.unit
    is_half = dtype.itemsize < unit

    @jit
    def strip(
        plan: StatisticsPlan, base: int, row: int, m: int, v: int, n: int, w: int, logits: Any, like: Any,
        lanes: Any, tops: Any, totals: Any, chosen: Any, target: int, kept: Any, products: Any, weighed: Any, won: Any,
        bias: Any, classes: Any,
    ) -> None:  # fmt: skip
        x = base + plan.x + row * ((plan.features + depth - 1) // depth * unit)
        down, across = (m + plan.height - 1) // plan.height, (n + width - 1) // width
        multiply(address_of(logits), plan.stride, x, w, m, n, plan.features, plan.height, 0, down, 0, across, 0)
        padded = (n + LANES - 1) // LANES * LANES
        for i in range(m):
            line = logits + i * plan.stride
            if plan.on:
                bend(line, bias + v, n, plan.softcap, plan.logit_scale)
            rounds = is_half and not plan.exact
            top = largest_rounded(lanes, line, padded, like) if rounds else largest(line, padded)
            _reduce(
                plan, line, top, row + i, v, n, lanes, tops, totals, chosen, target, kept, like,
                products, weighed, won, classes,
            )  # fmt: skip

    return strip


@cache
def _statistics_kernel(dtype: torch.dtype) -> Any:
    """The kernel for matrices of one dtype; what a call does not have, or want, is any memory."""
    gemm, strip = gemm_for(dtype), _statistics_strip(dtype)
    pack, width, unit = gemm.pack, gemm.width, gemm.operand.unit

    def linear_online_max_sum(
        thread: int, threads: int, group: Any, sums: Any, input: Any, weight: Any, target: int, logits_max: Any,
        sum_exp_logits: Any, predicted_logits: Any, sum_exp_others: Any, target_mask: Any, masked_target: int,
        kept: Any, bias: Any, classes: Any, product_sum: Any, weighed: Any, won: Any, *numbers: Any,
    ) -> None:  # fmt: skip
        plan = StatisticsPlan(*numbers)
        base, features = address_of(sums), plan.features
        first, last = share((plan.tokens + plan.height - 1) // plan.height, 1, thread, threads)
        pack(
            base + plan.x, address_of(input), plan.tokens, plan.x_row, features, plan.x_column,
            plan.height, first, last, 0, features,
        )  # fmt: skip
        mine = plan.shared + thread * plan.each
        tops, totals, chosen = sums + plan.tops // unit, sums + plan.totals // unit, sums + plan.chosen // unit
        products, weighed_parts = sums + plan.products // unit, sums + plan.weighed_parts // unit
        class_sums = sums + plan.class_sums // unit
        w, lanes = base + mine + plan.w, apart(sums + (mine + plan.lanes) // unit, 0)
        logits = apart(sums + (mine + plan.strip) // unit, 1)
        parts = (plan.vocabulary + plan.part - 1) // plan.part
        if plan.smooths:
            first, last = share(parts, 1, thread, threads)
            for part in range(first, last):
                class_sums[part] = ZERO
                for v in range(part * plan.part, min((part + 1) * plan.part, plan.vocabulary)):
                    class_sums[part] += classes[v]
        barrier(group)

        strips = (plan.tokens + 2 * plan.height - 1) // (2 * plan.height)
        spans = min(strips, max(1, (TASKS * threads + parts - 1) // parts))
        span = (strips + spans - 1) // spans * 2 * plan.height
        spans = (plan.tokens + span - 1) // span
        packed = -1
        first, last = share(parts * spans, 1, thread, threads)
        for task in range(first, last):
            v = task // spans * plan.part
            n = min(plan.part, plan.vocabulary - v)
            if v != packed:
                source = address_of(weight + v * plan.w_row)
                panels = (n + width - 1) // width
                pack(w, source, n, plan.w_row, features, plan.w_column, width, 0, panels, 0, features)
                _pad(plan, logits, n)
                packed = v
            end = min((task % spans + 1) * span, plan.tokens)
            for row in range(task % spans * span, end, 2 * plan.height):
                strip(
                    plan, base, row, min(2 * plan.height, end - row), v, n, w, logits, weight, lanes,
                    tops, totals, chosen, target, kept, products, weighed_parts, won, bias, classes,
                )  # fmt: skip
        barrier(group)

        first, last = share(plan.tokens, 8, thread, threads)
        for token in range(first, last):
            top, total = merge(plan, token, tops, totals)
            own = _own_row(plan, target, token)
            here = 0 <= own < plan.vocabulary
            logit = chosen[token] - top if here else ZERO
            if plan.finds:
                product_sum[token] = merge_products(plan, token, top, tops, totals, products)
                if here:
                    product_sum[token] += product(logit)
                    won[token] = won[token] if is_largest(plan, token, own, chosen[token], tops) else 0
                else:
                    won[token] = 0
            if plan.smooths:
                weighed[token] = merge_sum(plan, token, top, tops, weighed_parts, class_sums)
            if plan.wants_others:
                sum_exp_others[token * plan.others] = total
                if here:
                    total += exp(logit)
            logits_max[token * plan.logits_max] = top
            sum_exp_logits[token * plan.sum_exp] = total
            predicted_logits[token * plan.predicted] = logit
            if plan.wants_mask:
                put_target(masked_target, plan.wide_target, token * plan.masked_target, max(own, 0))
        if plan.wants_mask:
            for byte in range(first // 8, (last + 7) // 8):
                bits = 0
                for bit in range(8):
                    token = byte * 8 + bit
                    elsewhere = token >= plan.tokens or _own_row(plan, target, token) < 0
                    bits |= (1 if elsewhere else 0) << bit
                target_mask[byte * plan.mask] = bits

    return named(linear_online_max_sum, f"linear_online_max_sum_{gemm.name}")


class StatisticsOperands(NamedTuple):
    """What the kernel reads and writes, in the order of its arguments; None where nobody wants it."""

    input: Any
    weight: Any
    target: Any
    logits_max: Any
    sum_exp_logits: Any
    predicted_logits: Any
    sum_exp_others: Any = None  # but of the own targets
    target_mask: Any = None
    masked_target: Any = None
    kept: Any = None  # where logits are kept
    bias: Any = None  # this and the following in training alone, gapless
    classes: Any = None  # weights
    product_sum: Any = None  # Σ exp(logit − largest) · (logit − largest)
    weighed: Any = None  # Σ weight · (logit − largest)
    won: Any = None  # whether the own target is the first of the largest


WIDE = (
    "logits_max", "sum_exp_logits", "predicted_logits", "sum_exp_others", "bias", "classes", "product_sum", "weighed",
)  # fmt: skip
"""What has the dtype of sums."""


class Statistics:
    """Phase two: passes on the addresses of a call beside the numbers of its plan."""

    __slots__ = ("_kernel", "_plan", "_workspace", "kept_bytes")

    def __init__(self, call: Call, kept: Kept, options: RowOptions | None = None) -> None:
        """In training there are options."""
        dtype = call["input"].dtype
        wide = gemm_for(dtype).sums
        plan = plan_statistics(call, gemm_for(dtype), kept, options)
        self._plan = plan
        self._workspace = ThreadWorkspace(plan.shared, plan.each, math.prod(call.dims[:3]), GRAIN)
        self.kept_bytes = plan.totals
        dtypes = StatisticsOperands(
            input=dtype, weight=dtype, target=int, **dict.fromkeys(WIDE, wide), target_mask=U8, masked_target=int,
            kept=kept_as(dtype), won=U8,
        )  # fmt: skip
        signature = (THREAD_GROUP, wide, *dtypes, *map(type, plan))
        self._kernel = cpu_threads.compile(_statistics_kernel(dtype), signature).fixed(*plan)

    @property
    def workspace(self) -> int:
        """Bytes, of which the first `kept_bytes` hold the largest logit of every part and token in the end."""
        return self._workspace.size

    def run(self, operands: StatisticsOperands, workspace: torch.Tensor) -> None:
        """Compute into the outputs; the operands are addresses."""
        base = workspace.data_ptr()
        addresses = (base if address is None else address for address in operands)
        self._kernel(self._workspace.threads(workspace), base, *addresses)

    def step(self, operands: StatisticsOperands, base: Place) -> Step:
        """The same as a step; the operands are places, and the workspace begins at `base`."""
        places = [base if place is None else place for place in operands]
        return Step(self._kernel, [base, *places], self._workspace)

    def describe(self) -> str:
        """In words."""
        plan = self._plan
        return f"strips of {2 * plan.height} tokens × {plan.part} columns, {self._workspace.describe()}"
