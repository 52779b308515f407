"""Kernels on threads of every kind: alone, on torch's OpenMP pool, on plain Python threads."""

from __future__ import annotations

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import torch

from aclgrad.cpu import threads
from aclgrad.cpu.compiler import entry
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier, share, thread_count

MODES = ("openmp", "python")
TEAMS = (1, 2, 3, 7)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(threads, "openmp", lambda: None)
    elif threads.openmp() is None:
        pytest.skip("torch is not linked to GNU OpenMP here")
    return str(request.param)


def _sign_in(thread: int, threads: int, visits: Any, sizes: Any) -> None:
    visits[thread] = visits[thread] + 1
    sizes[thread] = threads


@pytest.mark.parametrize("size", TEAMS)
def test_every_thread_runs_once(mode: str, size: int) -> None:
    kernel = Kernel(_sign_in, (torch.int64, torch.int64))
    visits, sizes = torch.zeros(2, 16, dtype=torch.int64)
    kernel(size, visits.data_ptr(), sizes.data_ptr())
    assert visits.tolist() == [1] * size + [0] * (16 - size)
    assert sizes[:size].tolist() == [size] * size


def _meet(thread: int, threads: int, group: Any, rounds: int, cells: Any, agreed: Any) -> None:
    for r in range(rounds):
        cells[thread] = r * 100 + thread
        barrier(group)
        same = 0
        for other in range(threads):
            same += 1 if cells[other] == r * 100 + other else 0
        agreed[thread] = agreed[thread] + same
        barrier(group)


def _check_meeting(size: int, rounds: int) -> None:
    kernel = Kernel(_meet, (THREAD_GROUP, int, torch.int64, torch.int64))
    cells, agreed = torch.zeros(2, 16, dtype=torch.int64)
    kernel(size, rounds, cells.data_ptr(), agreed.data_ptr())
    assert agreed[:size].tolist() == [rounds * size] * size


@pytest.mark.parametrize("size", TEAMS)
def test_barrier_shows_what_others_wrote(mode: str, size: int) -> None:
    _check_meeting(size, 100)


def test_several_python_threads_at_once(mode: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(_check_meeting, 2, 30) for _ in range(12)]:
            future.result()


def _echo(thread: int, threads: int, whole: int, real: float, nothing: Any, group: Any, out: Any) -> None:
    if nothing is None:
        out[0] = whole
        out[1] = real


def test_arguments_arrive_as_they_are() -> None:
    kernel = Kernel(_echo, (int, float, None, THREAD_GROUP, torch.float64))
    out = torch.zeros(2, dtype=torch.float64)
    for whole, real in ((-7, 0.1), (2**40 + 1, -1e300), (0, float("inf"))):
        kernel(1, whole, real, out.data_ptr())
        assert out.tolist() == [whole, real]


def test_compile_gives_one_kernel_per_signature() -> None:
    once = threads.compile(_sign_in, (torch.int64, torch.int64))
    assert threads.compile(_sign_in, (torch.int64, torch.int64)) is once
    assert threads.compile(_sign_in, (torch.int64, torch.int32)) is not once


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("grain", [1, 16])
@pytest.mark.parametrize("size", TEAMS)
def test_shares_are_a_partition_at_grains(count: int, grain: int, size: int) -> None:
    parts = [share.py_func(count, grain, thread, size) for thread in range(size)]
    assert parts[0][0] == 0
    assert parts[-1][1] == count
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    assert all(first % grain == 0 or first == count for first, _ in parts)


def test_little_work_stays_on_one_thread() -> None:
    assert thread_count(0, 10) == thread_count(19, 10) == 1
    assert thread_count(20, 10) == torch.get_num_threads()


SCRIPT = """
import sys, torch
sys.path.insert(0, {folder!r})
from aclgrad.cpu.compiler import entry
from kept import kernel
print(entry(kernel, (torch.int64,)).cache_hits)
"""
SOURCE = """
def kernel(thread, threads, out):
    out[0] = {value}
"""


@pytest.mark.slow
def test_machine_code_is_kept_on_disk_until_the_source_changes(tmp_path: Any) -> None:
    def hits(value: int) -> int:
        text, file = SOURCE.format(value=value), tmp_path / "kept.py"
        if not file.exists() or file.read_text() != text:  # older numba takes a newer file for another one
            file.write_text(text)
        script = SCRIPT.format(folder=str(tmp_path))
        answer = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True)
        return int(answer.stdout)

    assert [hits(1), hits(1), hits(22), hits(22)] == [0, 1, 0, 1]
    assert len(list(tmp_path.rglob("*.nbc"))) == 1, "what the older source left should be gone"


def test_an_entry_lies_where_its_kernel_does() -> None:
    """numba reads the lines of what it keeps on disk, and since Python 3.12 they must not begin inside a string."""
    code = entry(_sign_in, (torch.int64, torch.int64))
    assert inspect.getsource(code.__wrapped__) == inspect.getsource(_sign_in)


def test_a_cpu_without_half_conversions_is_refused(monkeypatch):
    from aclgrad.core.errors import Unsupported
    from aclgrad.cpu import compiler

    monkeypatch.setattr(compiler.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(compiler.llvm, "get_host_cpu_features", lambda: {"avx": True, "f16c": False})
    with pytest.raises(Unsupported, match="F16C"):
        compiler.require_half_conversions.__wrapped__()
