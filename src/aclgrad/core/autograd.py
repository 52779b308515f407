"""How a family says that an operator is differentiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .errors import Unsupported


class Gradient(NamedTuple):
    """The two functions that `torch.library.register_autograd` takes."""

    setup: Callable[[Any, tuple[Any, ...], Any], None]  # (ctx, inputs, output): keep what the gradient needs
    backward: Callable[..., Any]  # (ctx, *gradients of the outputs): the gradients of the inputs


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether these are values in memory that nobody traces.

    An operator may then be called past torch's dispatcher, or write over them.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    if torch._C._len_torch_dispatch_stack():  # a mode that records what the dispatcher sees
        return False
    return all(type(tensor) in (torch.Tensor, torch.nn.Parameter) and _is_memory(tensor) for tensor in tensors)


def _is_memory(tensor: torch.Tensor) -> bool:
    """False for what stands for a tensor: of torch.func, of the meta device, negated or zero until it is looked at."""
    stands_for_another = torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_meta
    return not (stands_for_another or tensor.is_neg() or tensor._is_zerotensor())


class _Final(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, message: str, gradient: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        ctx.message = message
        return gradient.view_as(gradient)

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


def refusal(message: str) -> Gradient:
    """The gradient of an operator that has none: an error when it is asked for, where torch would return zeros."""

    def keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """There is nothing to keep it for."""

    def refuse(ctx: Any, *grads: Any) -> Any:  # noqa: ARG001
        raise Unsupported(message)

    return Gradient(keep_nothing, refuse)
