"""CPU kernels of the gradients of a shard whose logits wait in the memory of weight_grad, one gradient after the other.

The first turns the logits into slopes, block by block and in their place, and adds up input_grad, which is final then:
the ranks can sum it while the second turns the slopes into weight_grad, in their place again. Three products in all.
The place of a token's logit is that of `statistics_plan.Kept`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.gemm import gemm_for
from aclgrad.cpu.lanes import address_of, pointer_at
from aclgrad.cpu.procedures import named
from aclgrad.cpu.threads import barrier, share

from .gradient import add_product_of
from .gradient_plan import GradientPlan
from .gradient_rows import slope_row
from .options import add_rows, finish_bias
from .statistics_merge import shift_of
from .targets import target_at


@cache
def _slopes_strip(dtype: torch.dtype) -> Any:
    """`strip(...)`: slopes from `row` of the block of tokens at `t` and `column` of the block of the vocabulary."""
    gemm = gemm_for(dtype)
    pack, itemsize = gemm.pack, gemm.operand.itemsize

    @jit
    def strip(
        plan: GradientPlan, base: int, t: int, row: int, rows: int, v: int, column: int, columns: int, p: Any,
        alpha: Any, target: int, top: Any, total: Any, tops: Any, kept: Any, slopes: Any, own_slope: Any, beta: Any,
        delta: Any, classes: Any, bias_sums: Any,
    ) -> None:  # fmt: skip
        height, part = plan.height, plan.part
        m, n, at = min(2 * height, rows - row), min(part, columns - column), v + column
        place = v * plan.features + (t + row) * columns + column
        for i in range(m):
            token = t + row + i
            line, less_top = p + i * part, kept + (place + i * columns)
            shift = top[token] - shift_of(tops[at // part * plan.tokens + token])
            numbers = (shift, top[token], total[token], alpha[token])
            slope_row(line, less_top, n, -1, *numbers, token, at, plan, beta, delta, classes)
            own = target_at(target, plan.wide_target, token * plan.target) - at
            if 0 <= own < n:
                line[own] = own_slope[token]
        for i in range(m):  # not before all logits of these rows are read
            for j in range(n):
                slopes[place + i * columns + j] = p[i * part + j]
        if plan.wants_bias_grad:
            add_rows(bias_sums + ((t + row) // (2 * height) * plan.block_columns + column), p, part, m, n)
        block = address_of(p) - (row * part + column) * itemsize
        first, last = row // height, (row + m + height - 1) // height
        pack(base + plan.p_a, block, rows, part, columns, 1, height, first, last, column, column + n)

    return strip


@cache
def kept_input_grad_kernel(dtype: torch.dtype) -> Any:
    """Logits into slopes; input_grad, in the type of the sums, and bias_grad."""
    gemm, strip, add_product = gemm_for(dtype), _slopes_strip(dtype), add_product_of(dtype)
    pack, width, unit = gemm.pack, gemm.width, gemm.operand.unit

    def kept_input_grad(
        thread: int, threads: int, group: Any, sums: Any, weight: Any, target: int, top: Any, total: Any, alpha: Any,
        own_slope: Any, beta: Any, delta: Any, classes: Any, tops: Any, kept: Any, slopes: Any, bias_grad: Any,
        input_grad: Any, *numbers: Any,
    ) -> None:  # fmt: skip
        plan = GradientPlan(*numbers)
        bias_sums = sums + plan.bias_sums // unit
        base, features, height = address_of(sums), plan.features, plan.height
        p = pointer_at(base + plan.shared + thread * plan.each, weight)
        first_feature, last_feature = share((features + width - 1) // width, 1, thread, threads)
        for v in range(0, plan.vocabulary, plan.block_columns):
            columns, w = min(plan.block_columns, plan.vocabulary - v), address_of(weight + v * plan.w_row)
            pack(
                base + plan.w_b, w, features, plan.w_column, columns, plan.w_row,
                width, first_feature, last_feature, 0, columns,
            )  # fmt: skip
            for t in range(0, plan.tokens, plan.block_tokens):
                rows = min(plan.block_tokens, plan.tokens - t)
                down, across = (rows + 2 * height - 1) // (2 * height), (columns + plan.part - 1) // plan.part
                barrier(group)  # weight is packed, and the product is done with the slopes before these
                first, last = share(down * across, 1, thread, threads)
                for task in range(first, last):
                    strip(
                        plan, base, t, task % down * 2 * height, rows, v, task // down * plan.part, columns, p,
                        alpha, target, top, total, tops, kept, slopes, own_slope, beta, delta, classes, bias_sums,
                    )  # fmt: skip
                barrier(group)
                if plan.wants_bias_grad and t + rows == plan.tokens:
                    first, last = share(columns, 1, thread, threads)
                    finish_bias(plan, bias_sums, bias_grad, v, first, last)
                add_product(
                    0, features, 1, 0, input_grad + t * features, base + plan.p_a, base + plan.w_b,
                    rows, features, columns, height, v > 0, False, thread, threads,
                )  # fmt: skip
            barrier(group)  # before weight is packed anew

    return named(kept_input_grad, f"kept_input_grad_{gemm.name}")


class WeightGradPlan(NamedTuple):
    """Every number that the kernel of weight_grad needs. Places are byte offsets into the workspace."""

    tokens: int
    features: int
    vocabulary: int
    block_columns: int  # of the blocks in which logits were kept
    rows: int  # of weight_grad that are summed at a time: whole panels
    x_row: int
    x_column: int
    x: int  # packed input
    p: int  # packed slopes of a block
    sums: int
    size: int


@cache
def kept_weight_grad_kernel(dtype: torch.dtype) -> Any:
    """Slopes into weight_grad."""
    gemm, add_product = gemm_for(dtype), add_product_of(dtype)
    pack, width, tall = gemm.pack, gemm.width, gemm.rows
    depth, unit, itemsize = gemm.operand.depth, gemm.operand.unit, gemm.operand.itemsize

    def kept_weight_grad(
        thread: int, threads: int, group: Any, sums: Any, input: Any, weight_grad: Any, *numbers: Any
    ) -> None:
        plan = WeightGradPlan(*numbers)
        base, features, tokens = address_of(sums), plan.features, plan.tokens
        first, last = share((features + width - 1) // width, 1, thread, threads)
        pack(
            base + plan.x, address_of(input), features, plan.x_column, tokens, plan.x_row,
            width, first, last, 0, tokens,
        )  # fmt: skip
        lane_bytes = (tokens + depth - 1) // depth * unit
        for v in range(0, plan.vocabulary, plan.block_columns):
            columns = min(plan.block_columns, plan.vocabulary - v)
            first, last = share((columns + tall - 1) // tall, 1, thread, threads)
            slopes = address_of(weight_grad) + v * features * itemsize
            pack(base + plan.p, slopes, columns, 1, tokens, columns, tall, first, last, 0, tokens)
            for row in range(0, columns, plan.rows):
                barrier(group)  # slopes are packed, and the sums are free
                add_product(
                    address_of(weight_grad + (v + row) * features), features, 1, 0, sums + plan.sums // unit,
                    base + plan.p + row * lane_bytes, base + plan.x,
                    min(plan.rows, columns - row), features, tokens, tall, False, True, thread, threads,
                )  # fmt: skip
            barrier(group)

    return named(kept_weight_grad, f"kept_weight_grad_{gemm.name}")
