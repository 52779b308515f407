"""`reset` of an LSTM: what lies between resets is a sequence of its own, as torch's module computes it."""

import copy
from itertools import pairwise

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, twin
from torch import func, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import aclgrad.nn
from aclgrad.core.dispatch import chosen_backend
from aclgrad.core.errors import InvalidArgument, WrongType
from aclgrad.testing.cases import Data

T, N, INPUT, HIDDEN = 7, 3, 4, 6
LENGTHS = [4, 7, 1]
F64 = torch.float64

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch on its own way


class Apart(nn.Module):
    """An LSTM whose sequences are cut where they are reset: every part is a call of its own."""

    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x, reset, hx=None):
        packed, first = isinstance(x, PackedSequence), self.lstm.batch_first
        if packed:
            padded, lengths = pad_packed_sequence(x)
            flags = pad_packed_sequence(PackedSequence(reset, *x[1:]))[0]
        else:
            padded, flags = (x.transpose(0, 1), reset.t()) if first else (x, reset)
            lengths = torch.full((padded.shape[1],), len(padded))
        rows, finals = zip(
            *[self.one(padded[:length, n], flags[:length, n], hx, n) for n, length in enumerate(lengths)], strict=True
        )
        states = tuple(torch.stack([final[k] for final in finals], 1) for k in range(2))
        if packed:
            again = nn.utils.rnn.pack_sequence(list(rows), enforce_sorted=False)
            return again, states
        return torch.stack(rows, 0 if first else 1), states

    def one(self, x, reset, hx, n):
        m = self.lstm
        directions = 1 + m.bidirectional
        chains = m.num_layers * directions
        cuts = [0, *(t for t in range(1, len(x)) if reset[t]), len(x)]
        zeros = [x.new_zeros(chains, size) for size in (m.proj_size or m.hidden_size, m.hidden_size)]
        given = zeros if hx is None else [state[:, n] for state in hx]
        forward = torch.arange(chains).remainder(directions).eq(0).unsqueeze(-1)
        rows, last = [], []
        for begin, end in pairwise(cuts):
            from_start = forward & torch.tensor(begin == 0 and not bool(reset[0]))
            from_end = ~forward & torch.tensor(end == len(x))
            states = [torch.where(from_start | from_end, s, z) for s, z in zip(given, zeros, strict=True)]
            part = x[begin:end].unsqueeze(0 if m.batch_first else 1)
            output, states = m(part, tuple(state.unsqueeze(1) for state in states))
            rows.append(output.squeeze(0 if m.batch_first else 1))
            last.append([state.squeeze(1) for state in states])
        finals = [torch.where(forward, last[-1][k], last[0][k]) for k in range(2)]
        return torch.cat(rows), finals


class Ours(nn.Module):
    def __init__(self, apart, **options):
        super().__init__()
        self.lstm, self.options = twin(apart.lstm), options

    def forward(self, x, reset, hx=None):
        return self.lstm(x, hx, reset=reset, **self.options)


def apart(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return Apart(nn.LSTM(INPUT, HIDDEN, **options).to(dtype))


def flags(*shape, share=0.3):
    return Data(seed=5).flags(*shape, share=share)


def sequences(dtype=torch.float32, batch_first=False):
    return Data(dtype).normal(*((N, T) if batch_first else (T, N)), INPUT).requires_grad_()


def states(module, dtype=torch.float32):
    lstm, data = module.lstm, Data(dtype, seed=3)
    chains = lstm.num_layers * (1 + lstm.bidirectional)
    sizes = (lstm.proj_size or HIDDEN, HIDDEN)
    return tuple(data.normal(chains, N, size).requires_grad_() for size in sizes)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bidirectional": True, "batch_first": True, "bias": False},
     {"num_layers": 2, "proj_size": 3, "bidirectional": True}],
    ids=lambda options: "-".join(options) or "plain",
)  # fmt: skip
def test_what_lies_between_resets_is_a_sequence_of_its_own(options, share):
    module = apart(**options)
    reset = flags(*((N, T) if module.lstm.batch_first else (T, N)), share=share)
    assert_same_as_torch(module, sequences(batch_first=module.lstm.batch_first), reset, states(module), twin=Ours)


def test_without_initial_states_and_in_double():
    assert_same_as_torch(apart(F64, bidirectional=True), sequences(F64), flags(T, N), twin=Ours)


@pytest.mark.parametrize("proj_size", [0, 3])
def test_packed(proj_size):
    module = apart(num_layers=2, bidirectional=True, proj_size=proj_size)
    packed = pack_padded_sequence(sequences(), torch.tensor(LENGTHS), enforce_sorted=False)
    packed = packed._replace(data=packed.data.detach().requires_grad_())
    reset = flags(len(packed.data))
    assert_same_as_torch(module, packed, reset, states(module), twin=Ours)
    ours, x = Ours(module), packed.data.detach()
    with torch.no_grad():
        given, also = (ours.lstm(packed, reset=r)[0].data for r in (reset, packed._replace(data=reset)))
    assert torch.equal(given, also), "reset may be packed like the data"
    assert x.shape[0] == len(reset)


def test_one_sequence_without_a_batch():
    ours, x, reset = twin(apart(bidirectional=True).lstm), sequences()[:, 0].detach(), flags(T)
    output, (h, c) = ours(x, reset=reset)
    batched, (bh, bc) = ours(x[:, None], reset=reset[:, None])
    assert torch.equal(output, batched[:, 0])
    assert torch.equal(h, bh[:, 0])
    assert torch.equal(c, bc[:, 0])


