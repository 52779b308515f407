"""Programs compiled and run, and the C functions called from Python with nothing but addresses."""

import ctypes
import os
import subprocess
from pathlib import Path

import torch

from aclgrad.core.meta import meta_of
from aclgrad.core.spec import BoolArray, Out, OutList
from aclgrad.core.spec import Tensor as TensorParam
from aclgrad.frontends.acl.enums import ACL_DATA_TYPES
from aclgrad.frontends.capi.build import c_compiler, cxx_compiler
from aclgrad.frontends.capi.prototypes import VALUE_TYPES, prototypes

PROGRAMS = Path(__file__).parent / "programs"
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
FORMAT_ND = 2
SECONDS = 120


class Compiler:
    """Compiles programs against an installation and keeps the results."""

    def __init__(self, installation, folder):
        self.installation = installation
        self.folder = folder

    def __call__(self, source, *options):
        """The program made from a source file."""
        program = self.folder / source.stem
        if not program.exists():
            compiler = c_compiler() if source.suffix == ".c" else cxx_compiler()
            flags = [*self.installation.compile_flags, *self.installation.link_flags]
            warnings = ["-Wall", "-Wextra", "-pthread"]
            done = run([*compiler, *warnings, *options, source, "-o", program, *flags, "-ldl"])
            assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
        return program


def run(command, **options):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=SECONDS, check=False, **options
    )


def environment(**changes):
    """The present environment with changes; None takes a variable away."""
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None and not name.startswith("ACLGRAD_")} | {
        name: value for name, value in changes.items() if value is not None
    }


class CDoor:
    """Every C function of the library by its name; pointers are plain integers."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        for prototype in prototypes():
            function = getattr(library, prototype.name)
            function.argtypes = [_ctype(param.type) for param in prototype.params]
            function.restype = _ctype(prototype.returns)
            setattr(self, prototype.name, function)

    def message(self):
        text = self.aclGetRecentErrMsg()
        return None if text is None else text.decode()

    def out(self, function, *arguments, kind=ctypes.c_size_t, first=True):
        """(code, value) of a function with one out-parameter, which is its first or its last."""
        slot = kind(0)
        address = ctypes.addressof(slot)
        code = function(address, *arguments) if first else function(*arguments, address)
        return code, slot.value

    def stream(self):
        code, stream = self.out(self.aclrtCreateStream)
        assert code == 0, self.message()
        return stream

    def malloc(self, size):
        code, address = self.out(self.aclrtMalloc, size, 0)
        assert code == 0, self.message()
        return address

    def tensor(self, shape, dtype, strides, address):
        dims, steps = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(shape))(*strides)
        return self.aclCreateTensor(
            ctypes.addressof(dims), len(shape), ACL_DATA_TYPES[dtype], ctypes.addressof(steps), 0, FORMAT_ND,
            ctypes.addressof(dims), len(shape), address,
        )  # fmt: skip


def _ctype(c_type):
    if c_type in ("const char *", "void"):
        return ctypes.c_char_p if c_type != "void" else None
    return ctypes.c_void_p if c_type.endswith("*") else ctypes.c_bool if c_type == "bool" else VALUE_TYPES[c_type]


class CProgram:
    """An aclnn program whose every step is a C call."""

    def __init__(self, c):
        self.c = c
        self.stream = c.stream()
        self.memory = []
        self.destroyers = []

    def argument(self, param, value):
        if isinstance(value, torch.Tensor):
            return self.upload(value)
        if value is None or not isinstance(param, (TensorParam, Out, OutList, BoolArray)):
            return value
        if isinstance(param, BoolArray):
            flags = (ctypes.c_bool * len(value))(*value)
            handle = self.c.aclCreateBoolArray(ctypes.addressof(flags), len(value))
            self.destroyers.append((self.c.aclDestroyBoolArray, handle))
            return handle
        members = (ctypes.c_size_t * len(value))(*[0 if item is None else self.upload(item) for item in value])
        handle = self.c.aclCreateTensorList(ctypes.addressof(members), len(value))
        self.destroyers.append((self.c.aclDestroyTensorList, handle))
        assert handle, self.c.message()
        return handle

    def upload(self, tensor):
        dense = tensor.is_contiguous() or meta_of(tensor).is_dense() or not tensor.numel()
        source = tensor.detach() if dense else tensor.detach().contiguous()
        size = source.numel() * source.element_size()
        address = self.c.malloc(size) if size else 0
        assert self.c.aclrtMemcpy(address, size, source.data_ptr(), size, HOST_TO_DEVICE) == 0, self.c.message()
        handle = self.c.tensor(source.shape, source.dtype, source.stride(), address)
        assert handle, self.c.message()
        self.memory.append((handle, address, size))
        self.destroyers.append((self.c.aclDestroyTensor, handle))
        return handle

    def download(self, address, size, like):
        result = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        assert self.c.aclrtMemcpy(result.data_ptr(), size, address, size, DEVICE_TO_HOST) == 0, self.c.message()
        return result

    def run(self, operator, args, outs):
        """(status, outputs and what was updated in place) of both phases."""
        c, spec = self.c, operator.spec
        inputs = [self.argument(param, value) for param, value in zip(spec.args, args, strict=True)]
        made = len(self.memory)
        handles = [self.argument(param, value) for param, value in zip(spec.outs, outs, strict=True)]
        size, executor = ctypes.c_uint64(), ctypes.c_size_t()
        status = getattr(c, f"{spec.aclnn}GetWorkspaceSize")(
            *inputs, *handles, ctypes.addressof(size), ctypes.addressof(executor)
        )
        if status:
            return status, None
        workspace = c.malloc(size.value) if size.value else None
        status = getattr(c, spec.aclnn)(workspace, size.value, executor.value, self.stream)
        assert c.aclrtSynchronizeStream(self.stream) == 0, c.message()
        if workspace:
            c.aclrtFree(workspace)
        flat = [t for out in outs if out is not None for t in (out if isinstance(out, (list, tuple)) else [out])]
        blocks = {handle: (address, nbytes) for handle, address, nbytes in self.memory[:made]}
        updated = [(*blocks[inputs[k]], args[k]) for k in spec.updated if args[k] is not None]
        written = [(*place, like) for (_, *place), like in zip(self.memory[made:], flat, strict=True)]
        return status, [self.download(*block) for block in (*written, *updated)]

    def close(self):
        for destroy, handle in self.destroyers:  # members before their lists, as a document's program does
            destroy(handle)
        for _, address, _ in self.memory:
            if address:
                assert self.c.aclrtFree(address) == 0
        assert self.c.aclrtDestroyStream(self.stream) == 0
