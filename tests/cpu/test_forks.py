"""Kernels in forked children, and after the number of threads has changed: the same bits, no hang, all threads."""

import os
import threading
from functools import cache

import pytest
import torch
from forked import LIMIT, in_child
from torch.utils.data import DataLoader, Dataset

import aclgrad.nn
from aclgrad.core.memory import tensors_in
from aclgrad.core.plan import Operator
from aclgrad.core.registry import operators
from aclgrad.cpu import compiler, openmp
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier
from aclgrad.testing.cases import BENCH_GPU, EDGE, REAL, suite
from aclgrad.testing.verdicts import own, run

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

OPERATORS = pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)
MODULES = {
    "Hardsigmoid": lambda: (aclgrad.nn.Hardsigmoid(), torch.randn(70, 1000)),
    "LSTM": lambda: (aclgrad.nn.LSTM(64, 96), torch.randn(20, 16, 64)),
    "LSTMCell": lambda: (aclgrad.nn.LSTMCell(40, 300), torch.randn(70, 40)),
    "LinearCrossEntropyLoss": lambda: (
        aclgrad.nn.LinearCrossEntropyLoss(128, 1000), torch.randn(256, 128), torch.randint(1000, (256,)),
    ),
    "SyncBatchNorm": lambda: (aclgrad.nn.SyncBatchNorm(60), torch.randn(40, 60, 30)),
}  # fmt: skip
"""Each module with an input that is worth two threads."""


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def thread_counts(monkeypatch):
    """The number of threads that every kernel was given."""
    sizes = []
    plain = Kernel.__call__

    def noted(kernel, size, *args):
        sizes.append(size)
        plain(kernel, size, *args)

    monkeypatch.setattr(Kernel, "__call__", noted)
    return sizes


@cache
def arguments(operator):
    """A case of realistic size, or the largest one of those made for the edges; it should be worth two threads."""
    cases = [case for case in suite(operator.spec).cases if BENCH_GPU not in case.tags]
    real = [case for case in cases if REAL in case.tags]
    built = [case.build() for case in real or cases if case.tags & {REAL, EDGE}]
    return max(built, key=lambda args: sum(t.numel() for t in tensors_in(args)))


def same(results, expected):
    for result, want in zip(tensors_in(results), tensors_in(expected), strict=True):
        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


@OPERATORS
def test_an_operator_runs_in_a_forked_child(operator, thread_counts):
    args = arguments(operator)
    expected = run(operator, args, "cpu")
    if not thread_counts:
        pytest.skip("runs on no threads of ours")
    assert max(thread_counts) == 2, "the case should be worth two threads"
    copies = {count: own(operator.spec, args) for count in (2, 1)}

    def child():
        for count, mine in copies.items():
            thread_counts.clear()
            torch.set_num_threads(count)
            outs = operator(*mine, backend="cpu")
            assert max(thread_counts) == count
            torch.set_num_threads(1)
            same(operator.spec.written(mine, outs if isinstance(outs, tuple) else [outs]), expected)

    in_child(child)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_runs_and_trains_in_a_forked_child(name, thread_counts):
    torch.manual_seed(3)
    module, x, *rest = MODULES[name]()
    x.requires_grad_()
    start = [buffer.clone() for buffer in module.buffers()]
    weights = [torch.randn_like(out) for out in results_of(module(x, *rest))]

    def trained():
        for buffer, value in zip(module.buffers(), start, strict=True):
            buffer.copy_(value)
        outs = results_of(module(x, *rest))
        gradients = torch.autograd.grad(outs, [x, *module.parameters()], weights)
        return [tensor.detach().clone() for tensor in (*outs, *gradients, *module.buffers())]

    expected = trained()
    assert max(thread_counts) == 2, "the input should be worth two threads"

    def child(count):
        thread_counts.clear()
        torch.set_num_threads(count)
        found = trained()
        assert max(thread_counts) == count
        same(found, expected)

    for count in (1, 2):
        in_child(child, count)


def results_of(value):
    """The tensors of a nest of tuples."""
    return [value] if isinstance(value, torch.Tensor) else [out for item in value for out in results_of(item)]


