"""Packed sequences whose rows operators take as they lie: lengths of every kind, nothing for what is not there."""

import copy
import time

import pytest
import torch
from nn_helpers import moved, outputs_and_gradients, peak_memory, tensors, to, twin
from torch import func, nn
from torch.nn.utils.rnn import pack_sequence

import aclgrad.nn
from aclgrad.core.errors import InvalidArgument
from aclgrad.ops.lstm import cases_packed, spec_packed
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.cases import Data

INPUT, HIDDEN = 5, 6
F32, F64 = torch.float32, torch.float64
LENGTHS = {
    "drawn": Data(seed=7).integers(1, 12, 9).tolist(),
    "one step each": [1, 1, 1, 1],
    "equal": [4] * 5,
    "one long, many short": [1] * 10 + [40] + [1] * 10,
    "one sequence": [9],
    "past a panel": [*range(1, 18), 3, 3],
}
OPTIONS = [
    {}, {"num_layers": 2, "bidirectional": True}, {"bidirectional": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "proj_size": 3},
]  # fmt: skip
OPERATORS = (spec_packed.lstm_packed, spec_packed.lstm_packed_backward)

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch on its own way


def packed(lengths, dtype=F32, size=INPUT):
    data = Data(dtype, seed=3)
    made = pack_sequence([data.normal(length, size) for length in lengths], enforce_sorted=False)
    return made._replace(data=made.data.detach().requires_grad_())


def states(module, batch, dtype=F32):
    data, chains = Data(dtype, seed=4), module.num_layers * (1 + module.bidirectional)
    return tuple(data.normal(chains, batch, size).requires_grad_() for size in (module.proj_size or HIDDEN, HIDDEN))


class OneByOne(nn.Module):
    """Torch's module, called for each sequence alone."""

    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x, hx=None):
        firsts = x.batch_sizes.cumsum(0) - x.batch_sizes
        outputs, rows, finals = [], [], []
        for place, n in enumerate(x.sorted_indices.tolist()):
            rows.append(firsts[x.batch_sizes > place] + place)
            output, final = self.lstm(x.data[rows[-1]], None if hx is None else tuple(state[:, n] for state in hx))
            outputs.append(output)
            finals.append(final)
        last = [torch.stack([finals[place][k] for place in x.unsorted_indices.tolist()], 1) for k in range(2)]
        return torch.cat(outputs)[torch.cat(rows).argsort()], *last


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_sequence_is_an_lstm_of_its_own(options, monkeypatch):
    """All outputs and gradients in float32 by those in float64, on poisoned memory, with the same bits twice."""
    monkeypatch.setattr("aclgrad.ops._shared.small.enabled", False)
    torch.manual_seed(1)
    module = nn.LSTM(INPUT, HIDDEN, **options)
    alone, wide, ours = OneByOne(module), OneByOne(copy.deepcopy(module).double()), twin(module)
    for name, lengths in LENGTHS.items():
        for given in ([], [states(module, len(lengths))]):
            arguments = (packed(lengths), *given)
            truth = outputs_and_gradients(wide, *moved(arguments, to(F64)))
            naive = outputs_and_gradients(alone, *arguments)
            with poisoned_memory():
                found, again = (outputs_and_gradients(ours, *arguments) for _ in range(2))
            with torch.no_grad():
                inferred = tensors(ours(*arguments))
            for k, (result, same, exact, rough) in enumerate(zip(found, again, truth, naive, strict=True)):
                assert torch.equal(result, same), (name, k)
                assert_within_baseline(result, exact, rough, f"{name}, result {k}")
            for result, exact, rough in zip(inferred, truth[:3], naive[:3], strict=True):
                assert_within_baseline(result, exact, rough, f"{name}, inference")


