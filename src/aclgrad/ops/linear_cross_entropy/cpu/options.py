"""Options of the loss on CPUs: what becomes of a row of sums before its statistics are taken, and of their gradient.

A call that has any option pays for all that work on rows: a bias of zeros and class weights of ones stand for absent
ones. What costs more, the softcap and the sums of statistics that nobody asked for, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import Call
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import cast
from aclgrad.cpu.steps import WORKSPACE, Place, Step
from aclgrad.cpu.threads import compile as compile_kernel
from aclgrad.cpu.vecmath import exp, tanh

ZERO, ONE = np.float32(0), np.float32(1)


class RowOptions(NamedTuple):
    """What the kernels that see logits need to know."""

    on: bool = False  # whether any other differs from its default
    smooths: bool = False  # the logits are summed up, too
    finds: bool = False  # the entropy is wanted, and whether the own target wins
    softcap: float = 0.0
    logit_scale: float = 1.0

    @classmethod
    def of(cls, call: Call) -> RowOptions:
        """Those of a call for training."""
        smooths, finds = call["label_smoothing"] > 0, bool(call["wants_statistics"])
        bends = call["bias"] is not None or call["softcap"] != 0 or call["logit_scale"] != 1
        on = bends or smooths or finds or call["entropy_grad"] is not None
        return cls(on, smooths, finds, call["softcap"], call["logit_scale"])


@jit
def bend(row: Any, bias: Any, count: int, softcap: float, logit_scale: float) -> None:
    """Sums of a row → logits: bias, scale, softcap."""
    scale = cast(logit_scale, row)
    if softcap == 0.0:
        for j in range(count):
            row[j] = (row[j] + bias[j]) * scale
    else:
        cap, inner = cast(softcap, row), cast(logit_scale / softcap, row)
        for j in range(count):
            row[j] = cap * tanh((row[j] + bias[j]) * inner)


@jit
def slopes(
    p: Any, logits: Any, columns: int, shift: Any, top: Any, sum_exp: Any, alpha: Any, beta: Any, delta: Any,
    classes: Any, softcap: float, logit_scale: float,
) -> None:  # fmt: skip
    """One row of ((α + β·(z − top))·p − δ·c)·∂z/∂sum, for logits z − top = logit − shift."""
    scale, nothing, one = cast(logit_scale, sum_exp), cast(ZERO, sum_exp), cast(ONE, sum_exp)
    if softcap == 0.0:
        for j in range(columns):
            left = logits[j] - shift
            e = exp(left) / sum_exp
            bent = beta * left if e > nothing else nothing
            p[j] = ((alpha + bent) * e - delta * classes[j]) * scale
    else:
        inner = one / cast(softcap, sum_exp)
        for j in range(columns):
            left = logits[j] - shift
            e = exp(left) / sum_exp
            share = (left + top) * inner
            p[j] = ((alpha + beta * left) * e - delta * classes[j]) * (scale * (one - share * share))


@jit
def add_rows(sums: Any, p: Any, stride: int, rows: int, columns: int) -> None:
    """The sums of a strip's columns."""
    for j in range(columns):
        sums[j] = p[j]
    for i in range(1, rows):
        for j in range(columns):
            sums[j] += p[i * stride + j]


@jit
def finish_bias(plan: Any, bias_sums: Any, bias_grad: Any, v: int, first: int, last: int) -> None:
    """The columns [first, last) of a block of bias_grad at row v of the weight, in the order of the tokens."""
    strips = (plan.tokens + 2 * plan.height - 1) // (2 * plan.height)
    for j in range(first, last):
        total = bias_sums[j]
        for strip in range(1, strips):
            total += bias_sums[strip * plan.block_columns + j]
        bias_grad[(v + j) * plan.bias_grad] = total


class ClassNumbers(NamedTuple):
    """Size, strides, and what is given, of `lay_out_classes`."""

    vocabulary: int
    bias: int
    class_weight: int
    has_bias: int
    weighs: int


def lay_out_classes(
    _thread: int, _threads: int, bias: Any, class_weight: Any, bias_at: Any, classes_at: Any, *numbers: int
) -> None:
    """Bias and class weights without gaps, zeros and ones where they are absent."""
    of = ClassNumbers(*numbers)
    for v in range(of.vocabulary):
        bias_at[v] = bias[v * of.bias] if of.has_bias else 0.0
        classes_at[v] = class_weight[v * of.class_weight] if of.weighs else 1.0


class ClassVectors:
    """`bias` and `class_weight` [V] in the workspace, gapless, zeros and ones where they are absent."""

    def __init__(self, call: Call, wide: torch.dtype, scratch: Scratch, options: RowOptions) -> None:
        self._pieces: list[Piece] = []
        if not (options.on or call["class_weight"] is not None):
            return  # nobody reads them
        given = [call["bias"], call["class_weight"]]
        self._pieces = [scratch.tensor((call.dims.V,), wide) for _ in given]
        strides = [0 if meta is None else meta.strides[0] for meta in given]
        numbers = ClassNumbers(call.dims.V, *strides, *(int(meta is not None) for meta in given))
        signature = (*[wide] * 4, *(int for _ in numbers))
        self._lay_out = compile_kernel(lay_out_classes, signature).fixed(*numbers)

    def places(self) -> tuple[Place, Place]:
        """Those of (bias, class weights); any memory where nobody reads them."""
        if not self._pieces:
            return WORKSPACE, WORKSPACE
        bias, classes = (WORKSPACE.at(piece.offset) for piece in self._pieces)
        return bias, classes

    def steps(self, given: Mapping[str, Place]) -> list[Step]:
        """What brings them there."""
        if not self._pieces:
            return []
        return [
            Step(self._lay_out, [given.get("bias", WORKSPACE), given.get("class_weight", WORKSPACE), *self.places()])
        ]

    def __call__(self, given: Mapping[str, Any], workspace: torch.Tensor) -> tuple[int, int]:
        """Bring them there; their addresses."""
        base = workspace.data_ptr()
        bias, classes = (base + place.offset for place in self.places())
        if self._pieces:
            vectors = (given["bias"], given["class_weight"])
            self._lay_out(1, *[base if vector is None else vector.data_ptr() for vector in vectors], bias, classes)
        return bias, classes
