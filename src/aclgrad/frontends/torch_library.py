"""`torch.ops.aclgrad.*`: every operator as an op of torch's dispatcher, derived from its contract.

An op has the arguments of the contract, with its defaults, and returns the outputs; one that is not
produced is an empty tensor or an empty list, since an op cannot return None. Fake kernels run the contract on metadata,
so `torch.compile` and `torch.export` see shapes, strides and refusals without computing anything. What a
family's `autograd`, if it has one, names has a gradient of its own; all others have that of their textbook formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..core.autograd import Composed, by_formula, has_tangents, restated
from ..core.dispatch import NAMESPACE, chosen_backend, is_optional_list, lists_for_none, wants_gradient
from ..core.errors import WrongType
from ..core.plan import Operator, allocated
from ..core.registry import follow, part
from ..core.spec import REQUIRED, BoolArray, Flag, Float, InOut, Int, OpSpec, OutList, Param, TensorList
from ..core.textbook import by_the_book, textbook
from .torch_autograd import register_autograd
from .torch_dtensors import register_dtensors
from .torch_flops import register_flops
from .torch_vmap import register_vmap

LIBRARY: Any = torch.library.Library(NAMESPACE, "DEF")
DEVICES = ("CPU", "CUDA")
REFUSED = (
    *(f"{layout}{device}" for layout in ("Sparse", "SparseCsr", "NestedTensor") for device in DEVICES),
    "MkldnnCPU",
)
"""Dispatch keys of tensors that no kernel takes; the contract says so in its own words, where torch has none."""

ABSENT = ".absent"
"""The overload of an op that takes a list of tensors or None: for None."""

TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)  # what is planned for must be what comes

_TYPES: dict[type[Param], str] = {Flag: "bool", Int: "int", Float: "float", BoolArray: "bool[]", TensorList: "Tensor[]"}


def register() -> None:
    """Define an op for every operator, now or when it is registered, and the gradients their families know."""
    follow(_define_and_differentiate)


def _define_and_differentiate(operator: Operator) -> None:
    differentiate(operator, define(operator))


def differentiate(operator: Operator, kernel: Callable[..., Any]) -> None:
    """Register the operator's gradient: the family's, or that of the textbook formula. `kernel` is the op's."""
    spec = operator.spec
    known = getattr(part(spec.package, "autograd"), "GRADIENTS", {}).get(spec.name)
    if spec.updated:
        LIBRARY.impl(spec.name, _differentiable_update(operator, known), "Autograd")
        return

    def in_forward_mode(*args: Any, **flags: bool) -> Any:
        return returned(operator, by_the_book(operator, *spec.completed(args), asked=any(flags.values())), args)

    gradient = known or by_formula(textbook(operator))
    register_autograd(f"{NAMESPACE}::{spec.name}", gradient, in_forward_mode, kernel, LIBRARY)


