"""An LSTM that is run one step at a time, a cell a layer: as exact, and refusing as the whole sequence does."""

import copy
from itertools import product

import pytest
import torch
from nn_helpers import assert_refused_in_the_same_words
from torch import nn

import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.ops.lstm import one_step
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def cells(monkeypatch):
    """The products of each cell that torch has computed, in either way."""
    seen = []
    monkeypatch.setattr(small, "enabled", True)
    own = one_step.QUICKER["cpu"]
    monkeypatch.setitem(one_step.QUICKER, "cpu", {**own, **dict.fromkeys(HALVES, ((64, 0),))})
    whole, half = torch.lstm_cell, one_step._in_half_precision
    monkeypatch.setattr(torch, "lstm_cell", lambda *given: seen.append(len(given[0])) or whole(*given))
    monkeypatch.setattr(one_step, "_in_half_precision", lambda *given: seen.append(len(given[0])) or half(*given))
    return seen


def built(dtype, layers, bidirectional, bias, batch_first):
    torch.manual_seed(layers)
    options = {"bidirectional": bidirectional, "bias": bias, "batch_first": batch_first}
    return aclgrad.nn.LSTM(5, 7, layers, **options).to(dtype).eval()


def arguments(module, rows, states, dtype):
    """`rows` is None for one sequence without an axis of the batch."""
    data = Data(dtype)
    x = data.normal(1, 5) if rows is None else data.normal(*((rows, 1) if module.batch_first else (1, rows)), 5)
    shape = (module.num_layers * (1 + module.bidirectional), *([] if rows is None else [rows]), 7)
    return (x, (data.normal(*shape), data.normal(*shape))) if states else (x,)


def flat(found):
    output, (h, c) = found
    return output, h, c


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
def test_it_is_as_exact_with_every_option(dtype, cells):
    for layers, *options in product((1, 2), *[(False, True)] * 3):
        module = built(dtype, layers, *options)
        true = copy.deepcopy(module).double()
        naive = copy.deepcopy(aclgrad.nn.revert(copy.deepcopy(module)))
        for rows, states in product((None, 0, 1, 3), (False, True)):
            given = arguments(module, rows, states, dtype)
            cells.clear()
            found = flat(module(*given))
            assert cells == [1 if rows is None else rows] * (layers * (1 + module.bidirectional))
            wide = [t.double() if isinstance(t, torch.Tensor) else tuple(s.double() for s in t) for t in given]
            if dtype in HALVES:  # torch's cell, which rounds every intermediate result; its LSTM is not made of it
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(one_step, "_in_half_precision", lambda x, state, *w: torch.lstm_cell(x, state, *w))
                    plain = flat(module(*given))
            else:
                plain = found if rows == 0 else flat(naive(*given))  # torch's LSTM refuses an empty batch
            small.enabled = False
            truth = flat(true(*wide))
            small.enabled = True
            for result, want, other in zip(found, truth, plain, strict=True):
                assert result.dtype == dtype
                assert_within_baseline(result, want, other)


SIZES = {
    torch.float16: {
        (1, 1): True,
        (1, 500): True,
        (2, 500): False,
        (2, 64): True,
        (2, 65): False,
        (16, 8): True,
        (16, 9): False,
        (4, 724): True,
        (5, 724): False,
        (4, 723): False,
        (16, 1448): True,
    },
    torch.bfloat16: {(16, 1): True, (17, 7): False, (64, 8): True, (65, 8): False},
    torch.float32: {(64, 8): True, (65, 8): False},
}
"""Whether one step of so many sequences and units is made of cells."""


