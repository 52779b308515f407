"""Batch normalisation in training as one differentiable function of its input, weight and bias.

The statistics are functions of the input too; their share of the gradient is in the sums that the backward pass takes
over the batch, so they enter `Trained` as constants. What is differentiated again, and in forward mode, is the
textbook formula of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...core.autograd import Gradient, again, past_transforms
from ...core.direct import past_dispatcher
from ...core.textbook import textbook
from . import reference, spec, spec_training


def trained(found: tuple[Tensor, Tensor, Tensor], *arguments: Any) -> Tensor:
    """The output among (output, mean, invstd) of a batch, as a function of `arguments`: input, weight, bias, eps."""
    output, mean, invstd = found
    if forward_ad._current_level >= 0:
        x, weight, bias, eps = arguments
        return formula(x, weight, bias, eps)
    if torch._C._are_functorch_transforms_active():
        return _TrainedInTransforms.apply(output, mean, invstd, *arguments)  # type: ignore[no-any-return, no-untyped-call]
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in arguments[:3]):
        return output
    apply: Any = Trained.apply if torch.compiler.is_compiling() else _trained
    made: Tensor = apply(found, *arguments)
    return made if type(made) is type(output) else made.as_subclass(type(output))


class Trained(torch.autograd.Function):
    """A batch normalised by its own statistics, which were computed before."""

    @staticmethod
    def forward(ctx: Any, found: tuple[Tensor, Tensor, Tensor], *arguments: Any) -> Tensor:
        """The output is no argument that torch knows of: it would return a view, which cannot be written over.

        To the compiler it is one, and a subclass of tensors makes views of all that it is given. The compiler drops the
        copy.
        """
        output, mean, invstd = found
        x, weight, _, ctx.eps = arguments
        ctx.save_for_backward(x, weight, mean, invstd)
        if not torch.compiler.is_dynamo_compiling() and not output._is_view():
            return output
        with torch._C.DisableTorchFunctionSubclass():
            return output.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """In the order of the arguments; can be differentiated."""
        return None, *_of_trained(ctx, ctx.needs_input_grad[1:4], gradients), None


_trained = past_transforms(Trained)


def _of_trained(ctx: Any, wants: Sequence[bool], gradients: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Gradients of input, weight and bias."""
    x, weight, mean, invstd = ctx.saved_tensors
    arguments = (gradients[0], x, weight, mean, invstd, *wants)
    found = spec_training.batch_norm_backward.direct(arguments)
    if found is None:
        with torch.no_grad():
            found = torch.ops.aclgrad.batch_norm_backward(*arguments)
    results = [gradient if wanted else None for gradient, wanted in zip(found, wants, strict=True)]
    if torch.is_grad_enabled():
        bias = torch.zeros_like(mean) if wants[2] else None  # its values are of no interest
        results = again(formula, (x, weight, bias, ctx.eps), gradients, (*results, None))[:3]
    return results


class _TrainedInTransforms(torch.autograd.Function):
    """The same in the form that `torch.func` asks for, which takes every call some microseconds more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        """`arguments`: output, mean, invstd, input, weight, bias, eps."""
        return arguments[0].clone()  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, mean, invstd, x, weight, _, ctx.eps = inputs
        ctx.save_for_backward(x, weight, mean, invstd)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """In the order of the arguments; can be differentiated."""
        return None, None, None, *_of_trained(ctx, ctx.needs_input_grad[3:6], gradients), None


def formula(x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
    """The same in torch's own operations, from the batch alone."""
    wide = torch.promote_types(x.dtype, torch.float32)
    *_, eps = rest
    weight, bias = (None if vector is None else vector.to(wide) for vector in (weight, bias))
    y, *_ = reference.batch_norm(x.to(wide), weight, bias, None, None, 0.0, eps)
    return y.to(x.dtype)


def _keep_vectors(ctx: Any, inputs: tuple[Any, ...], output: Any = None) -> None:  # noqa: ARG001
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


def _elemt(ctx: Any, grad: Tensor) -> Any:
    """All follow from the two sums of the synchronised layer; the input's is the forward formula once more."""
    x, weight, bias, mean, invstd = ctx.saved_tensors
    wants = ctx.needs_input_grad
    found: list[Any] = [None] * 6
    with torch.no_grad():
        if wants[0]:
            centre = torch.zeros_like(mean)
            found[0] = spec.batch_norm_elemt(grad, weight, None, centre, invstd, ctx.eps).to(x.dtype)
        if any(wants[1:5]):
            sums = spec.batch_norm_reduce_backward(grad, x, mean, invstd, weight, True, True, True)
            found[1:5] = _of_vectors(x, weight, invstd, sums, wants)
    if not torch.is_grad_enabled():
        return tuple(found)
    return tuple(again(textbook(spec.batch_norm_elemt), (x, weight, bias, mean, invstd, ctx.eps), (grad,), found))


def _of_vectors(x: Tensor, weight: Tensor | None, invstd: Tensor, sums: Any, wants: Any) -> list[Tensor | None]:
    """Gradients of weight, bias, mean and invstd."""
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = sums
    found: list[Tensor | None] = [grad_weight if wants[1] else None, grad_bias if wants[2] else None, None, None]
    if wants[3]:
        found[2] = -sum_dy * (invstd if weight is None else invstd * weight)
    if wants[4]:
        found[3] = sum_dy_xmu if weight is None else sum_dy_xmu * weight
    if x.numel() == 0:
        return [None if slope is None else torch.zeros_like(slope) for slope in found]
    return found


GRADIENTS = {"batch_norm_elemt": Gradient(_keep_vectors, _elemt)}

evaluated = past_dispatcher(spec.batch_norm_elemt, GRADIENTS["batch_norm_elemt"])
