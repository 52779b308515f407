"""What `convert` and `revert` report, and that one takes the other back, in models as people write and wrap them."""

import copy
import io
import logging
import pickle

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aclgrad.nn
from aclgrad.testing.cases import Data

HAS_HEAD = hasattr(nn, "LinearCrossEntropyLoss")
needs_head = pytest.mark.skipif(not HAS_HEAD, reason="this torch has no LinearCrossEntropyLoss")
torchs_own_warnings = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning"
)
MAKERS = {
    "Hardsigmoid": (lambda place: place.Hardsigmoid(), lambda: (Data().normal(5, 4),)),
    "LSTM": (
        lambda place: place.LSTM(4, 3, 2, bidirectional=True, batch_first=True, dropout=0.5),
        lambda: (Data().normal(2, 5, 4),),
    ),
    "LSTMCell": (lambda place: place.LSTMCell(4, 3, bias=False), lambda: (Data().normal(5, 4),)),
    "SyncBatchNorm": (lambda place: place.SyncBatchNorm(4, momentum=None), lambda: (Data().normal(5, 4),)),
    "LinearCrossEntropyLoss": (
        lambda place: place.LinearCrossEntropyLoss(4, 9, reduction="sum", ignore_index=2),
        lambda: (Data().normal(5, 4), Data().integers(0, 9, 5)),
    ),
}
NAMES = [pytest.param(name, marks=needs_head if name == "LinearCrossEntropyLoss" else ()) for name in MAKERS]


class Reader(nn.Module):
    """All modules that a scripted model may have, from one place or the other."""

    def __init__(self, place):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = place.LSTM(4, 5, 2, bidirectional=True)
        self.cell = place.LSTMCell(10, 10)
        self.gate = place.Hardsigmoid()

    def forward(self, x):
        output = self.rnn(x)[0]
        return self.gate(self.cell(output.mean(0))[0])


def sentence():
    return Data().normal(3, 2, 4)


def everything(module, arguments):
    """What a call returns, its gradients and what it left in the buffers."""
    torch.manual_seed(1)
    outputs, _ = torch.utils._pytree.tree_flatten(module(*arguments))
    parameters = [parameter for parameter in module.parameters() if outputs[0].requires_grad]
    gradients = torch.autograd.grad(sum(out.square().sum() for out in outputs), parameters) if parameters else []
    return [*outputs, *gradients, *module.buffers()]


def kinds(model):
    return [type(module) for module in model.modules()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made_by", [nn, aclgrad.nn], ids=["torch", "aclgrad"])
def test_there_and_back_computes_the_same(name, made_by):
    make, arguments = MAKERS[name]
    torch.manual_seed(0)
    module = make(made_by)
    twin = make(nn)
    twin.load_state_dict(module.state_dict())
    parameters, buffers = list(module.parameters()), list(module.buffers())
    options = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    for change, place in ((aclgrad.nn.revert, nn), (aclgrad.nn.convert, aclgrad.nn)) * 2:
        assert change(module) is module and type(module) is getattr(place, name)
        assert set(vars(module)) >= set(vars(make(nn)))
    aclgrad.nn.revert(module)
    assert all(one is other for one, other in zip(module.parameters(), parameters, strict=True))
    assert all(one is other for one, other in zip(module.buffers(), buffers, strict=True))
    assert {key: value for key, value in vars(module).items() if not key.startswith("_")} == options
    torch.testing.assert_close(everything(module, arguments()), everything(twin, arguments()), rtol=0, atol=0)
    assert repr(module) == repr(twin)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", NAMES)
def test_copies_of_what_was_reverted(name, copied):
    make, arguments = MAKERS[name]
    module = aclgrad.nn.revert(make(aclgrad.nn)).eval()
    again = copied(module)
    assert type(again) is getattr(nn, name)
    torch.testing.assert_close(again(*arguments()), module(*arguments()), rtol=0, atol=0)


def test_a_reverted_lstm_follows_its_weights():
    """As torch's does after `to`, a replaced weight and loading."""
    module = aclgrad.nn.LSTM(4, 3)
    module.weight_hh_l0 = nn.Parameter(torch.zeros(12, 3))
    aclgrad.nn.revert(module).double()
    twin = nn.LSTM(4, 3, dtype=torch.float64)
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(sentence().double()), twin(sentence().double()), rtol=0, atol=0)


def test_hooks_and_the_mode_are_kept():
    calls = []
    module = aclgrad.nn.Hardsigmoid().eval()
    module.register_forward_hook(lambda *_: calls.append(1))
    aclgrad.nn.revert(module)(sentence())
    assert calls == [1] and not module.training


