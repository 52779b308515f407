"""CPU kernel of the gradient. The BT x V matrix p is never held: it is made and used block by block.

The vocabulary is walked outside, the tokens inside.
Per block every thread computes strips of logits, turns each into probabilities while it is in cache, and packs it as
the left operand of both products; then the threads add p · weight to input_grad and pᵀ · input to weight_grad, both in
wide sums. Rows of weight_grad are final when the tokens are through, input_grad when the vocabulary is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from aclgrad.core.spec import F32, U8, Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import THREAD_GROUP, jit
from aclgrad.cpu.gemm import gemm_for, share_grid
from aclgrad.cpu.lanes import address_of, pointer_at, pointer_to
from aclgrad.cpu.procedures import named
from aclgrad.cpu.steps import Place, Step
from aclgrad.cpu.threads import barrier, share
from aclgrad.cpu.workspace import ThreadWorkspace

from .choose import BLOCK_PARTS, GRAIN, Kept, kept_as
from .gradient_plan import GradientPlan, plan_gradient
from .gradient_rows import ONE, given_row, own_target, scaled_copy, slope_row
from .options import RowOptions, add_rows, bend, finish_bias
from .statistics_merge import shift_of


@cache
def _gradient_strip(dtype: torch.dtype) -> Any:
    """`strip(...)`: p from `row` of the block of tokens at `t` and `column` of the block of the vocabulary at `v`."""
    gemm, single, wide = gemm_for(dtype), pointer_to(F32), pointer_to(gemm_for(dtype).sums)
    pack, multiply, width, tall = gemm.pack, gemm.multiply, gemm.width, gemm.rows
    depth, unit, itemsize = gemm.operand.depth, gemm.operand.unit, gemm.operand.itemsize

    @jit
    def strip(
        plan: GradientPlan, base: int, t: int, row: int, rows: int, v: int, column: int, columns: int, logits: Any,
        p: Any, grad: Any, target: int, logits_max: Any, sum_exp: Any, mask: Any, softmax: int, tops: Any, kept: Any,
        own_slope: Any, beta: Any, delta: Any, bias: Any, classes: Any, bias_sums: Any,
    ) -> None:  # fmt: skip
        height, part = plan.height, plan.part
        m, n = min(2 * height, rows - row), min(part, columns - column)
        known = t + row < plan.kept
        if not (plan.has_softmax or known):
            lane_bytes = (plan.features + depth - 1) // depth * unit
            x, w = base + plan.x_a + (t + row) * lane_bytes, base + plan.w_t + column * lane_bytes
            down, across = (m + height - 1) // height, (n + width - 1) // width
            multiply(address_of(logits), part, x, w, m, n, plan.features, height, 0, down, 0, across, 0)
        at = v + column
        for i in range(m):
            token = t + row + i
            line, scale = p + i * part, grad[token * plan.grad]
            own = own_target(token, plan, mask, target) - v - column
            if plan.has_softmax:
                place = token * plan.softmax_row + at * plan.softmax_column
                if plan.wide_softmax:
                    given_row(line, wide(softmax) + place, plan.softmax_column, n, own, scale)
                else:
                    given_row(line, single(softmax) + place, plan.softmax_column, n, own, scale)
            else:
                top, total = logits_max[token * plan.logits_max], sum_exp[token * plan.sum_exp]
                if not known:
                    if plan.on:
                        bend(logits + i * part, bias + at, n, plan.softcap, plan.logit_scale)
                    slope_row(
                        line, logits + i * part, n, own, top, top, total, scale, token, at, plan, beta, delta, classes
                    )
                else:
                    shift = top - shift_of(tops[at // part * plan.tokens + token])
                    less_top = pointer_at(address_of(kept + (v * plan.kept_pitch + token * columns + column)), kept)
                    slope_row(line, less_top, n, own, shift, top, total, scale, token, at, plan, beta, delta, classes)
                if plan.has_own_slopes and 0 <= own < n:
                    line[own] = own_slope[token]
        if plan.wants_bias_grad:
            sums = bias_sums + ((t + row) // (2 * height) * plan.block_columns + column)
            add_rows(sums, p, part, m, n)
        block = address_of(p) - (row * part + column) * itemsize
        if plan.wants_input_grad:
            first, last = row // height, (row + m + height - 1) // height
            pack(base + plan.p_a, block, rows, part, columns, 1, height, first, last, column, column + n)
        if plan.wants_weight_grad:
            first, last = column // tall, (column + n + tall - 1) // tall
            pack(base + plan.p_t, block, columns, 1, rows, part, tall, first, last, row, row + m)

    return strip


@cache
def add_product_of(dtype: torch.dtype) -> Any:
    """`add_product(...)`: sums = or += a @ b by all threads, and their rounding into `out` once they are final.

    `out` is an address, of elements in the dtype or, if they are `wide`, in that of the sums.
    """
    gemm, rounded, unrounded = gemm_for(dtype), pointer_to(dtype), pointer_to(gemm_for(dtype).sums)
    multiply, width = gemm.multiply, gemm.width

    @jit
    def add_product(
        out: int, out_row: int, out_column: int, wide: int, sums: Any, a: int, b: int, m: int, n: int, k: int,
        height: int, adds: bool, final: bool, thread: int, threads: int,
    ) -> None:  # fmt: skip
        i0, i1, j0, j1 = share_grid((m + height - 1) // height, (n + width - 1) // width, thread, threads)
        multiply(address_of(sums), n, a, b, m, n, k, height, i0, i1, j0, j1, 1 if adds else 0)
        if final:
            j, count = j0 * width, min(j1 * width, n) - j0 * width
            for i in range(i0 * height, min(i1 * height, m)):
                place, line = i * out_row + j * out_column, sums + (i * n + j)
                if wide:
                    scaled_copy(unrounded(out) + place, out_column, line, 1, count, ONE)
                else:
                    scaled_copy(rounded(out) + place, out_column, line, 1, count, ONE)

    return add_product


@cache
def _gradient_kernel(dtype: torch.dtype) -> Any:
    """The kernel for matrices of one dtype; what a mode does not read, and outputs not wanted, are any memory."""
    gemm, strip, add_product = gemm_for(dtype), _gradient_strip(dtype), add_product_of(dtype)
    pack, width, tall = gemm.pack, gemm.width, gemm.rows
    depth, unit, itemsize = gemm.operand.depth, gemm.operand.unit, gemm.operand.itemsize

    def linear_cross_entropy_backward(
        thread: int, threads: int, group: Any, sums: Any, grad: Any, input: Any, weight: Any, target: int,
        logits_max: Any, sum_exp: Any, mask: Any, softmax: int, tops: Any, kept: Any, own_slope: Any, beta: Any,
        delta: Any, bias: Any, classes: Any, bias_grad: Any, input_grad: int, weight_grad: int, *numbers: Any,
    ) -> None:  # fmt: skip
        plan = GradientPlan(*numbers)
        bias_sums = sums + plan.bias_sums // unit
        base, features, height = address_of(sums), plan.features, plan.height
        feature_panels = (features + width - 1) // width
        x_b_block = feature_panels * width * (plan.block_tokens // depth) * unit
        logits = pointer_at(base + plan.shared + thread * plan.each, sums)
        p = pointer_at(address_of(logits) + 2 * height * plan.part * unit, input)
        input_sums = input_grad if plan.direct else base + plan.input_sums
        first_feature, last_feature = share(feature_panels, 1, thread, threads)

        if plan.recomputes:
            first, last = share((plan.tokens + height - 1) // height, 1, thread, threads)
            pack(
                base + plan.x_a, address_of(input), plan.tokens, plan.x_row, features, plan.x_column,
                height, first, last, 0, features,
            )  # fmt: skip
        if plan.wants_weight_grad:
            for t in range(0, plan.tokens, plan.block_tokens):
                rows = min(plan.block_tokens, plan.tokens - t)
                pack(
                    base + plan.x_b + t // plan.block_tokens * x_b_block, address_of(input + t * plan.x_row),
                    features, plan.x_column, rows, plan.x_row, width, first_feature, last_feature, 0, rows,
                )  # fmt: skip

        for v in range(0, plan.vocabulary, plan.block_columns):
            columns, w = min(plan.block_columns, plan.vocabulary - v), address_of(weight + v * plan.w_row)
            if plan.recomputes:
                first, last = share((columns + width - 1) // width, 1, thread, threads)
                pack(base + plan.w_t, w, columns, plan.w_row, features, plan.w_column, width, first, last, 0, features)
            if plan.wants_input_grad:
                pack(
                    base + plan.w_b, w, features, plan.w_column, columns, plan.w_row,
                    width, first_feature, last_feature, 0, columns,
                )  # fmt: skip
            for t in range(0, plan.tokens, plan.block_tokens):
                rows = min(plan.block_tokens, plan.tokens - t)
                down, across = (rows + 2 * height - 1) // (2 * height), (columns + plan.part - 1) // plan.part
                barrier(group)  # weight is packed, and the products are done with the previous block of p
                first, last = share(down * across, 1, thread, threads)
                for task in range(first, last):
                    strip(
                        plan, base, t, task % down * 2 * height, rows, v, task // down * plan.part, columns, logits, p,
                        grad, target, logits_max, sum_exp, mask, softmax, tops, kept,
                        own_slope, beta, delta, bias, classes, bias_sums,
                    )  # fmt: skip
                barrier(group)
                if plan.wants_bias_grad and t + rows == plan.tokens:
                    first, last = share(columns, 1, thread, threads)
                    finish_bias(plan, bias_sums, bias_grad, v, first, last)
                if plan.wants_input_grad:
                    out = input_grad + t * plan.dx_row * (unit if plan.wide_input_grad else itemsize)
                    add_product(
                        out, plan.dx_row, plan.dx_column, plan.wide_input_grad,
                        pointer_at(input_sums + t * features * unit, sums),
                        base + plan.p_a, base + plan.w_b, rows, features, columns, height,
                        v > 0, v + columns == plan.vocabulary and not plan.direct, thread, threads,
                    )  # fmt: skip
                if plan.wants_weight_grad:
                    out = weight_grad + v * plan.dw_row * itemsize
                    add_product(
                        out, plan.dw_row, plan.dw_column, 0, sums + plan.weight_sums // unit,
                        base + plan.p_t, base + plan.x_b + t // plan.block_tokens * x_b_block,
                        columns, features, rows, tall, t > 0, t + rows == plan.tokens, thread, threads,
                    )  # fmt: skip
            barrier(group)  # before weight is packed anew

    return named(linear_cross_entropy_backward, f"linear_cross_entropy_backward_{gemm.name}")


class GradientOperands(NamedTuple):
    """What the kernel reads, in the order of its arguments; None where a mode does without."""

    grad: Any
    input: Any
    weight: Any
    masked_target: Any
    logits_max: Any = None
    sum_exp_logits: Any = None
    target_mask: Any = None
    softmax: Any = None
    tops: Any = None  # of every part and token: the largest logit
    kept: Any = None  # where logits less those wait
    own_slope: Any = None  # this and the following in training alone; of every token: the slope at its own target
    beta: Any = None  # of every token: what multiplies p · (logit − largest)
    delta: Any = None  # of every token: what multiplies the class weights
    bias: Any = None
    classes: Any = None  # weights
    bias_grad: Any = None


class Gradient:
    """Phase two: passes on the addresses of a call beside the numbers of its plan."""

    __slots__ = ("_kernel", "_plan", "_workspace")

    def __init__(
        self, call: Call, kept: Kept | None = None, parts: int = BLOCK_PARTS, options: RowOptions | None = None
    ) -> None:  # fmt: skip
        """Logits that were `kept` are not computed again (`statistics.py`). In training there are options."""
        dtype = call["input"].dtype
        plan = plan_gradient(call, gemm_for(dtype), kept, parts, options)
        self._plan = plan
        self._workspace = ThreadWorkspace(plan.shared, plan.each, math.prod(call.dims), GRAIN)
        wide = gemm_for(dtype).sums
        dtypes = GradientOperands(*[wide] * len(GradientOperands._fields))._replace(
            input=dtype, weight=dtype, masked_target=int, target_mask=U8, softmax=int, kept=kept_as(dtype)
        )
        signature = (THREAD_GROUP, wide, *dtypes, int, int, *map(type, plan))
        self._kernel = cpu_threads.compile(_gradient_kernel(dtype), signature).fixed(*plan)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._workspace.size

    def run(self, operands: Sequence[int | None], outs: Sequence[torch.Tensor | None], workspace: torch.Tensor) -> None:
        """Compute into the outputs; the operands are addresses, None where there is none."""
        base = workspace.data_ptr()
        addresses = [base if address is None else address for address in operands]
        results = [base if out is None else out.data_ptr() for out in outs]
        self._kernel(self._workspace.threads(workspace), base, *addresses, *results)

    def step(self, operands: GradientOperands, outs: Sequence[Place | None], base: Place) -> Step:
        """The same as a step; the operands are places, and the workspace begins at `base`."""
        places = [base if place is None else place for place in (*operands, *outs)]
        return Step(self._kernel, [base, *places], self._workspace)

    def describe(self) -> str:
        """In words."""
        plan = self._plan
        strips = f"strips of {2 * plan.height} tokens × {plan.part} columns"
        return f"p in blocks of {plan.block_tokens:,} × {plan.block_columns:,}, {strips}, {self._workspace.describe()}"
