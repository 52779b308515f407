"""An operator called the way an aclnn program calls it: device memory, handles, two phases, a stream, copies back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .. import acl, aclnn
from ..core.meta import meta_of
from ..core.plan import Operator
from ..core.spec import BoolArray, Out, OutList
from ..core.spec import Tensor as TensorParam
from ..frontends.acl.enums import ACL_DATA_TYPES, AclError, AclFormat, MallocPolicy, MemcpyKind
from ..frontends.acl.tensors import TENSOR_LISTS


class ProgramError(RuntimeError):
    """A runtime call of the program failed."""


class Program:
    """The resources of one small program; everything it made is destroyed with it."""

    def __init__(self) -> None:
        self.stream = _ok(*acl.rt.create_stream())
        self._blocks: list[int] = []
        self._handles: list[tuple[Any, int]] = []

    def upload(self, tensor: Tensor) -> int:
        """A handle over device memory with the tensor's values and strides; dense tensors keep their layout."""
        dense = tensor.is_contiguous() or tensor.numel() == 0 or _fills_its_span(tensor)
        source = tensor.detach() if dense else tensor.detach().contiguous()
        address = 0
        if source.numel():
            size = source.numel() * source.element_size()
            address = self.malloc(size)
            _ok(acl.rt.memcpy(address, size, source.data_ptr(), size, MemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE))
        handle = aclnn.aclCreateTensor(
            list(source.shape), source.dim(), ACL_DATA_TYPES[source.dtype], list(source.stride()), 0,
            AclFormat.ACL_FORMAT_ND, list(source.shape), source.dim(), address,
        )  # fmt: skip
        if not handle:
            raise ProgramError(acl.get_recent_err_msg())
        self._handles.append((aclnn.aclDestroyTensor, handle))
        return int(handle)

    def download(self, handle: int, like: Tensor) -> Tensor:
        """The values of a handle's memory, copied back to the host."""
        result = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        size = like.numel() * like.element_size()
        if size:
            address = _ok(*aclnn.aclGetRawTensorAddr(handle))
            _ok(acl.rt.memcpy(result.data_ptr(), size, address, size, MemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST))
        return result

    def argument(self, param: Any, value: Any) -> Any:
        """What is passed for a parameter: handles for tensors, lists and arrays, the value itself otherwise."""
        if value is None:
            return None
        if isinstance(param, TensorParam | Out | OutList) and isinstance(value, Tensor):
            return self.upload(value)
        if isinstance(param, TensorParam | OutList):
            members = [None if item is None else self.upload(item) for item in value]
            return self._keep(aclnn.aclDestroyTensorList, aclnn.aclCreateTensorList(members, len(members)))
        if isinstance(param, BoolArray):
            return self._keep(aclnn.aclDestroyBoolArray, aclnn.aclCreateBoolArray(list(value), len(value)))
        return value

    def malloc(self, size: int) -> int:
        """Device memory."""
        address = _ok(*acl.rt.malloc(size, MallocPolicy.ACL_MEM_MALLOC_HUGE_FIRST))
        self._blocks.append(address)
        return int(address)

    def _keep(self, destroy: Any, handle: int) -> int:
        if not handle:
            raise ProgramError(acl.get_recent_err_msg())
        self._handles.append((destroy, handle))
        return handle

    def close(self) -> None:
        """Destroy handles, memory and stream; list members may be gone already."""
        for destroy, handle in reversed(self._handles):
            destroy(handle)
        for address in self._blocks:
            acl.rt.free(address)
        acl.rt.destroy_stream(self.stream)
        acl.get_recent_err_msg()  # destroying list members twice is legal for a program and leaves a message


@contextmanager
def program() -> Iterator[Program]:
    """A program between init and finalize; an already initialised process is used as it is."""
    first = acl.init() == AclError.ACL_SUCCESS
    _ok(acl.rt.set_device(0))
    running = Program()
    try:
        yield running
    finally:
        running.close()
        acl.rt.reset_device(0)
        if first:
            acl.finalize()
        else:
            acl.finalize_reference()


def run(
    operator: Operator, args: Sequence[Any], outs: Sequence[Any], repeats: int = 1
) -> tuple[int, list[Any], list[float]]:
    """(status, what was written, on the host, seconds of both phases and the synchronisation for each repeat).

    `outs` gives the outputs' metadata and their content before the call. What is updated in place follows the outputs,
    as the first of the repeats left it.
    """
    spec = operator.spec
    first, second = (getattr(aclnn, name) for name in (f"{spec.aclnn}GetWorkspaceSize", spec.aclnn))
    with program() as running:
        inputs = [running.argument(param, value) for param, value in zip(spec.args, args, strict=True)]
        handles = [running.argument(param, value) for param, value in zip(spec.outs, outs, strict=True)]
        places = list(zip(spec.written(inputs, handles), spec.written(args, outs), strict=True))
        times: list[float] = []
        written: list[Any] = []
        workspace = None
        for _ in range(repeats):
            started = time.perf_counter()
            size, executor, status = first(*inputs, *handles)
            planned = time.perf_counter()
            if status == 0:
                workspace = workspace or (running.malloc(size) if size else None)
                enqueued = time.perf_counter()
                status = second(workspace, size, executor, running.stream)
                _ok(acl.rt.synchronize_stream(running.stream))
                planned += time.perf_counter() - enqueued
            times.append(planned - started)
            written = written or [_fetch(running, handle, like) for handle, like in places]
        return status, written, times


def _fetch(running: Program, handle: int, out: Any) -> Any:
    if out is None:
        return None
    if isinstance(out, Tensor):
        return running.download(handle, out)
    members = TENSOR_LISTS.get(handle, "list").handles
    return [running.download(member, item) for member, item in zip(members, out, strict=True)]


def _ok(*values: Any) -> Any:
    """The value before a code of 0."""
    *value, code = values
    if code != 0:
        raise ProgramError(f"code {code}: {acl.get_recent_err_msg()}")
    return value[0] if value else None


def _fills_its_span(tensor: Tensor) -> bool:
    return meta_of(tensor).is_dense()
