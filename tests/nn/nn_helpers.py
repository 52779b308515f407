"""Torch's module and its twin here, judged by the tolerance rule: torch's run in float64 is the truth."""

import copy

import pytest
import torch
from benchmarks.device import Cpu
from torch.nn.utils.rnn import PackedSequence

import aclgrad.nn
from aclgrad.core.errors import AclgradError
from aclgrad.ops._shared import small
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data
from aclgrad.testing.tolerance import naive_dtype


def twin(module):
    """A copy of one of torch's modules, with this package's classes."""
    return aclgrad.nn.convert(copy.deepcopy(module))


def tensors(value):
    """Tensors of floating point in a nest of tuples, lists and packed sequences, in order."""
    if isinstance(value, PackedSequence):
        value = value.data
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    return [t for item in value for t in tensors(item)] if isinstance(value, (tuple, list)) else []


def moved(value, change):
    """The same nest with every tensor of floating point changed."""
    if isinstance(value, PackedSequence):
        return value._replace(data=change(value.data))
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    return type(value)(moved(item, change) for item in value) if isinstance(value, (tuple, list)) else value


def outputs_and_gradients(module, *arguments, seed=None):
    """What a call returns, then the gradients of a random combination of that: of the arguments that are differentiable
    and of the parameters that are trained."""
    leaves = moved(arguments, lambda t: t.detach().clone().requires_grad_(t.requires_grad))
    if seed is not None:
        torch.manual_seed(seed)
    outputs = tensors(module(*leaves))
    data = Data(torch.float64, seed=97)  # unlike any input
    loss = sum((out.double() * data.normal(*out.shape)).sum() for out in outputs)
    wanted = [leaf for leaf in (*tensors(leaves), *module.parameters()) if leaf.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [*(out.detach() for out in outputs), *gradients]


def several_steps(module, *batches):
    """Outputs and gradients of every step, then the buffers."""
    results = [result for x in batches for result in outputs_and_gradients(module, x)]
    return results + [buffer if buffer.is_floating_point() else buffer.double() for buffer in module.buffers()]


def assert_same_as_torch(module, *arguments, run=outputs_and_gradients, twin=twin, same_dtypes=True, **options):
    """Outputs and gradients of torch's module and of its twin agree; returns the twin's results."""
    truth = run(copy.deepcopy(module).double(), *moved(arguments, to(torch.float64)), **options)
    naive = torchs = run(copy.deepcopy(module), *arguments, **options)
    if any(tensor.dtype == torch.float64 for tensor in tensors(arguments)):
        rough = naive_dtype(torch.float64)
        naive = run(copy.deepcopy(module).to(rough), *moved(arguments, to(rough)), **options)
    ours = run(twin(module), *arguments, **options)
    for k, (result, expected, exact, rough) in enumerate(zip(ours, torchs, truth, naive, strict=True)):
        assert (result is None) == (expected is None), k
        if result is not None:
            assert result.shape == expected.shape and (result.dtype == expected.dtype or not same_dtypes), k
            coarse = None if same_dtypes else expected.dtype
            assert_within_baseline(result, exact, rough, f"result {k}", coarse)
    return ours


def to(dtype):
    """A change of dtype that leaves a tensor as differentiable as it was."""
    return lambda tensor: tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def peak_memory(step):
    """Bytes that torch's allocator has handed out at the worst moment of a call."""
    step()  # what is kept for good is there before
    return Cpu().peak(step)


def assert_refused_in_the_same_words(call, found, monkeypatch):
    """Whether torch serves small calls or not, the error is one of ours, says what was `found`, and is the same."""
    messages = []
    for served in (True, False):
        monkeypatch.setattr(small, "enabled", served)
        with pytest.raises(AclgradError, match=found) as refused:
            call()
        messages.append(str(refused.value))
    assert messages[0] == messages[1]
