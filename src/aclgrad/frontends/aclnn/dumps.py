"""aclDumpOpTensors: tensors of a program's own operators, dumped like those of aclnn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument, WrongType
from ..acl import dumping
from ..acl.arguments import shown, size_t
from ..acl.boundary import aclnn_call, code_only
from ..acl.devices import stream_of
from ..acl.enums import SUCCESS
from ..acl.tensors import TENSORS


@aclnn_call("aclDumpOpTensors", code_only)
def aclDumpOpTensors(
    opType: Any, opName: Any, tensors: Any, inputTensorNum: Any, outputTensorNum: Any, stream: Any
) -> int:
    """Dump tensors when the stream comes to it, inputs first, if aclInit's configuration asks for dumps."""
    kind, name = _text("opType", opType), _text("opName", opName)
    inputs, count = size_t("inputTensorNum", inputTensorNum), size_t("outputTensorNum", outputTensorNum)
    if tensors is None:
        raise NullArgument("tensors is null, expected an array of tensors", "tensors")
    if not isinstance(tensors, Sequence) or isinstance(tensors, str | bytes):
        raise WrongType(f"tensors is {shown(tensors)}, expected a list of tensors", "tensors")
    if len(tensors) != inputs + count:
        raise InvalidArgument(
            f"tensors has {len(tensors)} members, expected inputTensorNum + outputTensorNum = {inputs + count}",
            "tensors",
        )
    found = [_tensor(f"tensors[{k}]", tensor) for k, tensor in enumerate(tensors)]
    queue = stream_of(stream)
    task = dumping.tensors(name, kind, found[:inputs], found[inputs:])
    if task is not None:
        queue.submit(task)
    return SUCCESS


def _text(label: str, value: Any) -> str:
    if value is None:
        raise NullArgument(f"{label} is null, expected a name", label)
    if not isinstance(value, str | bytes):
        raise WrongType(f"{label} is {shown(value)}, expected a name", label)
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _tensor(label: str, value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else TENSORS.get(value, label).tensor()