class Scored(Dataset):
    """What the worker of a loader computes by itself."""

    def __init__(self, module, *inputs):
        self.score = lambda: module(*inputs).detach()

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.score()


@pytest.mark.parametrize("name", ["Hardsigmoid", "LinearCrossEntropyLoss"])
def test_a_module_runs_in_the_worker_of_a_data_loader(name):
    scored = Scored(*MODULES[name]())
    expected = scored.score()
    loader = DataLoader(scored, batch_size=None, num_workers=1, timeout=LIMIT, multiprocessing_context="fork")
    found = list(loader)
    assert len(found) == 2
    same(found, [expected] * 2)


@OPERATORS
def test_a_plan_holds_no_number_of_threads(operator, thread_counts):
    args = arguments(operator)
    for counts in ((1, 2), (2, 1)):
        planning = Operator(operator.spec)  # a new one, which has yet to plan
        results = []
        for count in counts:
            thread_counts.clear()
            torch.set_num_threads(count)
            results.append(run(planning, args, "cpu"))
            if not thread_counts:
                pytest.skip("runs on no threads of ours")
            assert max(thread_counts) == count, f"{counts} threads were set in turn"
        same(*results)


def _meet(thread, threads, group, rounds, cells, agreed):
    for r in range(rounds):
        cells[thread] = r * 100 + thread
        barrier(group)
        same = 0
        for other in range(threads):
            same += 1 if cells[other] == r * 100 + other else 0
        agreed[thread] = agreed[thread] + same
        barrier(group)


@pytest.mark.parametrize("generations", [1, 2], ids=["child", "grandchild"])
@pytest.mark.parametrize("paused", [True, False], ids=["OpenMP gives up its threads", "OpenMP cannot"])
def test_thread_groups_of_any_size_meet_in_a_child(paused, generations, monkeypatch):
    library = openmp._library()
    if library is None:
        pytest.skip("torch is not linked to GNU OpenMP here")
    if not paused:
        monkeypatch.setattr(openmp, "_library", lambda: library._replace(pause=None))
    kernel = Kernel(_meet, (THREAD_GROUP, int, torch.int64, torch.int64))
    cells, agreed = torch.zeros(2, 16, dtype=torch.int64)

    def meet():
        for size in (1, 2, 3, 7):
            agreed.zero_()
            kernel(size, 30, cells.data_ptr(), agreed.data_ptr())
            assert agreed[:size].tolist() == [30 * size] * size

    def child(left):
        assert (openmp.openmp() is not None) == paused
        meet()
        if left > 1:
            in_child(child, left - 1)

    meet()
    in_child(child, generations)
    meet()
    assert openmp.openmp() is not None, "the parent keeps to the pool of torch"


def test_torchs_own_operations_run_in_a_child_too():
    x = torch.randn(300_000)
    expected = x.sigmoid()

    def child():
        torch.set_num_threads(2)
        same([x.sigmoid()], [expected])

    in_child(child)


def test_a_pool_that_may_be_inherited_is_left_alone(monkeypatch):
    """Its threads may not exist, and giving it up would wait for them."""
    assert not openmp._forked_without_exec()
    asked = []
    monkeypatch.setattr(openmp, "_library", lambda: openmp.OpenMP(None, 0, 0, lambda kind: asked.append(kind) or 0))

    def child():
        assert openmp._forked_without_exec()
        pool = openmp._Pool()  # as if the kernels had been loaded after the fork
        pool.before_fork()
        pool.in_child()
        assert asked == [openmp.HARD], "only the parent has given up its pool"
        assert pool.orphaned

    in_child(child)
    openmp._Pool().before_fork()
    assert asked == [openmp.HARD] * 2


def _write_seven(thread, threads, out):
    out[0] = 7


def test_a_child_compiles_although_another_thread_of_its_parent_was_compiling():
    holding = threading.Event()

    def compiling():
        with compiler._compiling:
            holding.set()
            forked.wait(1)

    forked = threading.Event()
    other = threading.Thread(target=compiling)
    other.start()
    holding.wait()
    out = torch.zeros(1, dtype=torch.int64)

    def child():
        Kernel(_write_seven, (torch.int64,))(1, out.data_ptr())
        assert out.item() == 7

    in_child(child)
    forked.set()
    other.join()