@torchs_own_warnings
def test_a_reverted_model_goes_where_torchs_own_goes():
    expected = Reader(nn).eval()(sentence())
    reverted = aclgrad.nn.revert(Reader(aclgrad.nn)).eval()
    scripted = torch.jit.script(reverted)
    torch.testing.assert_close(scripted(sentence()), expected)
    torch.testing.assert_close(torch.jit.trace(reverted, (sentence(),))(sentence()), expected)
    quantised = torch.ao.quantization.quantize_dynamic(reverted, {nn.LSTM, nn.LSTMCell})
    assert [type(module).__name__ for module in quantised.children()] == ["LSTM", "LSTMCell", "Hardsigmoid"]
    assert ".quantized." in type(quantised.rnn).__module__
    torch.testing.assert_close(quantised(sentence()), expected, rtol=0, atol=0.01)
    _, report = aclgrad.nn.convert(nn.ModuleList([scripted, quantised]), report=True)
    assert [(entry.name, entry.reason) for entry in report.stayed] == [
        (f"0.{name}", "TorchScript has compiled it") for name in ("rnn", "cell", "gate")
    ]
    assert [entry.name for entry in report.changed] == ["1.gate"]


@torchs_own_warnings
def test_a_reverted_model_becomes_onnx():
    onnx = pytest.importorskip("onnx")
    file = io.BytesIO()
    torch.onnx.export(aclgrad.nn.revert(Reader(aclgrad.nn)).eval(), (sentence(),), file, dynamo=False)
    assert {"LSTM", "HardSigmoid"} <= {node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node}


class Mine(nn.LSTM):
    """A class of the user's."""


class Ours(aclgrad.nn.LSTMCell):
    """Another."""


def mixed():
    """Everything that a report can say."""
    gate = nn.Hardsigmoid()
    model = nn.Module()
    model.rnn, model.gate, model.again = nn.LSTM(4, 3), gate, nn.Sequential(nn.Linear(3, 3), gate)
    model.changed, model.mine, model.ours = nn.LSTM(4, 3), Mine(4, 3), Ours(4, 3)
    model.changed.bidirectional = True
    model.already = aclgrad.nn.Hardsigmoid()
    return model


def test_the_report_of_convert():
    model, report = aclgrad.nn.convert(mixed(), report=True)
    assert [(entry.name, entry.was, entry.now) for entry in report.changed] == [
        ("rnn", nn.LSTM, aclgrad.nn.LSTM),
        ("gate, again.1", nn.Hardsigmoid, aclgrad.nn.Hardsigmoid),
    ]
    assert [(entry.name, entry.was, entry.has_twin) for entry in report.stayed] == [
        ("changed", nn.LSTM, True),
        ("mine", Mine, False),
    ]
    assert str(report).splitlines() == [
        "module         was                   is                      why it stayed",
        "rnn            torch.nn.LSTM         aclgrad.nn.LSTM",
        "gate, again.1  torch.nn.Hardsigmoid  aclgrad.nn.Hardsigmoid",
        "changed        torch.nn.LSTM         torch.nn.LSTM           "
        "bidirectional is True, expected False: the module's weights were made for that",
        f"mine           {__name__}.Mine   {__name__}.Mine     "
        "it is a subclass of torch.nn.LSTM and may compute something else",
    ]
    assert [type(module) for module in (model.mine, model.ours, model.changed)] == [Mine, Ours, nn.LSTM]


def test_the_report_of_revert():
    model, report = aclgrad.nn.revert(mixed(), report=True)
    assert [(entry.name, entry.was, entry.now) for entry in report.changed] == [
        ("already", aclgrad.nn.Hardsigmoid, nn.Hardsigmoid)
    ]
    assert [(entry.name, entry.reason) for entry in report.stayed] == [
        ("ours", "it is a subclass of aclgrad.nn.LSTMCell and may compute something else")
    ]
    assert type(model.ours) is Ours


def test_a_report_of_nothing():
    _, report = aclgrad.nn.convert(nn.Linear(2, 2), report=True)
    assert report.entries == () and str(report).split() == ["module", "was", "is", "why", "it", "stayed"]
    (entry,) = aclgrad.nn.convert(nn.Hardsigmoid(), report=True)[1].entries
    assert entry.name == "(the model)"


def test_what_is_logged(caplog):
    with caplog.at_level(logging.INFO, "aclgrad.nn"):
        aclgrad.nn.convert(mixed())
        aclgrad.nn.convert(nn.Linear(2, 2))
        aclgrad.nn.convert(mixed(), report=True)  # who gets it needs no line
    told, warned, nothing = caplog.records
    assert (told.levelno, warned.levelno, nothing.levelno) == (logging.INFO, logging.WARNING, logging.INFO)
    assert told.getMessage() == (
        "convert: rnn is aclgrad.nn.LSTM, gate, again.1 is aclgrad.nn.Hardsigmoid; "
        "changed stays torch.nn.LSTM: bidirectional is True, expected False: the module's weights were made for that; "
        f"mine stays {__name__}.Mine: it is a subclass of torch.nn.LSTM and may compute something else"
    )
    assert warned.getMessage() == (
        "convert: changed stays torch.nn.LSTM: "
        "bidirectional is True, expected False: the module's weights were made for that"
    )
    assert nothing.getMessage() == "convert: nothing changed"


