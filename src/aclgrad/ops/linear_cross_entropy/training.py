"""Linear cross entropy for training: the loss of a whole vocabulary with its gradients.

`loss_and_gradients` computes them together, in three products, before anybody asks for the gradients. `forward` and
`backward` compute them one after the other, in four, with the operators of the family: where every token has a loss of
its own, or the gradient that arrives from above must be known before p is rounded, as in float16.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ...core.dispatch import is_plain
from ...core.errors import InvalidArgument
from ...core.plan import Operator
from ...core.rules import dtype_of, rank, required, same_dtype, shape, shape_of, supported_dtypes
from ...core.spec import BF16, F16, F32, F64, I32, I64, Call, Flag, Int, OpSpec, Out
from ...core.spec import Tensor as TensorParam
from . import spec
from .spec import LinearDims, reference_options
from .spec_forward import cross_entropy_with_max_sum, linear_online_max_sum, some_vocabulary, wide_of

FLOATS = (BF16, F16, F32, F64)
REDUCTIONS = ("mean", "sum", "none")


def _dims(call: Call) -> LinearDims:
    tokens, features = call.tensor("input").shape
    return LinearDims(tokens, features, call.tensor("weight").shape[0])


together = Operator(
    OpSpec(
        name="loss_and_gradients",
        aclnn="",  # no document knows it
        summary="cross entropy of a linear layer with its gradients",
        package=__package__,
        args=(
            TensorParam("input", "input", FLOATS),
            TensorParam("weight", "weight", FLOATS),
            TensorParam("target", "target", (I32, I64)),
            Int("ignore_index", "ignoreIndex"),
            Flag("mean", "mean"),
            Flag("wants_input_grad", "wantsInputGrad"),
            Flag("wants_weight_grad", "wantsWeightGrad"),
        ),
        outs=(
            Out("loss", "loss", (F32, F64), lambda _: (), wide_of("input")),
            Out(
                "input_grad", "inputGrad", FLOATS, shape_of("input"), dtype_of("input"),
                wanted=lambda call: bool(call["wants_input_grad"]),
            ),
            Out(
                "weight_grad", "weightGrad", FLOATS, shape_of("weight"), dtype_of("input"),
                wanted=lambda call: bool(call["wants_weight_grad"]),
            ),
        ),
        dims=_dims,
        rules=(
            required("input", "weight", "target"),
            supported_dtypes("input", "weight", "target"),
            same_dtype(("weight",), base="input"),
            rank(2, 2, "input", "weight"),
            rank(1, 1, "target"),
            some_vocabulary,
            shape("weight", "V", "H"),
            shape("target", "BT"),
        ),
        reference_options=reference_options,
    )
)  # fmt: skip


def _of_these(wanted: tuple[bool, ...]) -> Operator:
    """The gradient operator, as it computes these of its outputs."""
    contract = spec.linear_cross_entropy_backward.spec
    outs = zip(contract.outs, wanted, strict=True)
    return Operator(replace(contract, outs=tuple(out if wants else replace(out, wanted=_never) for out, wants in outs)))


def _never(_: Call) -> bool:
    return False


_backward = {wanted: _of_these(wanted) for wanted in product((False, True), repeat=2)}


class State(NamedTuple):
    """What `forward` leaves for `backward`."""

    logits_max: Tensor
    sum_exp_logits: Tensor
    target_mask: Tensor
    masked_target: Tensor


def loss_and_gradients(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(loss, input_grad, weight_grad) of `cross_entropy(input · weightᵀ, target)`; a gradient not wanted is None.

    Shapes: `input` [BT, H] and `weight` [V, H] of one dtype, `target` [BT] int32 or int64. The loss is the mean or the
    sum over all tokens whose target is not `ignore_index`, float32 (float64 for float64). Logits, and what becomes of
    them, are rounded to the dtype of `input`; so is weight_grad, once for every chunk of tokens on a GPU. Extra memory:
    see the README.

    >>> import torch
    >>> from aclgrad.ops.linear_cross_entropy import training
    >>> loss, dx, dw = training.loss_and_gradients(torch.eye(2, 4), torch.zeros(4, 4), torch.tensor([3, -100]))
    >>> loss, dw[:, 0]
    (tensor(1.3863), tensor([ 0.2500,  0.2500,  0.2500, -0.7500]))
    """
    if reduction not in REDUCTIONS[:2]:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS[:2])}", "reduction")
    if not (wants_input_grad or wants_weight_grad):
        loss, _ = forward(input, weight, target, ignore_index=ignore_index, reduction=reduction, backend=backend)
        return loss, None, None
    loss, input_grad, weight_grad = _run(
        together, backend, input.contiguous(), weight.contiguous(), target, ignore_index, reduction == "mean",
        wants_input_grad, wants_weight_grad,
    )  # fmt: skip
    require_targets(target, weight.shape[0], ignore_index)
    return loss, input_grad if wants_input_grad else None, weight_grad if wants_weight_grad else None


