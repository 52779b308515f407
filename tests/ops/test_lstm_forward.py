"""The LSTM's forward pass: the CPU kernel against nn.LSTM and the formulas, and the chain into the gradient."""

# ruff: noqa: E741  # I is the documents' letter

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_lstm import BF16, CPU, F16, F32, F64, OPTIONS, REFERENCE, WEIRD_SIZES, Problem, option_id
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aclgrad import lstm, lstm_backward
from aclgrad.core.backends import widen
from aclgrad.core.errors import InvalidArgument
from aclgrad.ops.lstm import reference, spec
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.layouts import apply, strided, transposed

NAMES = ("input", "params", "hx", "batch_sizes", "has_bias", "num_layers", "dropout", "train")
DTYPES = [F32, F16, BF16, F64]


def forward_args(problem, *, train=True):
    bias, layers, dropout, _, bidirectional, batch_first = problem.options
    return [
        problem.x, problem.params, problem.hx, problem.batch_sizes, bias, layers, dropout, train, bidirectional,
        batch_first,
    ]  # fmt: skip


def replaced(args, **changes):
    changed = list(args)
    for name, value in changes.items():
        changed[NAMES.index(name)] = value
    return changed


def flat(results):
    return [*results[:3], *(t for values in results[3:] if values is not None for t in values)]


def same_bits(results, expected):
    for result, want in zip(flat(results), flat(expected), strict=True):
        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


def check(args):
    """The CPU kernel, on poisoned memory, is within the tolerance rule; with and without saved activations."""
    with poisoned_memory():
        results = spec.lstm(*args, backend=CPU)
        inference = spec.lstm(*replaced(args, train=False), backend=CPU)
    truth, naive = flat(reference.lstm(*map(widen, args))), flat(reference.lstm(*args))
    for index, (result, true, base) in enumerate(zip(flat(results), truth, naive, strict=True)):
        assert_within_baseline(result, true, base, f"output {index}")
    assert inference[3:] == (None,) * 7
    same_bits(inference, results[:3])
    return results


class Twin:
    """nn.LSTM with a problem's weights, run on packed sequences where lengths vary."""

    def __init__(self, problem):
        T, N, I, H = problem.shape
        bias, layers, _, _, bidirectional, batch_first = problem.options
        batch_first = batch_first and problem.batch_sizes is None
        module = torch.nn.LSTM(I, H, layers, bias, batch_first, bidirectional=bidirectional, dtype=F64)
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), problem.params, strict=True):
                parameter.copy_(value)
        x, *hx = (t.clone().requires_grad_() for t in (problem.x, *problem.hx))
        if problem.batch_sizes is None:
            output, (hy, cy) = module(x, tuple(hx))
        else:
            lengths = (problem.batch_sizes[:, None] > torch.arange(N)).sum(0)
            packed, (hy, cy) = module(pack_padded_sequence(x.view(T, N, I), lengths), tuple(hx))
            output = pad_packed_sequence(packed, total_length=T)[0]
        self.states = output, hy, cy
        self.leaves = (x, *hx, *module.parameters())

    def gradients(self, dy, dh, dc):
        output, hy, cy = self.states
        return torch.autograd.grad((output.reshape(dy.shape), hy, cy), self.leaves, (dy, dh, dc))


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
def test_a_forward_and_backward_pass_equal_torchs(options):
    """What the forward pass saves is what the gradient wants."""
    problem = Problem(**options)
    twin = Twin(problem)
    with poisoned_memory():
        output, hy, cy, *saved = lstm(*forward_args(problem), backend=CPU)
        gradients = lstm_backward(
            problem.x, problem.hx, problem.params, *problem.upstream, *saved, problem.batch_sizes, *problem.options,
            backend=CPU,
        )  # fmt: skip
    for result, want in zip((output, hy, cy), twin.states, strict=True):
        torch.testing.assert_close(result, want.detach(), rtol=1e-12, atol=1e-13)
    expected = twin.gradients(*problem.upstream)
    for result, want in zip([*gradients[:3], *gradients[3]], expected, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS[::3], ids=option_id)
