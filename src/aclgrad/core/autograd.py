"""How a family says that an operator is differentiable, and how often.

A kernel's gradient is differentiated again by a formula of torch's own operations, once somebody does so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from .errors import Unsupported
from .memory import tensors_in

NO_FORWARD_MODE = "there is no derivative in forward mode over several processes; within one there is"

Formula = Callable[..., Any]
"""Takes an operator's arguments and returns its outputs, all of them tensors, lists of tensors or None."""


class Gradient(NamedTuple):
    """The two functions that `torch.library.register_autograd` takes."""

    setup: Callable[[Any, tuple[Any, ...], Any], None]  # (ctx, inputs, output): keep what the gradient needs
    backward: Callable[..., Any]  # (ctx, *gradients of the outputs): the gradients of the inputs


class Composed(NamedTuple):
    """An operator that updates its arguments, made of others that torch differentiates."""

    formula: Callable[..., Any]  # takes what the operator takes


def past_transforms(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` for calls that torch.func does not transform, of tensors in memory.

    It spares the questions about both that torch asks in Python, two microseconds a call.
    """
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def has_tangents(values: Sequence[Any]) -> bool:
    """Whether a tensor, also inside lists, has a derivative in forward mode."""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors_in(values))


def require_no_tangents(values: Sequence[Any]) -> None:
    """Raise if a tensor has a derivative in forward mode, where there is no formula that could follow it."""
    if has_tangents(values):
        raise Unsupported(NO_FORWARD_MODE)


def count_writes(written: Sequence[torch.Tensor]) -> None:
    """Tell autograd what was written over, so that a gradient which still needs the old values is refused."""
    counted = [tensor for tensor in written if not tensor.is_inference()]
    if counted:
        torch.autograd.graph.increment_version(counted)


def by_formula(formula: Formula) -> Gradient:
    """The gradient of an operator as torch finds it in a formula of its own operations."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
        leaves, ctx.tree = pytree.tree_flatten(list(inputs))
        ctx.others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        ctx.places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        ctx.save_for_backward(*[leaves[k] for k in ctx.places])
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, *upstream: Any) -> Any:
        leaves = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            leaves[place] = tensor
        inputs = pytree.tree_unflatten(leaves, ctx.tree)
        wanted = _same_nest(ctx.needs_input_grad, inputs)
        gradients: list[Any] = pulled_back(formula, inputs, upstream, wanted)
        return tuple(gradients)

    return Gradient(setup, backward)


def pulled_back(formula: Formula, inputs: Sequence[Any], upstream: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """Gradients of a formula's inputs, as nested as they are, from those of its outputs; None where not wanted.

    Torch can differentiate them again. `wanted` has an answer for every leaf of `inputs`, `upstream` may have None.
    """
    leaves, tree = pytree.tree_flatten(list(inputs))
    found: list[Any] = [None] * len(leaves)
    places = [k for k, leaf in enumerate(leaves) if wanted[k] and _is_differentiable(leaf)]
    arrived: list[torch.Tensor] = []

    def followed(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        outputs = formula(*pytree.tree_unflatten(given, tree))
        pairs = _pairs(outputs if isinstance(outputs, tuple | list) else [outputs], upstream)
        arrived[:] = [gradient for _, gradient in pairs]
        return tuple(output for output, _ in pairs)

    if places and any(gradient is not None for gradient in pytree.tree_leaves(list(upstream))):
        pull_back: Any = torch.func.vjp(followed, *[leaves[k] for k in places])[1]
        for place, gradient in zip(places, pull_back(tuple(arrived)), strict=True):
            found[place] = gradient
    nest: list[Any] = pytree.tree_unflatten(found, tree)
    return nest


def again(formula: Formula, inputs: Sequence[Any], upstream: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    """The gradients that a kernel found of a formula's inputs, in a form that can be differentiated.

    `inputs` and `gradients` are nested alike; a gradient that nobody wants is None.
    """

    def function(inputs: Sequence[Any], upstream: Sequence[Any]) -> list[Any]:
        wanted = [gradient is not None for gradient in pytree.tree_leaves(list(gradients))]
        return pulled_back(formula, inputs, upstream, wanted)

    return restated(function, (list(inputs), list(upstream)), gradients)


def restated(function: Formula, inputs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """What a kernel found to be a function of these inputs, with the function's derivatives.

    The function returns what is nested as `values`. It is not called before somebody differentiates, but in forward
    mode, where it is called at once. What is None among the values is None.
    """
    if forward_ad._current_level >= 0:
        return list(function(*inputs))
    if not torch.is_grad_enabled():
        return list(values)
    found, values_tree = pytree.tree_flatten(list(values))
    given, inputs_tree = pytree.tree_flatten(list(inputs))
    places = [k for k, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)]
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in given]

    def followed(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = list(others)
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        results = pytree.tree_leaves(list(function(*pytree.tree_unflatten(leaves, inputs_tree))))
        return tuple(result for result, value in zip(results, found, strict=True) if value is not None)

    there = [value for value in found if value is not None]
    if there:
        nodes = iter(_Restated.apply(followed, len(there), *there, *[given[k] for k in places]))  # type: ignore[no-untyped-call]
        found = [None if value is None else next(nodes) for value in found]
    nest: list[Any] = pytree.tree_unflatten(found, values_tree)
    return nest


class _Restated(torch.autograd.Function):
    """Values of a function of some tensors, computed elsewhere; its derivatives are those of the function."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Formula, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ARG004
        return tuple(value.view_as(value) for value in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.function, ctx.count, *tensors = inputs
        ctx.save_for_backward(*tensors[ctx.count :])

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        wanted = ctx.needs_input_grad[2 + ctx.count :]
        gradients = pulled_back(ctx.function, ctx.saved_tensors, upstream, wanted)
        return None, None, *[None] * ctx.count, *gradients


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


def _is_differentiable(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _pairs(outputs: Sequence[Any], upstream: Sequence[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The outputs, members of lists one by one, and the gradients that have arrived of them."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for output, gradient in zip(outputs, upstream, strict=False):
        if isinstance(gradient, list | tuple):
            found += _pairs(output or [], gradient)
        elif gradient is not None and _is_differentiable(output):
            found.append((output, gradient))
    return found


def _same_nest(answers: Sequence[Any], inputs: Sequence[Any]) -> list[bool]:
    """An answer for every leaf of the inputs; one for a whole list counts for each member."""
    flat: list[bool] = []
    for answer, value in zip(answers, inputs, strict=True):
        count = len(pytree.tree_leaves(value))
        flat += list(answer) if isinstance(answer, list | tuple) else [bool(answer)] * count
    return flat
