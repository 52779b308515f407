"""Executors: a plan with its operands, waiting for phase two."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from ...core import memory
from ...core.autograd import count_writes
from ...core.dispatch import wants_gradient
from ...core.errors import AclgradError, DeviceMemoryError, InvalidArgument, NullArgument
from ...core.meta import Meta
from ...core.plan import Operator, Plan
from ...core.profile import BINARY, current_profile
from ...core.soc import current_soc
from ...core.spec import BoolArray, InOut, OpSpec, Out, Param, TensorList
from ...core.spec import OutList as OutListParam
from ...core.spec import Tensor as TensorParam
from ..acl import dumping, findings
from ..acl.arguments import size_t
from ..acl.blocks import DEVICE
from ..acl.boundary import remark
from ..acl.devices import context_or_none, stream_of
from ..acl.findings import Kind
from ..acl.handles import Table
from ..acl.streams import Stream
from ..acl.tensors import BOOL_ARRAYS, TENSOR_LISTS, TENSORS, AclTensor
from . import checked
from .checked import Bound

SMALL_BYTES = 1 << 17
"""Work on less than this runs in the calling thread when its stream is idle."""

_OF_ONE_TENSOR = (TensorParam, InOut, Out)

Plain = tuple[Param, torch.Tensor, Meta, int]
"""What was given as a tensor of torch's, its metadata and where it lay."""


class Executor:
    """One planned call. `args` and `outs` hold torch tensors or aclTensors, whose memory may change until they run."""

    __slots__ = ("_bound", "_handles", "_live", "_plain", "_size", "_written", "args", "outs", "plan", "repeatable")

    def __init__(self, plan: Plan, args: list[Any], outs: list[Any], handles: Sequence[Any]) -> None:
        self.plan = plan
        self._handles = checked.Handles(plan.call.spec, handles) if findings.strict else None
        self._size = plan.workspace_size  # as phase one tells it, whatever becomes of the number of threads
        self.args = args
        self.outs = outs
        self.repeatable = False
        self._live: tuple[list[Any], list[Any]] | None = None
        with suppress(NullArgument, DeviceMemoryError):  # an address may still be bound; phase two looks again
            self._bind()

    def forget_addresses(self) -> None:
        """An operand was replaced: look all of them up again when the work runs."""
        self._live = None

    @property
    def workspace_size(self) -> int:
        """Bytes the caller must provide: the plan's, with room to align them."""
        return self._size + memory.ALIGNMENT if self._size else 0

    def run(self, workspace: Any, workspace_size: Any, stream: Any) -> None:
        """Enqueue the work. Everything that can be refused is refused here, before anything is written."""
        plan = self.plan
        if self._handles is not None:
            self._handles.require_live()
        scratch = self._workspace(workspace, workspace_size) if self._size else None
        args, outs = self._operands()
        if scratch is not None:
            plan.refuse_aliases(args, outs, scratch)

        def task() -> None:
            plan.launch(args, outs, scratch)

        if dumping.current is not None:
            task = dumping.around(task, plan.call.spec.aclnn, args, plan.call.spec.written(args, outs))
        queue = self._queue(stream)
        if queue is None:
            task()
        else:
            if findings.strict:
                checked.follow(queue, plan, self._bound, workspace if self._size else None, self.workspace_size)
            queue.submit(task, small=plan.nbytes <= SMALL_BYTES and self._size <= SMALL_BYTES)
        count_writes(self._written)

    def _queue(self, stream: Any) -> Stream | None:
        """The stream to enqueue on. In a thread without a device work on torch's tensors alone needs none."""
        if stream is None or (type(stream) is int and stream == 0):
            context = context_or_none()
            if context is not None:
                return context.default_stream
            if not self._bound:
                return None
        return stream_of(stream)

    def _workspace(self, workspace: Any, workspace_size: Any) -> torch.Tensor:
        needed = self.workspace_size
        if workspace is None or (type(workspace) is int and workspace == 0):
            raise NullArgument(f"workspace is null, expected {needed} bytes of device memory", "workspace")
        if size_t("workspaceSize", workspace_size) < needed:
            raise InvalidArgument(f"workspaceSize is {workspace_size}, expected at least {needed}", "workspaceSize")
        if isinstance(workspace, torch.Tensor):
            if workspace.numel() * workspace.element_size() < needed or not workspace.is_contiguous():
                found = f"{workspace.numel() * workspace.element_size()} bytes"
                raise InvalidArgument(f"workspace has {found}, expected {needed} contiguous ones", "workspace")
            block = workspace.detach().view(-1).view(torch.uint8)
        else:
            try:
                block = DEVICE.view(size_t("workspace", workspace), (needed,), (1,), 0, torch.uint8)
            except DeviceMemoryError as fault:
                raise DeviceMemoryError(f"workspace: {fault}", "workspace") from None
        start = -block.data_ptr() % memory.ALIGNMENT
        return block[start : start + self._size]

    def _operands(self) -> tuple[list[Any], list[Any]]:
        """The torch tensors to compute with: those found in phase one while they are what they were."""
        live = self._live
        if live is None or not all(map(_unchanged, self._bound)):
            live = self._bind()
        moved = False
        for param, tensor, meta, address in self._plain:
            if not meta.describes(tensor):
                raise _described_anew(param, meta)
            _require_storage(param, tensor, meta)
            moved |= tensor.data_ptr() != address
        return self._bind() if moved else live  # which looks once more for memory that is shared

    def _bind(self) -> tuple[list[Any], list[Any]]:
        plan, spec = self.plan, self.plan.call.spec
        bound: list[Bound] = []
        plain: list[Plain] = []
        args = [
            _find(param, value, plan.call[param.name], bound, plain)
            for param, value in zip(spec.args, self.args, strict=True)
        ]
        outs = [
            None if meta is None else _find(param, value, meta, bound, plain)
            for param, value, meta in zip(spec.outs, self.outs, plan.outs, strict=True)
        ]
        plan.refuse_aliases(args, outs)
        self._bound, self._plain, self._live = bound, plain, (args, outs)
        self._written = _unwatched(spec, self.args, self.outs)
        return args, outs