def test_kernel_with_every_option(options, dtype):
    check(forward_args(Problem(**options, dtype=dtype)))


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 1), (1, 1, 3, 17), (3, 2, 1, 3), (2, 3, 65, 1), (5, 1, 4, 65), (4, 17, 33, 31), (3, 15, 32, 32),
        (2, 600, 3, 5), (70, 33, 3, 4), (600, 1, 2, 33), (513, 2, 2, 3), (0, 3, 5, 6), (4, 0, 5, 6), (4, 3, 0, 6),
        (4, 3, 5, 0), (0, 0, 0, 0),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_kernel_at_the_borders(sizes, bidirectional, batch_first):
    """Nothing, one, one past a block; more rows than a chunk holds, in one step and in many."""
    problem = Problem(*sizes, layers=2, bidirectional=bidirectional, batch_first=batch_first, dtype=F32)
    check(forward_args(problem))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_kernel_with_many_chunks_of_different_lengths(dtype):
    T, N = 150, 9
    lengths = torch.linspace(T, 1, N).long()
    sizes = (lengths[None] > torch.arange(T)[:, None]).sum(1).tolist()
    check(forward_args(Problem(T, N, 7, 40, layers=2, bidirectional=True, sizes=sizes, dtype=dtype)))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("sizes", WEIRD_SIZES, ids=str)
def test_kernel_with_any_batch_sizes(sizes, bidirectional):
    problem = Problem(sizes=sizes, layers=2, bidirectional=bidirectional, dtype=F32)
    args = forward_args(problem)
    expected = check(args)
    scattered = torch.empty(8, dtype=torch.int64)[::2].copy_(problem.batch_sizes)
    same_bits(spec.lstm(*replaced(args, batch_sizes=scattered)), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [None, (3, 2, 2, 1)], ids=["fixed", "variable"])
@pytest.mark.parametrize("train", [True, False])
def test_no_initial_state_is_a_state_of_zeros(dtype, sizes, train):
    problem = Problem(layers=2, bidirectional=True, sizes=sizes, dtype=dtype)
    args = forward_args(problem, train=train)
    with poisoned_memory():
        expected = spec.lstm(*replaced(args, hx=apply(torch.zeros_like, args[2])), backend=CPU)
        for nothing in (None, [], ()):
            same_bits(spec.lstm(*replaced(args, hx=nothing), backend=CPU), expected)


@pytest.mark.parametrize("backend", [CPU, REFERENCE])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_padding_does_not_leak(backend, train, garbage):
    """Past a sequence's end y is zero and the states are carried; what lies there shows in its own gates alone."""
    sizes, (T, N) = (3, 2, 2, 1), (4, 3)
    args = forward_args(Problem(T, N, layers=2, bidirectional=True, sizes=sizes, dtype=F32), train=train)
    padded = ~(args[3][:, None] > torch.arange(N))
    dirty = args[0].clone()
    dirty[padded.flatten()] = garbage
    expected = spec.lstm(*args, backend=backend)
    results = spec.lstm(*replaced(args, input=dirty), backend=backend)
    same_bits(results[:3], expected[:3])
    assert not results[0][padded].any()
    if not train:
        return
    for name, values, wanted in zip(("i", "j", "f", "o", "h", "c", "tanhc"), results[3:], expected[3:], strict=True):
        for layer, (value, want) in enumerate(zip(values, wanted, strict=True)):
            hidden = padded & torch.tensor(name in "ijfo" and layer < 2)
            torch.testing.assert_close(value[~hidden], want[~hidden], rtol=0, atol=0)
    h, c, tanhc = results[7:]
    for n, end in ((1, 2), (2, 0)):  # the second and the third sequence, and the last time of each
        for value in (*h[::2], *c[::2]):
            assert torch.equal(value[end + 1 :, n], value[end, n].expand(T - end - 1, -1))
        for value, start in zip((*h[1::2], *c[1::2]), (*args[2][0][1::2], *args[2][1][1::2]), strict=True):
            assert torch.equal(value[end + 1 :, n], start[n].expand(T - end - 1, -1))
    for value, squashed in zip(c, tanhc, strict=True):
        torch.testing.assert_close(squashed, value.tanh())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layers", [1, 2])
