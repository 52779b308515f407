"""What bad input gets: a typed error that names the argument, what was found and what was expected."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import aclgrad.nn
from aclgrad import AclgradError, InvalidArgument, Unsupported, WrongType


def zeros(*shape):
    return torch.zeros(shape)


def lstm(**options):
    return aclgrad.nn.LSTM(3, 4, **options)


def head(**options):
    return aclgrad.nn.LinearCrossEntropyLoss(3, 9, **options)


def cell():
    return aclgrad.nn.LSTMCell(3, 4)


def norm():
    return aclgrad.nn.SyncBatchNorm(3)


def indices(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def packed(*batch_sizes):
    return PackedSequence(zeros(6, 3), torch.tensor(batch_sizes, dtype=torch.int64))


x, h, c = zeros(5, 2, 3), zeros(1, 2, 4), zeros(1, 2, 4)
COUNTS = "input.batch_sizes"
HX = "= [D * num_layers, N, hidden_size]"
CASES = {
    "lstm: width": (lstm, (zeros(5, 2, 7),), "input", "[5, 2, 7], expected [*, *, 3] = [T, N, input_size]"),
    "lstm: rank": (lstm, (zeros(5, 2, 3, 1),), "input", "[5, 2, 3, 1], expected [*, *, 3]"),
    "lstm: one sequence": (lstm, (zeros(5, 7),), "input", "[5, 7], expected [*, 3]"),
    "lstm: no step": (lstm, (zeros(0, 2, 3),), "input", "[0, 2, 3], expected at least one step"),
    "lstm: dtype": (lstm, (x.double(),), "input", "float64, expected float32 like weight_ih_l0"),
    "lstm: type": (lstm, (None,), "input", "NoneType, expected a tensor"),
    "lstm: batch of h": (lstm, (x, (zeros(1, 3, 4), c)), "hx[0]", f"[1, 3, 4], expected [1, 2, 4] {HX}"),
    "lstm: width of c": (lstm, (x, (h, zeros(1, 2, 5))), "hx[1]", f"[1, 2, 5], expected [1, 2, 4] {HX}"),
    "lstm: h of one sequence": (lstm, (zeros(5, 3), (h, c)), "hx[0]", "[1, 2, 4], expected [1, 4]"),
    "lstm: h alone": (lstm, (x, (h,)), "hx", "1 members, expected 2: (h, c)"),
    "lstm: type of hx": (lstm, (x, h), "hx", "Tensor, expected a tuple (h, c)"),
    "lstm: dtype of h": (lstm, (x, (h.double(), c.double())), "hx[0]", "float64, expected float32"),
    "lstm: type of h": (lstm, (x, (1.0, 2.0)), "hx[0]", "float, expected a tensor"),
    "lstm: packed width": (lstm, (pack_sequence([zeros(2, 7)]),), "input.data", "[2, 7], expected [*, 3]"),
    "lstm: packed batch of h": (lstm, (pack_sequence([zeros(2, 3)]), (h, c)), "hx[0]", f"expected [1, 1, 4] {HX}"),
    "lstm: packed, a sequence comes back": (lstm, (packed(3, 0, 3),), COUNTS, "[2] is 3 after 0, expected values that"),
    "lstm: packed, more than at first": (lstm, (packed(1, 2, 3),), COUNTS, "[1] is 2, expected 0 to 1"),
    "lstm: packed, negative": (lstm, (packed(-1, 7),), COUNTS, "[0] is -1, expected 0 to 0"),
    "lstm: packed, too few": (lstm, (packed(2, 2),), COUNTS, "add up to 4, expected 6 like the rows of input.data"),
    "lstm: packed, too many": (lstm, (packed(4, 4),), COUNTS, "add up to 8, expected 6 like the rows of input.data"),
    "lstm: packed, no step": (lstm, (packed(),), COUNTS, "has shape [0], expected at least one step"),
    "cell: width": (cell, (zeros(2, 7),), "input", "[2, 7], expected [*, 3] = [N, input_size] or [input_size]"),
    "cell: rank": (cell, (zeros(2, 3, 3),), "input", "[2, 3, 3], expected [*, 3]"),
    "cell: dtype": (cell, (x[0].double(),), "input", "float64, expected float32 like weight_ih"),
    "cell: type": (cell, ([1.0],), "input", "list, expected a tensor"),
    "cell: batch of h": (cell, (x[0], (zeros(3, 4), c[0])), "hx[0]", "[3, 4], expected [2, 4] = [N, hidden_size]"),
    "cell: h of one": (cell, (x[0, 0], (h[0], c[0])), "hx[0]", "[2, 4], expected [4] = [hidden_size]"),
    "cell: h alone": (cell, (x[0], (h[0],)), "hx", "1 members, expected 2: (h, c)"),
    "cell: type of hx": (cell, (x[0], h[0]), "hx", "Tensor, expected a tuple (h, c)"),
    "hardsigmoid: type": (aclgrad.nn.Hardsigmoid, (1.0,), "input", "float, expected a tensor"),
    "hardsigmoid: dtype": (aclgrad.nn.Hardsigmoid, (x > 0,), "x", "bool, expected one of"),
    "batch norm: channels": (norm, (zeros(4, 5, 2),), "input", "[4, 5, 2], expected [*, 3, *] = [N, num_features, …]"),
    "batch norm: rank": (norm, (zeros(3),), "input", "[3], expected [*, 3]"),
    "batch norm: dtype": (norm, (indices(4, 3),), "input", "int64, expected one of"),
    "batch norm: type": (norm, (None,), "input", "NoneType, expected a tensor"),
    "batch norm: one value": (norm, (zeros(1, 3),), "input", "[1, 3], expected more than one value per channel"),
    "head: width": (head, (zeros(5, 4), indices(5)), "input", "[5, 4], expected [5, 3] = [..., H]"),
    "head: targets": (head, (zeros(5, 3), indices(4)), "target", "[4], expected [5]"),
    "head: rank of target": (head, (zeros(5, 3), indices(5, 1)), "target", "[5, 1], expected [5]"),
    "head: target too large": (head, (zeros(2, 3), torch.tensor([0, 9])), "target", "target[1] is 9, expected 0 to 8"),
    "head: negative target": (head, (zeros(2, 3), torch.tensor([-1, 0])), "target", "target[0] is -1, expected 0 to 8"),
    "head: dtype": (head, (zeros(2, 3).double(), indices(2)), "input", "float64, expected float32 like linear_weight"),
    "head: probabilities": (head, (zeros(2, 3), zeros(2)), "target", "[2], expected [2, 9] = [..., C]"),
    "head: type of target": (head, (zeros(2, 3), [1, 2]), "target", "list, expected a tensor"),
    "head: type": (head, (None, indices(1)), "input", "NoneType, expected a tensor"),
}


@pytest.mark.parametrize(("make", "arguments", "name", "message"), CASES.values(), ids=CASES)
def test_wrong_calls(make, arguments, name, message):
    with pytest.raises(AclgradError, match=re.escape(message)) as caught:
        make()(*arguments)
    assert caught.value.argument == name
    assert name in str(caught.value)


@pytest.mark.parametrize("case", [name for name in CASES if ": type" in name])
def test_objects_that_are_no_tensors_are_type_errors(case):
    make, arguments, *_ = CASES[case]
    with pytest.raises(WrongType) as caught:
        make()(*arguments)
    assert isinstance(caught.value, TypeError)


def nested(*shape, layout=torch.strided):
    """Two tensors, the second one shorter."""
    return torch.nested.nested_tensor([zeros(*shape), zeros(*shape)[1:]], layout=layout)


def jagged(*shape):
    return nested(*shape, layout=torch.jagged)


SPARSE, NESTED = "has layout torch.sparse_coo", "is a nested tensor"
LAYOUTS = {
    "lstm: sparse": (lstm, lambda: (x.to_sparse(),), "input", SPARSE),
    "lstm: one sequence": (lstm, lambda: (x[0].to_sparse_csr(),), "input", "has layout torch.sparse_csr"),
    "lstm: packed": (lstm, lambda: (PackedSequence(zeros(2, 3).to_sparse(), torch.tensor([2])),), "input.data", SPARSE),
    "lstm: h": (lstm, lambda: (x, (h.to_sparse(), c)), "hx[0]", SPARSE),
    "lstm: jagged": (lstm, lambda: (jagged(3, 3),), "input", NESTED),
    "lstm: nested": (lstm, lambda: (nested(3, 3),), "input", NESTED),
    "cell: c": (cell, lambda: (x[0], (h[0], c[0].to_sparse())), "cx", SPARSE),
    "cell: nested": (cell, lambda: (nested(3),), "input", NESTED),
    "hardsigmoid: sparse": (aclgrad.nn.Hardsigmoid, lambda: (x.to_sparse(),), "input", SPARSE),
    "hardsigmoid: jagged": (aclgrad.nn.Hardsigmoid, lambda: (jagged(3, 3),), "input", NESTED),
    "hardsigmoid: in place": (lambda: aclgrad.nn.Hardsigmoid(inplace=True), lambda: (nested(3),), "input", NESTED),
    "batch norm: sparse": (norm, lambda: (zeros(4, 3).to_sparse(),), "input", SPARSE),
    "batch norm: nested": (norm, lambda: (nested(3, 3),), "input", NESTED),
    "head: sparse": (head, lambda: (zeros(5, 3).to_sparse(), indices(5)), "input", SPARSE),
    "head: target": (head, lambda: (zeros(5, 3), indices(5).to_sparse()), "target", SPARSE),
    "head: nested": (head, lambda: (nested(3, 3), indices(2)), "input", NESTED),
}


@pytest.mark.filterwarnings("ignore:.*(Sparse|nested tensors)")
@pytest.mark.parametrize(("make", "arguments", "name", "found"), LAYOUTS.values(), ids=LAYOUTS)
def test_tensors_that_are_not_strided(make, arguments, name, found):
    with pytest.raises(InvalidArgument, match=re.escape(f"{name} {found}, expected strided")) as caught:
        make()(*arguments())
    assert caught.value.argument == name


@pytest.mark.filterwarnings("ignore:.*Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch._mkldnn])
def test_tensors_that_are_not_strided_as_weights_and_in_ops(layout):
    made = zeros(16, 3).to_mkldnn() if layout == torch._mkldnn else zeros(16, 3).to_sparse(layout=layout)
    module = lstm()
    module.weight_ih_l0 = nn.Parameter(made)
    with pytest.raises(InvalidArgument, match=f"has layout {layout}, expected strided"):
        module(x)
    with pytest.raises(InvalidArgument, match=f"x has layout {layout}, expected strided"):
        torch.ops.aclgrad.hardsigmoid(made)


def test_a_cell_takes_sparse_values_where_torchs_does():
    ours, theirs = cell(), nn.LSTMCell(3, 4)
    theirs.load_state_dict(ours.state_dict())
    values, states = torch.eye(2, 3), (torch.eye(2, 4), torch.ones(2, 4))
    for got, expected in zip(ours(values.to_sparse(), states), theirs(values, states), strict=True):
        torch.testing.assert_close(got, expected)


def called(input=zeros(2, 3), linear_weight=zeros(9, 3), target=indices(2), **options):  # noqa: B008  nobody writes
    return aclgrad.nn.linear_cross_entropy(input, linear_weight, target, **options)


def ignoring(index):
    return head(ignore_index=index)(zeros(2, 3), indices(2))


OPTIONS = {
    "head: smoothing": (lambda: head(label_smoothing=1.1), "label_smoothing", "is 1.1, expected a number from 0 to 1"),
    "head: class weights": (lambda: head(weight=torch.ones(8)), "weight", "[8], expected [9] = [C]"),
    "head: integer weights": (lambda: head(weight=indices(9)), "weight", "weight is int64, expected a float dtype"),
    "head: softcap": (lambda: head(softcap=0.0), "softcap", "softcap is 0.0, expected a positive number, or None"),
    "head: a negative softcap": (lambda: head(softcap=-1), "softcap", "softcap is -1, expected a positive number"),
    "head: softcap of a tensor": (lambda: head(softcap=zeros()), "softcap", "softcap is Tensor, expected a positive"),
    "head: scale": (lambda: head(logit_scale=math.inf), "logit_scale", "logit_scale is inf, expected a finite number"),
    "head: z_loss": (lambda: head(z_loss="1"), "z_loss", "z_loss is str, expected a finite number"),
    "head: return_stats": (lambda: head(return_stats=1), "return_stats", "return_stats is int, expected a bool"),
    "head: weights of tokens": (lambda: called(token_weight=zeros(3)), "token_weight", "[3], expected [2] = [...]"),
    "head: flags for weights": (
        lambda: called(token_weight=indices(2)),
        "token_weight",
        "int64, expected a float dtype",
    ),
    "head: normalizer": (lambda: called(normalizer=zeros(1)), "normalizer", "[1], expected [] = [], or a number"),
    "head: word for a number": (lambda: called(normalizer="2"), "normalizer", "normalizer is str, expected a number"),
    "head: normalizer of a sum": (
        lambda: called(normalizer=2.0, reduction="sum"),
        "normalizer",
        "beside reduction 'sum', expected it beside",
    ),
    "head: bias": (lambda: called(linear_bias=zeros(8)), "linear_bias", "[8], expected [9] = [C, ...]"),
    "head: trained class weights": (
        lambda: called(weight=zeros(9).requires_grad_()),
        "weight",
        "weight requires a gradient, expected none",
    ),
    "head: ignored probabilities": (
        lambda: called(target=zeros(2, 9), ignore_index=0),
        "ignore_index",
        "ignore_index is 0, expected None beside",
    ),
    "head: statistics of probabilities": (
        lambda: called(target=zeros(2, 9), return_stats=True),
        "return_stats",
        "expected False where target holds prob",
    ),
    "head: tokens beside dimensions": (
        lambda: called(input=zeros(2, 2, 3), linear_weight=zeros(9, 2, 3)),
        "input",
        "[2, 2, 3], expected [*, 3] = [N, H]",
    ),
    "head: fractional index": (lambda: ignoring(1.0), "ignore_index", "ignore_index is 1.0, expected an int"),
    "head: flag for an index": (lambda: ignoring(True), "ignore_index", "ignore_index is True, expected an int"),
    "head: word for an index": (lambda: ignoring("1"), "ignore_index", "ignore_index is '1', expected an int"),
    "head: huge index": (lambda: ignoring(1 << 63), "ignore_index", "9223372036854775808, expected a 64-bit integer"),
    "head: reduction": (lambda: head(reduction="max"), "reduction", "'max', expected one of mean, sum, none"),
}


@pytest.mark.parametrize(("make", "name", "message"), OPTIONS.values(), ids=OPTIONS)
def test_options_that_are_not_there(make, name, message):
    with pytest.raises((InvalidArgument, Unsupported), match=re.escape(message)) as caught:
        make()
    assert caught.value.argument == name


@pytest.mark.parametrize("index", [1, np.int64(1), torch.tensor(1)], ids=["int", "numpy", "tensor"])
def test_integers_of_every_kind_can_be_ignored(index):
    losses = head(ignore_index=index, reduction="none")(zeros(2, 3), torch.tensor([0, 1]))
    assert losses[0] > 0 and losses[1] == 0


def test_torchs_own_checks_of_options_hold():
    for make in (nn.LSTM, aclgrad.nn.LSTM):
        with pytest.raises(ValueError, match="dropout should be a number in range"):
            make(3, 4, dropout=1.5)
        with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
            make(3, 0)
