"""Steps launched through C functions: what these are given, with a library and a driver that are Python functions."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.cpu.calls import ARGUMENTS
from aclgrad.cpu.openmp import address
from aclgrad.gpu import driver, products, steps
from aclgrad.gpu.launch import Loaded
from aclgrad.gpu.products import LibraryProduct

TRANSPOSED = 1
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * ARGUMENTS)
SIGNATURE = {
    "out_ptr": "*fp32",
    "none_ptr": "constexpr",
    "step": "i32",
    "sizes": ("i64", "constexpr"),
    "SIZE": "constexpr",
}


def matrix(where, rows, columns, leading):
    """A matrix of float32 in memory whose columns lie one after the other, as the library takes it."""
    whole = (ctypes.c_float * (leading * columns)).from_address(where)
    return torch.frombuffer(whole, dtype=torch.float32).as_strided((rows, columns), (1, leading))


def multiply(
    _handle, as_a, as_b, m, n, k, alpha, a, _ta, lda, b, _tb, ldb, beta, c, _tc, ldc, _compute, _algorithm, *_
):
    """cublasGemmEx of float32."""
    a = matrix(a, k, m, lda).t() if as_a == TRANSPOSED else matrix(a, m, k, lda)
    b = matrix(b, n, k, ldb).t() if as_b == TRANSPOSED else matrix(b, k, n, ldb)
    scale, keep = (ctypes.c_float.from_address(where).value for where in (alpha, beta))
    out = matrix(c, m, n, ldc)
    out.copy_(scale * (a @ b) + (keep * out if keep else 0.0))
    return 0


def multiply_batch(handle, as_a, as_b, m, n, k, alpha, *rest):
    """cublasGemmStridedBatchedEx of float32."""
    a, ta, lda, a_step, b, tb, ldb, b_step, beta, c, tc, ldc, c_step, count, compute, algorithm, *_ = rest
    for j in range(count):
        at = [where + 4 * j * step for where, step in ((a, a_step), (b, b_step), (c, c_step))]
        multiply(
            handle, as_a, as_b, m, n, k, alpha, at[0], ta, lda, at[1], tb, ldb, beta, at[2], tc, ldc, compute, algorithm
        )
    return 0


class FakeKernel:
    """Takes a pointer, one that is left out, the step, two numbers of which one is known, and a constant."""

    def __init__(self, record):
        self.record = record

    def loaded(self, addresses):
        metadata = SimpleNamespace(num_warps=4, shared=48, num_ctas=1)
        run = SimpleNamespace(
            launch_cooperative_grid=False, launch_pdl=False, global_scratch_size=0, profile_scratch_size=0
        )
        kernel = SimpleNamespace(metadata=metadata, run=run, function=77, src=SimpleNamespace(signature=SIGNATURE))
        return Loaded(kernel, (5, 6, 7), (*addresses, (2**40, 1), 64))

    def fixed(self, *pointers):
        return lambda step: self.record(pointers[0], step)


@pytest.fixture
def launched(monkeypatch):
    """The C functions, and what was launched: the first element of the kernel's output and the step."""
    found = []

    def launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, _extra, *_):
        assert (function, gx, gy, gz, bx, by, bz, shared, stream) == (77, 5, 6, 7, 128, 1, 1, 48, 99)
        slots = (ctypes.c_int64 * 5).from_address(parameters)  # addresses of: out, step, a size, two scratch pointers
        out, step, size = (ctypes.c_int64.from_address(slots[k]).value for k in range(3))
        assert size == 2**40
        found.append((ctypes.c_float.from_address(out).value, step))
        return 0

    pretend(monkeypatch, launch=launch, multiply=multiply, multiply_batch=multiply_batch)
    return found


def pretend(monkeypatch, **functions):
    """Python functions are the driver's and the library's; those that are not given fail."""
    made = {name: FUNCTION(functions.get(name, lambda *_: 1)) for name in driver.Library._fields}
    library = driver.Library(**{name: address(function) for name, function in made.items()})
    for module in (driver, products, steps):
        monkeypatch.setattr(module, "library", lambda alive=made: library)
    monkeypatch.setattr(driver, "current_stream", lambda _: 99)
    monkeypatch.setattr(driver, "current_handle", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_products_come_before_every_step_but_the_first(launched, transposed, dimensions):
    torch.manual_seed(0)
    count = (3,) if dimensions == 3 else ()
    x = torch.randn(4, *count, 2, 5)  # by step
    w = torch.randn(*count, 7, 5).transpose(-1, -2) if transposed else torch.randn(*count, 5, 7)
    out = torch.zeros(*count, 2, 7)
    product = LibraryProduct(out, x[3], w, advance=-x.stride(0))  # from the last one to the first
    steps.run_steps(FakeKernel(None), [out, None], 5, [[product]])
    expected = [0.0, *(float((x[k] @ w).flatten()[0]) for k in (3, 2, 1, 0))]
    assert [step for _, step in launched] == [0, 1, 2, 3, 4]
    assert [value for value, _ in launched] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(out, x[0] @ w)


def test_phases_take_turns_and_products_are_added(launched):
    x, y, w = torch.randn(2, 5), torch.randn(2, 5), torch.randn(5, 7)
    out = torch.zeros(2, 7)
    even = [LibraryProduct(out, x, w), LibraryProduct(out, x, w, adds=True)]
    odd = [LibraryProduct(out, y, w), LibraryProduct(out, x, w, adds=True)]
    steps.run_steps(FakeKernel(None), [out, None], 4, [even, odd])
    of_odd, of_even = (float((a @ w)[0, 0]) for a in (x + y, 2 * x))
    assert [value for value, _ in launched] == pytest.approx([0.0, of_odd, of_even, of_odd], rel=1e-5, abs=1e-6)


def test_python_makes_the_same_steps_where_there_is_no_library(launched, monkeypatch):
    x, w = torch.randn(3, 2, 5), torch.randn(5, 7)
    found = []
    for there in (True, False):
        out, seen = torch.zeros(2, 7), []
        if not there:
            monkeypatch.setattr(steps, "library", lambda: None)
        kernel = FakeKernel(lambda pointer, step, seen=seen: seen.append((float(pointer[0, 0]), step)))
        steps.run_steps(kernel, [out, None], 4, [[LibraryProduct(out, x[0], w, advance=x.stride(0))]])
        found.append(seen or list(launched))
    assert [step for _, step in found[0]] == [step for _, step in found[1]]
    assert [value for value, _ in found[0]] == pytest.approx([value for value, _ in found[1]], rel=1e-5)


def test_a_failure_is_raised(launched, monkeypatch):
    pretend(monkeypatch, launch=lambda *_: 719)
    with pytest.raises(RuntimeError, match="status 719"):
        steps.run_steps(FakeKernel(None), [torch.zeros(1), None], 3)


def test_python_launches_where_numba_is_switched_off(monkeypatch):
    loaded = SimpleNamespace(**dict.fromkeys((*driver.DRIVER.values(), *driver.CUBLAS.values()), FUNCTION(len)))
    monkeypatch.setattr(driver, "INTERPRETING", False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: loaded)
    assert driver.library.__wrapped__() is not None
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    assert driver.library.__wrapped__() is None


def test_either_name_of_torchs_switch_allows_tf32():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        for allowed, precision in ((True, "tf32"), (False, "ieee")):
            matmul.fp32_precision = precision
            assert products.allows_tf32() == allowed
            torch.set_float32_matmul_precision("high" if allowed else "highest")
            assert products.allows_tf32() == allowed
    finally:
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = before
