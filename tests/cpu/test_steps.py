"""Kernels in steps: arguments that a plan knows are packed once, and addresses are found from where tensors lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aclgrad.core.registry import lookup
from aclgrad.core.spec import Call
from aclgrad.cpu.steps import WORKSPACE, Bases, Chain, Place, Step
from aclgrad.cpu.threads import THREAD_GROUP, Kernel
from aclgrad.cpu.workspace import ThreadWorkspace

I64 = torch.int64


def _note(thread: int, threads: int, _group: Any, where: Any, to: Any, whole: int, real: float, small: int) -> None:
    if thread == 0:
        to[0], to[1], to[2], to[3], to[4] = where[0], whole, int(real * 4), small, threads


SIGNATURE = (THREAD_GROUP, I64, I64, int, float, int)


@pytest.mark.parametrize("count", range(4))
def test_a_kernel_knows_its_last_arguments(count: int) -> None:
    kernel = Kernel(_note, SIGNATURE)
    where, to = torch.tensor([2**40]), torch.zeros(5, dtype=I64)
    numbers = (-3, 0.75, 2**50)
    first, last = numbers[: 3 - count], numbers[3 - count :]
    kernel.fixed(*last)(1, where.data_ptr(), to.data_ptr(), *first)
    assert to.tolist() == [2**40, -3, 3, 2**50, 1]
    to.zero_()
    kernel.fixed(*last).fixed(*first)(2, where.data_ptr(), to.data_ptr())
    assert to.tolist() == [2**40, -3, 3, 2**50, 2]
    kernel(1, where.data_ptr(), to.data_ptr(), 1, 1.0, 1)  # which is as it was
    assert to.tolist() == [2**40, 1, 4, 1, 1]


@pytest.mark.parametrize(("room", "expected"), [(64 + 100, 1), (64 + 3 * 100 - 1, 2), (64 + 9 * 100, 3)])
def test_a_step_finds_its_operands_and_its_threads(room: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as torch uses now, and no more than the workspace behind the step's own place has room for."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    tensor, workspace = torch.arange(8), torch.zeros(8 + room, dtype=torch.uint8)
    kernel = Kernel(_note, (THREAD_GROUP, I64, I64, int, float, int)).fixed(1, 1.0, 1)
    step = Step(kernel, [WORKSPACE.at(8), Place(1, 0).at(24)], ThreadWorkspace(64, 100, work=1000, grain=10))
    workspace[8:16].view(I64).fill_(17)
    step([workspace.data_ptr(), tensor.data_ptr()], workspace.numel())
    assert tensor.tolist() == [0, 1, 2, 17, 1, 4, 1, expected]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_chain_runs_its_steps_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one call where one thread runs all, else one by one; the first step's result is an operand of the second."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    first, second, workspace = torch.arange(8), torch.arange(8), torch.zeros(64 + 300, dtype=torch.uint8)
    workspace[:8].view(I64).fill_(17)
    kernel, shared = Kernel(_note, SIGNATURE), ThreadWorkspace(64, 100, work=1000, grain=10)
    chain = Chain([
        Step(kernel.fixed(-3, 0.75, 2**50), [WORKSPACE, Place(1, 8)], shared),
        Step(kernel.fixed(0.5, 7), [Place(1, 8), Place(2, 0), WORKSPACE]),
    ])  # fmt: skip
    chain([workspace.data_ptr(), first.data_ptr(), second.data_ptr()], workspace.numel())
    assert first.tolist() == [0, 17, -3, 3, 2**50, threads, 6, 7]
    assert second.tolist() == [17, workspace.data_ptr(), 2, 7, 1, 5, 6, 7]


def test_bases_are_those_of_the_tensors_that_are_there() -> None:
    operator = lookup("batch_norm")
    x, weight = torch.zeros(3, 2), torch.zeros(2)
    call, _ = operator.judge((x, weight, None, None, None, 0.1, 1e-5))
    bases = Bases(Call(call.spec, {**call.values, "output": None, "mean": None, "invstd": None}, strict=False))
    assert bases.places == {"input": Place(1, 0), "weight": Place(2, 0)}
    assert bases((x, weight, *[None] * 8), x) == [x.data_ptr(), x.data_ptr(), weight.data_ptr()]