@pytest.mark.parametrize("trained", [True, False], ids=["training", "inference"])
def test_memory_and_time_follow_the_rows(trained):
    """One sequence of 2000 steps and 63 of one step are 2063 rows and not 128000."""
    size, steps, batch = 16, 2000, 64
    module, x = aclgrad.nn.LSTM(size, size), packed([steps] + [1] * (batch - 1), size=size)
    padded = torch.zeros(steps, batch, size)

    def step(given):
        with torch.set_grad_enabled(trained):
            output = module(given)[0]
        if trained:
            (output if given is padded else output.data).sum().backward()

    rows, list_of_rows = len(x.data), len(x.data) * size * 4
    assert rows < steps * batch / 50
    assert peak_memory(lambda: step(x)) < 30 * list_of_rows + (1 << 20) < padded.numel() * 4
    seconds = []
    for given in (x, padded):
        taken = []
        for _ in range(2):
            begin = time.thread_time()
            step(given)
            taken.append(time.thread_time() - begin)
        seconds.append(min(taken))
    assert seconds[0] < seconds[1] / 2


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
def test_counts_that_do_not_fit_are_refused(operator):
    """Kernels find rows by them."""
    names = [arg.name for arg in operator.spec.args]
    arguments = cases_packed.SUITES[operator.spec.name].cases[0].build()
    for counts, words in (
        ([4, 3, 3, 2, 1, 0], r"batch_sizes add up to 13, expected 14 like the rows of input"),
        ([5, 3, 3, 1, 1, 1], r"batch_sizes\[0\] is 5, expected 0 to 4"),
        ([3, 4, 3, 2, 1, 1], r"batch_sizes\[1\] is 4 after 3, expected values that never increase"),
        ([4, 4, 4, 4, -1, -1], r"batch_sizes\[4\] is -1, expected 0 to 4"),
    ):
        arguments[names.index("batch_sizes")] = torch.tensor(counts)
        for call in (operator, getattr(torch.ops.aclgrad, operator.spec.name)):
            with pytest.raises(InvalidArgument, match=words):
                call(*arguments)


def test_what_is_undefined_stays_in_its_sequence():
    """Rows of other sequences, forward and backward, have the bits that they have without it."""
    lengths, module = [4, 6, 2, 6], aclgrad.nn.LSTM(INPUT, HIDDEN, bidirectional=True, num_layers=2)
    x = packed(lengths)
    mine = torch.cat([torch.full((size,), k) for k, size in enumerate(x.batch_sizes)])  # times of rows
    third = torch.cat([torch.arange(int(size)) == 2 for size in x.batch_sizes])
    for value in (torch.nan, torch.inf):
        results = []
        for broken in (False, True):
            data = x.data.detach().clone()
            data[third & (mine == 1)] = value if broken else 0.5
            given = x._replace(data=data.requires_grad_())
            output, (h, c) = module(given)
            dx = torch.autograd.grad(output.data.sum() + h.sum() + c.sum(), given.data)[0]
            results.append((output.data, dx))
        for clean, spoilt in zip(*results, strict=True):
            assert torch.equal(clean[~third], spoilt[~third])
        assert results[1][0][third].isnan().any()
        assert results[1][1][third].isnan().all()


@pytest.mark.parametrize(
    "options",
    [{"bias": False}, *(pytest.param(more, marks=pytest.mark.slow) for more in ({"num_layers": 2}, {"proj_size": 2}))],
    ids=str,
)
def test_derivatives_of_every_order(options):
    module = aclgrad.nn.LSTM(2, 3, bidirectional=True, **options, dtype=F64)
    x, data = packed([2, 1, 3], F64, 2), Data(F64, seed=5)
    chains = module.num_layers * 2
    h, c = (data.normal(chains, 3, size).requires_grad_() for size in (module.proj_size or 3, 3))
    reset = data.flags(len(x.data), share=0.3)

    def run(rows, h, c):
        output, (hy, cy), cells = module(x._replace(data=rows), (h, c), reset=reset, return_cell_states=True)
        return output.data, hy, cy, cells.data

    assert torch.autograd.gradcheck(run, (x.data, h, c), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda *given: run(*given)[0], (x.data, h, c))


def test_maps_and_per_sample_gradients():
    module, x = aclgrad.nn.LSTM(INPUT, HIDDEN, dtype=F64), packed([3, 1, 4], F64)
    samples = torch.stack([x.data.detach(), 2 * x.data.detach()])

    def loss(rows):
        return module(x._replace(data=rows))[0].data.square().sum()

    for function in (loss, func.grad(loss)):
        torch.testing.assert_close(func.vmap(function)(samples), torch.stack([function(rows) for rows in samples]))


def test_autocast_leaves_them_in_their_dtype():
    module, x = aclgrad.nn.LSTM(INPUT, HIDDEN), packed([3, 1])
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = module(x)
    assert {output.data.dtype, h.dtype, c.dtype} == {F32}
