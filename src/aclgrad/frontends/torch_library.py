"""`torch.ops.aclgrad.*`: every operator as an op of torch's dispatcher, derived from its contract.

An op has the arguments of the contract, with its defaults, and returns the outputs; one that is not
produced is an empty tensor or an empty list, since an op cannot return None. Fake kernels run the contract on metadata,
so `torch.compile` and `torch.export` see shapes, strides and refusals without computing anything. What a
family's `autograd`, if it has one, names is differentiable; the gradient of anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.autograd import Composed, final, refusal, require_no_tangents
from ..core.dispatch import NAMESPACE, chosen_backend, is_optional_list, lists_for_none, wants_gradient
from ..core.errors import Unsupported, WrongType
from ..core.memory import tensors_in
from ..core.plan import Operator, allocated
from ..core.registry import operators, part
from ..core.spec import REQUIRED, BoolArray, Flag, Float, InOut, Int, OpSpec, OutList, Param, TensorList
from .torch_autograd import register_autograd
from .torch_flops import register_flops
from .torch_vmap import register_vmap


class Library(torch.library.Library):
    """Torch's, whose gradients refuse to drop a derivative in forward mode."""

    def impl(self, op_name: Any, fn: Any, dispatch_key: Any = "", **options: Any) -> Any:
        """Register a kernel, that of a gradient behind a check."""

        def checked(*args: Any, **named: Any) -> Any:
            require_no_tangents((*args, *named.values()))
            return fn(*args, **named)

        kernel = checked if dispatch_key == "Autograd" else fn
        return super().impl(op_name, kernel, dispatch_key, **options)  # type: ignore[no-untyped-call]  # torch's


LIBRARY: Any = Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
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
    """Define an op for every operator, and the gradients their families know."""
    for operator in operators():
        define(operator)
        differentiate(operator)


def differentiate(operator: Operator) -> None:
    """Register the operator's gradient, or its refusal."""
    spec = operator.spec
    known = getattr(part(spec.package, "autograd"), "GRADIENTS", {}).get(spec.name)
    message = f"aclgrad.{spec.name} cannot be differentiated; docs/pytorch.md says which modules can, and how often"
    if spec.updated:
        LIBRARY.impl(spec.name, _differentiable_update(operator, known, message), "Autograd")
        return
    register_autograd(f"{NAMESPACE}::{spec.name}", known or refusal(message), LIBRARY)


def _differentiable_update(operator: Operator, known: Composed | None, message: str) -> Callable[..., Any]:
    """The gradient of an op that updates its arguments, which `torch.library.register_autograd` does not take."""
    spec = operator.spec
    op = getattr(getattr(torch.ops, NAMESPACE), spec.name).default

    def kernel(*args: Any) -> Any:
        if known is not None and wants_gradient(args):
            return known.formula(*args)
        if wants_gradient([args[k] for k in spec.updated if k < len(args)] if spec.outs else args):
            operator.judge(spec.completed(args))  # what else is wrong comes first
            raise Unsupported(message)
        with torch._C._AutoDispatchBelowAutograd():
            results = op(*args)
        if not wants_gradient(args):
            return results
        return tuple(final(message, results, *(tensor for tensor in tensors_in(args) if tensor.requires_grad)))

    return kernel


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


def define(operator: Operator) -> None:
    """Make the operator an op with its fake kernel."""
    spec = operator.spec

    def kernel(*args: Any, **flags: bool) -> Any:
        complete = spec.completed(args)  # the dispatcher leaves out what equals its default at the end
        outs = operator.run(complete, backend=chosen_backend.get(), asked=any(flags.values()))
        return _returned(operator, outs if isinstance(outs, tuple) else (outs,), args)

    def fake(*args: Any, **flags: bool) -> Any:
        _, produced = operator.judge(spec.completed(args), asked=any(flags.values()))
        return _returned(operator, allocated(produced), args)

    LIBRARY.define(schema(spec), tags=TAGS)
    for device in DEVICES:
        LIBRARY.impl(spec.name, kernel, device)
    for layout in REFUSED:
        LIBRARY.impl(spec.name, fake, layout)
    LIBRARY.impl(spec.name, _of_negated(operator), "Negative")
    torch.library.register_fake(f"{NAMESPACE}::{spec.name}", fake, lib=LIBRARY)
    register_flops(operator, f"{NAMESPACE}::{spec.name}")
    register_vmap(operator, f"{NAMESPACE}::{spec.name}", LIBRARY)
    if any(is_optional_list(param) for param in spec.args):
        _define_absent(operator)


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


def _returned(operator: Operator, outs: Sequence[Any], args: Sequence[Any]) -> Any:
    """The outputs as an op may return them."""
    first = next(arg for arg in args if isinstance(arg, torch.Tensor))
    shown = tuple(
        out if out is not None else [] if isinstance(param, OutList) else first.new_empty(0)
        for param, out in zip(operator.spec.outs, outs, strict=True)
    )
    return shown[0] if len(shown) == 1 else shown or None
