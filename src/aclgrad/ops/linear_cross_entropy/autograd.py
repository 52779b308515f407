"""Linear cross entropy as a differentiable function of its matrices, its bias and the weights of its tokens.

A scalar loss brings its gradients along; what arrives from above scales them, in place since they are as large as the
weight. Losses of single tokens, log-probabilities, entropies and lse are differentiated by an operator that computes
the logits once more. What is differentiated again is the textbook formula, with all logits in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, again, past_transforms
from ...core.dispatch import is_plain, wants_gradient
from ...core.plan import Operator, Plan
from ...core.spec import Tensor as TensorParam
from ...core.textbook import textbook
from .scale import scale_
from .spec_training import OF_TOKENS, OPTIONS, STATISTICS, counts, losses, needs_predicted, together

MATRICES = ("input", "weight", "bias")
RECORDED = (*STATISTICS, "predicted_logits", "entropy")
TOGETHER, LOSSES = ([argument.name for argument in operator.spec.args] for operator in (together, losses))


def _keep(ctx: Any, names: Sequence[str], inputs: Sequence[Any], found: Mapping[str, Tensor]) -> None:
    """The arguments by name, and what was found of the tokens."""
    ctx.names = names
    ctx.given = dict(zip(names, inputs, strict=True))
    tensors = {name: value for name, value in ctx.given.items() if isinstance(value, Tensor)}
    tensors |= {name: found[name] for name in (*RECORDED, "losses") if name in found}
    loss = _kept_loss(found.get("loss"), ctx.given.get("normalizer"))
    tensors |= {} if loss is None else {"loss": loss}
    for name in tensors:
        ctx.given[name] = None
    ctx.saved = tuple(tensors)
    ctx.save_for_backward(*tensors.values())
    followed = ("loss", *(OF_TOKENS if ctx.given["wants_statistics"] else ()))
    ctx.mark_non_differentiable(*(value for name, value in found.items() if name not in followed))
    ctx.set_materialize_grads(False)  # zeros for the gradients' own gradients would be as large as they are


def _kept_loss(loss: Tensor | None, normalizer: Tensor | None) -> Tensor | None:
    """What a normalizer is differentiated with: a copy, since the loss may be written over (`loss /= steps`)."""
    return loss.clone() if loss is not None and normalizer is not None and normalizer.requires_grad else None


def _taken(ctx: Any) -> Any:
    """The gradients that came with the loss, for the first who asks; None for all others, in other threads as well."""
    return vars(ctx).pop("gradients", None)


def _given(ctx: Any) -> dict[str, Any]:
    return {**ctx.given, **dict(zip(ctx.saved, ctx.saved_tensors, strict=True))}


def can_be_alone(arguments: Sequence[Any]) -> bool:
    """Whether the loss of `loss_and_gradients` may be had past torch's dispatcher: nobody has to know of the call."""
    return not torch._C._are_functorch_transforms_active() and is_plain(
        *[value for value in arguments if isinstance(value, Tensor)]
    )


def differentiable_loss(arguments: Sequence[Any]) -> Tensor:
    """The loss of `loss_and_gradients` for these arguments, none of which `can_be_alone` objects to."""
    follows = wants_gradient(FOLLOWED_OF(arguments))
    return planned_loss(together.plan(arguments), arguments, without_tensors(arguments), follows)


def without_tensors(arguments: Sequence[Any]) -> list[Any]:
    """The arguments with None in place of tensors."""
    return [None if isinstance(argument, Tensor) else argument for argument in arguments]


def planned_loss(plan: Plan, arguments: Sequence[Any], constants: Sequence[Any], follows: bool) -> Tensor:
    """The same by a plan that is known, with a gradient if one is wanted; `constants` are all but tensors."""
    if follows:
        return _together(plan, arguments, constants, *FOLLOWED_OF(arguments))  # type: ignore[no-any-return]
    return together.launched(plan, arguments)[0]  # type: ignore[no-any-return]


