"""How a family says that an operator is differentiable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .errors import Unsupported


class Gradient(NamedTuple):
    """The two functions that `torch.library.register_autograd` takes."""

    setup: Callable[[Any, tuple[Any, ...], Any], None]  # (ctx, inputs, output): keep what the gradient needs
    backward: Callable[..., Any]  # (ctx, *gradients of the outputs): the gradients of the inputs


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether nobody traces the tensor: an operator may then be called past torch's dispatcher, or write over it."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()


def refusal(message: str) -> Gradient:
    """The gradient of an operator that has none: an error when it is asked for, where torch would return zeros."""

    def keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """There is nothing to keep it for."""

    def refuse(ctx: Any, *grads: Any) -> Any:  # noqa: ARG001
        raise Unsupported(message)

    return Gradient(keep_nothing, refuse)
