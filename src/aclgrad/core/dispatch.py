"""Which calls go straight to a kernel, and which go through torch's dispatcher.

A kernel reads and writes memory by its address. So a call may skip the dispatcher only if its tensors are values in
memory, and nobody else has to know of the call: no gradient, no tracer, no mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from .errors import AclgradError, InvalidArgument, Unsupported
from .memory import tensors_in
from .spec import Argument, Call, OpSpec, TensorList

if TYPE_CHECKING:
    from .plan import Operator

NAMESPACE = "aclgrad"
"""Where the operators are among `torch.ops`."""

_HARMLESS = ("ADInplaceOrView", "Autograd", "Autocast")  # dispatch keys that every tensor in memory has

chosen_backend: ContextVar[str | None] = ContextVar("chosen_backend", default=None)
"""The backend that a differentiable call was told to use, for the kernel at the other end of the dispatcher."""


class NotInMemory(InvalidArgument):
    """A tensor whose values are at no address: traced, fake, wrapped, negated or zero until somebody looks."""


def keys_of(tensor: torch.Tensor) -> int:
    """What the dispatcher knows of a tensor, as a number; it differs wherever `has_memory` does."""
    keys: int = torch._C._dispatch_keys(tensor).raw_repr()
    return keys


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements are in memory as they are."""
    return _have_memory(torch._C._dispatch_keys(tensor).raw_repr())


@cache
def _have_memory(keys: int) -> bool:
    shown = str(torch._C.DispatchKeySet.from_raw_repr(keys))  # "DispatchKeySet(CPU, ADInplaceOrView, AutogradCPU)"
    names = shown.partition("(")[2].rstrip(")").split(", ")
    return [name for name in names if not name.startswith(_HARMLESS)] in (["CPU"], ["CUDA"])


def require_memory(label: str, tensor: torch.Tensor) -> None:
    """Raise unless the tensor has memory, and say what would have."""
    if has_memory(tensor):
        return
    if tensor.is_neg():
        raise NotInMemory(f"{label} is a lazily negated view, expected resolve_neg() of it", label)
    if tensor._is_zerotensor():
        raise NotInMemory(f"{label} is a tensor of zeros without memory, expected clone() of it", label)
    kind = f"a {type(tensor).__name__} that torch wraps or traces"
    if tensor.device.type not in ("cpu", "cuda"):
        kind = f"a tensor on the {tensor.device.type} device"
    raise NotInMemory(f"{label} is {kind}, expected a tensor with memory of its own", label)


_is_included, _BEFORE_DISPATCH = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
"""Tracers may stand before all else that the dispatcher does; they are not among its modes."""


def is_watched() -> bool:
    """Whether somebody records or replaces what is called: a compiler, a tracer, a mode, forward mode."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or _is_included(_BEFORE_DISPATCH)
        or forward_ad._current_level >= 0
    )


def wants_gradient(values: Sequence[Any]) -> bool:
    """Whether a gradient of one of these tensors, also inside lists, is wanted."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors_in(values))


def wants_dispatch(values: Sequence[Any]) -> bool:
    """Whether a gradient is wanted of one of these values, or one is of a class that has torch's calls for itself."""
    differentiates = torch.is_grad_enabled()
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if differentiates and value.requires_grad:
                return True
        elif kind is list or kind is tuple:
            if wants_dispatch(value):
                return True
        elif isinstance(value, torch.Tensor):
            return True
    return False


def all_in_memory(values: Sequence[Any]) -> bool:
    """Whether the tensors among these values, also inside lists, are torch's own and have memory."""
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if not has_memory(value):
                return False
        elif kind is list or kind is tuple:
            if not all_in_memory(value):
                return False
        elif isinstance(value, torch.Tensor):
            return False
    return True


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether these are values in memory that nobody traces; gradients are not asked for.

    An operator may then be called past torch's dispatcher, or write over them.
    """
    return not is_watched() and all_in_memory(tensors)


def is_optional_list(param: Argument) -> bool:
    """Whether a list of tensors may be given for it, or None."""
    return isinstance(param, TensorList) and param.may_be_none


def lists_for_none(spec: OpSpec, args: Sequence[Any]) -> list[Any]:
    """The arguments as the op takes them: an empty list where None stands for one."""
    pairs = zip(spec.args, args, strict=True)
    return [[] if value is None and is_optional_list(param) else value for param, value in pairs]


def dispatched(operator: Operator, args: Sequence[Any], out: Any, backend: str | None, asked: bool) -> Any:
    """The call by torch's dispatcher, with what the Python door takes and returns."""
    spec = operator.spec
    args = lists_for_none(spec, args)
    given = (None,) * len(spec.outs) if out is None else operator.given(out)
    if out is not None and wants_gradient((*args, given)):
        raise Unsupported("out is given where a gradient is wanted, expected None: use what is returned", "out")
    options = {
        param.asked_by: asked or mine is not None
        for param, mine in zip(spec.outs, given, strict=True)
        if param.asked_by is not None
    }
    op = getattr(getattr(torch.ops, NAMESPACE), spec.name)
    results = op(*args, **options) if torch.compiler.is_compiling() else _called(operator, op, args, options, backend)
    returned = results if len(spec.outs) > 1 else (results,) if spec.outs else ()
    call = Call(spec, dict(zip(spec.params, (*args, *given), strict=True)), strict=False)
    outs = tuple(
        _received(param.name, result, mine) if param.is_produced(call, asked) else None
        for param, result, mine in zip(spec.outs, returned, given, strict=True)
    )
    return outs[0] if len(outs) == 1 else outs


def _called(operator: Operator, op: Any, args: Sequence[Any], options: dict[str, bool], backend: str | None) -> Any:
    """The op's results. What torch finds wrong is said in the contract's words, where it has some."""
    if backend is not None and is_watched():
        raise Unsupported(f"backend is {backend!r}, expected None: what is traced has no choice of backends", "backend")
    token = chosen_backend.set(backend)
    try:
        return op(*args, **options)
    except AclgradError:
        raise
    except (RuntimeError, TypeError):
        if operator.spec.updated and any(torch._is_functional_tensor(tensor) for tensor in tensors_in(args)):
            name = f"aclgrad.{operator.spec.name}"
            raise Unsupported(
                f"{name} writes to its arguments, which torch.func.functionalize wants of torch's ops only"
            ) from None
        operator.judge(args)
        raise
    finally:
        chosen_backend.reset(token)


def _received(name: str, result: Any, given: Any) -> Any:
    """What an op returned, or what the caller gave for it, written to."""
    if given is None:
        return result
    if isinstance(given, list | tuple):
        return [_received(f"{name}[{k}]", *pair) for k, pair in enumerate(zip(result, given, strict=True))]
    if given.shape != result.shape or given.dtype != result.dtype:
        raise InvalidArgument(
            f"{name} is {given.dtype} {list(given.shape)}, expected {result.dtype} {list(result.shape)}", name
        )
    return given.copy_(result)
