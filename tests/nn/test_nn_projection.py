"""`proj_size` of nn.LSTM, kept by its twin: everything that torch's own does with it, and what that refuses."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, tensors, twin
from torch import func, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.ops.lstm import spec, spec_packed
from aclgrad.ops.lstm.packing import Packing
from aclgrad.ops.lstm.projection import ShortSums, projected
from aclgrad.testing.cases import Data

T, N, INPUT, HIDDEN, PROJECTED = 5, 3, 4, 7, 2
LENGTHS = [3, 1, 5]

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

VARIANTS = {
    "plain": {},
    "all of it": {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
    "layers, both directions": {"num_layers": 2, "bidirectional": True},
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Small calls, as all of these are, go to the kernels."""
    monkeypatch.setattr(small, "enabled", False)


@pytest.fixture(params=[False, True], ids=["kernels", "small"])
def served(request, monkeypatch, kernels):
    """Whether torch's operations serve them."""
    monkeypatch.setattr(small, "enabled", request.param)


def lstm(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return nn.LSTM(INPUT, HIDDEN, proj_size=PROJECTED, **options).to(dtype)


def sequences(dtype=torch.float32, batch_first=False, steps=T, batch=N):
    return Data(dtype).normal(*((batch, steps) if batch_first else (steps, batch)), INPUT).requires_grad_()


def states(module, batch=N, dtype=torch.float32):
    chains, data = module.num_layers * (1 + module.bidirectional), Data(dtype, seed=1)
    sizes = [batch] * (batch is not None)
    return tuple(data.normal(chains, *sizes, width).requires_grad_() for width in (PROJECTED, HIDDEN))


def packed(dtype=torch.float32):
    made = pack_padded_sequence(Data(dtype).normal(T, N, INPUT), torch.tensor(LENGTHS), enforce_sorted=False)
    return made._replace(data=made.data.detach().requires_grad_())


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_outputs_and_all_gradients(options, given):
    module = lstm(**options)
    for x in (sequences(batch_first=module.batch_first), packed()):
        assert_same_as_torch(module, x, *[states(module)] * given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes(dtype):
    module = lstm(dtype, bidirectional=True)
    results = assert_same_as_torch(module, sequences(dtype), states(module, dtype=dtype))
    assert {result.dtype for result in results} == {dtype}


def test_one_sequence_one_step_and_nothing():
    module = lstm(bidirectional=True)
    results = assert_same_as_torch(module, sequences()[:, 0].detach().requires_grad_(), states(module, None))
    assert [tuple(result.shape) for result in results[:3]] == [(T, 2 * PROJECTED), (2, PROJECTED), (2, HIDDEN)]
    assert_same_as_torch(module, sequences(steps=1), states(module))
    assert_same_as_torch(module, sequences(batch=0), states(module, 0))


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("make", [sequences, packed], ids=["batch", "packed"])
def test_dropout_of_the_same_seed_drops_the_same_values(make):
    module = lstm(num_layers=3, dropout=0.4, bidirectional=True)
    assert_same_as_torch(module, make(), seed=3)


def test_frozen_and_copied_and_saved():
    module = lstm(num_layers=2)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("weight_hr" not in name and "_l0" not in name)
    assert_same_as_torch(module, sequences())
    ours = twin(module)
    assert repr(ours) == repr(module) and list(ours.state_dict()) == list(module.state_dict())
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(again(sequences()), ours(sequences()), rtol=0, atol=0)
    assert type(aclgrad.nn.revert(ours)) is nn.LSTM


def test_every_derivative_and_transform():
    module = twin(lstm(torch.float64, bidirectional=True))
    x, given = sequences(torch.float64), states(module, dtype=torch.float64)
    names = [name for name, _ in module.named_parameters()]

    def call(x, h, c, *parameters):
        output, (hy, cy) = func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, (h, c)))
        return output, hy, cy

    leaves = (x, *given, *module.parameters())
    torch.autograd.gradcheck(call, leaves, fast_mode=True, check_forward_ad=True)
    torch.autograd.gradgradcheck(call, leaves, fast_mode=True)
    samples = Data(torch.float64).normal(2, T, N, INPUT)
    mapped = func.vmap(func.grad(lambda sample: module(sample)[0].square().sum()))(samples)
    alone = [func.grad(lambda sample: module(sample)[0].square().sum())(sample) for sample in samples]
    torch.testing.assert_close(mapped, torch.stack(alone))


