"""What a call costs through the C interface: the compiled library, called from this process."""

from __future__ import annotations

import ctypes

from aclgrad import acl, aclnn
from aclgrad.frontends.capi.build import LIBRARY, Unavailable, installation

from .device import Device
from .report import Overhead
from .timing import Effort, interleaved


def c_abi(device: Device, effort: Effort, shape: tuple[int, ...]) -> list[Overhead]:
    """Both phases of hardsigmoid on a tensor of `shape` in device memory; ctypes' own cost is in the time.

    Empty where the library cannot be built, and where kernels run on another device than the handles' memory.
    """
    if device.kind != "cpu":
        return []
    try:
        library = ctypes.CDLL(str(installation().lib / LIBRARY))
    except Unavailable:
        return []
    plan, run = library.aclnnHardsigmoidBackwardGetWorkspaceSize, library.aclnnHardsigmoidBackward
    acl.init()
    acl.rt.set_device(0)
    stream, _ = acl.rt.create_stream()
    tensors = [ctypes.c_void_p(_tensor(shape)) for _ in range(3)]
    size, executor, queue = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p(stream)
    outs = ctypes.byref(size), ctypes.byref(executor)

    def pair(_: int) -> None:
        status: int = plan(*tensors, *outs) or run(None, size, executor, queue)
        if status:
            raise RuntimeError(f"status {status}: {acl.get_recent_err_msg()}")

    timings, others = interleaved({"C ABI pair": pair}, device.clock, effort)
    acl.rt.reset_device_force(0)
    acl.finalize_reference()
    return [Overhead(name, timing, others) for name, timing in timings.items()]


def _tensor(shape: tuple[int, ...]) -> int:
    """A float32 tensor over new device memory; the process is too short to free either."""
    count = 1
    for extent in shape:
        count *= extent
    address, _ = acl.rt.malloc(4 * count, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    return int(
        aclnn.aclCreateTensor(shape, len(shape), acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, shape, len(shape), address)
    )
