"""The tensors that an executor computes with, and whether they are still what they were when it was planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ...core.errors import AclgradError, DeviceMemoryError, InvalidArgument
from ...core.known import KEPT, Alike
from ...core.memory import refuse_overlaps, tensors_in
from ...core.meta import Meta
from ...core.plan import Plan
from ...core.spec import OpSpec, Param
from ..acl.tensors import AclTensor

Bound: TypeAlias = tuple[str, AclTensor, Meta, torch.Tensor]
"""The name of an aclTensor, what it is, its metadata and the view of its memory, as they were found."""


Plain: TypeAlias = tuple[Param, torch.Tensor, Meta, int, int]
"""What was given as a tensor of torch's: its metadata, the bytes that it spans, and where it lay."""


class _Layout:
    """Which values of a plan's calls are tensors; arguments and outputs count as one sequence."""

    def __init__(self, plan: Plan) -> None:
        call = plan.call
        spec = call.spec
        self.count = len(spec.args)
        metas = [*(call[param.name] for param in spec.args), *plan.outs]
        given = list(enumerate(zip((*spec.args, *spec.outs), metas, strict=True)))
        self.tensors = [(k, param, meta, meta.span) for k, (param, meta) in given if type(meta) is Meta]
        self.lists = [(k, param, [(m, m.span if m else 0) for m in ms]) for k, (param, ms) in given if _is_list(ms)]
        self.absent = [k for k, (_, meta) in given if k >= self.count and meta is None]
        self.written = (*range(self.count, len(metas)), *spec.updated)
        self.alike = Alike()


def _is_list(value: Any) -> bool:
    return type(value) is tuple and any(type(member) is Meta for member in value)


@lru_cache(maxsize=KEPT)
def _layout(plan: Plan) -> _Layout:
    return _Layout(plan)


class Operands:
    """The tensors behind the values of a call: torch's own, and views of the memory that aclTensors describe."""

    __slots__ = ("_alike", "_touched", "args", "bound", "outs", "plain", "written")

    def __init__(self, plan: Plan, args: Sequence[Any], outs: Sequence[Any]) -> None:
        """Raise if there is no memory behind one, or two that must not share it do."""
        layout = _layout(plan)
        given = [*args, *outs]
        found = given.copy()
        self._alike = layout.alike
        self.bound: list[Bound] = []
        self.plain: list[Plain] = []
        self._touched: list[tuple[int, int]] = []
        for k, param, meta, span in layout.tensors:
            found[k] = self._found(param, given[k], meta, span, param.aclnn)
        for k, param, members in layout.lists:
            found[k] = [
                None if meta is None else self._found(param, value, meta, span, f"{param.aclnn}[{n}]")
                for n, (value, (meta, span)) in enumerate(zip(given[k], members, strict=True))
            ]
        for k in layout.absent:
            found[k] = None
        self.args, self.outs = found[: layout.count], found[layout.count :]
        refuse_overlaps(self._touched, plan.call, self.args, self.outs)
        self.written = _unwatched(plan.call.spec, [given[k] for k in layout.written])

    def _found(self, param: Param, value: Any, meta: Any, span: int, label: str) -> Any:
        """The tensor behind a value."""
        if type(value) is AclTensor:
            view = _view(param, value, meta)
            self.bound.append((label, value, value.meta, view))
            start = view.data_ptr()
        else:
            view, start = value, value.data_ptr()
            self.plain.append((param, value, meta, span, start))
        if span:
            self._touched.append((start, start + span))
        return view

    def stand(self) -> bool:
        """Whether every aclTensor has the description and the memory that it was found with."""
        return all(tensor.meta is meta and tensor.view is view for _, tensor, meta, view in self.bound)

    def have_moved(self) -> bool:
        """Whether torch's own tensors lie elsewhere; raises if one was described anew, or has too little memory."""
        plain = self.plain
        if not plain:
            return False
        tensors = [each[1] for each in plain]
        if not self._alike(tensors):
            for param, tensor, meta, *_ in plain:
                if not meta.describes(tensor):
                    raise _described_anew(param, meta)
            self._alike.see(tensors)
        moved = False
        for param, tensor, _, span, address in plain:
            if span and tensor.untyped_storage().nbytes() < tensor.storage_offset() * tensor.itemsize + span:
                raise _cut_off(param, tensor, span)  # a storage can be made smaller at any time
            if tensor.data_ptr() != address:
                moved = True
        return moved


def _view(param: Param, value: AclTensor, meta: Meta) -> torch.Tensor:
    if value.meta is not meta and value.meta != meta:
        raise _described_anew(param, meta)
    try:
        return value.tensor()
    except AclgradError as fault:
        raise type(fault)(f"{param.aclnn}: {fault}", param.aclnn) from None


def _unwatched(spec: OpSpec, written: Sequence[Any]) -> list[torch.Tensor]:
    """What is written to of torch's own tensors, none of which autograd may follow: it would not see the write."""
    tensors = tensors_in(written)
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors):
        named = zip(spec.written_names, written, strict=True)
        label = next(spec.params[name].aclnn for name, value in named if torch._C._any_requires_grad(value))
        raise InvalidArgument(f"{label} requires a gradient, expected detach() of it: autograd sees no write", label)
    return tensors


def _described_anew(param: Param, meta: Meta) -> InvalidArgument:
    return InvalidArgument(f"{param.aclnn} was described anew after phase one, expected {meta}", param.aclnn)


def _cut_off(param: Param, tensor: torch.Tensor, span: int) -> DeviceMemoryError:
    held, needed = tensor.untyped_storage().nbytes(), tensor.storage_offset() * tensor.itemsize + span
    return DeviceMemoryError(f"{param.aclnn} has a storage of {held} bytes, expected {needed}", param.aclnn)