FOLLOWED = [TOGETHER.index(name) for name in (*MATRICES, "token_weight", "normalizer")]
FOLLOWED_OF = itemgetter(*FOLLOWED)
TENSORS = [k for k, param in enumerate(together.spec.args) if isinstance(param, TensorParam)]
TENSORS_OF = itemgetter(*TENSORS)
SAVED = (*(TOGETHER[k] for k in TENSORS), "loss", "losses")
MADE = [together.spec.out_names.index(f"{name}_grad") for name in MATRICES]
MADE_OF, LOSSES_AT = itemgetter(*MADE), together.spec.out_names.index("losses")


class Together(torch.autograd.Function):
    """The loss alone; what it is differentiated with waits in the node."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, arguments: Sequence[Any], constants: Sequence[Any], *followed: Tensor | None
    ) -> Tensor:
        """`arguments`: those of the op, which asks for no statistics; and those that are `FOLLOWED` once more."""
        output = together.launched(plan, arguments)
        loss: Tensor = output[0]
        ctx.given = constants
        ctx.save_for_backward(*TENSORS_OF(arguments), _kept_loss(loss, followed[-1]), output[LOSSES_AT])
        ctx.set_materialize_grads(False)
        ctx.gradients = MADE_OF(output)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        """Of the followed arguments, in their order; can be differentiated."""
        wanted = ctx.needs_input_grad
        saved = ctx.saved_tensors  # raises if one was written to
        if grad is not None and not torch.is_grad_enabled() and not any(wanted[6:]):
            gradients = _taken(ctx)
            if gradients is not None:
                return None, None, None, *_scaled(gradients, grad, wanted[3:6], plain=is_plain(grad)), None, None
        given = {**dict(zip(TOGETHER, ctx.given, strict=True)), **dict(zip(SAVED, saved, strict=True))}
        needs = dict(zip(FOLLOWED, wanted[3:], strict=True))
        found = _loss(ctx, TOGETHER, given, [needs.get(k, False) for k in range(len(TOGETHER))], {"loss": grad})
        return None, None, None, *FOLLOWED_OF(found)


_together = past_transforms(Together)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    found = dict(zip(together.spec.out_names, output, strict=True))
    _keep(ctx, TOGETHER, inputs, found)
    ctx.gradients = [found[f"{name}_grad"] for name in MATRICES]


def _loss_of_op(ctx: Any, *upstream: Tensor | None) -> Any:
    of = dict(zip(together.spec.out_names, upstream, strict=True))
    return _loss(ctx, ctx.names, _given(ctx), ctx.needs_input_grad, of)


def _loss(
    ctx: Any, names: Sequence[str], given: dict[str, Any], wanted: Sequence[bool], of: Mapping[str, Tensor | None]
) -> Any:
    """Gradients of the arguments of these names, from those of the outputs."""
    needs = dict(zip(names, wanted, strict=True))
    grad, of_tokens = of["loss"], [of.get(name) for name in OF_TOKENS]
    if grad is None and not any(g is not None for g in of_tokens):
        return (None,) * len(names)
    result: dict[str, Any] = dict.fromkeys(names)
    wants = [needs[name] for name in MATRICES]
    if any(g is not None for g in of_tokens):
        share = torch.zeros_like(given["logits_max"]) if grad is None else _share(given) * grad
        gradients: Sequence[Tensor | None] = _gradients(given, share, of_tokens, wants)
    else:
        gradients = _scaled_gradients(ctx, names, given, grad, wants)
    result |= dict(zip(MATRICES, gradients, strict=True))
    if grad is not None and needs["token_weight"]:
        result["token_weight"] = given["losses"] * grad / _normalizer(given)
    if grad is not None and needs["normalizer"]:
        result["normalizer"] = -grad * given["loss"] / given["normalizer"]
    upstream = [of.get(name) for name in together.spec.out_names]
    return _again(names, together, given, upstream, result)


def _again(
    names: Sequence[str],
    operator: Operator,
    given: Mapping[str, Any],
    upstream: Sequence[Any],
    result: Mapping[str, Any],
) -> Any:
    """The gradients of the arguments in order, which can be differentiated."""
    inputs, gradients = ([of[name] for name in names] for of in (given, result))
    return tuple(again(textbook(operator), inputs, upstream, gradients))


@torch.no_grad()
def _scaled_gradients(
    ctx: Any, names: Sequence[str], given: dict[str, Any], grad: Any, wants: Sequence[bool]
) -> list[Tensor | None]:
    """Those that came with the loss."""
    gradients = _taken(ctx)
    made = [given[f"wants_{name}_grad"] for name in MATRICES]
    used_up = gradients is None  # by an earlier backward pass over a graph that was kept
    if used_up or any(want and not there for want, there in zip(wants, made, strict=True)):  # as a graph recorded it
        anew = {**given, **{f"wants_{name}_grad": want for name, want in zip(MATRICES, wants, strict=True)}}
        anew["wants_statistics"] = False
        _, *gradients = torch.ops.aclgrad.loss_and_gradients(*(anew[name] for name in names))[:4]
    there = [gradient for gradient, want in zip(gradients, wants, strict=True) if want and gradient is not None]
    return _scaled(gradients, grad, wants, plain=is_plain(grad, *there))


def _scaled(gradients: Sequence[Any], factor: Tensor, wants: Sequence[bool], *, plain: bool) -> list[Tensor | None]:
    """In place if all are `plain`, neither traced nor mapped: a graph may not change what its forward part returned."""
    wanted = [gradient if want else None for gradient, want in zip(gradients, wants, strict=True)]
    if plain and factor.is_cpu and float(factor) == 1.0:  # as it nearly always is; a GPU is not asked
        return wanted
    return [None if gradient is None else _times(gradient, factor, in_place=plain) for gradient in wanted]


def _times(gradient: Tensor, factor: Tensor, *, in_place: bool) -> Tensor:
    if gradient.dim() < 2 or not in_place:
        return (gradient.to(factor.dtype) * factor).to(gradient.dtype)  # as `scale_` rounds
    scale_(gradient, factor)
    return gradient


def _normalizer(given: Mapping[str, Any]) -> Any:
    """What the sum of all losses is divided by."""
    if given["normalizer"] is not None:
        return given["normalizer"]
    return counts(given["target"], given["ignore_index"]).sum() if given["mean"] else 1


def _share(given: Mapping[str, Any]) -> Tensor:
    """What each token's loss counts in the loss of all."""
    weights = given["token_weight"]
    share: Tensor = (torch.ones_like(given["logits_max"]) if weights is None else weights) / _normalizer(given)
    return share


