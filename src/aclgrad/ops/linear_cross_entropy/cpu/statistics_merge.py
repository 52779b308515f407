"""A token's statistics from those of its parts of the columns, in one order whatever the number of threads."""

from __future__ import annotations

from typing import Any

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import cast
from aclgrad.cpu.reductions import larger
from aclgrad.cpu.vecmath import exp

from .statistics_plan import StatisticsPlan
from .statistics_rows import NOTHING, ZERO


@jit
def shift_of(top: Any) -> Any:
    """What is subtracted from logits whose largest is `top`: that, unless there is none."""
    return ZERO if top == NOTHING else top


@jit
def merge(plan: StatisticsPlan, token: int, tops: Any, totals: Any) -> Any:
    """(the largest logit, Σ exp(logit − largest)) of a token from those of its parts."""
    parts = (plan.vocabulary + plan.part - 1) // plan.part
    top = tops[token]
    for part in range(1, parts):
        top = larger(tops[part * plan.tokens + token], top)
    total = totals[token] * exp(tops[token] - top)
    for part in range(1, parts):
        total += totals[part * plan.tokens + token] * exp(tops[part * plan.tokens + token] - top)
    return top, total


@jit
def merge_sum(plan: StatisticsPlan, token: int, top: Any, tops: Any, sums: Any, counts: Any) -> Any:
    """Σ c · (logit − largest) of a token from that of its parts; `counts` are their Σ c."""
    total = cast(ZERO, top)
    for part in range((plan.vocabulary + plan.part - 1) // plan.part):
        at = part * plan.tokens + token
        total += sums[at] + counts[part] * (shift_of(tops[at]) - shift_of(top))
    return total


@jit
def merge_products(plan: StatisticsPlan, token: int, top: Any, tops: Any, totals: Any, products: Any) -> Any:
    """Σ exp(logit − largest) · (logit − largest) of a token from that of its parts."""
    total = cast(ZERO, top)
    for part in range((plan.vocabulary + plan.part - 1) // plan.part):
        at = part * plan.tokens + token
        if tops[at] != NOTHING:
            further = tops[at] - top
            total += exp(further) * (products[at] + further * totals[at])
    return total


@jit
def is_largest(plan: StatisticsPlan, token: int, own: int, logit: Any, tops: Any) -> bool:
    """Whether no part before that of the own target has a logit as large, and none behind it a larger one."""
    mine = own // plan.part
    for part in range((plan.vocabulary + plan.part - 1) // plan.part):
        other = tops[part * plan.tokens + token]
        if (part < mine and not other < logit) or (part >= mine and not other <= logit):
            return False
    return True
