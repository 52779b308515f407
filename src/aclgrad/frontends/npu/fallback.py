"""Every op on tensors of the device: by this package's kernels where it has one, by the device behind otherwise.

A tensor of the device becomes its alias on the device behind, what the op returns becomes a tensor of the device again:
the same one where the op has returned its argument, a view where it has returned one, a new one otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ...core.dispatch import NAMESPACE
from ..collected import modules
from . import memory, random, special
from .memory import DEVICE_TYPE
from .registrations import Registrations, overload

Kernel = Callable[..., Any]

TAKES_ANY_DEVICE = {
    "_copy_from", "_copy_from_and_resize", "copy_", "index", "index_put", "index_put_", "_index_put_impl_",
    "_unsafe_index", "_unsafe_index_put", "set_", "resize_as_",
}  # fmt: skip
"""Ops some of whose tensors may be the processor's; a number in a tensor may be that anywhere."""

CHECKED = ("aten", NAMESPACE)
"""Libraries all of whose other ops want their tensors in one place."""

_BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class _Call:
    """One call of an op: its tensors of the device, and what they are behind."""

    __slots__ = ("owners", "pairs", "strangers")

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.owners: dict[int, Tensor] = {}
        self.strangers: list[Tensor] = []

    def down(self, value: Any) -> Any:
        """An argument as the device behind takes it."""
        kind = type(value)
        if kind is list or kind is tuple:
            return kind([self.down(member) for member in value])
        if isinstance(value, Tensor):
            if value.device.type != DEVICE_TYPE:
                if value.dim():
                    self.strangers.append(value)
                return value
            below = memory.alias(value)
            self.owners[below.untyped_storage()._cdata] = value
            self.pairs.append((below, value))
            return below
        if kind is torch.device and value.type == DEVICE_TYPE:
            return memory.behind
        return value

    def up(self, value: Any) -> Any:
        """A result as the program gets it."""
        kind = type(value)
        if kind is list or kind is tuple:
            return kind([self.up(member) for member in value])
        if not isinstance(value, Tensor):
            return value
        for below, above in self.pairs:
            if below is value:
                return above
        if value._is_zerotensor():
            value = value.clone()
        is_dense = value.layout == torch.strided
        return memory.adopt(value, self.owners.get(value.untyped_storage()._cdata) if is_dense else None)

    def require_one_device(self, op: Any) -> None:
        """Raise where a device would: it does not reach the processor's memory."""
        if self.strangers and self.pairs and op.namespace in CHECKED and _name(op) not in TAKES_ANY_DEVICE:
            raise RuntimeError(
                f"{op}: Expected all tensors to be on the same device, but found at least two devices, "
                f"{DEVICE_TYPE}:0 and {self.strangers[0].device}!"
            )


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls for an op that the device has no kernel of its own for: for all of them."""
    special = _SPECIAL.get(_name(op)) if op.namespace == "aten" else None
    if special is not None:
        return special(op, *args, **kwargs)
    call = _Call()
    below = [call.down(arg) for arg in args]
    options = {name: call.down(value) for name, value in kwargs.items()}
    call.require_one_device(op)
    for k in _places_of_tensors(op):
        if k < len(below) and isinstance(below[k], bool | int | float | complex):
            below[k] = torch.scalar_tensor(below[k], dtype=torch.result_type(below[0], below[k]), device=memory.behind)
    place = _generator_place(op)
    if place is not None and place < len(below):
        below[place] = below[place] or random.generator()
    elif place is not None:
        options["generator"] = options.get("generator") or random.generator()
    results = kernels().get(op, op)(*below, **options)
    for after, above in call.pairs:
        memory.follow(above, after)
    return call.up(results)


@cache
def _name(op: Any) -> str:
    return str(op._schema.name.partition("::")[2])


@cache
def _generator_place(op: Any) -> int | None:
    """Which argument is a generator."""
    return next((k for k, argument in enumerate(op._schema.arguments) if argument.name == "generator"), None)


@cache
def _places_of_tensors(op: Any) -> tuple[int, ...]:
    """Arguments that torch hands over as numbers, where a program gave one for a tensor, and does not take as such."""
    if torch._C._should_allow_numbers_as_tensors(_name(op)):
        return ()
    return tuple(k for k, argument in enumerate(op._schema.arguments) if k and str(argument.type) == "Tensor")


@cache
def kernels() -> dict[Any, Kernel]:
    """What computes on the device behind instead of torch's op: this package's functions, and what torch has not."""
    found = dict(special.KERNELS)
    for module in modules("torch_npu").values():
        found.update(getattr(module, "ATEN", {}))
    return {overload(name): kernel for name, kernel in found.items()}


def register() -> Callable[[], None]:
    """Let torch call `fallback`, and differentiable functions for ops that it would take apart; the answer ends it."""
    made = Registrations()
    made.add_for_others(fallback, "PrivateUse1")
    for op in (*kernels(), torch.ops.aten._to_copy.default):  # torch has kernels for every device, which come first
        made.add(op, partial(fallback, op), "PrivateUse1")
    for key in ("Conjugate", "Negative"):  # else torch would make a copy of the source, which is this op again
        made.add("_copy_from", torch.library.fallthrough_kernel, key)
    for module in modules("torch_npu").values():
        for name, function in getattr(module, "COMPOSED", {}).items():
            op = overload(name)
            for key in ("AutogradPrivateUse1", "PrivateUse1"):
                made.add(op, partial(function, op.decompose), key)
    return made.undo


def _copy(op: Any, source: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ARG001
    call = _Call()
    below, into = call.down(source), call.down(target)
    if _name(op) == "_copy_from_and_resize":
        into.resize_(below.shape)
    into.copy_(below)
    if memory.is_on_device(target):
        memory.follow(target, into)
    return target


def _to_copy(op: Any, tensor: Tensor, **options: Any) -> Any:
    """Torch's own kernel for every device, without the pinned memory that it wants for `non_blocking`."""
    return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, tensor, **{**options, "non_blocking": False})


def _set(op: Any, tensor: Tensor, *args: Any) -> Tensor:
    """Only metadata, whatever the device is."""
    op.redispatch(_BELOW, tensor, *args)
    return tensor


def _is_pinned(op: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> bool:  # noqa: ARG001
    return False


def _same(op: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ARG001
    return tensor


def _nothing(op: Any, *args: Any, **kwargs: Any) -> None:
    """There is nothing to be done for it."""


_SPECIAL: dict[str, Kernel] = {
    "_copy_from": _copy,
    "_copy_from_and_resize": _copy,
    "_to_copy": _to_copy,
    "set_": _set,
    "is_pinned": _is_pinned,
    "_pin_memory": _same,
    "record_stream": _nothing,
}
