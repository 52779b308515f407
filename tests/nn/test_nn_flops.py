"""What torch's FlopCounterMode counts of the ops and modules: the matrix products, as it counts torch's own."""

import importlib
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, linear
from torch.nn.utils.rnn import pack_sequence
from torch.utils.flop_counter import FlopCounterMode

import aclgrad.nn
from aclgrad.core.backends import ReferenceLaunch
from aclgrad.core.plan import allocated
from aclgrad.core.registry import operators
from aclgrad.frontends import torch_flops
from aclgrad.testing.cases import EDGE, SMOKE, Data, suite

TOKENS, FEATURES, CLASSES = 11, 6, 37
PRODUCT = 2 * TOKENS * FEATURES * CLASSES


def counted(step):
    """How many, and what the step returned."""
    with FlopCounterMode(display=False) as counter:
        result = step()
    return counter.get_total_flops(), result


def forward_and_backward(module, *arguments):
    """Both counts, in float64, which torch computes by products that it counts."""
    forward, outputs = counted(lambda: module(*arguments))
    backward, _ = counted(lambda: torch.utils._pytree.tree_leaves(outputs)[0].sum().backward())
    return forward, backward


def flops_one_by_one(flops, call):
    """Of packed sequences, whose textbook pads: those of each by itself, which is not packed."""
    total, dims = 0, call.dims
    for length in lengths_of(dims.total, dims.N):
        alone = dims._replace(T=length, N=1, total=None)
        total += flops(replace(call, _dims=[alone]))
    return total


def lengths_of(total, count):
    """Any lengths of so many rows: as equal as can be."""
    return [total // count + (k < total % count) for k in range(count)]


@pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)
def test_formulas_count_the_products_of_the_textbook(operator):
    flops = operator.spec.flops or (lambda call: 0)
    counts = []
    for case in suite(operator.spec).cases:
        if case.tags & {SMOKE, EDGE}:
            arguments = case.build()
            call, produced = operator.judge(arguments)
            if operator.spec.rows:
                found = flops_one_by_one(flops, call)
            else:
                found, _ = counted(lambda: ReferenceLaunch(call)(arguments, allocated(produced), None))  # noqa: B023
            counts.append(found)
            assert flops(call) == found, case.name
    assert any(counts) == (operator.spec.flops is not None)


@pytest.mark.parametrize("states", [None, "given", "trained"])
@pytest.mark.parametrize("trained", [True, False], ids=["input trained", "input given"])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "num_layers": 3}, {"num_layers": 2, "bidirectional": True, "batch_first": True}],
    ids=str,
)  # fmt: skip
def test_an_lstm_counts_what_torchs_counts(options, trained, states):
    counts = []
    for place in (nn, aclgrad.nn):
        module = place.LSTM(4, 5, dtype=torch.float64, **options)
        x = torch.ones(6, 6, 4, dtype=torch.float64, requires_grad=trained)
        chains = module.num_layers * (1 + module.bidirectional)
        h, c = (torch.ones(chains, 6, 5, dtype=torch.float64, requires_grad=states == "trained") for _ in range(2))
        counts.append(forward_and_backward(module, x, None if states is None else (h, c)))
    assert counts[1] == counts[0] and counts[0][1] > counts[0][0] > 0


def test_frozen_weights_are_not_counted():
    counts = []
    for place in (nn, aclgrad.nn):
        module = place.LSTM(4, 5, 2, dtype=torch.float64).requires_grad_(False)
        counts.append(forward_and_backward(module, torch.ones(6, 3, 4, dtype=torch.float64, requires_grad=True)))
    assert counts[1] == counts[0]


def test_packed_sequences_count_as_each_by_itself():
    module, sequences = aclgrad.nn.LSTM(4, 5), [torch.ones(length, 4, requires_grad=True) for length in (5, 3, 1)]
    alone = [forward_and_backward(module, x) for x in sequences]
    together = forward_and_backward(lambda: module(pack_sequence(sequences)))
    assert together[0] == sum(forward for forward, _ in alone)
    assert together[1] == sum(backward for _, backward in alone)