def test_autocast_and_one_graph():
    module, x = lstm(num_layers=2), sequences()
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = twin(module)(x)
        assert {tensor.dtype for tensor in (output, h, c)} == {torch.bfloat16}
    ours = twin(module)
    program = torch.export.export(ours, (x.detach(), tuple(s.detach() for s in states(module)))).module()
    arguments = (x.detach(), tuple(s.detach() for s in states(module)))
    torch.testing.assert_close(program(*arguments), ours(*arguments), rtol=0, atol=0)


@pytest.mark.parametrize("make", [sequences, packed], ids=["batch", "packed"])
def test_on_a_gpus_kernels(make):
    """Interpreted where there is no GPU: the operator is the plain one, with another input and weight."""
    pytest.importorskip("triton")
    module, device = lstm(bidirectional=True), "cuda" if torch.cuda.is_available() else "cpu"
    x, hx = make().to(device), [state.to(device) for state in states(module)]
    packing = Packing.of(x.batch_sizes, x.data) if isinstance(x, PackedSequence) else None
    lengths = (None,) if packing is None else (packing.batch_sizes, None)
    operator = spec.lstm if packing is None else spec_packed.lstm_packed

    def plain(x, weights, states):
        output, hy, cy, *_ = operator(x, weights, states, *lengths, True, 1, 0.0, False, True, False, backend="triton")
        return output, (hy, cy)

    with torch.no_grad():
        rows = x if packing is None else x.data
        output, (h, c) = projected(plain, rows, list(module.to(device).parameters()), hx, packing, 2)
        order = None if packing is None else x.sorted_indices
        expected = module(x, tuple(hx if order is None else [state[:, x.unsorted_indices] for state in hx]))
    back = slice(None) if packing is None else x.unsorted_indices
    found = [output, h[:, back], c[:, back]]
    torch.testing.assert_close(found, tensors(expected))


def test_short_sums(monkeypatch):
    """Of any depth; derivatives of every order, maps, and one graph."""
    monkeypatch.setattr("aclgrad.ops.lstm.projection.SUM_LENGTH", 3)
    for depth in (1, 2, 3, 4, 7, 9):
        a, b = (Data(torch.float64).normal(*shape).requires_grad_() for shape in ((4, depth), (depth, 5)))
        torch.testing.assert_close(ShortSums.apply(a, b), a @ b)
        assert torch.autograd.gradcheck(ShortSums.apply, (a, b)) and torch.autograd.gradgradcheck(
            ShortSums.apply, (a, b)
        )
    mapped = torch.func.vmap(ShortSums.apply, (0, None))(torch.stack([a, 2 * a]), b)
    torch.testing.assert_close(mapped, torch.stack([a @ b, 2 * a @ b]))
    compiled = torch.compile(lambda a, b: ShortSums.apply(a, b).square().sum(), backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad((a @ b).square().sum(), (a, b))
    torch.testing.assert_close(torch.autograd.grad(compiled(a, b), (a, b)), expected)


WRONG = {
    "h": (lambda h, c: (h.new_zeros(1, N, HIDDEN), c), r"hx\[0\] has shape \[1, 3, 7\], expected \[1, 3, 2\] .*proj_"),
    "c": (lambda h, c: (h, c.new_zeros(1, N, PROJECTED)), r"hx\[1\] has shape \[1, 3, 2\], expected \[1, 3, 7\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_states_that_do_not_fit(name):
    module = twin(lstm())
    change, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        module(sequences(), change(*states(module)))


def test_weights_and_options_that_do_not_fit():
    module = twin(lstm())
    module.weight_hr_l0 = nn.Parameter(torch.zeros(PROJECTED, HIDDEN + 1))
    with pytest.raises(ValueError, match=r"weight_hr_l0 has shape \[2, 8\], expected \[2, 7\] = \[proj_size, hidden"):
        module(sequences())
    module = twin(lstm())
    module.proj_size = 0
    with pytest.raises(ValueError, match="proj_size is 0, expected the rows of weight_hr_l0: the module's weights"):
        module(sequences())