EXECUTORS: Table[Executor] = Table(
    "aclOpExecutor",
    leak=lambda executor: Kind.EXECUTOR_LEAKED if executor.repeatable else Kind.EXECUTOR_NEVER_RUN,
    gone="an executor that was used up by phase two, or destroyed; to use one again, "
    "aclSetAclOpExecutorRepeatable before phase two",
)


def plan_executor(operator: Operator, arguments: Sequence[Any]) -> Executor:
    """Phase one on the arguments before workspaceSize."""
    inputs = len(operator.spec.args)
    params = (*operator.spec.args, *operator.spec.outs)
    values = [resolve(param, value) for param, value in zip(params, arguments, strict=True)]
    args, outs = values[:inputs], values[inputs:]
    plan = operator.plan(args, outs, strict=True, soc=current_soc(), binary=current_profile() == BINARY)
    if plan.remark is not None:
        remark(Kind.DOUBTFUL_ARGUMENT, f"{operator.spec.aclnn}GetWorkspaceSize: {plan.remark}")
    return Executor(plan, args, outs, arguments)


def resolve(param: Param, value: Any) -> Any:
    """What an argument of the aclnn door stands for: a handle becomes its object, a null handle None."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    if type(param) in _OF_ONE_TENSOR:
        return _tensor(param.aclnn, value)
    if isinstance(param, TensorList | OutListParam):
        if isinstance(value, list | tuple):
            return [_tensor(f"{param.aclnn}[{k}]", item) for k, item in enumerate(value)]
        if _is_handle(value):
            return list(TENSOR_LISTS.get(value, param.aclnn).members) if value else None
        return value
    if isinstance(param, BoolArray) and _is_handle(value):
        return BOOL_ARRAYS.get(value, param.aclnn).values if value else None
    return value


def _tensor(label: str, value: Any) -> Any:
    """A tensor handle's object; a null one is None."""
    if type(value) is int:
        return TENSORS.get(value, label) if value else None
    return value


def _unwatched(spec: OpSpec, args: Sequence[Any], outs: Sequence[Any]) -> list[torch.Tensor]:
    """What is written to of torch's own tensors, none of which autograd may follow: it would not see the write."""
    written = spec.written(args, outs)
    tensors = memory.tensors_in(written)
    if wants_gradient(tensors):
        named = zip(spec.written_names, written, strict=True)
        label = next(spec.params[name].aclnn for name, value in named if wants_gradient((value,)))
        raise InvalidArgument(f"{label} requires a gradient, expected detach() of it: autograd sees no write", label)
    return tensors


def _is_handle(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unchanged(found: Bound) -> bool:
    """True while an aclTensor has the description and the memory it was found with."""
    _, tensor, meta, view = found
    return tensor.meta is meta and tensor.view is view


def _described_anew(param: Param, meta: Meta) -> InvalidArgument:
    return InvalidArgument(f"{param.aclnn} was described anew after phase one, expected {meta}", param.aclnn)


def _require_storage(param: Param, tensor: torch.Tensor, meta: Meta) -> None:
    """Raise if a tensor's storage, which can be made smaller at any time, ends before the tensor does."""
    span = tensor.nbytes if tensor.is_contiguous() else meta.span  # the former is quickly told
    needed = tensor.storage_offset() * tensor.itemsize + span if span else 0
    held = tensor.untyped_storage().nbytes()
    if held < needed:
        raise DeviceMemoryError(f"{param.aclnn} has a storage of {held} bytes, expected {needed}", param.aclnn)


def _find(param: Param, value: Any, meta: Any, bound: list[Bound], plain: list[Plain], label: str | None = None) -> Any:
    """The torch tensors behind an operand; noted are aclTensors with what was found, and what was given as tensors."""
    if isinstance(value, torch.Tensor):
        plain.append((param, value, meta, value.data_ptr()))
    if type(value) is AclTensor:
        if value.meta != meta:
            raise _described_anew(param, meta)
        try:
            view = value.tensor()
        except AclgradError as fault:
            raise type(fault)(f"{param.aclnn}: {fault}", param.aclnn) from None
        bound.append((label or param.aclnn, value, value.meta, view))
        return view
    if type(value) is list and isinstance(param, TensorList | OutListParam):
        pairs = enumerate(zip(value, meta, strict=True))
        return [_find(param, item, its, bound, plain, f"{param.aclnn}[{k}]") for k, (item, its) in pairs]
    return value
