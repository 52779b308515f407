"""What a checked run looks at when phase two enqueues its work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.meta import Meta
from ...core.plan import Plan
from ...core.spec import InOut, OpSpec, Out, OutList, Tensor, TensorList
from ..acl import ordering, written
from ..acl.blocks import DEVICE
from ..acl.boundary import tolerate
from ..acl.findings import Kind
from ..acl.ordering import Touch
from ..acl.streams import Stream
from ..acl.tensors import TENSOR_LISTS, TENSORS, AclTensor


def require_live(spec: OpSpec, handles: Sequence[Any]) -> None:
    """Nothing that phase one was given has been destroyed since, neither lists nor their members."""
    for param, handle in zip((*spec.args, *spec.outs), handles, strict=True):
        if not isinstance(param, Tensor | Out | OutList) or type(handle) is not int or not handle:
            continue
        if isinstance(param, TensorList | OutList):
            owned = TENSOR_LISTS.find(handle)
            alive = owned is not None and all(TENSORS.find(member) is not None for member in owned.handles if member)
        else:
            alive = TENSORS.find(handle) is not None
        if not alive:
            tolerate(
                Kind.DESTROYED_TOO_EARLY,
                f"{param.aclnn} was destroyed after phase one, expected it to live until phase two was called",
            )


def follow(
    queue: Stream, plan: Plan, bound: Sequence[tuple[str, AclTensor, Meta, torch.Tensor]], workspace: Any, size: int
) -> None:
    """Note the device memory that the work reads and writes; torch's own tensors are none of it."""
    spec = plan.call.spec
    outputs = {param.aclnn for param in spec.outs}
    updated = {arg.aclnn for arg in spec.args if isinstance(arg, InOut)}
    places = [(label, label.partition("[")[0], _first_byte(tensor), meta) for label, tensor, meta, _ in bound]
    if plan.nbytes:
        touches = [
            Touch(start, start + meta.span, name in outputs or name in updated, meta.is_dense())
            for _, name, start, meta in places
        ]
        if workspace is not None and not isinstance(workspace, torch.Tensor):
            touches.append(Touch(int(workspace), int(workspace) + size, True))
        ordering.submitted(queue, spec.aclnn, touches)
    unread = spec.unread(plan.call)
    for label, name, start, meta in places:
        block = DEVICE.owner(start) if meta.numel else None
        if block is None:
            continue
        if name in outputs:
            written.wrote(block, start, meta.span)
        elif label not in unread:
            written.read_tensor(block, start, meta, f"{spec.aclnn}: {label}")


def _first_byte(tensor: AclTensor) -> int:
    return tensor.data + tensor.offset * tensor.meta.itemsize
