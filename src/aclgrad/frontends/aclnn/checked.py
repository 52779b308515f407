"""What a checked run looks at when phase two enqueues its work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from ...core.meta import Meta
from ...core.plan import Plan
from ...core.spec import InOut, OpSpec, Out, OutList, Tensor, TensorList
from ..acl import ordering, written
from ..acl.blocks import DEVICE, Block
from ..acl.boundary import tolerate
from ..acl.findings import Kind
from ..acl.ordering import Touch
from ..acl.streams import Stream
from ..acl.tensors import TENSOR_LISTS, TENSORS
from .operands import Bound

KEPT_PLANS = 256


class _Role(NamedTuple):
    """What the calls of a plan do with an operand, and how it lies in memory."""

    itemsize: int
    span: int
    is_dense: bool
    is_written: bool
    is_output: bool
    is_read: bool


class _Seen(NamedTuple):
    """Memory that a plan worked on without a finding; while its blocks live there is nothing new to find in it."""

    starts: list[int]
    scratch: int
    touches: Sequence[Touch]
    blocks: Sequence[Block]


class _Known:
    """What need not be found out again for a plan."""

    __slots__ = ("roles", "seen")

    def __init__(self) -> None:
        self.roles: dict[str, _Role] = {}
        self.seen: _Seen | None = None


@lru_cache(maxsize=KEPT_PLANS)
def _known(plan: Plan) -> _Known:
    del plan
    return _Known()


def _role(plan: Plan, label: str, meta: Meta) -> _Role:
    spec, name = plan.call.spec, label.partition("[")[0]
    is_output = name in {param.aclnn for param in spec.outs}
    is_updated = name in {arg.aclnn for arg in spec.args if isinstance(arg, InOut)}
    is_read = not is_output and label not in spec.unread(plan.call)
    return _Role(meta.itemsize, meta.span, meta.is_dense(), is_output or is_updated, is_output, is_read)


@cache
def _tensors(spec: OpSpec) -> tuple[tuple[int, str, bool], ...]:
    """Which arguments of phase one are tensors: (index, name, whether it is a list)."""
    return tuple(
        (index, param.aclnn, isinstance(param, TensorList | OutList))
        for index, param in enumerate((*spec.args, *spec.outs))
        if isinstance(param, Tensor | Out | OutList)
    )


class Handles:
    """What phase one was given: nothing of it may be destroyed before phase two, neither lists nor their members."""

    __slots__ = ("_before", "_handles", "_spec")

    def __init__(self, spec: OpSpec, handles: Sequence[Any]) -> None:
        self._spec, self._handles, self._before = spec, handles, _destroyed()

    def require_live(self) -> None:
        """Raise if something has been destroyed since."""
        if _destroyed() == self._before:
            return
        for index, name, is_list in _tensors(self._spec):
            handle = self._handles[index]
            if type(handle) is not int or not handle:
                continue
            if is_list:
                owned = TENSOR_LISTS.find(handle)
                members = () if owned is None else owned.handles
                alive = owned is not None and all(TENSORS.find(member) is not None for member in members if member)
            else:
                alive = TENSORS.find(handle) is not None
            if not alive:
                tolerate(
                    Kind.DESTROYED_TOO_EARLY,
                    f"{name} was destroyed after phase one, expected it to live until phase two was called",
                )


def _destroyed() -> int:
    return TENSORS.discarded + TENSOR_LISTS.discarded


def follow(queue: Stream, plan: Plan, bound: Sequence[Bound], workspace: Any, size: int) -> None:
    """Note the device memory that the work reads and writes; torch's own tensors are none of it."""
    known, starts = _known(plan), []
    for label, tensor, meta, _ in bound:
        role = known.roles.get(label)
        if role is None:
            role = known.roles[label] = _role(plan, label, meta)
        starts.append(tensor.data + tensor.offset * role.itemsize)
    scratch = 0 if workspace is None or isinstance(workspace, torch.Tensor) else int(workspace)
    seen = known.seen
    if seen is None or seen.starts != starts or seen.scratch != scratch or not all(b.alive for b in seen.blocks):
        operands = [
            (label, known.roles[label], start, meta) for (label, _, meta, _), start in zip(bound, starts, strict=True)
        ]
        touches = [Touch(start, start + role.span, role.is_written, role.is_dense) for _, role, start, _ in operands]
        if scratch:
            touches.append(Touch(scratch, scratch + size, True))
        _submit(queue, plan, touches)
        blocks = _memory(plan.call.spec.aclnn, operands)
        known.seen = None if blocks is None else _Seen(starts, scratch, touches, blocks)
    else:
        _submit(queue, plan, seen.touches)


def _submit(queue: Stream, plan: Plan, touches: Sequence[Touch]) -> None:
    if plan.nbytes:
        ordering.submitted(queue, plan.call.spec.aclnn, touches)


def _memory(what: str, operands: Sequence[tuple[str, _Role, int, Meta]]) -> list[Block] | None:
    """Note what is written and look at what is read: the blocks of all that, or None after a finding."""
    blocks, is_clean = [], True
    for label, role, start, meta in operands:
        block = DEVICE.owner(start) if role.span else None
        if block is None:
            continue
        blocks.append(block)
        if role.is_output:
            written.wrote(block, start, role.span)
        elif role.is_read:
            is_clean &= written.read_tensor(block, start, meta, f"{what}: {label}", is_dense=role.is_dense)
    return blocks if is_clean else None