@torch.no_grad()
@pytest.mark.parametrize("dtype", SIZES, ids=str)
def test_cells_are_for_few_sequences(dtype, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(small, "enabled", True)
    asked = []
    monkeypatch.setattr(one_step, "_states", lambda *_: asked.append(True))  # what comes next; refuses
    for (rows, units), wanted in SIZES[dtype].items():
        del asked[:]
        assert one_step.by_cells(nn.LSTM(1, units, dtype=dtype), torch.zeros(1, rows, 1, dtype=dtype), None) is None
        assert bool(asked) == wanted, (rows, units)


@torch.no_grad()
def test_steps_make_a_sequence():
    module = built(torch.float64, 2, False, True, False)
    data = Data(torch.float64)
    x, hx = data.normal(9, 3, 5), (data.normal(2, 3, 7), data.normal(2, 3, 7))
    output, finals = module(x, hx)
    outputs = []
    for step in x:
        one, hx = module(step[None], hx)
        outputs.append(one)
    torch.testing.assert_close(torch.cat(outputs), output)
    torch.testing.assert_close(hx, finals)


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_results_may_be_written_over(layers):
    """No two of them share memory, nor does one with what was given."""
    module = built(torch.float32, layers, False, True, False)
    x, (h, c) = arguments(module, 1, True, torch.float32)
    tensors = [x, h, c, *flat(module(x, (h, c)))]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)


def test_gradients_of_a_step():
    found = []
    for served in (True, False):
        small.enabled = served
        module = built(torch.float64, 2, True, True, True)
        x, hx = arguments(module, 3, True, torch.float64)
        leaves = [x, *hx, *module.parameters()]
        output, (h, c) = module(x.requires_grad_(), tuple(s.requires_grad_() for s in hx))
        (slope,) = torch.autograd.grad((output * output).sum() + (h * c).sum(), x, create_graph=True)
        found.append([slope, *torch.autograd.grad(slope.square().sum(), leaves, allow_unused=True)])
    torch.testing.assert_close(*found)


def test_what_it_leaves_to_the_operator(cells):
    module = built(torch.float32, 2, False, True, False)
    x, hx = arguments(module, 3, True, torch.float32)
    module(x.repeat(2, 1, 1), hx)
    module(x, hx, reset=torch.zeros(1, 3, dtype=torch.bool))
    module(x, hx, return_cell_states=True)
    module(x.repeat(1, 30, 1))
    with torch.autocast("cpu", torch.bfloat16):
        module(x, hx)
    dropping = aclgrad.nn.LSTM(5, 7, 2, dropout=0.5)
    dropping(x, hx)
    parametrised = copy.deepcopy(module)
    nn.utils.parametrizations.weight_norm(parametrised, "weight_hh_l0")
    parametrised(x, hx)
    half = copy.deepcopy(module).bfloat16()
    half(x.bfloat16(), tuple(s.bfloat16() for s in hx))  # a gradient is wanted
    torch.compile(module, fullgraph=True, backend="eager")(x, hx)
    assert cells == []
    dropping.eval()(x, hx)
    assert len(cells) == 2


def _of(**changes):
    """A module whose options were set afterwards."""
    module = built(torch.float32, 1, False, True, False)
    for name, value in changes.items():
        setattr(module, name, value)
    return module


X, H = torch.randn(1, 3, 5), torch.randn(1, 3, 7)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: _of()(X[..., :4]), r"input has shape \[1, 3, 4\]"),
        (lambda: _of()(X, (H, H[:, :2])), r"hx\[1\] has shape"),
        (lambda: _of()(X, (H.repeat(2, 1, 1), H.repeat(2, 1, 1))), r"hx\[0\] has shape"),
        (lambda: _of()(X, (H, H.double())), "float64"),
        (lambda: _of()(X.double()), "float64"),
        (lambda: _of()(X, H), "hx is Tensor"),
        (lambda: _of(bias=False)(X), "bias is False"),
        (lambda: _of(bias_hh_l0=nn.Parameter(torch.zeros(1)))(X), r"bias_hh_l0 has shape \[1\]"),
        (lambda: _of(bias_hh_l0=nn.Parameter(torch.zeros(28).double()))(X), "bias_hh_l0 is float64"),
        (lambda: _of(bias_ih_l0=nn.Parameter(torch.zeros(28).double()))(X), "bias_ih_l0 is float64"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(call, found, monkeypatch):
    assert_refused_in_the_same_words(call, found, monkeypatch)