def test_nothing_passes_a_reset():
    """An undefined part, forward and backward, leaves the others as they are."""
    module = apart(F64, bidirectional=True)
    reset = torch.zeros(T, N, dtype=torch.bool)
    reset[2], reset[5] = True, True
    clean = sequences(F64).detach()
    broken = clean.clone()
    broken[2:5] = torch.nan
    hx = tuple(torch.full((2, N, HIDDEN), torch.inf, dtype=F64) for _ in range(2))
    at_once = reset.clone()
    at_once[0] = True
    ours = Ours(module).lstm
    whole, part = (ours(x, reset=reset)[0] for x in (clean, broken))
    assert part[2:5].isnan().all()
    assert torch.equal(part[:2], whole[:2])
    assert torch.equal(part[5:], whole[5:])
    assert ours(clean, hx, reset=at_once)[0][:2].isfinite().all(), "only the forward direction begins there"
    leaf = clean.clone().requires_grad_()
    upstream = torch.ones(T, N, 2 * HIDDEN, dtype=F64)
    upstream[2:5] = torch.nan
    dx = torch.autograd.grad(ours(leaf, reset=reset)[0], leaf, upstream)[0]
    assert dx[2:5].isnan().all()
    assert dx[:2].isfinite().all()
    assert dx[5:].isfinite().all()


def test_states_of_an_actor_that_steps_one_by_one():
    """What a policy computes while it acts, a step at a time with zeros after each end, a learner computes at once."""
    ours, x, reset = twin(apart(num_layers=2).lstm), sequences().detach(), flags(T, N)
    state, outputs = tuple(state.detach() for state in states(apart(num_layers=2))), []
    whole, final = ours(x, state, reset=reset)
    for t in range(T):
        state = tuple(torch.where(reset[t][None, :, None], 0.0, part) for part in state)
        output, state = ours(x[t : t + 1], state)
        outputs.append(output)
    torch.testing.assert_close(whole, torch.cat(outputs), rtol=0, atol=4 * torch.finfo(torch.float32).eps)
    for ours_last, theirs in zip(final, state, strict=True):
        torch.testing.assert_close(ours_last, theirs, rtol=0, atol=4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("packed", [False, True])
def test_cell_states_with_resets(packed):
    """c of every step, with its gradients: in double, as the textbook's formula has them."""
    module, x = Ours(apart(F64, bidirectional=True), return_cell_states=True), sequences(F64)
    reset = flags(T, N)
    if packed:
        x = pack_padded_sequence(x.detach(), torch.tensor(LENGTHS), enforce_sorted=False)
        x, reset = x._replace(data=x.data.requires_grad_()), flags(sum(LENGTHS))
    data = x.data if packed else x

    def run(rows):
        output, _, cells = module(x._replace(data=rows) if packed else rows, reset)
        return (output.data, cells.data) if packed else (output, cells)

    assert torch.autograd.gradcheck(run, (data.detach().requires_grad_(),))
    assert torch.equal(run(data)[0], module.lstm(x, reset=reset)[0].data)


def test_derivatives_of_every_order():
    module = Ours(apart(F64, bidirectional=True))
    x, reset, hx = sequences(F64)[:3, :2].detach().requires_grad_(), flags(3, 2), states(module, F64)
    hx = tuple(state[:, :2].detach().requires_grad_() for state in hx)
    assert torch.autograd.gradgradcheck(lambda x, h, c: module(x, reset, (h, c))[0], (x, *hx))


def test_maps_and_compiled():
    module = Ours(apart(num_layers=2, bidirectional=True))
    x, reset = sequences().detach(), torch.stack([flags(T, N), flags(T, N, share=0.6)])
    parameters = dict(module.named_parameters())

    def loss(parameters, x, reset):
        return func.functional_call(module, parameters, (x, reset))[0].square().sum()

    mapped = func.vmap(func.grad(loss), (None, None, 0))(parameters, x, reset)
    each = [func.grad(loss)(parameters, x, flags) for flags in reset]
    for name, found in mapped.items():
        assert torch.equal(found, torch.stack([one[name] for one in each])), name
    eager = outputs_and_gradients(module, x.requires_grad_(), reset[0])
    compiled = torch.compile(copy.deepcopy(module), backend="aot_eager", fullgraph=True)
    fast = outputs_and_gradients(compiled, x, reset[0])
    torch._dynamo.reset()
    for ours, expected in zip(fast, eager, strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize(
    ("reset", "error", "message"),
    [
        (torch.zeros(T, N), InvalidArgument, "reset is float32, expected bool"),
        (torch.zeros(N, T, dtype=torch.bool), InvalidArgument, r"reset has shape \[3, 7\], expected \[7, 3\] = "),
        ([True], WrongType, "reset is list, expected a tensor"),
    ],
)
def test_wrong_resets_are_refused(reset, error, message):
    with pytest.raises(error, match=message):
        aclgrad.nn.LSTM(INPUT, HIDDEN)(torch.zeros(T, N, INPUT), reset=reset)


def test_by_a_gpus_kernels():
    """Interpreted where there is no GPU."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    token = chosen_backend.set("triton")
    try:
        module = apart(num_layers=2, bidirectional=True).to(device)
        assert_same_as_torch(module, sequences().to(device), flags(T, N).to(device), twin=Ours)
    finally:
        chosen_backend.reset(token)
