"""Repeatable executors: run many times, on other addresses, destroyed by the caller.

An operand's index is its position among the tensor and list parameters of the document's prototype: inputs only for the
Input functions, outputs only for the Output functions, inputs then outputs for the rest. What replaces an operand has
its metadata.
"""

# ruff: noqa: N816  these are the C interface's own names

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...core.binding import fingerprint
from ...core.errors import AclgradError, InvalidArgument
from ...core.spec import OpSpec, Out, OutList, Param, Tensor
from ..acl.arguments import address, shown, size_t
from ..acl.boundary import aclnn_call, code_only
from ..acl.enums import SUCCESS
from ..acl.tensors import AclTensor, Description
from .executor import EXECUTORS, Executor, resolve


class InnerNull(AclgradError):
    """A null executor where the interface reports an inner error."""

    status = 561103


@aclnn_call("aclSetAclOpExecutorRepeatable", code_only)
def aclSetAclOpExecutorRepeatable(executor: Any) -> int:
    """Let phase two be called any number of times; the caller destroys the executor."""
    _known(executor).repeatable = True
    return SUCCESS


@aclnn_call("aclDestroyAclOpExecutor", code_only)
def aclDestroyAclOpExecutor(executor: Any) -> int:
    """Destroy an executor."""
    _known(executor)
    EXECUTORS.discard(int(executor))
    return SUCCESS


def _known(handle: Any) -> Executor:
    if handle is None or (type(handle) is int and handle == 0):
        raise InnerNull("executor is null, expected a live executor", "executor")
    found = EXECUTORS.find(handle)
    if found is None:
        raise AclgradError(f"executor is {shown(handle)}, expected a live executor", "executor")
    return found


def _inputs(spec: OpSpec) -> list[Param]:
    return [param for param in spec.args if isinstance(param, Tensor)]


def _outputs(spec: OpSpec) -> list[Param]:
    return list(spec.outs)


def _everything(spec: OpSpec) -> list[Param]:
    return _inputs(spec) + _outputs(spec)


def _setter(c_name: str, params: Callable[[OpSpec], list[Param]]) -> Callable[[Any, Any, Any, Any], int]:
    @aclnn_call(c_name, code_only)
    def set_address(executor: Any, index: Any, tensor: Any, addr: Any) -> int:
        """Bind one operand of a repeatable executor to another address, or to another torch tensor."""
        planned, operands, k = _slot(executor, params, index, "index")
        operands[k] = _replacement(operands[k], resolve(_param(planned, operands, k), tensor), addr)
        planned.forget_addresses()
        return SUCCESS

    return set_address


def _list_setter(c_name: str, params: Callable[[OpSpec], list[Param]]) -> Callable[[Any, Any, Any, Any, Any], int]:
    @aclnn_call(c_name, code_only)
    def set_address(executor: Any, irIndex: Any, relativeIndex: Any, tensors: Any, addr: Any) -> int:
        """Bind one member of a list operand of a repeatable executor to another address or torch tensor."""
        planned, operands, k = _slot(executor, params, irIndex, "irIndex")
        members, given = operands[k], resolve(_param(planned, operands, k), tensors)
        position = size_t("relativeIndex", relativeIndex)
        if not isinstance(members, list) or position >= len(members):
            found = len(members) if isinstance(members, list) else "no"
            raise InvalidArgument(f"relativeIndex is {position}, but the operand has {found} members", "relativeIndex")
        if not isinstance(given, list) or len(given) != len(members):
            raise InvalidArgument(f"tensors is {shown(tensors)}, expected a list of {len(members)}", "tensors")
        operands[k] = [*members]
        operands[k][position] = _replacement(members[position], given[position], addr)
        planned.forget_addresses()
        return SUCCESS

    return set_address


def _slot(
    handle: Any, params: Callable[[OpSpec], list[Param]], index: Any, name: str
) -> tuple[Executor, list[Any], int]:
    """(executor, the list its operand is kept in, the position there)."""
    planned = EXECUTORS.get(handle, "executor")
    if not planned.repeatable:
        raise InvalidArgument("executor is not repeatable, expected aclSetAclOpExecutorRepeatable before", "executor")
    spec = planned.plan.call.spec
    candidates = params(spec)
    number = size_t(name, index)
    if number >= len(candidates):
        raise InvalidArgument(f"{name} is {number}, expected less than {len(candidates)}", name)
    param = candidates[number]
    if isinstance(param, Out | OutList):
        return planned, planned.outs, spec.outs.index(param)
    return planned, planned.args, spec.args.index(param)


def _param(planned: Executor, operands: list[Any], k: int) -> Param:
    spec = planned.plan.call.spec
    return spec.args[k] if operands is planned.args else spec.outs[k]


def _replacement(old: Any, given: Any, addr: Any) -> Any:
    if old is None or given is None:
        raise InvalidArgument("a null operand cannot be bound to an address", "tensor")
    if isinstance(given, torch.Tensor):
        if not isinstance(old, torch.Tensor) or fingerprint([old]) != fingerprint([given]):
            raise InvalidArgument(
                f"tensor is {shown(given)}, expected the shape, strides, dtype and device planned for", "tensor"
            )
        return given
    if not isinstance(given, AclTensor) or not isinstance(old, AclTensor) or given.meta != old.meta:
        raise InvalidArgument("tensor differs from the operand planned for, expected the same metadata", "tensor")
    return AclTensor(Description(old.meta, old.data_type, old.offset, old.storage_dims, address("addr", addr)))


aclSetInputTensorAddr = _setter("aclSetInputTensorAddr", _inputs)
aclSetOutputTensorAddr = _setter("aclSetOutputTensorAddr", _outputs)
aclSetTensorAddr = _setter("aclSetTensorAddr", _everything)
aclSetDynamicInputTensorAddr = _list_setter("aclSetDynamicInputTensorAddr", _inputs)
aclSetDynamicOutputTensorAddr = _list_setter("aclSetDynamicOutputTensorAddr", _outputs)
aclSetDynamicTensorAddr = _list_setter("aclSetDynamicTensorAddr", _everything)
