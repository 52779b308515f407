"""Packed LSTMs on a GPU: every way of their recurrence, memory that follows the rows, graphs of fixed lengths."""

import pytest
import torch
from gpu_calls import PACKED_SIZES, packed
from matrix import right_twice
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import aclgrad.nn
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.lstm import cases_packed, spec_packed
from aclgrad.testing import poisoned_memory

MAKE = {spec_packed.lstm_packed: cases_packed.forward, spec_packed.lstm_packed_backward: cases_packed.backward}


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("name", PACKED_SIZES)
@pytest.mark.parametrize("operator", MAKE, ids=lambda operator: operator.spec.name)
def test_every_way(operator, name, dtype, cuda):
    right_twice(operator, packed(MAKE[operator], *PACKED_SIZES[name], dtype))


def sequences(lengths, size, dtype=F32):
    x = torch.randn(max(lengths), len(lengths), size, dtype=dtype)
    made = pack_padded_sequence(x, torch.tensor(lengths, device="cpu"), enforce_sorted=False)
    return made._replace(data=made.data.requires_grad_())


def test_memory_follows_the_rows(cuda):
    """One sequence of 2000 steps among 63 of one are 2063 rows and not 128000."""
    module, x = aclgrad.nn.LSTM(64, 64), sequences([2000, *[1] * 63], 64)
    module(x)[0].data.sum().backward()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    module(x)[0].data.sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 40 * x.data.numel() * 4


def test_a_training_step_is_captured_and_replayed_with_other_data(cuda):
    """Of the same lengths; the counts may be gone by then."""
    module, x = aclgrad.nn.LSTM(32, 64, num_layers=2, bidirectional=True), sequences([9, 7, 7, 1], 32)

    def step():
        output, (h, c) = module(x)
        return torch.autograd.grad(output.data.square().sum() + (h * c).sum(), (x.data, *module.parameters()))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.data.copy_(torch.randn_like(x.data))
    expected = step()
    data, sizes = x.data, x.batch_sizes.clone()
    x = x._replace(batch_sizes=sizes)
    torch.cuda.empty_cache()
    scattered = [torch.full((1 << 12,), 1 << 40) for _ in range(64)]  # where copies of the counts would have been
    graph.replay()
    for one, other in zip(captured, expected, strict=True):
        assert torch.equal(one, other)
    assert len(scattered) == 64 and data is x.data


def test_other_lengths_with_the_same_plan(cuda):
    """As torch's, each by itself."""
    ours = aclgrad.nn.LSTM(24, 96, bidirectional=True)
    theirs = nn.LSTM(24, 96, bidirectional=True).double()
    theirs.load_state_dict(ours.state_dict())
    for lengths in ([9, 8, 8], [9, 9, 8], [9, 9, 7], [9, 8, 7], [2, 9, 9]):
        x = sequences(lengths, 24)
        with poisoned_memory():
            output, states = ours(x)
        expected, finals = theirs(x._replace(data=x.data.double()))
        torch.testing.assert_close(output.data.double(), expected.data, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close([s.double() for s in states], list(finals), rtol=1e-5, atol=1e-6)