@pytest.mark.parametrize("states", [None, "trained"])
def test_a_cell_counts_what_torchs_counts(states):
    counts = []
    for place in (nn, aclgrad.nn):
        x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
        hx = None if states is None else [torch.ones(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        counts.append(forward_and_backward(place.LSTMCell(4, 5, dtype=torch.float64), x, hx))
    assert counts[1] == counts[0] and counts[0][0] > 0


def head(reduction, trained=True):
    x, weight = Data().normal(TOKENS, FEATURES), Data().normal(CLASSES, FEATURES)
    target = Data().integers(0, CLASSES, TOKENS)
    operands = [tensor.requires_grad_(trained) for tensor in (x, weight)]
    ours = forward_and_backward if trained else lambda step: counted(step)[0]
    theirs = ours(lambda: cross_entropy(linear(*operands), target, reduction=reduction))
    return ours(lambda: aclgrad.nn.linear_cross_entropy(*operands, target, reduction=reduction)), theirs


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_head_in_use_counts_what_torchs_counts(reduction):
    assert head(reduction, trained=False) == (PRODUCT, PRODUCT)


def test_a_head_that_computes_its_logits_twice_counts_them_twice():
    """As torch counts the gradient of its flash attention."""
    ours, theirs = head("none")
    assert theirs == (PRODUCT, 2 * PRODUCT) and ours == (PRODUCT, 3 * PRODUCT)


def test_modules_without_products_count_nothing():
    for module in (aclgrad.nn.Hardsigmoid(), aclgrad.nn.SyncBatchNorm(4)):
        x = Data().normal(3, 4).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            module(x).sum().backward()
        assert counter.get_flop_counts() == {}


def test_tensors_without_data_are_counted():
    with FakeTensorMode():
        module, x = aclgrad.nn.LSTM(4, 5), torch.empty(6, 3, 4)
        flops, _ = counted(lambda: module(x))
    assert flops == counted(lambda: aclgrad.nn.LSTM(4, 5)(torch.ones(6, 3, 4)))[0]


def test_arguments_by_name_and_by_default():
    x, params = torch.ones(2, 1, 3), [torch.ones(16, 3), torch.ones(16, 4)]
    flops, _ = counted(lambda: torch.ops.aclgrad.lstm(params=params, input=x, has_bias=False))
    assert flops == 2 * 2 * 16 * (3 + 4)


def test_a_counter_that_is_imported_later_is_told(monkeypatch):
    monkeypatch.delitem(sys.modules, torch_flops.COUNTER)
    monkeypatch.setattr(torch.utils, "flop_counter", None)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    finders = len(sys.meta_path)
    for operator in operators():
        torch_flops.register_flops(operator, f"aclgrad::{operator.spec.name}")
    assert len(sys.meta_path) == finders + 1
    importlib.import_module("json.tool")  # another module goes its way
    later = importlib.import_module(torch_flops.COUNTER)
    assert len(sys.meta_path) == finders
    for operator in operators():
        known = getattr(torch.ops.aclgrad, operator.spec.name) in later.flop_registry
        assert known == (operator.spec.flops is not None), operator


def test_a_counter_that_is_imported_before_knows_all(python):
    """In a process of its own: here somebody may have imported them the other way round."""
    program = """
import torch.utils.flop_counter as counter, torch, aclgrad
from aclgrad.core.registry import operators
for operator in operators():
    known = getattr(torch.ops.aclgrad, operator.spec.name) in counter.flop_registry
    assert known == (operator.spec.flops is not None), operator
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_head_with_a_scalar_loss_counts_what_torchs_counts(reduction):
    """In its forward pass, where the gradients come with the loss."""
    ours, theirs = head(reduction)
    assert theirs == (PRODUCT, 2 * PRODUCT) and ours == (3 * PRODUCT, 0)


def test_a_frozen_side_of_the_head_is_not_counted():
    x, weight = Data().normal(TOKENS, FEATURES).requires_grad_(), Data().normal(CLASSES, FEATURES)
    target = Data().integers(0, CLASSES, TOKENS)
    assert forward_and_backward(lambda: aclgrad.nn.linear_cross_entropy(x, weight, target)) == (2 * PRODUCT, 0)
