"""Of the functions that kernels are made of, nothing is compiled but what a kernel inlines."""

import gc

import numba
import pytest
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aclgrad.core.registry import lookup
from aclgrad.cpu.compiler import entry, jit
from aclgrad.cpu.elements import DOUBLE
from aclgrad.cpu.procedures import named
from aclgrad.cpu.threads import Kernel
from aclgrad.ops.lstm_cell import kernel_cpu
from aclgrad.testing.cases import suite


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


def test_a_function_that_numba_compiles_in_its_own_way_may_call_parts():
    assert numba.njit(lambda number: _four_times(number) + 1.0)(1.5) == 7.0


def test_the_longest_formula_becomes_part_of_its_loop(tmp_path, monkeypatch):
    """LLVM would leave it out, and the loop would take ten times as long."""
    made = []
    monkeypatch.setattr(kernel_cpu, "Kernel", lambda *which: made.append(which))
    operator = lookup("lstm_cell_backward")
    kernel_cpu.lstm_cell_backward(operator.plan(suite(operator.spec).cases[0].build(torch.bfloat16)).call)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # code from the disk cannot be inspected
    code = entry.__wrapped__(*made[0])
    functions = [function.name for function in code._library.get_defined_functions()]
    assert not [name for name in functions if "_cell" in name.replace("lstm_cell", "")]
    assert "vector.body" in code.inspect_llvm()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(was_on, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        entry.__wrapped__(_kernel, (torch.float32,))
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


def _number(value):
    """A function of the name that all others of its kind have; what is called stays a call."""

    @intrinsic
    def number(typing):
        def emit(context, builder, signature, args):
            function = ir.Function(builder.module, ir.FunctionType(DOUBLE, []), "namesake")
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            function.attributes.add("optnone")
            ir.IRBuilder(function.append_basic_block()).ret(DOUBLE(value))
            return builder.call(function, [])

        return types.float64(), emit

    return number


def test_kernels_do_not_lend_each_other_parts(tmp_path, monkeypatch):
    """Every process numbers its parts from 1, so that kernels from the disk may have different ones of one name."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for value in (1.5, 2.5):
        number, found = _number(value), torch.zeros(1)

        def kernel(thread, threads, out, number=number):
            out[0] = number()

        Kernel(named(kernel, f"kernel_{int(value)}"), (torch.float32,))(1, found.data_ptr())
        assert found.item() == value
