"""Every operator's launches written down for a GPU that is not there: a program, to run without TRITON_INTERPRET.

    python tests/conformance/taped.py [labels]

Plans all calls for a Hopper as `compiled.py` does, has each launch written down, and plays it twice with a driver that
notes what it is called with: the second time with every tensor elsewhere. Parameters must be as many and as large as
the compiled kernel says, what it takes for pointers must have moved as far as one of the tensors, and nothing else may
have changed but a number of rows, where launches are for any. For each call it prints whether it was written down, or
why not; then the names of what was compiled.
"""

import ctypes
import re
import sys
import traceback
from unittest import mock

import torch
from compiled import AbsentGpu, elsewhere
from gpu_calls import calls

from aclgrad.core.memory import tensors_in
from aclgrad.core.meta import Meta
from aclgrad.cpu.calls import ARGUMENTS
from aclgrad.cpu.openmp import address
from aclgrad.gpu import devices, driver, launch_call, products, tape

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * ARGUMENTS)
PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.(\w+)( \.ptr)?[^,\n]*?\w+_param_\d+(?:\[(\d+)\])?")
SIZES = {"u64": 8, "b64": 8, "u32": 4, "b32": 4, "f32": 4, "u16": 2, "b16": 2, "u8": 1, "b8": 1}
STREAM, HANDLE, FAR = 0x1000, 0x2000, 1 << 44
WRITTEN_DOWN = "written down"


class TensorMap:
    """As large as Triton's, whose last 128 bytes are the driver's."""

    __slots__ = tuple(f"word_{k}" for k in range(32))


def failing(function):
    """Ctypes would only print what is raised."""

    def call(*words):
        try:
            return function(*words)
        except Exception:  # noqa: BLE001  nobody above would hear of it
            traceback.print_exc()
            return 1

    return call


class Driver(AbsentGpu):
    """Notes launches, products, copies and fills; a launch with what its kernel's code says of its parameters."""

    def __init__(self, capability):
        super().__init__(capability)
        self.kernels, self.seen, self.expected = [], [], {}
        self.utils.fill_tma_descriptor = self.utils.fill_tma_descriptor_tiled = lambda *_: TensorMap()
        functions = {name: FUNCTION(failing(getattr(self, name))) for name in driver.Library._fields}
        self._alive = functions
        self.library = driver.Library(**{name: address(function) for name, function in functions.items()})

    def launcher_cls(self, source, metadata):
        launcher = super().launcher_cls(source, metadata)
        launcher.launch_cooperative_grid = metadata.launch_cooperative_grid
        launcher.launch_pdl = metadata.launch_pdl
        return launcher

    def load_binary(self, name, binary, shared, device):
        module, _, *rest = super().load_binary(name, binary, shared, device)
        self.kernels.append(name)
        return module, len(self.kernels), *rest

    def launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, *_):
        self.note("launch", function, (gx, gy, gz, bx, by, bz, shared), stream, parameters)
        return 0

    def launch_with(self, config, function, parameters, extra, *_):
        sizes = tuple((ctypes.c_uint32 * 7).from_address(config))
        stream, attributes, count = (ctypes.c_uint64 * 3).from_address(config + 32)
        kinds = [tuple((ctypes.c_uint32 * 3).from_address(attributes + 72 * k))[::2] for k in range(count & 0xFFFF)]
        assert kinds, "attributes"
        assert all(kind in (2, 6) and value == 1 for kind, value in kinds), kinds
        self.note("launch_with", function, sizes, stream, parameters)
        return 0

    def note(self, name, function, sizes, stream, parameters):
        self.seen.append((name, function, *sizes, stream))
        expected = self.expected[function]
        places = (ctypes.c_uint64 * len(expected)).from_address(parameters)
        for place, (align, size, is_pointer) in zip(places, expected, strict=True):
            assert place % align == 0, (self.kernels[function - 1], place, align)
            value = int.from_bytes(ctypes.string_at(place, size), "little")
            self.seen.append(("pointer" if is_pointer else "number" if size < 128 else "map", value))

    def multiply(self, *words):
        return self.plainly("multiply", words, (7, 10, 14))

    def multiply_batch(self, *words):
        return self.plainly("multiply_batch", words, (7, 11, 16))

    def copy(self, *words):
        return self.plainly("copy", words, (0, 1))

    def zero(self, *words):
        return self.plainly("zero", words, (0,))

    def lead(self, *words):
        assert words[0] % 64 == 0
        return self.plainly("lead", words, (1,))

    def plainly(self, name, words, pointers):
        """A function without parameters in memory."""
        self.seen += [(name,), *(("pointer" if k in pointers else "number", word) for k, word in enumerate(words))]
        return 0


