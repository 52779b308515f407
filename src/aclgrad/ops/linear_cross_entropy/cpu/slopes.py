"""Gradients of the matrices and of the bias on CPUs, from gradients of what was found of every token."""

from __future__ import annotations

from collections.abc import Mapping

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.steps import WORKSPACE, Place, Step

from .. import spec
from .choose import Kept
from .gradient import Gradient, GradientOperands
from .losses import MEASURED, Given, Vectors, wide_of
from .options import RowOptions
from .tokens import SlopeNumbers, TokenNumbers, weigh_tokens

SLOPES = ("alpha", "beta", "delta", "own_slope")
UPSTREAM = ("logprob_grad", "entropy_grad", "lse_grad")
READ = (*UPSTREAM, *MEASURED, "entropy")
"""What the slopes of a token are made of, beside the gradient of its loss."""


class Slopes:
    """The gradients of the matrices and the bias, for gradients of what was found of the tokens."""

    def __init__(self, call: Call, grad: Meta, statistics: Given, scratch: Scratch, kept: Kept, parts: int) -> None:
        """Logits that were `kept` are not computed again; `statistics` are metadata by name."""
        wide, target, options = wide_of(call), call["target"], RowOptions.of(call)
        self.vectors = Vectors(call, SLOPES, scratch)
        self._absent = [name for name in READ if statistics.get(name) is None]
        flags = [int(name not in self._absent) for name in (*UPSTREAM, "predicted_logits")]
        strides = [
            0 if meta is None else meta.strides[0]
            for meta in (target, grad, *(statistics.get(name) for name in READ))
        ]  # fmt: skip
        numbers = (*TokenNumbers.of(call), *SlopeNumbers(*flags, *strides))
        self._weigh = cpu_threads.compile(
            weigh_tokens, (int, *[wide] * 14, *map(type, numbers))
        ).fixed(*numbers)  # fmt: skip
        self.gradient = Gradient(differentiated(call, statistics), kept, parts, options)

    def steps(
        self, given: Mapping[str, Place], statistics: Mapping[str, Place], columns: tuple[Place, Place], behind: Place,
        *, tops: Place, kept: Place,
    ) -> list[Step]:  # fmt: skip
        """What computes into the outputs; the gradient works in the memory of `behind`.

        All are places. `statistics` are those of the gradient of the loss, and of what is read beside; the `columns`
        are bias and class weights.
        """
        bias, classes = columns
        alpha, beta, delta, own_slope = slopes = tuple(self.vectors.places(given).values())
        read = (WORKSPACE if name in self._absent else statistics[name] for name in READ)
        x, weight, target = (given[name] for name in ("input", "weight", "target"))
        operands = GradientOperands(
            alpha, x, weight, target, statistics["logits_max"], statistics["sum_exp_logits"], tops=tops,
            kept=kept, own_slope=own_slope, beta=beta, delta=delta, bias=bias, classes=classes,
            bias_grad=given.get("bias_grad"),
        )  # fmt: skip
        outs = [given.get(name) for name in ("input_grad", "weight_grad")]
        weigh = Step(self._weigh, [target, statistics["grad"], *read, classes, *slopes])
        return [weigh, self.gradient.step(operands, outs, behind)]


def differentiated(call: Call, statistics: Given) -> Call:
    """The call of the gradient operator: targets are rows of the weight, or none."""
    values = {name: call[name] for name in ("input", "weight", "input_grad", "weight_grad", "bias_grad")}
    of_tokens = {name: statistics[name] for name in ("logits_max", "sum_exp_logits")}
    alpha = Meta((call.dims.BT,), (1,), wide_of(call), call.device)
    values |= {"masked_target": call["target"], "target_mask": None, "softmax": None, "grad": alpha, **of_tokens}
    return Call(spec.linear_cross_entropy_backward.spec, values, strict=False)
