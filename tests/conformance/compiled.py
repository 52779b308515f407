"""Every operator's GPU kernels compiled for a GPU that is not there: a program, to run without TRITON_INTERPRET.

    python tests/conformance/compiled.py 90

plans all calls for a GPU of compute capability 9.0, or those whose labels are given. Planning compiles, by Triton's
whole way down to machine code, NVIDIA's assembler included, and holds kernels to the room there is for registers and
shared memory. Nothing is launched. The names of what was compiled are printed: functions in Gluon are among them, which
Triton's interpreter never sees.
"""

import contextlib
import sys
from types import SimpleNamespace
from unittest import mock

import torch
import triton
from gpu_calls import calls
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget

from aclgrad.core.meta import Meta, meta_of

SHARED = {75: 65_536, 80: 166_912, 86: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
"""Bytes of shared memory that a program may have, by compute capability."""

DEVICE = torch.device("cuda", 0)


class AbsentGpu:
    """What Triton takes for the driver of a GPU."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.loaded: set[str] = set()
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": SHARED[capability]},
            load_binary=self.load_binary,
            unload_module=lambda module: None,
        )

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return DEVICE.index

    def get_current_stream(self, device):
        return 0

    def launcher_cls(self, source, metadata):
        return SimpleNamespace(
            launch=None, launch_cooperative_grid=False, launch_pdl=False, global_scratch_size=0, profile_scratch_size=0,
            arg_annotations=(), kernel_signature=(),
        )  # fmt: skip

    def load_binary(self, name, binary, shared, device):
        self.loaded.add(name)
        module, function, registers, spills, threads = object(), 1, 0, 0, 1024
        return module, function, registers, spills, threads

    @contextlib.contextmanager
    def pretended(self):
        """Triton and torch believe in it."""
        properties = SimpleNamespace(multi_processor_count=132)
        triton.runtime.driver.set_active(self)
        with (
            mock.patch.object(torch.cuda, "device", return_value=contextlib.nullcontext()),
            mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
            mock.patch.object(torch.cuda, "get_device_capability", return_value=divmod(self.capability, 10)),
        ):
            yield


def elsewhere(value):
    """An argument as if it were on the GPU; a plan looks at its metadata alone."""
    if isinstance(value, torch.Tensor):
        return SimpleNamespace(meta=Meta(*meta_of(value)[:3], DEVICE))
    return [elsewhere(member) for member in value] if isinstance(value, list | tuple) else value


def plan(call):
    """Plan a call as if its arguments were on the GPU, which compiles its kernels."""
    label, operator, build = call
    with FakeTensorMode():
        args = build()
    try:
        operator.plan([elsewhere(arg) for arg in args], backend="triton")
    except Exception as error:
        raise RuntimeError(f"{label} does not compile") from error


def main(capability, *labels):
    gpu = AbsentGpu(int(capability))
    with gpu.pretended():
        for call in calls():
            if not labels or call.label in labels:
                plan(call)
    print(*sorted(gpu.loaded), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
