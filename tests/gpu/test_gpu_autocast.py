"""Autocast on a GPU: a parameter is cast once in a context, and by a captured graph whenever it runs."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import aclgrad.nn
from aclgrad.testing.cases import Data

ROWS, FEATURES, CLASSES = 16, 32, 100
MODULES = {
    "LSTM": lambda: aclgrad.nn.LSTM(FEATURES, FEATURES, num_layers=2),
    "LSTMCell": lambda: aclgrad.nn.LSTMCell(FEATURES, FEATURES),
    "head": lambda: aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES),
}
every_module = pytest.mark.parametrize("name", MODULES)


def arguments(name):
    data = Data()
    x = data.normal(ROWS, FEATURES) if name != "LSTM" else data.normal(2, ROWS, FEATURES)
    return (x, data.integers(0, CLASSES, ROWS)) if name == "head" else (x,)


def first(outputs):
    return outputs if isinstance(outputs, torch.Tensor) else outputs[0]


@every_module
def test_a_parameter_is_cast_once_in_a_context(cuda, name):
    module, given = MODULES[name](), arguments(name)
    shapes = {tuple(parameter.shape) for parameter in module.parameters()}

    def casts():
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as seen:
            module(*given)
        return sum(e.name == "aten::_to_copy" and tuple(e.input_shapes[0]) in shapes for e in seen.events())

    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            assert [casts() for _ in range(3)] == [len(list(module.parameters())), 0, 0]


@pytest.mark.parametrize("name", ["LSTM", "head"])
def test_a_captured_call_casts_what_is_there_when_it_runs(cuda, name):
    module, given = MODULES[name](), arguments(name)
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            before = first(module(*given)).clone()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = first(module(*given))
        for parameter in module.parameters():
            parameter.mul_(2)
        graph.replay()
        assert torch.equal(captured, first(module(*given))) and not torch.equal(captured, before)


@every_module
def test_gradients_are_those_of_casting_every_time(cuda, name):
    module, given = MODULES[name](), arguments(name)

    def gradients(**options):
        with torch.autocast("cuda", torch.bfloat16, **options):
            loss = first(module(*given)).float().square().mean()
        return torch.autograd.grad(loss, list(module.parameters()))

    torch.testing.assert_close(gradients(), gradients(cache_enabled=False))
