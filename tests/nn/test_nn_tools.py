"""Tools that take a model apart: exported programs in torch's operations, gradients of each sample, profiles."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import func, nn
from torch.profiler import profile

import aclgrad.nn
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import operators
from aclgrad.core.textbook import by_the_book
from aclgrad.testing.cases import EDGE, SMOKE, Data, suite


class Model(nn.Module):
    """Every module once."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = aclgrad.nn.LSTM(4, 6, 2, bidirectional=True)
        self.projected = aclgrad.nn.LSTM(12, 6, proj_size=3)
        self.cell, self.gate = aclgrad.nn.LSTMCell(3, 5), aclgrad.nn.Hardsigmoid()
        self.norms = nn.Sequential(aclgrad.nn.BatchNorm1d(5), aclgrad.nn.SyncBatchNorm(5))
        self.head = aclgrad.nn.LinearCrossEntropyLoss(5, 7, label_smoothing=0.1)

    def forward(self, x, target):
        x, _ = self.projected(self.lstm(x)[0])
        h, c = self.cell(x[-1])
        h = self.norms(self.gate(h))
        return h, c, self.head(h, target)


def arguments(batch):
    data = Data(seed=batch)
    return data.normal(5, batch, 4), data.integers(0, 7, batch)


def exported(wants):
    """A program for batches of any size, recorded with gradients or without."""
    batch = torch.export.Dim("batch")
    with torch.set_grad_enabled(wants):
        return torch.export.export(Model().eval(), arguments(3), dynamic_shapes=({1: batch}, {0: batch}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wants", [pytest.param(True, marks=pytest.mark.slow), False], ids=["gradients", "none"])
def test_a_program_of_torchs_operations(wants, tmp_path):
    program = exported(wants)
    assert any("aclgrad" in str(node.target) for node in program.graph.nodes)
    plain = program.run_decompositions({**torch.export.default_decompositions(), **aclgrad.nn.decompositions()})
    assert not any("aclgrad" in str(node.target) for node in plain.graph.nodes)
    for batch in (2, 5):
        expected = Model().eval()(*arguments(batch))
        for found in (program, plain):
            torch.testing.assert_close(found.module()(*arguments(batch)), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_runs_where_there_is_no_aclgrad(tmp_path):
    plain = exported(False).run_decompositions(aclgrad.nn.decompositions())
    torch.export.save(plain, tmp_path / "model.pt2")
    torch.save((arguments(4), Model().eval()(*arguments(4))), tmp_path / "data.pt")
    script = (
        "import sys, torch; sys.modules['aclgrad'] = None\n"
        "arguments, expected = torch.load('data.pt')\n"
        "torch.testing.assert_close(torch.export.load('model.pt2').module()(*arguments), expected)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_the_formulas_are_those_of_every_op_that_updates_nothing():
    for op, formula in aclgrad.nn.decompositions().items():
        assert op.namespace == "aclgrad" and not op._schema.is_mutable, formula
    x = Data().normal(4)
    formula = aclgrad.nn.decompositions()[torch.ops.aclgrad.hardsigmoid.default]
    torch.testing.assert_close(formula(x), nn.functional.hardsigmoid(x))


def test_formulas_lay_out_what_kernels_leave_gapless():
    """A program that views an op's result is decomposed into one that may."""
    for operator in operators():
        for case in suite(operator.spec).cases if not operator.spec.updated else ():
            if not case.tags & {SMOKE, EDGE} or torch.float32 not in case.dtypes:
                continue
            args = case.build(torch.float32)
            found, written = by_the_book(operator, *args), operator(*args)
            for result, kernels in zip(tensors_in(found), tensors_in([written]), strict=True):
                assert result.is_contiguous() or not kernels.is_contiguous(), (operator.spec.name, case.name)


def test_gradients_of_each_sample():
    model = nn.ModuleDict({"lstm": aclgrad.nn.LSTM(4, 6), "out": nn.Linear(6, 1)})
    parameters, x, target = dict(model.named_parameters()), Data().normal(3, 5, 4), Data(seed=1).normal(3)

    def loss(parameters, x, target):
        def run(model):
            return model["out"](model["lstm"](x)[0][-1])

        wrapped = Wrapped(model, run)
        named = {f"model.{name}": value for name, value in parameters.items()}
        return (func.functional_call(wrapped, named, ()) - target).square().sum()

    found = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(parameters, x, target)
    for k in range(3):
        alone = torch.autograd.grad(loss(parameters, x[k], target[k]), list(parameters.values()))
        torch.testing.assert_close([value[k] for value in found.values()], list(alone))


class Wrapped(nn.Module):
    def __init__(self, model, run):
        super().__init__()
        self.model, self.run = model, run

    def forward(self):
        return self.run(self.model)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # torch 2.10 says so to whoever profiles
def test_names_in_a_profile():
    """Also of calls that torch's dispatcher does not see, forward and backward."""
    module, x = aclgrad.nn.LSTM(3, 4), Data().normal(5, 2, 3)
    module(x)[0].sum().backward()
    with profile() as recorded:
        module(x)[0].sum().backward()
    names = {event.name for event in recorded.events()}
    assert {"aclgrad.lstm on cpu", "aclgrad.lstm_backward on cpu"} <= names


def test_a_graph_of_fx_has_every_module_as_a_node():
    """As it has torch's own modules, options and states included."""
    model = Model().eval()
    graph = torch.fx.symbolic_trace(model)
    found = {type(graph.get_submodule(node.target)) for node in graph.graph.nodes if node.op == "call_module"}
    assert found == {type(module) for module in model.modules()} - {Model, nn.Sequential, nn.Linear}
    torch.testing.assert_close(graph(*arguments(3)), model(*arguments(3)), rtol=0, atol=0)

    class Streamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.cell = aclgrad.nn.LSTM(3, 4), aclgrad.nn.LSTMCell(4, 4)

        def forward(self, x, h, c, reset):
            output, (h, c), cells = self.lstm(x, (h, c), reset=reset, return_cell_states=True)
            return self.cell(output[-1], (h[0], cells[-1]))

    model, data = Streamed(), Data()
    given = data.normal(5, 2, 3), data.normal(1, 2, 4), data.normal(1, 2, 4), data.flags(5, 2)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(*given), model(*given), rtol=0, atol=0)
    for module in (*Model().children(), model.lstm):
        if not isinstance(module, nn.Sequential):
            with pytest.raises(aclgrad.WrongType, match="expected the module inside another one"):
                torch.fx.symbolic_trace(module)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
def test_hardsigmoid_takes_quantised_tensors_as_torchs_does():
    x = torch.quantize_per_tensor(Data().normal(40, scale=3.0), 0.1, 0, torch.qint8)
    found, expected = (kind()(x) for kind in (aclgrad.nn.Hardsigmoid, nn.Hardsigmoid))
    assert found.is_quantized and torch.equal(found.int_repr(), expected.int_repr())


@pytest.mark.filterwarnings("ignore")
def test_dynamic_quantisation_of_a_model_that_is_torchs_again():
    model = nn.Sequential(aclgrad.nn.LSTM(3, 4))
    quantised = torch.ao.quantization.quantize_dynamic(aclgrad.nn.revert(copy.deepcopy(model)), {nn.LSTM})
    assert type(quantised[0]) is torch.ao.nn.quantized.dynamic.LSTM
    x = Data().normal(5, 2, 3)
    torch.testing.assert_close(quantised(x)[0], model(x)[0], rtol=0.1, atol=0.05)
