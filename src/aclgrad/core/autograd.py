"""How a family says that an operator is differentiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from .errors import Unsupported
from .memory import tensors_in

NO_FORWARD_MODE = "there is no derivative in forward mode here; torch.nn's modules have one: see aclgrad.nn.revert"


class Gradient(NamedTuple):
    """The two functions that `torch.library.register_autograd` takes."""

    setup: Callable[[Any, tuple[Any, ...], Any], None]  # (ctx, inputs, output): keep what the gradient needs
    backward: Callable[..., Any]  # (ctx, *gradients of the outputs): the gradients of the inputs


class Composed(NamedTuple):
    """An operator that updates its arguments, made of others that torch differentiates."""

    formula: Callable[..., Any]  # takes what the operator takes


def require_no_tangents(values: Sequence[Any]) -> None:
    """Raise if a tensor has a derivative in forward mode, which torch's dispatcher would drop."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors_in(values):
        if forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            raise Unsupported(NO_FORWARD_MODE)


def count_writes(written: Sequence[torch.Tensor]) -> None:
    """Tell autograd what was written over, so that a gradient which still needs the old values is refused."""
    for tensor in written:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


class _Final(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(message: str, gradient: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise Unsupported(ctx.message)


def final(message: str, gradients: Sequence[torch.Tensor | None], *sources: torch.Tensor) -> list[torch.Tensor | None]:
    """Gradients computed from these sources that cannot be differentiated again.

    Whoever tries gets the message, where torch would take them for constants.
    """
    if not torch.is_grad_enabled():
        return list(gradients)
    return [None if g is None else _Final.apply(message, g, *sources) for g in gradients]  # type: ignore[no-untyped-call]


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """There is nothing to keep it for."""


def is_refusal(gradient: Gradient | Composed) -> bool:
    """Whether it is one that `refusal` made."""
    return isinstance(gradient, Gradient) and gradient.setup is _keep_nothing


def refusal(message: str) -> Gradient:
    """The gradient of an operator that has none: an error when it is asked for, where torch would return zeros."""

    def refuse(ctx: Any, *grads: Any) -> Any:  # noqa: ARG001
        raise Unsupported(message)

    return Gradient(_keep_nothing, refuse)
