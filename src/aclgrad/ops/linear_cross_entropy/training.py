"""Linear cross entropy for training: the loss of a whole vocabulary with its gradients.

`loss_and_gradients` computes them together, in three products, before anybody asks for the gradients. `token_losses`
and `token_gradients` compute them one after the other, in four: where every token has a loss of its own, or the
gradient that arrives from above must be known before p is rounded, as in float16.

Unlike the document's operators, these never round a logit, and they find p(target) − 1 by what the other classes add up
to. Of a confident token it is small, and the rounding error of a logit, or of a difference, would take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...core.errors import InvalidArgument
from ...core.plan import Operator
from ...core.registry import register
from ...core.rules import dtype_of, rank, required, same_dtype, shape, shape_of, supported_dtypes
from ...core.spec import BF16, F16, F32, F64, I32, I64, Call, Flag, Int, OpSpec, Out, Rule
from ...core.spec import Tensor as TensorParam
from .spec import LinearDims, product_flops, reference_options
from .spec_forward import some_vocabulary, wide_of

FLOATS, WIDE = (BF16, F16, F32, F64), (F32, F64)
REDUCTIONS = ("mean", "sum", "none")
STATISTICS = ("logits_max", "sum_exp_logits", "sum_exp_others")  # the last without the own target
IGNORE_INDEX = -100  # torch's default

_INPUTS = (
    TensorParam("input", "input", FLOATS),
    TensorParam("weight", "weight", FLOATS),
    TensorParam("target", "target", (I32, I64)),
    Int("ignore_index", "ignoreIndex"),
)
_WANTS = (Flag("wants_input_grad", "wantsInputGrad"), Flag("wants_weight_grad", "wantsWeightGrad"))
_GRADIENTS = (
    Out(
        "input_grad", "inputGrad", FLOATS, shape_of("input"), dtype_of("input"),
        wanted=lambda call: bool(call["wants_input_grad"]),
    ),
    Out(
        "weight_grad", "weightGrad", FLOATS, shape_of("weight"), dtype_of("input"),
        wanted=lambda call: bool(call["wants_weight_grad"]),
    ),
)  # fmt: skip
_RULES: tuple[Rule, ...] = (
    required("input", "weight", "target"),
    supported_dtypes("input", "weight", "target"),
    same_dtype(("weight",), base="input"),
    rank(2, 2, "input", "weight"),
    rank(1, 1, "target"),
    some_vocabulary,
    shape("weight", "V", "H"),
    shape("target", "BT"),
)


def _dims(call: Call) -> LinearDims:
    tokens, features = call.tensor("input").shape
    return LinearDims(tokens, features, call.tensor("weight").shape[0])


def _flops(call: Call) -> int:
    """The logits, and a product for every gradient that is wanted."""
    return product_flops(call) * (1 + bool(call["wants_input_grad"]) + bool(call["wants_weight_grad"]))


def counts(target: Tensor, ignore_index: int) -> Tensor:
    """Which tokens count. torch would cut `ignore_index` to the dtype of the targets."""
    return target.long() != ignore_index


def targets_exist(args: Sequence[Any]) -> None:
    """Every target is a row of the weight or ignored."""
    _, weight, target, ignore_index, *_ = args
    rows = weight.shape[0]
    wrong = (counts(target, ignore_index) & ((target < 0) | (target >= rows))).nonzero()
    if wrong.numel():
        token = int(wrong[0])
        expected = f"0 to {rows - 1} or ignore_index = {ignore_index}"
        raise InvalidArgument(f"target[{token}] is {int(target[token])}, expected {expected}", "target")


def _operator(name: str, summary: str, args: tuple[Any, ...], outs: tuple[Out, ...], **options: Any) -> Operator:
    """An operator that no document knows."""
    contract: dict[str, Any] = {"rules": _RULES, "dims": _dims, "reference_options": reference_options, **options}
    contract["flops"] = _flops
    return register(OpSpec(name, "", args, outs, summary=summary, package=__package__, **contract))


together = _operator(
    "loss_and_gradients",
    "cross entropy of a linear layer with its gradients",
    (*_INPUTS, Flag("mean", "mean"), *_WANTS),
    (Out("loss", "loss", WIDE, lambda _: (), wide_of("input")), *_GRADIENTS),
    value_rule=targets_exist,
)

losses = _operator(
    "token_losses",
    "cross entropy of a linear layer for every token, and the statistics that its gradient needs",
    _INPUTS,
    tuple(Out(name, name, WIDE, lambda call: (call.dims.BT,), wide_of("input")) for name in ("loss", *STATISTICS)),
    value_rule=targets_exist,
)

gradients = _operator(
    "token_gradients",
    "gradient of token_losses",
    (TensorParam("grad", "grad", WIDE), *_INPUTS, *(TensorParam(name, name, WIDE) for name in STATISTICS), *_WANTS),
    _GRADIENTS,
    rules=(
        *_RULES,
        required("grad", *STATISTICS),
        supported_dtypes("grad", *STATISTICS),
        *(shape(name, "BT") for name in ("grad", *STATISTICS)),
    ),
)


def loss_and_gradients(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = IGNORE_INDEX,
    reduction: str = "mean",
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(loss, input_grad, weight_grad) of `cross_entropy(input · weightᵀ, target)`; a gradient not wanted is None.

    Shapes: `input` [BT, H] and `weight` [V, H] of one dtype, `target` [BT] int32 or int64. The loss is the mean or the
    sum over all tokens whose target is not `ignore_index`, float32 (float64 for float64). Logits are float32; p is
    rounded to the dtype of `input`; so is weight_grad, once for every chunk of tokens on a GPU. Extra memory: see the
    README.

    >>> import torch
    >>> from aclgrad.ops.linear_cross_entropy import training
    >>> loss, dx, dw = training.loss_and_gradients(torch.eye(2, 4), torch.zeros(4, 4), torch.tensor([3, -100]))
    >>> loss, dw[:, 0]
    (tensor(1.3863), tensor([ 0.2500,  0.2500,  0.2500, -0.7500]))
    """
    if reduction not in REDUCTIONS[:2]:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS[:2])}", "reduction")
    if not (wants_input_grad or wants_weight_grad):
        loss, *_ = token_losses(input, weight, target, ignore_index=ignore_index, backend=backend)
        return reduced(loss, target, ignore_index, reduction), None, None
    arguments = (input.contiguous(), weight.contiguous(), target, ignore_index, reduction == "mean")
    loss, dx, dw = together(*arguments, wants_input_grad, wants_weight_grad, backend=backend)
    return loss, dx, dw


def token_losses(
    input: Tensor, weight: Tensor, target: Tensor, *, ignore_index: int = IGNORE_INDEX, backend: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of every token [BT], 0 where it is ignored, and the three statistics that `token_gradients` takes."""
    results: tuple[Tensor, Tensor, Tensor, Tensor] = losses(input, weight, target, ignore_index, backend=backend)
    return results


def token_gradients(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    statistics: Sequence[Tensor],
    *,
    ignore_index: int = IGNORE_INDEX,
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """(input_grad, weight_grad) for the gradient [BT] of the losses; one that is not wanted is None."""
    arguments = (grad, input, weight, target, ignore_index, *statistics, wants_input_grad, wants_weight_grad)
    results: tuple[Tensor | None, Tensor | None] = gradients(*arguments, backend=backend)
    return results


def reduced(losses: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """Losses of all tokens as a reduction wants them."""
    if reduction == "none":
        return losses
    return losses.sum() / counts(target, ignore_index).sum() if reduction == "mean" else losses.sum()
