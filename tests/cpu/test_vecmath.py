"""exp, tanh and sigmoid in units of the last place, over a dense sample of all float32 numbers."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import platform
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aclgrad.cpu import vecmath
from aclgrad.cpu.threads import Kernel

exp, tanh, sigmoid = vecmath.exp, vecmath.tanh, vecmath.sigmoid
STRIDE = 1009  # every 1009th number of each sign: two million in all
INFINITY = 0x7F800000


def _exp(thread: int, threads: int, count: int, x: Any, y: Any) -> None:
    for i in range(count):
        y[i] = exp(x[i])


def _tanh(thread: int, threads: int, count: int, x: Any, y: Any) -> None:
    for i in range(count):
        y[i] = tanh(x[i])


def _sigmoid(thread: int, threads: int, count: int, x: Any, y: Any) -> None:
    for i in range(count):
        y[i] = sigmoid(x[i])


def true_sigmoid(x: Tensor) -> Tensor:
    """Also where it is tiny, which torch flushes to 0."""
    small = torch.exp(-x.abs())
    return torch.where(x >= 0, 1.0, small) / (1 + small)


FUNCTIONS = [
    pytest.param(_exp, torch.exp, 1.0, id="exp"),
    pytest.param(_tanh, torch.tanh, 1.5, id="tanh"),
    pytest.param(_sigmoid, true_sigmoid, 2.5, id="sigmoid"),
]


def computed(kernel: Callable[..., None], x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    Kernel(kernel, (int, x.dtype, x.dtype))(1, x.numel(), x.data_ptr(), y.data_ptr())
    return y


def units(found: Tensor, truth: Tensor) -> Tensor:
    """The error in units of the last place of the correctly rounded result."""
    _, exponent = torch.frexp(truth.abs().clamp(min=2.0**-126))
    return (found.double() - truth).abs() / torch.exp2((exponent - 24).double())


@pytest.mark.parametrize(("kernel", "truth", "bound"), FUNCTIONS)
def test_float32_over_the_whole_range(kernel: Any, truth: Any, bound: float) -> None:
    x = torch.arange(0, INFINITY, STRIDE, dtype=torch.int32).view(torch.float32)
    x = torch.cat([x, -x])
    found, expected = computed(kernel, x), truth(x.double())
    finite = expected.float().isfinite()
    assert torch.equal(found[~finite], expected.float()[~finite])
    assert units(found[finite], expected[finite]).max() <= bound


@pytest.mark.parametrize(("kernel", "truth", "bound"), FUNCTIONS)
def test_float32_at_the_seams(kernel: Any, truth: Any, bound: float) -> None:
    ends = torch.tensor([0.55, 10.0, 88.72284, 89.0, 103.97, 105.0, 0.34657359, 1e-45, 1.1754944e-38, 3.4e38])
    x = torch.cat([ends, torch.nextafter(ends, torch.zeros(1)), torch.nextafter(ends, torch.full((1,), torch.inf))])
    x = torch.cat([x, -x])
    found, expected = computed(kernel, x), truth(x.double())
    finite = expected.float().isfinite()
    assert torch.equal(found[~finite], expected.float()[~finite])
    assert units(found[finite], expected[finite]).max() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_values(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    for kernel, expected in ((_exp, [1, 1, torch.inf, 0]), (_tanh, [0, 0, 1, -1]), (_sigmoid, [0.5, 0.5, 1, 0])):
        found = computed(kernel, x)
        assert found[:4].tolist() == expected
        assert found[4].isnan()
    assert computed(_tanh, x)[:2].signbit().tolist() == [False, True]


@pytest.mark.parametrize(("kernel", "truth", "bound"), FUNCTIONS)
def test_float64_is_the_library_s(kernel: Any, truth: Any, bound: float) -> None:
    x = torch.linspace(-40, 40, 10_001, dtype=torch.float64)
    torch.testing.assert_close(computed(kernel, x), truth(x), rtol=1e-15, atol=0)


def test_the_gpu_has_the_same_tanh() -> None:
    """The fit stands in both files: a kernel kept on disk goes by the text of the sources it was made from."""
    maths = pytest.importorskip("aclgrad.gpu.maths")
    for name in ("TANH_NEAR", "P0", "P1", "P2", "P3", "P4"):
        assert torch.tensor(getattr(maths, name).value) == torch.tensor(getattr(vecmath, name)), name


UNDERFLOW = {"x86_64": 0x10, "AMD64": 0x10, "aarch64": 0x8, "arm64": 0x8}.get(platform.machine())
"""FE_UNDERFLOW of <fenv.h>."""


@pytest.mark.skipif(not sys.platform.startswith("linux") or UNDERFLOW is None, reason="FE_UNDERFLOW is not known")
def test_what_is_0_is_found_without_underflow() -> None:
    """A processor takes a hundred cycles to round what lies below its range, and rows are filled up with -Inf."""
    library = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")

    def underflows(*numbers: float) -> bool:
        x = torch.tensor(numbers * 32)
        computed(_exp, x)  # compiled, and warm
        library.feclearexcept(UNDERFLOW)
        computed(_exp, x)
        return bool(library.fetestexcept(UNDERFLOW))

    assert underflows(-95.0)  # a subnormal number
    assert not underflows(-math.inf, -1e30, -105.5, -80.0, 0.0, math.inf, math.nan)