@torch.no_grad()
def _gradients(
    given: Mapping[str, Any], grad: Tensor, of_tokens: Sequence[Tensor | None], wants: Sequence[bool]
) -> Sequence[Tensor | None]:
    """Gradients of the matrices and the bias, for those of every token's loss and of what was asked for beside it."""
    read = [given[name] for name in (*MATRICES[:2], "target", "ignore_index", *STATISTICS)]
    options = [given[name] for name in OPTIONS]
    predicted = given["predicted_logits"] if needs_predicted(given) else None
    beside = (predicted, given["entropy"] if given["wants_statistics"] else None)
    found = torch.ops.aclgrad.token_gradients(grad, *read, *wants[:2], *options, *beside, *of_tokens, wants[2])
    return [gradient if want else None for gradient, want in zip(found, wants, strict=True)]


def _keep_statistics(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    found = dict(zip(losses.spec.out_names, output, strict=True))
    _keep(ctx, LOSSES, inputs, {name: value for name, value in found.items() if name != "loss"})


def _token_losses(ctx: Any, *upstream: Tensor | None) -> Any:
    of = dict(zip(losses.spec.out_names, upstream, strict=True))
    grad, of_tokens = of["loss"], [of[name] for name in OF_TOKENS]
    if grad is None and not any(g is not None for g in of_tokens):
        return (None,) * len(ctx.names)
    given, result = _given(ctx), dict.fromkeys(ctx.names)
    needs = dict(zip(ctx.names, ctx.needs_input_grad, strict=True))
    of_loss = torch.zeros_like(given["logits_max"]) if grad is None else grad
    found = _gradients(given, of_loss, of_tokens, [needs[name] for name in MATRICES])
    result |= dict(zip(MATRICES, found, strict=True))
    return _again(ctx.names, losses, given, upstream, result)


GRADIENTS = {
    "loss_and_gradients": Gradient(_keep_gradients, _loss_of_op),
    "token_losses": Gradient(_keep_statistics, _token_losses),
}