def forward(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    backend: str | None = None,
) -> tuple[Tensor, State]:
    """The loss, [BT] if `reduction` is "none", and what `backward` needs to know; arguments as above."""
    if reduction not in REDUCTIONS:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS)}", "reduction")
    rows = weight.shape[0] if weight.dim() else 0
    top, total, predicted, mask, row, _ = _run(linear_online_max_sum, backend, input, weight, target, 0, rows)
    require_targets(target, rows, ignore_index)
    loss, _ = _run(cross_entropy_with_max_sum, backend, top, total, predicted, 0.0, None, None, None)
    missing = (target < 0) | (target >= rows)
    counted = counts(target, ignore_index)
    loss = torch.where(counted, torch.where(missing, torch.nan, loss), 0.0)
    if reduction != "none":
        loss = loss.sum() / counted.sum() if reduction == "mean" else loss.sum()
    return loss, State(top, total, mask, row)


def backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    state: State,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """(input_grad, weight_grad) for the gradient of what `forward` returned; one that is not wanted is None."""
    share, counted = grad.to(state.logits_max.dtype), counts(target, ignore_index)
    if reduction == "mean":
        share = share / counted.sum()
    share = torch.where(counted, share, 0.0)
    arguments = (
        share, input, weight, state.target_mask, state.masked_target, 0.0, state.logits_max, state.sum_exp_logits, None
    )  # fmt: skip
    if not is_plain(grad, input, weight):
        input_grad, weight_grad = _run(spec.linear_cross_entropy_backward, backend, *arguments)
        return input_grad if wants_input_grad else None, weight_grad if wants_weight_grad else None
    gradients = _backward[wants_input_grad, wants_weight_grad](*arguments, backend=backend)
    return cast("tuple[Tensor | None, Tensor | None]", gradients)


def _run(operator: Operator, backend: str | None, *arguments: Any) -> Any:
    """The op, which torch.compile can trace, or the operator itself on a backend of the caller's choice."""
    if backend is None:
        return getattr(torch.ops.aclgrad, operator.spec.name)(*arguments)
    return operator(*arguments, backend=backend)


def counts(target: Tensor, ignore_index: int) -> Tensor:
    """Which tokens count. torch would cut `ignore_index` to the dtype of the targets."""
    return target.long() != ignore_index


def require_targets(target: Tensor, rows: int, ignore_index: int) -> None:
    """Every target is a row of the weight or ignored. On a device nobody waits to know: the loss is NaN."""
    if target.device.type != "cpu" or not is_plain(target):
        return
    wrong = (counts(target, ignore_index) & ((target < 0) | (target >= rows))).nonzero()
    if wrong.numel():
        token = int(wrong[0])
        expected = f"0 to {rows - 1} or ignore_index = {ignore_index}"
        raise InvalidArgument(f"target[{token}] is {int(target[token])}, expected {expected}", "target")
