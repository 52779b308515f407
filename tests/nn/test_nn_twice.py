"""Derivatives of derivatives of the modules, by plain autograd: gradient penalties, learning to learn."""

import pytest
import torch
from nn_helpers import assert_same_as_torch, moved, tensors, twin
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import aclgrad
import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.testing.cases import Data

F64 = torch.float64
TARGET = torch.tensor([0, 3, -100, 1])


def sequences(*shape):
    return Data(F64).normal(*shape).requires_grad_()


def packed():
    data = Data(F64)
    return pack_sequence([data.normal(length, 2).requires_grad_() for length in (2, 3, 1)], enforce_sorted=False)


class Head(nn.Module):
    """A head with its targets."""

    def __init__(self, **options):
        super().__init__()
        self.head = aclgrad.nn.LinearCrossEntropyLoss(3, 5, **options)

    def forward(self, x):
        return self.head(x, TARGET)


CASES = {
    "LSTM": (lambda: nn.LSTM(2, 3), sequences(3, 2, 2)),
    "LSTM, every option": (lambda: nn.LSTM(2, 2, 2, batch_first=True, bidirectional=True), sequences(2, 3, 2)),
    "LSTM, packed": (lambda: nn.LSTM(2, 2, bidirectional=True, bias=False), packed()),
    "LSTM, one sequence": (lambda: nn.LSTM(2, 2), sequences(3, 2)),
    "LSTMCell": (lambda: nn.LSTMCell(2, 3), sequences(2, 2)),
    "Hardsigmoid": (nn.Hardsigmoid, sequences(7)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(3, track_running_stats=False), sequences(4, 3, 2)),
    "SyncBatchNorm, plain": (lambda: nn.SyncBatchNorm(3, affine=False, momentum=None), sequences(4, 3)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3, track_running_stats=False), sequences(4, 3)),
    "BatchNorm2d, plain": (lambda: nn.BatchNorm2d(2, affine=False, momentum=None), sequences(3, 2, 2, 2)),
    "BatchNorm3d, in use": (lambda: nn.BatchNorm3d(2).eval(), sequences(2, 2, 1, 2, 1)),
    "head": (lambda: Head(bias=True), sequences(4, 3)),
    "head, every option": (
        lambda: Head(reduction="none", label_smoothing=0.1, softcap=2.0, logit_scale=0.7, z_loss=0.1,
                     return_stats=True),
        sequences(4, 3),
    ),
    "head, a sum with statistics": (lambda: Head(reduction="sum", return_stats=True), sequences(4, 3)),
}  # fmt: skip


def function_of(name):
    """A module as a function of its inputs and parameters, and these."""
    make, x = CASES[name]
    torch.manual_seed(0)
    module = twin(make().double())
    names = [name for name, _ in module.named_parameters()]
    leaves = [leaf.detach().requires_grad_() for leaf in tensors([x])]

    def call(*values):
        given = iter(values)
        inputs = moved(x, lambda _: next(given))
        state = dict(zip(names, given, strict=True))
        results = tensors([torch.func.functional_call(module, state, (inputs,))])
        return tuple(result for result in results if result.requires_grad)

    return call, (*leaves, *(p.detach().requires_grad_() for p in module.parameters()))


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_checked_by_differences(name):
    torch.autograd.gradgradcheck(*function_of(name), atol=1e-6, fast_mode=True)


THRICE = ("LSTM", "LSTMCell", "SyncBatchNorm", "BatchNorm1d", "BatchNorm3d, in use", "head")
SERVED = ("LSTMCell", "BatchNorm1d", "BatchNorm3d, in use")
"""Of these, those whose small calls torch's operations serve: its own batch norm has a wrong third derivative."""


@pytest.mark.parametrize(
    ("name", "served"),
    [*((name, False) for name in THRICE), *((name, True) for name in SERVED)],
    ids=lambda value: value if isinstance(value, str) else "small" if value else "kernels",
)
def test_third_derivatives_are_checked_by_differences(name, served, monkeypatch):
    monkeypatch.setattr(small, "enabled", served)
    call, values = function_of(name)

    def slopes(*values):
        values = [value if value.requires_grad else value.detach().requires_grad_() for value in values]
        total = sum(
            (out * torch.linspace(0.5, 1.5, out.numel()).view(out.shape)).square().sum() for out in call(*values)
        )
        return torch.autograd.grad(total, values, create_graph=True)

    torch.autograd.gradgradcheck(slopes, values, atol=1e-6, fast_mode=True)


def penalised(module, x):
    """A loss and the norm of its gradient, as a gradient penalty has it; then the gradients of their sum."""
    leaf = x.detach().requires_grad_()
    output = module(leaf)
    output = output[0] if isinstance(output, tuple) else output
    (slope,) = torch.autograd.grad(output.square().sum(), leaf, create_graph=True)
    loss = output.sum() + slope.square().sum()
    return [slope.detach(), *torch.autograd.grad(loss, [leaf, *module.parameters()])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(4, 5, 2), lambda: nn.SyncBatchNorm(4), lambda: nn.BatchNorm1d(4)],
    ids=["LSTM", "SyncBatchNorm", "BatchNorm1d"],
)  # fmt: skip
def test_a_gradient_penalty(make, dtype):
    torch.manual_seed(0)
    module = make().to(dtype) if isinstance(make(), nn.LSTM) else make()
    assert_same_as_torch(module, Data(dtype).normal(6, 4, 4), run=penalised)


def test_the_first_derivative_is_the_kernels():
    """Also where it will be differentiated: nothing is computed by the textbook before."""
    module, x = aclgrad.nn.LSTM(3, 4), Data().normal(5, 2, 3).requires_grad_()
    once, again = (
        torch.autograd.grad(module(x)[0].sum(), [x, *module.parameters()], create_graph=many) for many in (False, True)
    )
    torch.testing.assert_close(again, once, rtol=0, atol=0)


def test_what_was_recorded_without_gradients_has_them():
    module, x = aclgrad.nn.LSTM(3, 4, bidirectional=True), Data().normal(5, 2, 3)
    program = torch.export.export(module.requires_grad_(False), (x,)).module()
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = (torch.autograd.grad(m(v)[0].square().sum(), v) for m, v in ((program, leaf), (module, other)))
    torch.testing.assert_close(found, expected)
