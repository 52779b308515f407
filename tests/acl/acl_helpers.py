"""What several tests of the runtime need."""

from __future__ import annotations

import threading

import numpy as np

from aclgrad import acl, aclnn
from aclgrad.frontends.acl import meta, tensors
from aclgrad.frontends.acl.streams import Stream

PHASE_ONE, PHASE_TWO = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize, aclnn.aclnnHardsigmoidBackward
H2H, H2D, D2H, D2D, DEFAULT = range(5)
FLOAT, ND = 0, 2
UNMAPPED = 0x1000
PATIENCE = 10


class Gate:
    """A task that keeps a stream busy until it is opened."""

    def __init__(self, stream: Stream) -> None:
        self._open, self._entered = threading.Event(), threading.Event()
        stream.submit(self._task)
        assert self._entered.wait(PATIENCE)

    def _task(self) -> None:
        self._entered.set()
        assert self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


def malloc(size: int) -> int:
    pointer, ret = acl.rt.malloc(size, 0)
    assert ret == 0
    return pointer


def upload(array: np.ndarray) -> int:
    pointer = malloc(array.nbytes)
    assert acl.rt.memcpy(pointer, array.nbytes, acl.util.numpy_to_ptr(array), array.nbytes, H2D) == 0
    return pointer


def download(pointer: int, size: int) -> bytes:
    out = np.full(size, 0xEE, np.uint8)
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), size, pointer, size, D2H) == 0
    return out.tobytes()


def create(dims=(4, 2), dtype=FLOAT, stride=None, offset=0, fmt=ND, storage=None, data=0) -> int:
    storage = dims if storage is None else storage
    return meta.aclCreateTensor(dims, len(dims), dtype, stride, offset, fmt, storage, len(storage), data)


def behind(handle: int) -> tensors.AclTensor:
    return tensors.TENSORS.get(handle, "tensor")


def found() -> dict[str, int]:
    totals: dict[str, int] = {}
    for finding in acl.findings():
        totals[finding.kind.title] = totals.get(finding.kind.title, 0) + finding.count
    return totals


def finish() -> dict[str, int]:
    """The findings after finalize, without the device that the fixture has set."""
    assert acl.finalize() == 0
    totals = found()
    assert totals.pop("device-not-reset") == 1
    return totals


def new_stream() -> int:
    handle, ret = acl.rt.create_stream()
    assert ret == 0
    return handle


def new_event() -> int:
    handle, ret = acl.rt.create_event()
    assert ret == 0
    return handle


def fill(pointer: int, stream: int, size: int = 64) -> int:
    return acl.rt.memset_async(pointer, size, 1, size, stream)


def three_tensors() -> tuple[int, int, int]:
    one, two, out = (create(data=upload(np.ones(8, np.float32))) for _ in range(3))
    return one, two, out


def address(tensor: int) -> int:
    return aclnn.aclGetRawTensorAddr(tensor)[0]


def launch(operands: tuple[int, ...], stream: int) -> int:
    _, executor, status = PHASE_ONE(*operands)
    assert status == 0
    return PHASE_TWO(0, 0, executor, stream)
