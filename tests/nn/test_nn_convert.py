"""`aclgrad.nn.convert` in models as people write them."""

import pytest
import torch
from torch import nn

import aclgrad.nn
from aclgrad.testing.cases import Data


class Tagger(nn.Module):
    """Nested, with one module used in two places."""

    def __init__(self):
        super().__init__()
        gate = nn.Hardsigmoid()
        self.encoder = nn.ModuleDict({"rnn": nn.LSTM(4, 6, bidirectional=True), "gate": gate})
        self.cells = nn.ModuleList([nn.LSTMCell(12, 12)])
        self.head = nn.Sequential(nn.Linear(12, 12), nn.SyncBatchNorm(12), gate)

    def forward(self, x):
        y, _ = self.encoder["rnn"](x)
        h, _ = self.cells[0](self.encoder["gate"](y).mean(0))
        return self.head(h)


def tagger():
    torch.manual_seed(0)
    return Tagger()


def inputs():
    return Data().normal(5, 3, 4)


def test_every_nested_module_becomes_its_twin():
    model = tagger()
    converted = aclgrad.nn.convert(model)
    assert converted is model
    kinds = {type(module) for module in model.modules()}
    assert {aclgrad.nn.LSTM, aclgrad.nn.LSTMCell, aclgrad.nn.SyncBatchNorm, aclgrad.nn.Hardsigmoid} <= kinds
    assert not kinds & set(aclgrad.nn.TWINS)
    torch.testing.assert_close(model(inputs()), tagger()(inputs()))


def test_a_shared_module_stays_shared():
    model = aclgrad.nn.convert(tagger())
    assert model.encoder["gate"] is model.head[2]
    assert type(model.head[2]) is aclgrad.nn.Hardsigmoid


def test_parameters_buffers_and_order_are_the_very_same():
    model = tagger()
    before = [*model.named_parameters(), *model.named_buffers()]
    after = [*aclgrad.nn.convert(model).named_parameters(), *model.named_buffers()]
    assert [name for name, _ in before] == [name for name, _ in after]
    assert all(one is other for (_, one), (_, other) in zip(before, after, strict=True))


def test_an_optimiser_of_before_goes_on_working():
    theirs, ours = tagger(), tagger()
    for model in (theirs, ours):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        if model is ours:
            aclgrad.nn.convert(model)
        model(inputs()).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert not torch.equal(ours.head[0].weight, tagger().head[0].weight)


def test_hooks_and_the_mode_are_kept():
    model = nn.Sequential(nn.Hardsigmoid()).eval()
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    aclgrad.nn.convert(model)(inputs())
    assert calls == [1] and not model[0].training


def test_a_module_alone_is_converted_itself():
    module = nn.LSTMCell(3, 4)
    assert type(aclgrad.nn.convert(module)) is aclgrad.nn.LSTMCell


@pytest.mark.parametrize(
    "make", [tagger, lambda: nn.Linear(2, 2), lambda: nn.Sequential()], ids=["all", "none", "empty"]
)
def test_converting_twice_is_converting_once(make):
    model = aclgrad.nn.convert(make())
    kinds = [type(module) for module in model.modules()]
    assert [type(module) for module in aclgrad.nn.convert(model).modules()] == kinds


def test_an_lstm_whose_weights_do_not_fit_its_options_stays_torchs():
    model = nn.ModuleList([nn.LSTM(4, 6, proj_size=2), nn.LSTM(4, 6)])
    model[1].proj_size = 2
    assert [type(module) for module in aclgrad.nn.convert(model)] == [aclgrad.nn.LSTM, nn.LSTM]


def test_a_subclass_of_the_users_stays_as_it_is():
    class Mine(nn.LSTM):
        def forward(self, *arguments):
            return "mine"

    model = aclgrad.nn.convert(nn.Sequential(Mine(2, 2)))
    assert model(None) == "mine"


def test_weights_of_a_parametrised_module_are_computed_as_they_are_used():
    module = aclgrad.nn.LSTM(4, 6)
    nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")
    before, _ = module(inputs())
    with torch.no_grad():
        module.parametrizations.weight_hh_l0.original0.zero_()
    after, _ = module(inputs())
    assert not torch.equal(before, after)
    after.sum().backward()
    assert module.parametrizations.weight_hh_l0.original1.grad is not None
