"""Executors: a plan with its operands, waiting for phase two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core import memory
from ...core.autograd import count_writes
from ...core.errors import DeviceMemoryError, InvalidArgument, NullArgument
from ...core.plan import Operator, Plan
from ...core.profile import BINARY, current_profile
from ...core.soc import current_soc
from ...core.spec import BoolArray, InOut, Out, Param, TensorList
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
from ..acl.tensors import BOOL_ARRAYS, TENSOR_LISTS, TENSORS
from . import checked
from .operands import Operands

SMALL_BYTES = 1 << 17
"""Work on less than this runs in the calling thread when its stream is idle."""

_OF_ONE_TENSOR = (TensorParam, InOut, Out)


class Executor:
    """One planned call. `args` and `outs` hold torch tensors or aclTensors, whose memory may change until they run."""

    __slots__ = ("_found", "_handles", "_size", "args", "outs", "plan", "repeatable")

    def __init__(self, plan: Plan, args: list[Any], outs: list[Any], handles: Sequence[Any]) -> None:
        self.plan = plan
        self._handles = checked.Handles(plan.call.spec, handles) if findings.strict else None
        self._size = plan.workspace_size  # as phase one tells it, whatever becomes of the number of threads
        self.args = args
        self.outs = outs
        self.repeatable = False
        self._found: Operands | None
        try:
            self._found = Operands(plan, args, outs)
        except (NullArgument, DeviceMemoryError):  # an address may still be bound; phase two looks again
            self._found = None

    def forget_addresses(self) -> None:
        """An operand was replaced: look all of them up again when the work runs."""
        self._found = None

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
        operands = self._operands()
        args, outs = operands.args, operands.outs
        if scratch is not None:
            plan.refuse_aliases(args, outs, scratch)

        def task() -> None:
            plan.launch(args, outs, scratch)

        if dumping.current is not None:
            task = dumping.around(task, plan.call.spec.aclnn, args, plan.call.spec.written(args, outs))
        queue = self._queue(stream, operands)
        if queue is None:
            task()
        else:
            if findings.strict:
                checked.follow(queue, plan, operands.bound, workspace if self._size else None, self.workspace_size)
            queue.submit(task, small=plan.nbytes <= SMALL_BYTES and self._size <= SMALL_BYTES)
        if operands.written:
            count_writes(operands.written)

    def _queue(self, stream: Any, operands: Operands) -> Stream | None:
        """The stream to enqueue on. In a thread without a device work on torch's tensors alone needs none."""
        if stream is None or (type(stream) is int and stream == 0):
            context = context_or_none()
            if context is not None:
                return context.default_stream
            if not operands.bound:
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

    def _operands(self) -> Operands:
        """The tensors to compute with: those found in phase one while they are what they were."""
        found = self._found
        if found is None or not found.stand():
            found = self._found = Operands(self.plan, self.args, self.outs)
        if found.have_moved():  # look once more for memory that is shared
            found = self._found = Operands(self.plan, self.args, self.outs)
        return found


EXECUTORS: Table[Executor] = Table(
    "aclOpExecutor",
    leak=lambda executor: Kind.EXECUTOR_LEAKED if executor.repeatable else Kind.EXECUTOR_NEVER_RUN,
    gone="an executor that was used up by phase two, or destroyed; to use one again, "
    "aclSetAclOpExecutorRepeatable before phase two",
)


def plan_executor(operator: Operator, arguments: Sequence[Any]) -> Executor:
    """Phase one on the arguments before workspaceSize."""
    spec = operator.spec
    inputs = len(spec.args)
    values = [
        value if value is None or type(value) is torch.Tensor else resolve(param, value)
        for param, value in zip(spec.params.values(), arguments, strict=True)
    ]
    args, outs = values[:inputs], values[inputs:]
    plan = operator.plan(args, outs, strict=True, soc=current_soc(), binary=current_profile() == BINARY)
    if plan.remark is not None:
        remark(Kind.DOUBTFUL_ARGUMENT, f"{spec.aclnn}GetWorkspaceSize: {plan.remark}")
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


def _is_handle(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