@pytest.mark.parametrize("made_by", [nn, aclgrad.nn], ids=["torch", "aclgrad"])
def test_a_parametrised_module_keeps_its_parametrisation(made_by):
    def make():
        torch.manual_seed(0)
        module = made_by.LSTM(4, 3)
        return nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")

    module, expected = make(), everything(make(), (sentence(),))
    for change, place in ((aclgrad.nn.convert, aclgrad.nn), (aclgrad.nn.revert, nn), (aclgrad.nn.convert, aclgrad.nn)):
        _, report = change(module, report=True)
        assert isinstance(module, place.LSTM) and not report.stayed
        assert nn.utils.parametrize.is_parametrized(module, "weight_hh_l0")
        torch.testing.assert_close(everything(module, (sentence(),)), expected)
    nn.utils.parametrize.remove_parametrizations(module, "weight_hh_l0")
    assert type(module) is aclgrad.nn.LSTM
    torch.testing.assert_close(module(sentence())[0], expected[0])


def test_a_subclass_with_a_parametrisation_is_a_subclass():
    module = nn.utils.parametrizations.weight_norm(Mine(4, 3), "weight_hh_l0")
    _, report = aclgrad.nn.convert(module, report=True)
    assert [entry.name for entry in report.stayed] == ["(the model)"] and not report.changed


def test_models_under_wrappers(tmp_path):
    expected = Reader(nn)(sentence())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(Reader(nn))
        _, report = aclgrad.nn.convert(wrapped, report=True)
        assert [entry.name for entry in report.changed] == ["module.rnn", "module.cell", "module.gate"]
        loss = wrapped(sentence()).square().sum()
        loss.backward()
        torch.testing.assert_close(loss, expected.square().sum())
        assert all(parameter.grad is not None for parameter in wrapped.parameters())
        assert kinds(aclgrad.nn.revert(wrapped).module) == kinds(Reader(nn))
    finally:
        torch.distributed.destroy_process_group()


def test_a_compiled_model_is_compiled_again():
    model = Reader(aclgrad.nn)
    compiled = torch.compile(model, backend="eager")
    expected = compiled(sentence())
    _, report = aclgrad.nn.revert(compiled, report=True)
    assert [entry.name for entry in report.changed] == [f"_orig_mod.{name}" for name in ("rnn", "cell", "gate")]
    torch.testing.assert_close(compiled(sentence()), expected)
    assert kinds(model) == kinds(Reader(nn))


class Normed(nn.Sequential):
    """Batch norms of every kind, nested, one of them used twice."""

    def __init__(self):
        shared = nn.BatchNorm1d(3, momentum=None)
        super().__init__(
            nn.BatchNorm1d(3, eps=0.1), shared, nn.Sequential(nn.BatchNorm1d(3, affine=False), shared),
            nn.BatchNorm1d(3, track_running_stats=False).eval(), aclgrad.nn.SyncBatchNorm(3), nn.SyncBatchNorm(3),
        )  # fmt: skip


@pytest.mark.parametrize("group", [None, "a group"])
def test_convert_sync_batchnorm_gives_this_class(group):
    model, theirs = Normed(), Normed()
    model(Data().normal(6, 3))
    theirs.load_state_dict(model.state_dict())
    before = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    ours = aclgrad.nn.SyncBatchNorm.convert_sync_batchnorm(model, group)
    theirs = nn.SyncBatchNorm.convert_sync_batchnorm(theirs, group)
    assert ours is model
    after = dict(ours.named_parameters(remove_duplicate=False)) | dict(ours.named_buffers(remove_duplicate=False))
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    pairs = list(zip(ours.modules(), theirs.modules(), strict=True))
    for one, other in pairs:
        assert repr(one) == repr(other) and one.training == other.training
        if isinstance(other, nn.SyncBatchNorm):
            assert type(one) is aclgrad.nn.SyncBatchNorm and one.process_group is group
    assert len(pairs) == len(list(Normed().modules())) + 1  # torch makes two of a shared one
    if group is None:
        torch.testing.assert_close(ours(Data().normal(6, 3)), theirs(Data().normal(6, 3)))
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
        assert kinds(aclgrad.nn.convert(theirs)) == kinds(ours)


def test_convert_sync_batchnorm_of_a_layer_and_by_a_subclass():
    class Named(aclgrad.nn.SyncBatchNorm):
        pass

    layer = nn.BatchNorm2d(3)
    layer.qconfig = "kept"
    converted = Named.convert_sync_batchnorm(layer)
    assert type(converted) is Named and converted.weight is layer.weight and converted.qconfig == "kept"
