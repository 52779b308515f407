"""Loads and stores of every dtype, judged over all bit patterns of the half types."""

from __future__ import annotations

from typing import Any

import numba
import pytest
import torch

from aclgrad.cpu.compiler import entry
from aclgrad.cpu.lanes import DTYPE_CODES, load_any, pointer_at
from aclgrad.cpu.threads import Kernel

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (*HALVES, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
PATTERNS = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)


def _copy(thread: int, threads: int, count: int, source: Any, target: Any) -> None:
    for i in range(count):
        target[i] = source[i]


def converted(source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    target = torch.empty(source.shape, dtype=dtype)
    Kernel(_copy, (int, source.dtype, dtype))(1, source.numel(), source.data_ptr(), target.data_ptr())
    return target


def nearest_even(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Correct rounding of float64 by looking the neighbours up in the list of all numbers of the dtype."""
    numbers = PATTERNS.view(dtype).double()
    order = numbers[numbers.isfinite() & (numbers > 0)].sort().values
    beyond = order[-1] + (order[-1] - order[-2])  # where Inf begins, if it were a number
    order = torch.cat([torch.zeros(1, dtype=torch.float64), order, beyond[None]])
    size = values.abs().clamp(max=float(beyond))
    above = torch.searchsorted(order, size).clamp(min=1)
    low, high = order[above - 1], order[above]
    up = (high - size < size - low) | ((high - size == size - low) & (above % 2 == 0))
    rounded = torch.where(up, high, low)
    return torch.where(rounded == beyond, torch.inf, rounded).copysign(values).to(dtype)


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """The same numbers with the same signs; any NaN equals any NaN."""
    both_nan = found.isnan() & expected.isnan()
    same = (found == expected) & (found.signbit() == expected.signbit())
    return found.dtype == expected.dtype and bool((both_nan | same).all())


def border_values(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a half type, all midpoints between neighbours, and what lies a hair beside either."""
    numbers = PATTERNS.view(dtype).double()
    numbers = numbers[numbers.isfinite()].sort().values
    points = torch.cat([numbers, (numbers[1:] + numbers[:-1]) / 2, 1.001 * numbers[[0, -1]], 2 * numbers[[0, -1]]])
    up, down = torch.full_like(points, torch.inf), torch.full_like(points, -torch.inf)
    return torch.cat([points, torch.nextafter(points, up), torch.nextafter(points, down)])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_every_half_pattern_widens_exactly(dtype: torch.dtype, wide: torch.dtype) -> None:
    source = PATTERNS.view(dtype)
    assert equal(converted(source, wide), source.to(wide))


@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_pattern_survives_a_round_trip(dtype: torch.dtype) -> None:
    source = PATTERNS.view(dtype)
    assert equal(converted(converted(source, torch.float32), dtype), source)


@pytest.mark.parametrize("dtype", HALVES)
def test_float32_is_rounded_to_nearest_even(dtype: torch.dtype) -> None:
    source = border_values(dtype).float()
    neighbours = [torch.nextafter(source, torch.full_like(source, end)) for end in (torch.inf, -torch.inf)]
    source = torch.cat([source, *neighbours, torch.tensor([torch.inf, -torch.inf, torch.nan, 3e38, 1e-45])])
    assert equal(converted(source, dtype), source.to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_float64_is_rounded_once(dtype: torch.dtype) -> None:
    source = border_values(dtype)
    assert equal(converted(source, dtype), nearest_even(source, dtype))
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e300, -1e-300, -0.0], dtype=torch.float64)
    assert equal(converted(special, dtype), special.to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_nan_with_any_payload_stays_nan(dtype: torch.dtype) -> None:
    bits = torch.tensor([0x7F800001, 0x7FFFFFFF, 0x7FC00000, -1, -0x7FFFFF], dtype=torch.int32)
    assert bits.view(torch.float32).isnan().all()
    assert converted(bits.view(torch.float32), dtype).isnan().all()
    assert converted(bits.view(torch.float32).double(), dtype).isnan().all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_keep_their_value(dtype: torch.dtype) -> None:
    limits = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    source = torch.tensor([0, 1, *limits], dtype=torch.int64).to(dtype)
    assert converted(source, torch.int64).tolist() == source.long().tolist()
    assert converted(source.long(), dtype).tolist() == source.tolist()


def _read_any(thread: int, threads: int, address: int, code: int, count: int, target: Any) -> None:
    for i in range(count):
        target[i] = load_any(address, code, i)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_a_dtype_told_at_run_time(dtype: torch.dtype) -> None:
    source = torch.tensor([0.0, 1.0, 3.5, 100.0, 7.0]).to(dtype)
    target = torch.empty(5, dtype=torch.float64)
    Kernel(_read_any, (int, int, int, torch.float64))(
        1, source.data_ptr(), DTYPE_CODES[dtype], source.numel(), target.data_ptr()
    )
    assert target.tolist() == source.double().tolist()


def _move(thread: int, threads: int, source: Any, address: int, target: Any) -> None:
    ahead = source + 3
    target[0] = ahead[-1]
    target[1] = pointer_at(address, source)[4]


@pytest.mark.parametrize("dtype", FLOATS)
def test_pointers_move_by_elements(dtype: torch.dtype) -> None:
    source, target = torch.arange(6).to(dtype), torch.zeros(2)
    Kernel(_move, (dtype, int, torch.float32))(1, source.data_ptr(), source.data_ptr(), target.data_ptr())
    assert target.tolist() == [2.0, 4.0]


def _dozen(thread: int, threads: int, count: int, *arrays: Any) -> None:
    a, b, c, d, e, f, u, v, w, x, y, z = arrays
    for i in range(count):
        u[i], v[i], w[i], x[i], y[i], z[i] = (
            a[i] * b[i],
            b[i] * c[i],
            c[i] * d[i],
            d[i] * e[i],
            e[i] * f[i],
            f[i] * a[i],
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_loops_over_many_arrays_vectorise(dtype: torch.dtype, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # code from the disk cannot be inspected
    code = entry.__wrapped__(_dozen, (int, *[dtype] * 12))
    assert "vector.body" in code.inspect_llvm()
    assert "vector.memcheck" not in code.inspect_llvm(), "arguments are promised not to overlap"


def test_a_dtype_without_arithmetic_is_refused() -> None:
    with pytest.raises(TypeError, match="complex64"):
        Kernel(_copy, (int, torch.complex64, torch.complex64))
