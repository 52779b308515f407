"""Under torch's own machinery: compilation without a graph break, autocast, export."""

import copy
import shutil

import pytest
import torch
from nn_helpers import outputs_and_gradients, tensors, twin
from torch import nn

import aclgrad.nn
from aclgrad.testing.cases import Data


class Model(nn.Module):
    """A module with something before it and after it that a compiler can fuse."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, *more):
        results = tensors(self.module(x * 2, *more))
        return [torch.tanh(result) + 1 for result in results]


def built(name):
    torch.manual_seed(0)
    return {
        "LSTM": lambda: aclgrad.nn.LSTM(4, 6, 2, bidirectional=True),
        "LSTM with dropout": lambda: aclgrad.nn.LSTM(4, 6, 2, dropout=0.5, batch_first=True).eval(),
        "LSTMCell": lambda: aclgrad.nn.LSTMCell(4, 6),
        "Hardsigmoid": lambda: aclgrad.nn.Hardsigmoid(),
        "Hardsigmoid in place": lambda: aclgrad.nn.Hardsigmoid(inplace=True),
        "SyncBatchNorm": lambda: aclgrad.nn.SyncBatchNorm(4),
        "LinearCrossEntropyLoss": lambda: aclgrad.nn.LinearCrossEntropyLoss(4, 9),
        "LinearCrossEntropyLoss, none": lambda: aclgrad.nn.LinearCrossEntropyLoss(4, 9, reduction="none"),
    }[name]()


NAMES = [
    "LSTM", "LSTM with dropout", "LSTMCell", "Hardsigmoid", "Hardsigmoid in place", "SyncBatchNorm",
    "LinearCrossEntropyLoss", "LinearCrossEntropyLoss, none",
]  # fmt: skip


def arguments(name, batch=3):
    data = Data()
    if name.startswith("LSTM") and name != "LSTMCell":
        return (data.normal(5, batch, 4).requires_grad_(),)
    x = data.normal(batch, 4).requires_grad_()
    return (x, data.integers(0, 9, batch)) if name.startswith("Linear") else (x,)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def assert_compiles(name, backend, batches=(3,), **options):
    model = Model(built(name))
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend=backend, **options)
    for batch in batches:
        expected = outputs_and_gradients(eager, *arguments(name, batch))
        torch.testing.assert_close(outputs_and_gradients(compiled, *arguments(name, batch)), expected)
    torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_compile_without_a_break(name):
    assert_compiles(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("name", ["LSTM", "LSTMCell", "Hardsigmoid", "SyncBatchNorm", "LinearCrossEntropyLoss"])
def test_inductor(name):
    """A C++ compiler takes its time; what it compiles is what the graphs above hold."""
    assert_compiles(name, "inductor")


@pytest.mark.parametrize("name", NAMES)
def test_one_compilation_serves_every_batch_size(name):
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_compiles(name, "aot_eager", batches=(3, 5, 8), dynamic=True)


def test_evaluation_compiles_too():
    model = Model(built("SyncBatchNorm")).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments("SyncBatchNorm")), model(*arguments("SyncBatchNorm")))


def test_a_training_step_under_autocast_compiles():
    model = Model(built("LSTM"))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        expected = outputs_and_gradients(model, *arguments("LSTM"))
        torch.testing.assert_close(outputs_and_gradients(compiled, *arguments("LSTM")), expected)


def test_a_wrong_shape_is_the_same_typed_error():
    compiled = torch.compile(built("LSTM"), backend="aot_eager")
    with pytest.raises(aclgrad.InvalidArgument, match=r"expected \[\*, \*, 4\]"):
        compiled(torch.zeros(5, 2, 3))


def steps(dtype):
    return Data(dtype).normal(5, 3, 4)


AUTOCAST = {
    "LSTM": (lambda: nn.LSTM(4, 6), lambda dtype: (steps(dtype),)),
    "LSTM, states": (lambda: nn.LSTM(4, 6), lambda dtype: (steps(dtype), (Data(dtype).normal(1, 3, 6),) * 2)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 6), lambda dtype: (steps(dtype)[0],)),
    "LSTMCell, wide c": (lambda: nn.LSTMCell(4, 6), lambda dtype: (steps(dtype)[0], (Data().normal(3, 6),) * 2)),
    "Hardsigmoid": (nn.Hardsigmoid, lambda dtype: (steps(dtype),)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(3), lambda dtype: (steps(dtype),)),
}


@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("make", "inputs"), AUTOCAST.values(), ids=AUTOCAST)
def test_autocast_gives_the_dtypes_that_torchs_modules_give(make, inputs, wide, lower):
    module, given = make(), torch.float32 if wide else lower
    with torch.autocast("cpu", lower):
        try:
            expected = [t.dtype for t in tensors(module(*inputs(given)))]
        except RuntimeError:
            pytest.skip("torch refuses it")
        assert [t.dtype for t in tensors(twin(module)(*inputs(given)))] == expected


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_of_the_head(given):
    x, target = Data(given).normal(5, 4).requires_grad_(), Data().integers(0, 9, 5)
    ours = aclgrad.nn.LinearCrossEntropyLoss(4, 9)
    with torch.autocast("cpu", torch.bfloat16):
        expected = nn.functional.cross_entropy(ours.linear(x), target)
        loss = ours(x, target)
    assert loss.dtype == expected.dtype == torch.float32
    gradients = torch.autograd.grad(loss, [x, ours.linear.weight])
    assert [gradient.dtype for gradient in gradients] == [given, torch.float32]


def test_float64_is_left_alone_by_autocast():
    module = built("LSTM").double()
    with torch.autocast("cpu", torch.bfloat16):
        assert module(Data(torch.float64).normal(5, 3, 4))[0].dtype == torch.float64


class Elemt(nn.Module):
    """Batch norm with given statistics."""

    def forward(self, x):
        mean, invstd = x.new_zeros(4), x.new_full((4,), 0.5)
        return torch.ops.aclgrad.batch_norm_elemt(x, None, None, mean, invstd, 1e-5)


@pytest.mark.parametrize(
    "module", [nn.Hardsigmoid(), nn.LSTMCell(4, 6), Elemt(), nn.SyncBatchNorm(4).eval()], ids=lambda m: type(m).__name__
)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch's own loading, up to 2.11
def test_export_and_run(module, tmp_path):
    ours = twin(module)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(ours, (Data().normal(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    x = Data(seed=1).normal(7, 4)
    torch.testing.assert_close(loaded(x), ours(x), rtol=0, atol=0)
    if not isinstance(module, nn.SyncBatchNorm):
        assert "aclgrad" in str(program.graph)


class Resets(nn.Module):
    """An LSTM that takes resets or does without."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = aclgrad.nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x, reset=None):
        return self.lstm(x, reset=reset)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch's own loading, up to 2.11
