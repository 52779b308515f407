"""What the kernel of the gradient does in training alone: slopes of a loss with options, and the bias' gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

from aclgrad.cpu.compiler import jit

from .gradient_plan import GradientPlan
from .options import slopes


class TrainingVectors(NamedTuple):
    """What training knows beside; None for the document's operator."""

    own_slope: Any = None  # of every token: the complete slope at its own target
    beta: Any = None  # of every token: what multiplies p · (logit − largest)
    delta: Any = None  # of every token: what class weights are multiplied with
    bias: Any = None
    classes: Any = None  # weights
    bias_sums: Any = None  # of every strip of tokens: a block of bias_grad
    bias_grad: Any = None


@jit
def training_slopes(
    p: Any, logits: Any, columns: int, shift: Any, top: Any, sum_exp: Any, alpha: Any, token: int, column: int,
    plan: GradientPlan, training: TrainingVectors,
) -> None:  # fmt: skip
    """`slopes` of a token, from a column on."""
    beta, delta = training.beta[token], training.delta[token]
    slopes(
        p, logits, columns, shift, top, sum_exp, alpha, beta, delta, training.classes + column,
        plan.softcap, plan.logit_scale,
    )  # fmt: skip


@jit
def add_rows(sums: Any, p: Any, stride: int, rows: int, columns: int) -> None:
    """The sums of a strip's columns."""
    for j in range(columns):
        sums[j] = p[j]
    for i in range(1, rows):
        for j in range(columns):
            sums[j] += p[i * stride + j]


@jit
def finish_bias(plan: GradientPlan, training: TrainingVectors, v: int, first: int, last: int) -> None:
    """The columns [first, last) of a block of bias_grad, in the order of the tokens."""
    strips = (plan.tokens + 2 * plan.height - 1) // (2 * plan.height)
    for j in range(first, last):
        total = training.bias_sums[j]
        for strip in range(1, strips):
            total += training.bias_sums[strip * plan.block_columns + j]
        training.bias_grad[(v + j) * plan.bias_grad] = total
