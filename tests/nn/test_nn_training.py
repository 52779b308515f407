"""Many steps of training: the twin follows torch's module from the same seed.

The loss of every step is one vector; torch's run in float64 is its truth, torch's own run in the dtype the naive one.
"""

import copy

import pytest
import torch
from torch import nn

import aclgrad.nn
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

STEPS = 60
BATCH = 8


class Sequences(nn.Module):
    """Says which of four numbers a noisy sequence repeats."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.rnn = nn.LSTM(8, 12, 2, bidirectional=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x, target):
        output, _ = self.rnn(self.embed(x))
        return nn.functional.cross_entropy(self.head(output[-1]), target)


class Cells(nn.Module):
    """The same, step by step."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x, target):
        state = None
        for step in x:
            state = self.cell(step, state)
        return nn.functional.cross_entropy(self.head(state[0]), target)


class Gates(nn.Module):
    """A squeeze-and-excitation gate."""

    def __init__(self):
        super().__init__()
        self.squeeze, self.gate = nn.Linear(4, 12), nn.Sequential(nn.Linear(12, 12), nn.Hardsigmoid())
        self.head = nn.Linear(12, 4)

    def forward(self, x, target):
        y = self.squeeze(x.mean(0))
        return nn.functional.cross_entropy(self.head(y * self.gate(2 * y)), target)


class Normalised(nn.Module):
    """Convolutions with batch norm."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(4, 12, 3), nn.SyncBatchNorm(12), nn.ReLU(), nn.Conv1d(12, 12, 3))
        self.norm, self.head = nn.SyncBatchNorm(12), nn.Linear(12, 4)

    def forward(self, x, target):
        y = self.norm(self.layers(x.permute(1, 2, 0)))
        return nn.functional.cross_entropy(self.head(y.mean(2)), target)


class TorchHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 40, bias=False)

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.linear(x), target)


class Head(nn.Module):
    """A classifier whose last layer and loss are one module."""

    def __init__(self):
        super().__init__()
        self.body, self.loss = nn.Sequential(nn.Linear(4, 12), nn.Tanh()), TorchHead()

    def forward(self, x, target):
        return self.loss(self.body(x.mean(0)), target * 9 + 3)


def converted(model):
    model = aclgrad.nn.convert(copy.deepcopy(model))
    if isinstance(model, Head):
        theirs, model.loss = model.loss, aclgrad.nn.LinearCrossEntropyLoss(12, 40)
        model.loss.load_state_dict(theirs.state_dict())
    return model


def batches(dtype):
    """Every step of a sequence says it, under noise."""
    data = Data(torch.float64)
    for _ in range(STEPS):
        target = data.integers(0, 4, BATCH)
        x = data.normal(5, BATCH, 4, scale=0.3)
        x += 2 * nn.functional.one_hot(target, 4)
        yield x.float().to(dtype), target


def losses(model, dtype, lower=None):
    """Of every step of plain gradient descent with momentum."""
    rate = 0.01 if isinstance(model, Normalised) else 0.1  # where the curve is smooth, errors do not grow
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    seen = []
    for x, target in batches(dtype):
        with torch.autocast("cpu", lower or torch.bfloat16, enabled=lower is not None):
            loss = model(x, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(loss.detach())
    return torch.stack(seen)


@pytest.mark.parametrize("make", [Sequences, Cells, Gates, Normalised, Head])
@pytest.mark.parametrize("lower", [None, torch.bfloat16], ids=["float32", "bfloat16 autocast"])
def test_losses_follow_torchs(make, lower):
    torch.manual_seed(0)
    model = make()
    truth = losses(copy.deepcopy(model).double(), torch.float64)
    naive = losses(copy.deepcopy(model), torch.float32, lower)
    ours = losses(converted(model), torch.float32, lower)
    assert truth[-1] < truth[0] / 2, "it learns"
    assert ours.dtype == naive.dtype
    assert_within_baseline(ours, truth, naive)
