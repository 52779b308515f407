"""Random LSTMs: every option with every other, every kind of input and of states, beside torch's own."""

import random

import pytest
import torch
from nn_helpers import assert_same_as_torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from aclgrad.ops._shared import small
from aclgrad.testing.cases import Data

SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 60))]


def states_like(draw, data, chains, batch, widths):
    """(h, c), trained or not, also as views that do not lie one after another."""
    found = []
    for width in widths:
        state = data.normal(chains, *batch, width)
        if draw.random() < 0.3:
            state = data.normal(*reversed((chains, *batch, width))).permute(*reversed(range(2 + len(batch))))
        found.append(state.detach().requires_grad_(draw.random() < 0.7))
    return tuple(found)


@pytest.mark.filterwarnings("ignore:dropout option adds", "ignore:LSTM with projections")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sample(seed, monkeypatch):
    draw, data = random.Random(seed), Data(seed=seed)
    monkeypatch.setattr(small, "enabled", draw.random() < 0.3)
    size, hidden, layers = draw.choice([1, 3, 8]), draw.choice([5, 17]), draw.choice([1, 1, 2, 3])
    options = {
        "num_layers": layers,
        "bias": draw.random() < 0.7,
        "batch_first": draw.random() < 0.4,
        "bidirectional": draw.random() < 0.5,
        "proj_size": draw.choice([0, 0, 3, hidden - 1]),
        "dropout": draw.choice([0.0, 0.0, 0.3, 1.0]),
    }
    torch.manual_seed(seed)
    module = nn.LSTM(size, hidden, **options).train(draw.random() < 0.7)
    frozen = draw.choice(["", "", "weight_ih", "_l0", "bias"])
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not frozen or frozen not in name)
    steps, batch = draw.choice([1, 3, 7]), draw.choice([2, 3, 6])
    kind = draw.choice(["batch", "packed", "one"])
    if kind == "one":
        x, batches = data.normal(steps, size).requires_grad_(), ()
    elif kind == "batch":
        x = data.normal(*((batch, steps) if options["batch_first"] else (steps, batch)), size).requires_grad_()
        batches = (batch,)
    else:
        lengths = torch.tensor([draw.randint(1, steps) for _ in range(batch)])
        x = pack_padded_sequence(data.normal(steps, batch, size), lengths, enforce_sorted=False)
        x, batches = x._replace(data=x.data.detach().requires_grad_()), (batch,)
    chains = layers * (1 + options["bidirectional"])
    given = [states_like(draw, data, chains, batches, (options["proj_size"] or hidden, hidden))] * draw.randint(0, 1)
    assert_same_as_torch(module, x, *given, seed=seed)
