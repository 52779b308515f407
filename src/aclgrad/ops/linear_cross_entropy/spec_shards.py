"""Contracts of the operators for one shard of the vocabulary in training, which no document knows.

A shard has some rows of the weight. What it finds of every token is united over the shards (`shards/formulas.py`), and
from that every shard computes its part of the gradients. A token's `row` is that of its target in this shard's weight;
one that lies elsewhere is any number that no row has.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.errors import InvalidArgument
from ...core.meta import Meta
from ...core.registry import register
from ...core.rules import dtype_of, rank, required, same_dtype, shape, shape_of, supported_dtypes
from ...core.spec import I32, I64, Call, Flag, Float, OpSpec, Out, Rule
from ...core.spec import Tensor as TensorParam
from .spec import LinearDims, product_flops, reference_options
from .spec_forward import wide_of
from .spec_training import FLOATS, WIDE, given, numbers_in_range, wide

ELSEWHERE = 1.0
"""What stands for the logit, less the largest, of a target that the shard does not have: no other is above 0."""


class Found(NamedTuple):
    """What a shard finds of every token, by its place in the rows of `shard_statistics`; None: not asked for."""

    top: int  # the largest logit; -Inf of no rows
    others: int  # Σ exp(logit − top) but of the own target
    predicted: int  # the own target's logit − top, or ELSEWHERE
    weighed: int | None  # Σ class weight · (logit − top)
    mixed: int | None  # Σ exp(logit − top) · (logit − top)
    wins: int | None  # 1 if the own target is the first of the largest, else 0

    @classmethod
    def asked(cls, smooths: bool, wants_statistics: bool) -> Found:
        """The places for these options."""
        weighed = 3 if smooths else None
        mixed = 3 + smooths if wants_statistics else None
        return cls(0, 1, 2, weighed, mixed, None if mixed is None else mixed + 1)

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(place is not None for place in self)


def found_by(call: Call) -> Found:
    """What a call finds."""
    return Found.asked(bool(call["smooths"]), bool(call["wants_statistics"]))


_INPUTS = (
    TensorParam("input", "input", FLOATS),
    TensorParam("weight", "weight", FLOATS),
    TensorParam("row", "row", (I32, I64)),
)
_LOGITS = (
    TensorParam("bias", "bias", WIDE, default=None),
    TensorParam("class_weight", "classWeight", WIDE, default=None),
    Float("softcap", "softcap", default=0.0),
    Float("logit_scale", "logitScale", default=1.0),
)
_RULES: tuple[Rule, ...] = (
    required("input", "weight", "row"),
    supported_dtypes("input", "weight", "row", "bias", "class_weight"),
    same_dtype(("weight",), base="input"),
    rank(2, 2, "input", "weight"),
    rank(1, 1, "row"),
    shape("weight", "V", "H"),
    shape("row", "BT"),
    *(given(name, wide(name), shape(name, "V")) for name in ("bias", "class_weight")),
    numbers_in_range("softcap", "logit_scale"),
)


def _dims(call: Call) -> LinearDims:
    tokens, features = call.tensor("input").shape
    return LinearDims(tokens, features, call.tensor("weight").shape[0])


def _classes_only_beside(name: str) -> Rule:
    """Class weights have a use where something is smoothed, and nowhere else."""

    def check(call: Call) -> None:
        if call["class_weight"] is not None and not isinstance(call[name], Meta) and not call[name]:
            label = call.label("class_weight")
            raise InvalidArgument(f"{label} is given without {call.label(name)}, expected both or neither", label)

    return check


def _gradient_flops(call: Call) -> int:
    return product_flops(call) * (1 + bool(call["wants_input_grad"]) + bool(call["wants_weight_grad"]))


shard_statistics = register(
    OpSpec(
        name="shard_statistics",
        aclnn="",
        summary="what one shard of a vocabulary finds of every token, for the loss over all shards",
        package=__package__,
        args=(
            *_INPUTS, *_LOGITS, Flag("smooths", "smooths", default=False),
            Flag("wants_statistics", "wantsStatistics", default=False),
        ),
        outs=(
            Out(
                "found", "found", WIDE, lambda call: (found_by(call).rows, call.dims.BT), wide_of("input"),
                rounded_as="input",
            ),
        ),
        rules=(*_RULES, _classes_only_beside("smooths")),
        dims=_dims,
        flops=product_flops,
    )
)  # fmt: skip

SLOPES = ("alpha", "beta", "delta", "own_slope")
"""Of every token: ((alpha + beta · (logit − top)) · p − delta · class weight) · ∂logit/∂sum is the slope of a column,
`own_slope` that of the own target; beta and delta may be absent."""


shard_gradients = register(
    OpSpec(
        name="shard_gradients",
        aclnn="",
        summary="one shard's part of the gradients of the loss over all shards",
        package=__package__,
        args=(
            *_INPUTS,
            *(TensorParam(name, name, WIDE) for name in ("top", "total", "alpha", "own_slope")),
            *(TensorParam(name, name, WIDE, default=None) for name in ("beta", "delta")),
            *_LOGITS,
            *(
                Flag(f"wants_{name}_grad", f"wants{name.capitalize()}Grad", default=name != "bias")
                for name in ("input", "weight", "bias")
            ),
        ),
        outs=(
            Out(
                "input_grad", "inputGrad", WIDE, shape_of("input"), wide_of("input"),
                wanted=lambda call: bool(call["wants_input_grad"]), rounded_as="input",
            ),
            Out(
                "weight_grad", "weightGrad", FLOATS, shape_of("weight"), dtype_of("input"),
                wanted=lambda call: bool(call["wants_weight_grad"]),
            ),
            Out(
                "bias_grad", "biasGrad", WIDE, lambda call: (call.dims.V,), wide_of("input"),
                wanted=lambda call: bool(call["wants_bias_grad"]), rounded_as="input",
            ),
        ),
        rules=(
            *_RULES,
            required("top", "total", "alpha", "own_slope"),
            supported_dtypes("top", "total", *SLOPES),
            *(given(name, wide(name), shape(name, "BT")) for name in ("top", "total", *SLOPES)),
            _classes_only_beside("delta"),
        ),
        dims=_dims,
        flops=_gradient_flops,
        reference_options=reference_options,
    )
)  # fmt: skip
