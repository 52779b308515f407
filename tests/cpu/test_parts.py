"""Of the functions that kernels are made of, nothing is compiled but what a kernel inlines."""

import gc
import itertools
import math

import numba
import pytest
import torch
from numba import types
from numba.core.bytecode import FunctionIdentity

from aclgrad.core.registry import lookup
from aclgrad.cpu.compiler import entry, jit
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


def _kernel_of(term):
    """A kernel that calls a part of always the same name, too long to become part of it at both places."""

    @jit
    def part(values, count):
        total = 0.0
        for k in range(count):
            value = values[k]
            for _ in range(7):
                value = math.exp(-value * value) + term * math.sin(value) / (1.0 + math.cos(value) * math.cos(value))
            total += value
        return total

    def kernel(thread, threads, values, count, out):
        out[0] = part(values, count)
        out[1] = part(values + 1, count - 1)

    return named(kernel, f"kernel_of_{term:g}".replace(".", "_"))


def test_namesakes_among_parts_do_not_meet(tmp_path, monkeypatch):
    """numba's numbers, which tell parts of one name apart, begin anew in every process that compiles for the disk."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    values, found = torch.linspace(0.1, 2.0, 40, dtype=torch.float64), []
    for term in (1.0, 2.0):
        monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(1 << 40))
        out = torch.empty(2, dtype=torch.float64)
        signature = (torch.float64, int, torch.float64)
        Kernel(_kernel_of(term), signature)(1, values.data_ptr(), len(values), out.data_ptr())
        found.append(out.tolist())
    for term, sums in zip((1.0, 2.0), found, strict=True):
        value = values.clone()
        for _ in range(7):
            value = torch.exp(-value * value) + term * value.sin() / (1 + value.cos().square())
        torch.testing.assert_close(torch.tensor(sums, dtype=torch.float64), torch.stack([value.sum(), value[1:].sum()]))


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
