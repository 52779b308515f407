"""Of the functions that kernels are made of, nothing is compiled but what a kernel inlines."""

import torch
from numba import types

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.threads import Kernel


@jit
def _twice(number):
    return number + number


@jit
def _four_times(number):
    return _twice(_twice(number))


def _kernel(thread, threads, out):
    out[0] = _four_times(out[0])


def test_kernels_call_parts():
    number = torch.tensor([1.5])
    Kernel(_kernel, (torch.float32,))(1, number.data_ptr())
    assert number.item() == 6.0


def test_parts_have_no_machine_code():
    _four_times.compile((types.float64,))
    for part in (_twice, _four_times):
        library = part.overloads[types.float64,].library
        assert library._compiled_object is None
        names = [function.name for function in library.get_defined_functions()]
        assert not [name for name in names if "wrapper" in name or name.startswith("cfunc.")], names