def _differentiable_update(operator: Operator, known: Composed | None) -> Callable[..., Any]:
    """The gradient of an op that updates its arguments, which `torch.library.register_autograd` does not take."""
    spec = operator.spec
    op = getattr(getattr(torch.ops, NAMESPACE), spec.name).default

    def composed(*args: Any) -> Any:
        """By the kernel, with the textbook's derivatives. Where it writes, only what has a derivative is followed."""
        before, after = ([_copied(spec, k, value) for k, value in enumerate(spec.completed(args))] for _ in range(2))
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            outs = op(*pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, after))
        outs = list(outs) if isinstance(outs, tuple) else [] if outs is None else [outs]
        values = [*outs, *(None if after[k] is None else after[k].detach() for k in spec.updated)]
        found = restated(textbook(operator), before, values)
        for k, value in zip(spec.updated, found[len(outs) :], strict=True):
            if args[k] is not None:
                followed = wants_gradient([args[k]]) or has_tangents([args[k]]) or not spec.outs
                args[k].copy_(value if followed else value.detach())
        return returned(operator, found[: len(outs)], args)

    formula = composed if known is None else known.formula

    def kernel(*args: Any) -> Any:
        if wants_gradient(args) or has_tangents(args):
            return formula(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


def _copied(spec: OpSpec, position: int, value: Any) -> Any:
    """An argument, or a copy of one that is updated."""
    return value.clone() if position in spec.updated and value is not None else value


def schema(spec: OpSpec, overload: str = "") -> str:
    """The op's schema, or that of its overload `ABSENT`.

    Torch's dispatcher does not look for tensors in a list that is optional, and lists of tensors have no default. So
    the op takes an empty list for None; the overload takes None alone.
    """
    arguments = []
    for k, param in enumerate(spec.args):
        kind = f"Tensor({chr(ord('a') + k)}!)" if isinstance(param, InOut) else _TYPES.get(type(param), "Tensor")
        default = "" if param.default is REQUIRED else f"={param.default}"
        if is_optional_list(param):
            arguments.append(f"Tensor? {param.name}{default}" if overload else f"{kind} {param.name}")
        else:
            arguments.append(f"{kind}{'?' if param.may_be_none else ''} {param.name}{default}")
    if spec.asked_by:
        arguments += ["*", *(f"bool {flag}=False" for flag in spec.asked_by)]
    returned = ["Tensor[]" if isinstance(out, OutList) else "Tensor" for out in spec.outs]
    result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    return f"{spec.name}{overload}({', '.join(arguments)}) -> {result}"


def define(operator: Operator) -> Callable[..., Any]:
    """Make the operator an op with its fake kernel; returns its kernel for tensors in memory."""
    spec = operator.spec

    def kernel(*args: Any, **flags: bool) -> Any:
        complete = spec.completed(args)  # the dispatcher leaves out what equals its default at the end
        outs = operator.run(complete, backend=chosen_backend.get(), asked=any(flags.values()))
        return returned(operator, outs if isinstance(outs, tuple) else (outs,), args)

    def fake(*args: Any, **flags: bool) -> Any:
        _, produced = operator.judge(spec.completed(args), asked=any(flags.values()))
        return returned(operator, allocated(produced), args)

    LIBRARY.define(schema(spec), tags=TAGS)
    for device in DEVICES:
        LIBRARY.impl(spec.name, kernel, device)
    for layout in REFUSED:
        LIBRARY.impl(spec.name, fake, layout)
    LIBRARY.impl(spec.name, _of_negated(operator), "Negative")
    torch.library.register_fake(f"{NAMESPACE}::{spec.name}", fake, lib=LIBRARY)
    register_vmap(operator, f"{NAMESPACE}::{spec.name}", LIBRARY)
    register_dtensors(operator, f"{NAMESPACE}::{spec.name}", LIBRARY)
    if any(is_optional_list(param) for param in spec.args):
        _define_absent(operator)
    register_flops(operator, f"{NAMESPACE}::{spec.name}")  # the hash of what it tells torch changes with an overload
    return kernel


def _define_absent(operator: Operator) -> None:
    """The overload for None in place of a list: it is the op with an empty one, to whoever traces or transforms it."""
    spec = operator.spec
    op = getattr(getattr(torch.ops, NAMESPACE), spec.name).default

    def kernel(*args: Any, **flags: bool) -> Any:
        complete = spec.completed(args)
        for param, value in zip(spec.args, complete, strict=True):
            if is_optional_list(param) and value is not None:
                raise WrongType(f"{param.name} is {type(value).__name__}, expected a list of tensors", param.name)
        return op(*lists_for_none(spec, complete), **flags)

    LIBRARY.define(schema(spec, ABSENT), tags=TAGS)
    for key in ("CompositeImplicitAutograd", "FuncTorchBatched", "Batched"):
        LIBRARY.impl(spec.name + ABSENT, kernel, key)


def _of_negated(operator: Operator) -> Callable[..., Any]:
    """The kernel of lazily negated views. Torch's own updates one tensor, and only if the op returns it."""
    op = getattr(getattr(torch.ops, NAMESPACE), operator.spec.name).default

    def in_memory(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [in_memory(member) for member in value]
        return value.resolve_neg() if isinstance(value, torch.Tensor) else value

    def kernel(*args: Any, **flags: bool) -> Any:
        values = in_memory(args)
        results = op(*values, **flags)
        for k in operator.spec.updated:
            if k < len(args) and args[k] is not values[k]:
                args[k].copy_(values[k])
        return results

    return kernel


def returned(operator: Operator, outs: Sequence[Any], args: Sequence[Any]) -> Any:
    """The outputs as an op may return them; whatever comes after them is left out."""
    first = next(arg for arg in args if isinstance(arg, torch.Tensor))
    shown = tuple(
        out if out is not None else [] if isinstance(param, OutList) else first.new_empty(0)
        for param, out in zip(operator.spec.outs, outs, strict=False)
    )
    return shown[0] if len(shown) == 1 else shown or None