def parameters_of(kernel):
    """(alignment, size, whether it is a pointer) of what compiled code takes."""
    ptx = kernel.asm["ptx"]
    entry = ptx[ptx.index(".entry") : ptx.index(")", ptx.index(".entry"))]
    return [
        (int(align or 1), int(count or 1) * SIZES[kind], bool(pointer))
        for align, kind, pointer, count in PARAMETER.findall(entry)
    ]


def check(gpu, call):
    """The reason why the call's launch is not written down; "" if it is, and right."""
    args = call.operator.spec.completed(call.build())
    plan = call.operator.plan([elsewhere(arg) for arg in args], backend="triton")
    outs = [
        None if meta is None else made(meta) if isinstance(meta, Meta) else [made(member) for member in meta]
        for meta in plan.outs
    ]
    workspace = torch.empty(plan.workspace_size, dtype=torch.uint8) if plan.workspace_size else None
    taped = plan.launch._compute
    assert isinstance(taped, tape.Taped)
    reasons = []
    values = (*args, *outs, workspace)
    taped._find_tensors(values)
    with mock.patch.object(tape.logger, "debug", lambda *words: reasons.append(str(words[-1]))):
        one = taped._recorded(None, values, args, outs, workspace)
    if one is None:
        return reasons[0] if reasons else "a single call"
    bases = [tensor.data_ptr() for tensor in tensors_in([values[k] for k in taped._single])]
    bases += [tensor.data_ptr() for k in taped._lists for tensor in values[k]]
    moved = [base and base + FAR * (index + 1) for index, base in enumerate(bases)]
    runs = []
    rows = args[0].shape[0]
    for each, count in ((bases, rows), (moved, rows + 1)):
        gpu.seen.clear()
        one.play(each, count)
        runs.append(list(gpu.seen))
    counted = [("number", rows), ("number", rows + 1)]
    assert one.counts == (counted[1:] == [new for old, new in zip(*runs, strict=True) if old == counted[0] != new])
    far = {FAR * (index + 1) for index in range(len(bases))}
    assert len(runs[0]) == len(runs[1])
    for before, after in zip(*runs, strict=True):
        if before[0] == "pointer":
            assert before[1] == after[1] == 0 or after[1] - before[1] in far, (call.label, before, after)
        elif before[0] != "map" and not (one.counts and [before, after] == counted):
            assert before == after, (call.label, before, after)
    return ""


def made(meta):
    return torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype)


def main(*labels):
    gpu = Driver(90)
    write = launch_call.LaunchCall.__init__

    def noted(self, loaded, words, step=None):
        if loaded is not None:
            gpu.expected[loaded.kernel.function] = parameters_of(loaded.kernel)
        write(self, loaded, words, step)

    with (
        gpu.pretended(),
        mock.patch.object(driver, "library", return_value=gpu.library),
        mock.patch.object(devices, "library", return_value=gpu.library),
        mock.patch.object(products, "library", return_value=gpu.library),
        mock.patch.object(tape, "current_stream", return_value=STREAM),
        mock.patch.object(tape, "current_handle", return_value=HANDLE),
        mock.patch.object(launch_call.LaunchCall, "__init__", noted),
    ):
        for call in calls():
            if not labels or call.label in labels:
                print(f"{call.label}: {check(gpu, call) or WRITTEN_DOWN}", flush=True)
    print(*sorted(gpu.loaded), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