def test_step_by_step_gives_the_same_bits(dtype, layers):
    """Both states pass from step to step in the tensors' dtype, so a caller can hand them on just as well."""
    args = forward_args(Problem(6, 5, 9, 34, layers=layers, dtype=dtype))
    whole = spec.lstm(*args, backend=CPU)
    hx = args[2]
    for t in range(6):
        output, *hx = spec.lstm(*replaced(args, input=args[0][t : t + 1], hx=hx, train=False), backend=CPU)[:3]
        assert torch.equal(output[0], whole[0][t])
    same_bits([whole[0], *hx], whole[:3])


@pytest.mark.parametrize("backend", [CPU, REFERENCE])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_infinities_go_where_the_formula_sends_them(backend, dtype):
    """σ and tanh of an infinity are finite; a NaN stays in its row."""
    x = torch.tensor([[[torch.inf], [-torch.inf], [torch.nan], [1.0]]], dtype=dtype)
    params = [torch.ones(8, 1, dtype=dtype), torch.zeros(8, 2, dtype=dtype)]
    output, _, cy, *saved = spec.lstm(x, params, None, None, False, 1, 0.0, True, False, False, backend=backend)
    i = saved[0][0][0]
    assert i[0].eq(1).all() and i[1].eq(0).all() and i[2].isnan().all() and i[3].isfinite().all()
    assert cy[0, 0].eq(1).all() and cy[0, 1].eq(0).all()
    assert output[0, 2].isnan().all() and output[0, [0, 1, 3]].isfinite().all()


@pytest.mark.parametrize(("dtype", "large"), [(F16, 2048.0), (BF16, 256.0)], ids=str)
def test_biases_are_added_in_the_tensors_dtype(dtype, large):
    """large + 1 is large in the dtype, and an input of -large leaves nothing of it."""
    x, zeros = torch.full((1, 1, 1), -large, dtype=dtype), torch.zeros(4, 1, dtype=dtype)
    params = [torch.ones(4, 1, dtype=dtype), zeros, torch.full((4,), large, dtype=dtype), torch.ones(4, dtype=dtype)]
    results = spec.lstm(x, params, None, None, True, 1, 0.0, True, False, False, backend=CPU)
    assert results[3][0].item() == 0.5


def test_without_training_nothing_is_kept():
    """Neither the lists nor memory for them: for one layer the workspace does not grow with the number of steps."""
    sizes = []
    for T in (600, 6000):
        args = forward_args(Problem(T, 4, 6, 33, dtype=F32), train=False)
        sizes.append(spec.lstm.plan(args, backend=CPU).workspace_size)
    assert sizes[1] - sizes[0] <= 8 * (6000 - 600) + 64  # a count for each step
    unwanted = [[torch.full((1,), 7.0)]] * 7
    output, hy, cy = (torch.empty(shape) for shape in ((6000, 4, 33), (1, 4, 33), (1, 4, 33)))
    results = spec.lstm(*args, out=(output, hy, cy, *unwanted), backend=CPU)
    assert results[3:] == (None,) * 7 and unwanted[0][0].item() == 7


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [strided, transposed], ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("sizes", [None, (5, 4, 4, 2)], ids=["fixed", "variable"])
def test_layouts_change_nothing(dtype, layout, sizes):
    args = forward_args(Problem(4, 5, 9, 34, layers=2, bidirectional=True, sizes=sizes, dtype=dtype))
    relaid = [apply(layout, arg) for arg in args]
    expected = spec.lstm(*args, backend=CPU)
    outs = tuple(apply(layout, apply(lambda t: torch.full_like(t, torch.nan), list(expected))))
    same_bits(spec.lstm(*relaid, out=outs, backend=CPU), expected)
    same_bits(spec.lstm(*replaced(relaid, train=False), out=(*outs[:3], *[None] * 7), backend=CPU), expected[:3])


