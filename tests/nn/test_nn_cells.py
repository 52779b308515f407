"""`return_cell_states` of an LSTM: c of every step, as a loop over torch's cell gives it, and its gradients."""

import copy

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, twin
from torch import func, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import aclgrad.nn
from aclgrad.core.dispatch import chosen_backend
from aclgrad.testing.cases import Data

T, N, INPUT, HIDDEN = 5, 3, 4, 6
LENGTHS = [3, 1, 5]


class Loop(nn.Module):
    """An LSTM, step by step in torch's operations, that returns c of every step of its last layer."""

    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x, hx=None):
        m = self.lstm
        packed = isinstance(x, PackedSequence)
        if packed:
            padded, lengths = nn.utils.rnn.pad_packed_sequence(x)
        else:
            padded = x.transpose(0, 1) if m.batch_first else x
            lengths = torch.full((padded.shape[1],), padded.shape[0])
        outputs, states, last = zip(
            *[self.one(padded[:length, n], hx, n) for n, length in enumerate(lengths)], strict=True
        )
        hy, cy = (torch.stack([state[k] for state in states], 1) for k in range(2))
        if packed:
            return tuple(
                PackedSequence(
                    nn.utils.rnn.pack_sequence(list(rows), enforce_sorted=False).data, x.batch_sizes,
                    x.sorted_indices, x.unsorted_indices,
                ) if k != 1 else (hy, cy)
                for k, rows in enumerate((outputs, None, last))
            )  # fmt: skip
        axis = 0 if m.batch_first else 1
        return torch.stack(outputs, axis), (hy, cy), torch.stack(last, axis)

    def one(self, x, hx, n):
        m, finals = self.lstm, ([], [])
        for layer in range(m.num_layers):
            sides = []
            for d, end in enumerate(["", "_reverse"][: 1 + m.bidirectional]):
                chain = layer * (1 + m.bidirectional) + d
                w_ih, w_hh = (getattr(m, f"weight_{k}_l{layer}{end}") for k in ("ih", "hh"))
                bias = sum(getattr(m, f"bias_{k}_l{layer}{end}") for k in ("ih", "hh")) if m.bias else 0.0
                h, c = (x.new_zeros(m.hidden_size),) * 2 if hx is None else (state[chain, n] for state in hx)
                hs, cs = {}, {}
                for t in range(len(x))[:: -1 if d else 1]:
                    i, f, g, o = (w_ih @ x[t] + w_hh @ h + bias).chunk(4)
                    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                    h = o.sigmoid() * c.tanh()
                    hs[t], cs[t] = h, c
                finals[0].append(h)
                finals[1].append(c)
                sides.append([torch.stack([kept[t] for t in range(len(x))]) for kept in (hs, cs)])
            x, last = (torch.cat(parts, -1) for parts in zip(*sides, strict=True))
        return x, [torch.stack(final) for final in finals], last


class Ours(nn.Module):
    def __init__(self, loop):
        super().__init__()
        self.lstm = twin(loop.lstm)

    def forward(self, *arguments):
        return self.lstm(*arguments, return_cell_states=True)


