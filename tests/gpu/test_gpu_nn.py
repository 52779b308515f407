"""Modules on a GPU: torch's results, compilation without a graph break, training steps captured in CUDA graphs."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import aclgrad.nn
from aclgrad.core.errors import InvalidArgument
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops._shared import small
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

sys.path.insert(0, str(Path(__file__).parents[1] / "nn"))
from nn_helpers import assert_same_as_torch, moved, outputs_and_gradients, tensors, twin

T, N, FEATURES, CLASSES = 6, 16, 32, 100


class TorchHead(nn.Module):
    """The parameters of LinearCrossEntropyLoss, which this torch may lack."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.linear(x), target)


def ours(module):
    """The twin of any of them."""
    if not isinstance(module, TorchHead):
        return twin(module)
    head = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, dtype=module.linear.weight.dtype)
    head.load_state_dict(module.state_dict())
    return head


MODULES = {
    "LSTM": lambda: nn.LSTM(FEATURES, 32, 2, bidirectional=True),
    "LSTMCell": lambda: nn.LSTMCell(FEATURES, 32),
    "Hardsigmoid": nn.Hardsigmoid,
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(FEATURES),
    "head": TorchHead,
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # the compiler's advice
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
]
every_module = pytest.mark.parametrize("name", MODULES)


def built(name, dtype=torch.float32):
    """Batch norm keeps its statistics in float32, as it does in training."""
    torch.manual_seed(0)
    module = MODULES[name]()
    return module if name == "SyncBatchNorm" else module.to(dtype)


def arguments(name, dtype=torch.float32):
    data = Data(dtype)
    if name == "LSTM":
        return (data.normal(T, N, FEATURES).requires_grad_(),)
    x = data.normal(N, FEATURES).requires_grad_()
    return (x, data.integers(0, CLASSES, N)) if name == "head" else (x,)


@pytest.fixture(autouse=True)
def plain_products(monkeypatch):
    """Without TF32, which would make torch's own error the larger one."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@every_module
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_outputs_and_gradients(cuda, name, dtype):
    same = name != "head" or dtype == torch.float32
    assert_same_as_torch(built(name, dtype), *arguments(name, dtype), twin=ours, same_dtypes=same)


def test_packed_sequences(cuda):
    x = arguments("LSTM")[0]
    lengths = torch.arange(N, device="cpu") % T + 1
    packed = pack_padded_sequence(x.detach(), lengths, enforce_sorted=False)
    assert_same_as_torch(built("LSTM"), packed._replace(data=packed.data.requires_grad_()))


@every_module
def test_autocast_gives_the_dtypes_that_torchs_modules_give(cuda, name):
    module, given = built(name), arguments(name)
    with torch.autocast("cuda", torch.bfloat16):
        expected = [t.dtype for t in tensors(module(*given))]
        if name == "LSTM":
            assert set(expected) == {torch.float16}, "torch gives float16 whatever autocast asks for"
            expected = [torch.bfloat16] * len(expected)
        assert [t.dtype for t in tensors(ours(module)(*given))] == expected


@every_module
def test_compilation_without_a_break(cuda, name):
    eager = ours(built(name))
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, fullgraph=True)
    for _ in range(2):
        expected = outputs_and_gradients(eager, *arguments(name))
        torch.testing.assert_close(outputs_and_gradients(compiled, *arguments(name)), expected)
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


class Trained:
    """A module in training, with inputs that stay where they are."""

    def __init__(self, name):
        self.inputs = [nn.Parameter(t) if t.is_floating_point() else t for t in arguments(name)]
        self.module = ours(built(name)).cuda()
        leaves = [t for t in self.inputs if t.is_floating_point()]
        self.optimiser = torch.optim.SGD([*leaves, *self.module.parameters()], lr=0.1)

    def step(self):
        loss = sum(out.square().mean() for out in tensors(self.module(*self.inputs)))
        self.optimiser.zero_grad(set_to_none=False)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


@every_module
def test_a_training_step_is_captured(cuda, name):
    """The captured step, replayed, trains as the steps that are launched one by one."""
    eager, captured = Trained(name), Trained(name)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            captured.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = captured.step()
    losses = []
    for _ in range(4):
        graph.replay()
        losses.append(loss.clone())
    expected = [eager.step() for _ in range(6)][2:]
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected))
    torch.testing.assert_close(captured.module.state_dict(), eager.module.state_dict())


def test_gradients_reach_states_on_the_gpu(cuda):
    module = built("LSTM")
    states = tuple(Data(seed=k).normal(4, N, 32).requires_grad_() for k in (1, 2))
    assert_same_as_torch(module, *arguments("LSTM"), states)


def test_float64_runs_too(cuda):
    """By the textbook formula, since no kernel for GPUs takes it."""
    assert_same_as_torch(built("LSTM", torch.float64), *arguments("LSTM", torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["LSTMCell", "Hardsigmoid"])
def test_small_calls_are_torchs(cuda, name, dtype, monkeypatch):
    """Unless somebody compiles them; what torch refuses is refused in our words."""
    monkeypatch.setattr(small, "enabled", True)
    module = MODULES[name]().to(cuda, dtype)
    x = torch.randn(N, FEATURES, dtype=dtype, requires_grad=True)
    expected, found = (outputs_and_gradients(each, x) for each in (module, twin(module)))
    for one, other in zip(tensors(expected), tensors(found), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        traced = torch.export.export(twin(module), (x,))
    assert any("aclgrad" in str(node.target) for node in traced.graph.nodes)
    with pytest.raises(InvalidArgument, match="is int64, expected"):
        twin(module)(torch.ones(N, FEATURES, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_a_step_at_a_time_without_a_gradient(cuda, dtype, monkeypatch):
    """Torch's cells serve it, as exactly as the whole sequence is computed; not where a gradient is wanted."""
    monkeypatch.setattr(small, "enabled", True)
    seen, whole = [], torch.lstm_cell
    monkeypatch.setattr(torch, "lstm_cell", lambda *given: seen.append(1) or whole(*given))
    data = Data(dtype)
    for layers, both, bias, first in ((1, False, True, False), (2, True, False, True), (3, False, True, True)):
        module = nn.LSTM(40, 96, layers, bias=bias, bidirectional=both, batch_first=first).to(dtype)
        ours, chains = twin(module), layers * (1 + both)
        for rows in (1, 5, 64):
            x = data.normal(*((rows, 1) if first else (1, rows)), 40)
            hx = tuple(data.normal(chains, rows, 96) for _ in range(2))
            for given in ((x,), (x, hx)):
                seen.clear()
                with torch.no_grad():
                    found = tensors(ours(*given))
                    assert len(seen) == chains
                    truth = tensors(copy.deepcopy(module).double()(*moved(given, torch.Tensor.double)))
                    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                        naive = tensors(module(*given))
                for result, exact, rough in zip(found, truth, naive, strict=True):
                    assert_within_baseline(result, exact, rough)
        seen.clear()
        ours(x)
        assert not seen