def test_batch_first_is_a_matter_of_layout():
    args = forward_args(Problem(70, 9, 12, 34, layers=2, bidirectional=True, dtype=F32))
    expected = spec.lstm(*args, backend=CPU)
    output, *rest = spec.lstm(args[0].transpose(0, 1).contiguous(), *args[1:-1], True, backend=CPU)
    same_bits([output.transpose(0, 1), *rest], expected)


def test_expanded_inputs():
    args = forward_args(Problem(4, 5, 9, 34, dtype=F32))
    wide = {
        "input": args[0][:, :1].expand(4, 5, 9),
        "hx": [state[:, :1].expand(1, 5, 34) for state in args[2]],
        "params": [*args[1][:2], args[1][2][:1].expand(136), args[1][3]],
    }
    dense = {name: apply(torch.clone, value) for name, value in wide.items()}
    same_bits(spec.lstm(*replaced(args, **wide), backend=CPU), spec.lstm(*replaced(args, **dense), backend=CPU))


@pytest.mark.parametrize(
    "options",
    [
        {"N": 40, "H": 40}, {"N": 1, "H": 100, "bidirectional": True}, {"N": 200, "H": 20}, {"N": 20, "H": 300},
        {"N": 20, "H": 30, "batch_first": True},
    ],
    ids=option_id,
)  # fmt: skip
@pytest.mark.parametrize("train", [True, False])
def test_bits_do_not_depend_on_the_number_of_threads(options, train):
    args = forward_args(Problem(30, I=20, layers=2, **options, dtype=F32), train=train)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = spec.lstm(*args, backend=CPU)
        for count in (2, 3, 5):
            torch.set_num_threads(count)
            with poisoned_memory():
                same_bits(spec.lstm(*args, backend=CPU), expected)
    finally:
        torch.set_num_threads(threads)


def test_one_plan_serves_many_threads():
    problems = [forward_args(Problem(20, 8, 20, 40, layers=2, seed=seed, dtype=F32)) for seed in range(4)]
    expected = [spec.lstm(*args, backend=CPU) for args in problems]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            results = pool.map(lambda args: spec.lstm(*args, backend=CPU), problems)
            for result, want in zip(results, expected, strict=True):
                same_bits(result, want)


def test_long_sequences_stay_accurate():
    """Errors of a thousand steps do not add up, for the state forgets."""
    check(forward_args(Problem(1000, 2, 8, 40, bidirectional=True, dtype=F32)))


@pytest.mark.parametrize("sizes", [(3, 3, 4, 1), (3, 3, -1, -1), (3, 2, 3, 1)], ids=str)
def test_counts_are_checked_on_request(sizes):
    args = forward_args(Problem(sizes=sizes, dtype=F32))
    lstm(*args)
    with pytest.raises(InvalidArgument, match="batch_sizes"):
        lstm(*args, check=True)
    with pytest.raises(InvalidArgument, match="input has rank 3"):
        lstm(args[0].view(4, 3, -1), *args[1:], check=True)
    lstm(*forward_args(Problem(sizes=(3, 2, 2, 0), dtype=F32)), check=True)


def test_the_function_has_defaults():
    x, weights = torch.zeros(2, 1, 3), [torch.zeros(8, 3), torch.zeros(8, 2)]
    output, hy, cy, *saved = lstm(x, weights, has_bias=False)
    assert output.shape == (2, 1, 2) and hy.shape == cy.shape == (1, 1, 2)
    assert [values[0].shape for values in saved] == [(2, 1, 2)] * 7
    assert saved[0][0].eq(0.5).all()
    assert lstm(x, weights, has_bias=False, train=False)[3:] == (None,) * 7
