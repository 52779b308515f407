"""The workspace that a thread keeps: reused from call to call, never shared, bounded."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from aclgrad.core import backends, memory
from aclgrad.core.memory import KEPT_WORKSPACE
from aclgrad.core.plan import Operator
from aclgrad.core.rules import dtype_of, required, shape_of, supported_dtypes
from aclgrad.core.spec import F32, OpSpec, Out, Tensor
from aclgrad.testing import poisoned_memory

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_kept():
    memory.drop_workspace()
    yield
    memory.drop_workspace()


class Launch:
    """Adds one, and shows its workspace to whoever looks."""

    def __init__(self, workspace, look):
        self.workspace, self.look = workspace, look

    def __call__(self, args, outs, workspace):
        self.look(workspace)
        torch.add(args[0], 1, out=outs[0])


@pytest.fixture
def operator(monkeypatch):
    """An operator whose workspace has as many bytes as its argument has elements."""
    looks = []

    def launch(call):
        return Launch(call.tensor("a").numel, lambda workspace: [look(workspace) for look in looks])

    monkeypatch.setitem(backends.BACKENDS, "cpu", launch)
    spec = OpSpec(
        name="toy", aclnn="aclnnToy", package="no.such.package",
        args=(Tensor("a", "aIn", (F32,)),), outs=(Out("y", "yOut", (F32,), shape_of("a"), dtype_of("a")),),
        rules=(required("a"), supported_dtypes("a")),
    )  # fmt: skip
    toy = Operator(spec)
    toy.looks = looks
    return toy


def test_calls_share_a_place_whatever_is_kept_between_them(operator):
    seen = []
    operator.looks.append(lambda workspace: seen.append(workspace.data_ptr()))
    kept = [operator(torch.ones(300_000)) for _ in range(20)]
    kept += [operator(torch.ones(7)) for _ in range(20)]
    assert len(set(seen)) == 1 and len(seen) == len(kept)


def test_a_call_inside_a_call_gets_a_workspace_of_its_own(operator):
    depths = []

    def fill_and_call(workspace):
        depth = len(depths)
        depths.append(depth)
        workspace.fill_(depth)
        if depth < 3:
            operator(torch.ones(1000))
        assert workspace.eq(depth).all()

    operator(torch.ones(1000))  # of which a workspace is kept
    operator.looks.append(fill_and_call)
    operator(torch.ones(1000))
    assert depths == [0, 1, 2, 3]


def test_threads_at_once_do_not_share(operator):
    together = threading.Barrier(4, timeout=60)

    def write_and_compare(workspace):
        mine = threading.get_ident() % 251
        workspace.fill_(mine)
        together.wait()
        assert workspace.eq(mine).all()
        together.wait()

    operator.looks.append(write_and_compare)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [operator(torch.ones(5000)) for _ in range(20)], range(4)))


def test_growing_sizes_take_few_allocations(operator):
    seen, whole = set(), 0
    for size in range(1000, 500_000, 1000):
        block = memory.workspace(size, CPU)
        assert block.numel() >= size
        if block.data_ptr() not in seen:
            whole += block.numel()
        seen.add(block.data_ptr())
        memory.give_back(block)
        del block
    assert len(seen) <= 10 and whole < 2 * 1_000_000


def test_of_two_the_larger_one_is_kept():
    small, large = memory.workspace(100, CPU), memory.workspace(1000, CPU)
    at = large.data_ptr()
    memory.give_back(large)
    memory.give_back(small)
    assert memory.workspace(500, CPU).data_ptr() == at


def test_no_more_is_kept_than_the_bound():
    for size, kept in ((KEPT_WORKSPACE, True), (KEPT_WORKSPACE + 1, False)):
        memory.drop_workspace()
        memory.give_back(memory.workspace(size, CPU))
        assert (memory._kept.block is not None) == kept
    memory.give_back(memory.workspace(KEPT_WORKSPACE - 1, CPU))
    memory.give_back(memory.workspace(KEPT_WORKSPACE + 1, CPU))
    assert memory._kept.block.numel() == KEPT_WORKSPACE - 1  # as if nothing had been
    assert memory.workspace(KEPT_WORKSPACE, CPU).numel() == KEPT_WORKSPACE  # doubled would be beyond it


def test_a_thread_takes_its_workspace_along():
    found = []

    def work():
        memory.give_back(memory.workspace(1000, CPU))
        found.append(torch._C._WeakTensorRef(memory._kept.block))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].expired() and memory._kept.block is None


def test_the_workspace_of_a_launch_that_failed_is_not_used_again(operator):
    blocks = []

    def fail(workspace):
        blocks.append(workspace)
        raise RuntimeError("no")

    operator.looks.append(fail)
    with pytest.raises(RuntimeError, match="no"):
        operator(torch.ones(100))
    assert memory._kept.block is None
    operator.looks[:] = [blocks.append]
    operator(torch.ones(100))
    assert blocks[0].data_ptr() != blocks[1].data_ptr()


def test_a_workspace_made_for_inference_serves_training(operator):
    operator.looks.append(lambda workspace: workspace.add_(1))
    with torch.inference_mode():
        operator(torch.ones(100))
    operator(torch.ones(100))
    assert not memory._kept.block.is_inference()


def test_what_only_stands_for_memory_is_not_kept():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        memory.give_back(memory.workspace(100, CPU))
    assert memory._kept.block is None


def test_a_kept_workspace_is_poisoned_for_every_call(operator):
    clean = []

    def look(workspace):
        clean.append(not workspace[:100].eq(0xFF).all())
        workspace.zero_()

    operator.looks.append(look)
    with poisoned_memory():
        for _ in range(3):
            operator(torch.ones(100))
    assert clean == [False] * 3


def test_no_size_is_no_workspace():
    assert memory.workspace(0, CPU) is None
    memory.give_back(None)
    assert memory._kept.block is None