def loop(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return Loop(nn.LSTM(INPUT, HIDDEN, **options).to(dtype))


def sequences(dtype=torch.float32, batch_first=False):
    return Data(dtype).normal(*((N, T) if batch_first else (T, N)), INPUT).requires_grad_()


def packed(dtype=torch.float32):
    made = pack_padded_sequence(Data(dtype).normal(T, N, INPUT), torch.tensor(LENGTHS), enforce_sorted=False)
    return made._replace(data=made.data.detach().requires_grad_())


def states(module, dtype=torch.float32):
    chains, data = module.lstm.num_layers * (1 + module.lstm.bidirectional), Data(dtype, seed=1)
    return tuple(data.normal(chains, N, HIDDEN).requires_grad_() for _ in range(2))


VARIANTS = {
    "plain": {},
    "layers, both directions": {"num_layers": 2, "bidirectional": True},
    "no bias, batch first": {"bias": False, "batch_first": True},
}


@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_outputs_and_all_gradients(options, given):
    module = loop(**options)
    for x in (sequences(batch_first=module.lstm.batch_first), packed()):
        assert_same_as_torch(module, x, *[states(module)] * given, twin=Ours)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes(dtype):
    module = loop(dtype, bidirectional=True)
    assert_same_as_torch(module, sequences(dtype), states(module, dtype), twin=Ours)


def test_with_a_projection_and_for_one_sequence():
    """The projected h has c like any other."""
    torch.manual_seed(0)
    module, x = aclgrad.nn.LSTM(INPUT, HIDDEN, proj_size=2, bidirectional=True).double(), sequences(torch.float64)
    output, (_, c), all_c = module(x, return_cell_states=True)
    assert output.shape == (T, N, 4) and all_c.shape == (T, N, 2 * HIDDEN)
    torch.testing.assert_close(all_c[-1, :, :HIDDEN], c[0])
    torch.testing.assert_close(all_c[0, :, HIDDEN:], c[1])
    alone, _, c_alone = module(x[:, 1], return_cell_states=True)
    torch.testing.assert_close((alone, c_alone), (output[:, 1], all_c[:, 1]))


def test_the_same_as_without_where_nobody_differentiates_them():
    ours = Ours(loop(num_layers=2))
    x = sequences()
    plain = outputs_and_gradients(ours.lstm, x)
    output, (h, c), all_c = ours(x)
    torch.testing.assert_close([output, h, c], plain[:3], rtol=0, atol=0)
    data = Data(torch.float64, seed=97)
    loss = sum((out.double() * data.normal(*out.shape)).sum() for out in (output, h, c))
    gradients = torch.autograd.grad(loss, [x, *ours.parameters()])
    torch.testing.assert_close(list(gradients), plain[3:], rtol=0, atol=0)
    assert all_c.requires_grad


def test_every_derivative_and_transform():
    module, plain = Ours(loop(torch.float64)), loop(torch.float64)
    x, given = sequences(torch.float64), states(plain, torch.float64)
    names = [name for name, _ in module.named_parameters()]

    def call(x, h, c, *parameters):
        output, (hy, cy), cells = func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, (h, c)))
        return output, hy, cy, cells

    leaves = (x, *given, *module.parameters())
    torch.autograd.gradcheck(call, leaves, fast_mode=True, check_forward_ad=True)
    torch.autograd.gradgradcheck(call, leaves, fast_mode=True)
    samples = Data(torch.float64).normal(2, T, N, INPUT)
    slopes = [func.vmap(func.grad(lambda s, m=m: m(s)[2].square().sum()))(samples) for m in (module, plain)]
    torch.testing.assert_close(*slopes)


def test_compiled_in_one_graph():
    module = Ours(loop(bidirectional=True))
    compiled = torch.compile(copy.deepcopy(module), backend="aot_eager", fullgraph=True)
    for x in (sequences(), sequences().detach()):
        run = outputs_and_gradients if x.requires_grad else lambda m, x: m(x)
        torch.testing.assert_close(run(compiled, x), run(module, x))
    torch._dynamo.reset()


def test_by_a_gpus_kernels():
    """Interpreted where there is no GPU."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    token = chosen_backend.set("triton")
    try:
        module = loop(bidirectional=True).to(device)
        for x in (sequences(), packed()):
            assert_same_as_torch(module, x.to(device), twin=Ours)
    finally:
        chosen_backend.reset(token)


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}], ids=["plain", "projected"])
def test_compiled_where_no_gradient_is_wanted(options):
    torch.manual_seed(0)
    module, x = aclgrad.nn.LSTM(INPUT, HIDDEN, **options).requires_grad_(False), sequences().detach()

    def call(x):
        return module(x, return_cell_states=True)

    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="eager")(x), call(x))
