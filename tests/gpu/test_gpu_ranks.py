"""The head over shards and batch norm over ranks on one GPU: shards of all ranks, two processes, steps in a graph."""

import itertools

import gpu_checks
import pytest
import torch
import torch.distributed as dist
from head_checks import Counted
from head_problem import Problem, assert_right, ours
from simulated import cuts, over
from torch import nn

import aclgrad.nn
from aclgrad.core.collectives import Group
from aclgrad.ops.linear_cross_entropy.shards.ranges import even_ranges
from aclgrad.testing.processes import Processes

SIZES = {"chunks": (9000, 512, 16100), "odd": (777, 65, 1003)}
"""Tokens, features, classes: of several chunks of tokens where a rank has most rows; without whole tiles."""


def one_has_most(classes):
    """Two ranks before it have nothing, those behind it a few rows each."""
    return tuple(itertools.pairwise([0, 0, 0, *range(classes - 9, classes - 4), classes]))


RANGES = {
    "even": lambda classes: even_ranges(classes, 8),
    "one has most": one_has_most,
    "drawn": lambda classes: cuts(classes, 8, 5),
}


@pytest.mark.parametrize(("size", "row"), [("chunks", "PLAIN"), ("chunks", "EVERY"), ("odd", "EVERY")])
def test_eight_shards_are_the_whole(size, row, cuda):
    """By the tolerance rule, against float64 of the whole vocabulary; the same bits at the next run."""
    sizes = SIZES[size]
    problem = Problem(getattr(gpu_checks, row), torch.bfloat16, "cuda", sizes=sizes)
    for name, make in RANGES.items():
        ranges = make(sizes[-1])
        found, again = (problem.results(lambda *given, ranges=ranges: ours(*given, over(ranges))) for _ in range(2))
        assert_right(problem, found)
        assert all(torch.equal(value, again[key]) for key, value in found.items()), name


def test_two_processes_of_gloo():
    with Processes(2) as ranks:
        first, second = ranks(gpu_checks.together, "cuda", SIZES["odd"])
    assert first == second


class Model(nn.Module):
    """A batch norm before a head that is split, over a group of one rank."""

    def __init__(self, group):
        super().__init__()
        self.norm = aclgrad.nn.SyncBatchNorm(64, process_group=group)
        self.head = nn.Linear(64, 1003, bias=False)
        self.group = group

    def forward(self, x, target):
        how = {"group": self.group, "vocab": (0, 1003)}
        return aclgrad.nn.linear_cross_entropy(self.norm(x), self.head.weight, target, **how)


class Trained:
    """The model in training, with inputs that stay where they are."""

    def __init__(self, group):
        torch.manual_seed(0)
        self.inputs = nn.Parameter(torch.randn(256, 64)), torch.randint(0, 1003, (256,))
        self.model = Model(group)
        self.optimiser = torch.optim.SGD([self.inputs[0], *self.model.parameters()], lr=0.1)

    def step(self):
        self.optimiser.zero_grad(set_to_none=False)
        loss = self.model(*self.inputs)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A group of NCCL with this process only, which communicates all the same."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    monkeypatch.setattr(Group, "_is_enough", lambda group, part: not part.numel())
    monkeypatch.setattr(aclgrad.nn.SyncBatchNorm, "_group", lambda norm: dist.group.WORLD)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_a_training_step_over_nccl_is_captured(cuda, alone):
    """Replayed, it trains as steps that are launched one by one; its four collectives are in the graph."""
    eager, captured = Trained(alone), Trained(alone)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            captured.step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with Counted() as counted, torch.cuda.graph(graph):
        loss = captured.step()
    names = [name for name, _ in counted.calls]
    assert sorted(name.split("_")[1] for name in names) == ["gather", "gather", "gather", "reduce"], names
    losses = []
    for _ in range(4):
        graph.replay()
        losses.append(loss.clone())
    expected = [eager.step() for _ in range(6)][2:]
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected))
    torch.testing.assert_close(captured.model.state_dict(), eager.model.state_dict())
