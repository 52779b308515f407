"""How every operator behaves as a citizen of CUDA: graphs, streams, memory, devices."""

import pytest
import torch
from matrix import flat, matrix

from aclgrad.core.memory import tensors_in
from aclgrad.core.spec import F32
from aclgrad.testing.cases import EDGE, SMOKE
from aclgrad.testing.poison import fill

SMOKES = [param for param in matrix(SMOKE) if param.values[2] != torch.float64]
SINGLES = [param for param in SMOKES if param.values[2] == F32]
HALVES_TOO = [param for param in matrix(SMOKE, EDGE) if param.values[2] != torch.float64]


def planned(operator, args):
    """(plan, outputs, workspace) of a call on the GPU."""
    plan = operator.plan(args)
    assert plan.backend == "triton"
    return plan, plan.allocate(), plan.workspace()


def same_bits(results, expected):
    for result, want in zip(flat(results), flat(expected), strict=True):
        assert (result is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("operator", "case", "dtype"), SMOKES)
def test_can_be_captured_in_a_graph_and_replayed_with_other_values(operator, case, dtype, cuda):
    args, others = case.build(dtype), case.build(dtype)
    for tensor in tensors_in(others):
        if tensor.is_floating_point():
            tensor.mul_(0.5)
    expected = operator(*others)
    plan, outs, workspace = planned(operator, args)
    plan.launch(args, outs, workspace)  # whatever a library sets up at its first use is no part of the graph
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.launch(args, outs, workspace)
    for mine, other in zip(tensors_in(args), tensors_in(others), strict=True):
        mine.copy_(other)
    for out in tensors_in(outs):
        fill(out)
    graph.replay()
    same_bits(outs, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), SINGLES)
def test_a_whole_call_can_be_captured(operator, case, dtype, cuda):
    args = case.build(dtype)
    expected = operator(*args)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = operator(*args)
    for result in tensors_in(results if isinstance(results, tuple) else (results,)):
        fill(result)
    graph.replay()
    same_bits(results, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), SINGLES)
def test_runs_on_the_current_stream(operator, case, dtype, cuda):
    """Inputs become right late on a side stream: only work queued behind them there sees the right values."""
    args = case.build(dtype)
    expected = operator(*args)
    plan, outs, workspace = planned(operator, args)
    right = [tensor.clone() for tensor in tensors_in(args)]
    for tensor in tensors_in(args):
        fill(tensor, 0)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        for tensor, value in zip(tensors_in(args), right, strict=True):
            tensor.copy_(value)
        plan.launch(args, outs, workspace)
    side.synchronize()
    same_bits(outs, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), SINGLES)
def test_two_streams_do_not_disturb_each_other(operator, case, dtype, cuda):
    args = case.build(dtype)
    expected = operator(*args)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for turn in range(8):
        with torch.cuda.stream(streams[turn % 2]):
            results.append(operator(*args))
    torch.cuda.synchronize()
    for result in results:
        same_bits(result, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), HALVES_TOO)
def test_phase_two_allocates_nothing(operator, case, dtype, cuda):
    args = case.build(dtype)
    plan, outs, workspace = planned(operator, args)
    plan.launch(args, outs, workspace)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    plan.launch(args, outs, workspace)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(("operator", "case", "dtype"), SMOKES)
def test_does_not_wait_for_the_device(operator, case, dtype, cuda):
    args = case.build(dtype)
    plan, outs, workspace = planned(operator, args)
    plan.launch(args, outs, workspace)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan.launch(args, outs, workspace)
        operator(*args)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("operator", "case", "dtype"), HALVES_TOO)
def test_same_bits_twice(operator, case, dtype, cuda):
    args = case.build(dtype)
    same_bits(operator(*args), operator(*args))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize(("operator", "case", "dtype"), SINGLES)
def test_runs_where_its_tensors_are(operator, case, dtype, cuda):
    expected = operator(*case.build(dtype))
    with torch.device("cuda:1"):
        args = case.build(dtype)
    assert torch.cuda.current_device() == 0
    results = operator(*args)
    assert all(result.device.index == 1 for result in flat(results) if result is not None)
    same_bits([None if r is None else r.to("cuda:0") for r in flat(results)], flat(expected))