@pytest.mark.parametrize("resets", [False, True])
def test_an_lstm_of_any_batch_and_length_is_exported(resets, tmp_path):
    """Saved, loaded and run with other sizes: the same bits."""
    module = Resets().eval()

    def inputs(batch, steps):
        flags = Data(seed=batch).flags(batch, steps, share=0.3)
        return (Data().normal(batch, steps, 4), flags)[: 1 + resets]

    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("time", min=2, max=256)}
    program = torch.export.export(module, inputs(3, 5), dynamic_shapes=(sizes,) * (1 + resets))
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    for given in (inputs(7, 9), inputs(2, 30)):
        (output, states), (expected, finals) = loaded(*given), module(*given)
        for ours, other in zip((output, *states), (expected, *finals), strict=True):
            assert torch.equal(ours, other)


def test_one_compilation_serves_every_length_too():
    module = Resets()
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch, steps in ((3, 5), (5, 7), (8, 11)):
            x, flags = Data().normal(batch, steps, 4).requires_grad_(), Data().flags(batch, steps, share=0.3)
            for ours, expected in zip(
                outputs_and_gradients(compiled, x, flags), outputs_and_gradients(module, x, flags), strict=True
            ):
                assert torch.equal(ours, expected)


def test_checkpointing_gives_the_same_gradients():
    module = built("LSTM")
    (x,) = arguments("LSTM")
    expected = torch.autograd.grad(module(x)[0].square().sum(), x)
    again, _ = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [*NAMES, "packed"])
def test_a_default_device_does_not_matter(name):
    """Memory comes where the data is. What is made on the meta device by mistake has no numbers."""
    module, given = built("LSTM" if name == "packed" else name), arguments("LSTM" if name == "packed" else name)
    given = [t.detach() for t in given]
    if name == "packed":
        given = [nn.utils.rnn.pack_padded_sequence(given[0], torch.tensor([5, 2, 3]), enforce_sorted=False)]
    expected = tensors(copy.deepcopy(module)(*copy.deepcopy(given)))
    with torch.device("meta"):
        results = tensors(module(*given))
        if list(module.parameters()):
            torch.stack([result.square().sum() for result in results]).sum().backward()
    torch.testing.assert_close(results, expected, rtol=0, atol=0)
    assert all(parameter.grad.device.type == "cpu" for parameter in module.parameters())
