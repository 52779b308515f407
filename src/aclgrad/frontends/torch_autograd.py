"""Gradients of ops that the transforms of `torch.func` take.

`torch.library.register_autograd` wraps an op in an `autograd.Function`, which `torch.func` does not take there. Torch's
own ops have a node of a single level: it differentiates for the transform that called it, and below it the dispatcher
goes on to the next one. So have these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch._functorch import autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ..core.autograd import Gradient, has_tangents
from ..core.dispatch import all_in_memory, is_watched

Counts: TypeAlias = "list[int | None] | None"
"""Of values: how many members one has that is a list, None for one that is not; None where no value is a list."""


def register_autograd(
    qualified_name: str,
    gradient: Gradient,
    in_forward_mode: Callable[..., Any],
    in_memory: Callable[..., Any],
    library: Any,
) -> None:
    """Make an op differentiable, as `torch.library.register_autograd` does.

    `in_forward_mode` is called in its place where a tensor has a derivative in forward mode, and `in_memory`, its
    kernel, where nobody else has to know of the call: past the dispatcher, which takes longer than a small kernel.
    """
    namespace, name = qualified_name.split("::")
    op = getattr(getattr(torch.ops, namespace), name).default
    defaults = [argument.default_value for argument in op._schema.arguments if not argument.kwarg_only]
    node: Any = type(name, (_Node,), {})  # torch shows it by this name

    def kernel(keys: Any, *args: Any, **named: Any) -> Any:
        if has_tangents(args):
            return in_forward_mode(*args, **named)

        def below() -> Any:
            if not is_watched() and not torch._C._are_functorch_transforms_active() and all_in_memory(args):
                return in_memory(*args, **named)
            with torch._C._AutoDispatchBelowAutograd():
                return op.redispatch(keys & torch._C._after_autograd_keyset, *args, **named)

        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
            return below()
        complete = (*args, *defaults[len(args) :])  # the dispatcher leaves out what equals its default at the end
        flat, counts = _flat(complete)
        call = _Call(gradient, below, complete, counts)
        if torch._C._are_functorch_transforms_active():
            with autograd_function.enable_single_level_autograd_function():  # type: ignore[attr-defined]
                results = node.apply(call, *flat)
        else:
            results = node.apply(call, *flat)
        outs = _nested(results, call.returned)
        return outs[0] if len(outs) == 1 else tuple(outs)

    library.impl(name, kernel, "Autograd", with_keyset=True)


class _Call:
    """What a node has to know beside its tensors."""

    returned: Counts

    def __init__(self, gradient: Gradient, below: Callable[[], Any], inputs: tuple[Any, ...], given: Counts) -> None:
        self.gradient, self.below, self.inputs, self.given = gradient, below, inputs, given

    def output(self) -> Any:
        """The op's. Inside a node gradients are off; what the next transform follows has to be on."""
        if not torch._C._are_functorch_transforms_active():
            return self.below()
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return self.below()


class _Node(_SingleLevelFunction):
    """An op in a graph: its tensors out of their lists, as torch wants them."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *_: Any) -> Any:
        output = call.output()
        call.gradient.setup(ctx, call.inputs, output)
        flat, call.returned = _flat(output if isinstance(output, tuple) else (output,))
        ctx._aclgrad = call.gradient.backward, call.given, call.returned  # the rest of `ctx` is the gradient's own
        return tuple(flat)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        backward, given, returned = ctx._aclgrad
        wanted = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(_nested(wanted[1:], given))
        try:
            found = backward(ctx, *_nested(grads, returned))
        finally:
            ctx.needs_input_grad = wanted
        gradients = found if isinstance(found, tuple | list) else (found,)
        if given is not None:
            pairs = zip(gradients, given, strict=True)
            gradients = [g for value, n in pairs for g in ([value] if n is None else value or [None] * n)]
        return None, *gradients  # the first is the call


def _flat(values: Sequence[Any]) -> tuple[Sequence[Any], Counts]:
    """The values, members of lists one by one, and how to find them again."""
    counts = [len(value) if isinstance(value, list | tuple) else None for value in values]
    if not any(count is not None for count in counts):
        return values, None
    flat: list[Any] = []
    for value, count in zip(values, counts, strict=True):
        flat += [value] if count is None else value
    return flat, counts


def _nested(flat: Sequence[Any], counts: Counts) -> Sequence[Any]:
    """The values that `_flat` had."""
    if counts is None:
        return flat
    members = iter(flat)
    return [next(members) if count is None else list(islice(members, count)) for count in counts]
