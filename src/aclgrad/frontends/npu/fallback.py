"""Every op on tensors of the device: by this package's kernels where it has one, by the device behind otherwise.

A tensor of the device becomes its alias on the device behind, what the op returns becomes a tensor of the device again:
the same one where the op has returned its argument, a view where it has returned one, a new one otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

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
        if self.strangers and self.pairs:
            raise RuntimeError(
                f"{op}: Expected all tensors to be on the same device, but found at least two devices, "
                f"{DEVICE_TYPE}:0 and {self.strangers[0].device}!"
            )


class _Facts(NamedTuple):
    """What an op is like."""

    special: Kernel | None  # what serves it with tensors of the device
    kernel: Kernel  # what serves it with tensors of the device behind
    generator: int | None  # which argument is a generator
    numbers: tuple[int, ...]  # arguments where torch hands over numbers for tensors, and does not take them as such
    wants_one_device: bool
    is_mutable: bool

    @classmethod
    @cache
    def of(cls, op: Any) -> _Facts:
        schema = op._schema
        namespace, _, name = schema.name.partition("::")
        numbers: Iterator[int] = iter(())
        if not torch._C._should_allow_numbers_as_tensors(name):
            numbers = (k for k, argument in enumerate(schema.arguments) if k and str(argument.type) == "Tensor")
        return cls(
            _SPECIAL.get(name) if namespace == "aten" else None,
            kernels().get(op, op),
            next((k for k, argument in enumerate(schema.arguments) if argument.name == "generator"), None),
            tuple(numbers),
            namespace in CHECKED and name not in TAKES_ANY_DEVICE,
            schema.is_mutable,
        )


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls for an op that the device has no kernel of its own for: for all of them."""
    facts = _Facts.of(op)
    if facts.special is not None:
        return facts.special(op, *args, **kwargs)
    call = _Call()
    below = [call.down(arg) for arg in args]
    options = {name: call.down(value) for name, value in kwargs.items()}
    if facts.wants_one_device:
        call.require_one_device(op)
    for k in facts.numbers:
        if k < len(below) and isinstance(below[k], bool | int | float | complex):
            below[k] = torch.scalar_tensor(below[k], dtype=torch.result_type(below[0], below[k]), device=memory.behind)
    if facts.generator is not None:
        if facts.generator < len(below):
            below[facts.generator] = below[facts.generator] or random.generator()
        else:
            options["generator"] = options.get("generator") or random.generator()
    results = facts.kernel(*below, **options)
    if facts.is_mutable:
        for after, above in call.pairs:
            memory.follow(above, after)
    return call.up(results)


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
    for op in {*kernels(), *_served_in_two_steps(), torch.ops.aten._to_copy.default}:  # else torch's own come first
        made.add(op, partial(fallback, op), "PrivateUse1")
    for key in ("Conjugate", "Negative"):  # else torch would make a copy of the source, which is this op again
        made.add("_copy_from", torch.library.fallthrough_kernel, key)
    for module in modules("torch_npu").values():
        for name, function in getattr(module, "COMPOSED", {}).items():
            op = overload(name)
            for key in ("AutogradPrivateUse1", "PrivateUse1"):
                made.add(op, partial(function, op.decompose), key)
    return made.undo


def _served_in_two_steps() -> Iterator[Any]:
    """Ops for which torch would make the result, and then call another op that writes to it."""
    for full_name in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeExplicitAutogradNonFunctional"):
        namespace, _, name = full_name.partition("::")
        if namespace == "aten":
            yield overload(name)


def _copy(op: Any, source: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ARG001
    call = _Call()
    below, into = call.down(source), call.down(target)
    if op._schema.name == "aten::_copy_from_and_resize":
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
