"""The LSTM gradient: the formulas against autograd and nn.LSTM, the CPU kernel against the formulas."""

# ruff: noqa: E741  # I is the documents' letter

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aclgrad import lstm_backward
from aclgrad.core.backends import widen
from aclgrad.ops.lstm import reference, spec
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.layouts import apply, strided, transposed

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
NAMES = ("input", "hx", "params", "dy", "dh", "dc", "i", "j", "f", "o", "h", "c", "tanhc", "batch_sizes")
CPU, REFERENCE = "cpu", "reference"


class Problem:
    """A forward pass over random data, and everything its gradient takes."""

    def __init__(
        self, T=4, N=3, I=5, H=6, *, layers=1, bidirectional=False, bias=True, batch_first=False, sizes=None, seed=0,
        dtype=F64,
    ):  # fmt: skip
        self.generator = torch.Generator().manual_seed(seed)
        self.shape = T, N, I, H
        D = 2 if bidirectional else 1
        rows = (T * N,) if sizes is not None else (N, T) if batch_first else (T, N)
        self.options = (bias, layers, 0.0, True, bidirectional, batch_first)
        self.batch_sizes = None if sizes is None else torch.tensor(sizes, dtype=torch.int64)
        self.x = self.normal(*rows, I)
        self.hx = [self.normal(D * layers, N, H) for _ in range(2)]
        self.params = []
        for layer, _ in itertools.product(range(layers), range(D)):
            scale = max(H, 1) ** -0.5
            self.params += [
                self.normal(4 * H, I if layer == 0 else D * H, scale=scale),
                self.normal(4 * H, H, scale=scale),
            ]
            self.params += [self.normal(4 * H, scale=scale) for _ in range(2 if bias else 0)]
        self.upstream = [self.normal(*rows, D * H), self.normal(D * layers, N, H), self.normal(D * layers, N, H)]
        if dtype != F64:
            self.x, self.hx, self.params, self.upstream = widen([self.x, self.hx, self.params, self.upstream], dtype)
        self.saved = [
            [t.to(dtype) for t in values]
            for values in self.forward(widen(self.x), widen(self.params), widen(self.hx))[3:]
        ]

    def normal(self, *shape, scale=1.0):
        return torch.randn(shape, generator=self.generator, dtype=F64) * scale

    def forward(self, x, params, hx):
        return reference.lstm(x, params, hx, self.batch_sizes, *self.options)

    @property
    def args(self):
        return [self.x, self.hx, self.params, *self.upstream, *self.saved, self.batch_sizes, *self.options, None]

    def by_autograd(self):
        leaves = [t.clone().requires_grad_() for t in (self.x, *self.hx, *self.params)]
        x, hx, params = leaves[0], leaves[1:3], leaves[3:]
        output, hy, cy = self.forward(x, params, hx)[:3]
        dy, dh, dc = self.upstream
        return torch.autograd.grad((output.reshape(dy.shape), hy, cy), leaves, (dy, dh, dc), allow_unused=True)


def flat(results):
    return [*results[:3], *(results[3] if results[3] is not None else [None])]


def same_bits(results, expected):
    for result, want in zip(flat(results), flat(expected), strict=True):
        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


def replaced(args, **changes):
    changed = list(args)
    for name, value in changes.items():
        changed[NAMES.index(name)] = value
    return changed


def check(args):
    """The CPU kernel, on poisoned memory, is within the tolerance rule."""
    with poisoned_memory():
        results = spec.lstm_backward(*args, backend=CPU)
    truth, naive = flat(reference.lstm_backward(*map(widen, args))), flat(reference.lstm_backward(*args))
    for index, (result, true, base) in enumerate(zip(flat(results), truth, naive, strict=True)):
        assert_within_baseline(result, true, base, f"output {index}")
    return results


OPTIONS = [
    {"layers": layers, "bidirectional": bidirectional, "bias": bias, "batch_first": batch_first, "sizes": sizes}
    for layers in (1, 2, 3)
    for bidirectional in (False, True)
    for bias in (False, True)
    for batch_first in (False, True)
    for sizes in (None, (3, 3, 2, 1))
]
WEIRD_SIZES = ((0, 0, 0, 0), (-5, 1, 99, 2), (1, 2, 3, 3), (2, 0, 3, 1), (3, -(2**63), 2**63 - 1, 0))


def option_id(options):
    return "-".join(f"{name}={value}" for name, value in options.items() if value not in (None, False))


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
def test_formulas_equal_autograd(options):
    problem = Problem(**options)
    for result, want in zip(flat(reference.lstm_backward(*problem.args)), problem.by_autograd(), strict=True):
        torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sizes", WEIRD_SIZES, ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_formulas_equal_autograd_for_any_batch_sizes(sizes, bidirectional):
    problem = Problem(sizes=sizes, layers=2, bidirectional=bidirectional)
    for result, want in zip(flat(reference.lstm_backward(*problem.args)), problem.by_autograd(), strict=True):
        torch.testing.assert_close(result, torch.zeros_like(result) if want is None else want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
def test_formulas_equal_torch(options):
    """nn.LSTM, on packed sequences where lengths vary; its outputs and all its gradients."""
    problem = Problem(**options)
    T, N, I, H = problem.shape
    module = torch.nn.LSTM(
        I, H, options["layers"], bias=options["bias"], bidirectional=options["bidirectional"],
        batch_first=options["batch_first"] and options["sizes"] is None, dtype=F64,
    )  # fmt: skip
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), problem.params, strict=True):
            parameter.copy_(value)
    x, hx = problem.x.clone().requires_grad_(), [state.clone().requires_grad_() for state in problem.hx]
    if options["sizes"] is None:
        output, (hy, cy) = module(x, tuple(hx))
    else:
        lengths = (problem.batch_sizes[:, None] > torch.arange(N)).sum(0)
        packed = pack_padded_sequence(x.view(T, N, I), lengths)
        packed, (hy, cy) = module(packed, tuple(hx))
        output = pad_packed_sequence(packed, total_length=T)[0]
    ours = problem.forward(problem.x, problem.params, problem.hx)
    for result, want in zip(ours[:3], (output, hy, cy), strict=True):
        torch.testing.assert_close(result, want.detach(), rtol=1e-12, atol=1e-13)
    dy, dh, dc = problem.upstream
    leaves = (x, *hx, *module.parameters())
    expected = torch.autograd.grad((output.reshape(dy.shape), hy, cy), leaves, (dy, dh, dc))
    for result, want in zip(flat(reference.lstm_backward(*problem.args)), expected, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("options", OPTIONS[::3], ids=option_id)
def test_kernel_with_every_option(options, dtype):
    check(Problem(**options, dtype=dtype).args)


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 1), (1, 1, 3, 17), (3, 2, 1, 3), (2, 1, 65, 1), (5, 1, 4, 65), (4, 17, 33, 31), (3, 15, 32, 32),
        (2, 600, 3, 5), (70, 33, 3, 4), (600, 1, 2, 33), (513, 2, 2, 3), (0, 3, 5, 6), (4, 0, 5, 6), (4, 3, 0, 6),
        (4, 3, 5, 0), (0, 0, 0, 0),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("bidirectional", [False, True])
def test_kernel_at_the_borders(sizes, bidirectional):
    """Nothing, one, one past a block; more rows than a chunk holds, in one step and in many."""
    T, N, I, H = sizes
    check(Problem(T, N, I, H, layers=2, bidirectional=bidirectional, dtype=F32).args)


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_kernel_with_many_chunks_of_different_lengths(dtype):
    T, N = 150, 9
    lengths = torch.linspace(T, 1, N).long()
    sizes = (lengths[None] > torch.arange(T)[:, None]).sum(1).tolist()
    check(Problem(T, N, 7, 40, layers=2, bidirectional=True, sizes=sizes, dtype=dtype).args)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("sizes", WEIRD_SIZES, ids=str)
def test_kernel_with_any_batch_sizes(sizes, bidirectional):
    problem = Problem(sizes=sizes, layers=2, bidirectional=bidirectional, dtype=F32)
    check(problem.args)
    scattered = torch.empty(8, dtype=torch.int64)[::2].copy_(problem.batch_sizes)
    same_bits(spec.lstm_backward(*replaced(problem.args, batch_sizes=scattered)), spec.lstm_backward(*problem.args))


@pytest.mark.parametrize("backend", [CPU, REFERENCE])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_padding_does_not_leak(backend, bidirectional, garbage):
    """Whatever lies at padded positions: the result is the same, and dx is zero there."""
    sizes, (T, N) = (3, 2, 2, 1), (4, 3)
    problem = Problem(T, N, layers=2, bidirectional=bidirectional, sizes=sizes, dtype=F32)
    expected = spec.lstm_backward(*problem.args, backend=backend)
    padded = ~(problem.batch_sizes[:, None] > torch.arange(N))
    dirty = {
        name: apply(torch.clone, problem.args[NAMES.index(name)])
        for name in ("input", "dy", *"ijfo", "tanhc", "h", "c")
    }
    for name in ("input", "dy"):
        dirty[name][padded.flatten()] = garbage
    for name in (*"ijfo", "tanhc"):
        for values in dirty[name]:
            values[padded] = garbage
    for name in ("h", "c"):  # a reverse chain starts its valid steps from the state carried through the padding
        for values in dirty[name][:: 2 if bidirectional else 1]:
            values[padded] = garbage
    results = spec.lstm_backward(*replaced(problem.args, **dirty), backend=backend)
    same_bits(results, expected)
    assert not results[0][padded.flatten()].any()


DEPENDENCE = [
    ("input", None), ("hx", 0), ("hx", 1), *(("params", k) for k in range(8)), ("dy", None), ("dh", None), ("dc", None),
    *((name, k) for name in ("i", "j", "f", "o", "h", "c", "tanhc") for k in (0, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize("backend", [CPU, REFERENCE])
@pytest.mark.parametrize(("name", "member"), DEPENDENCE)
@pytest.mark.parametrize("sizes", [None, (2, 2, 1)], ids=["fixed", "variable"])
def test_what_depends_on_inf_or_nan_is_nan(backend, name, member, sizes):
    """Which outputs depend on an input element shows when a finite change of it changes them."""
    problem = Problem(3, 2, 3, 2, layers=2, bidirectional=True, sizes=sizes)
    single = Problem(3, 2, 3, 2, layers=2, bidirectional=True, sizes=sizes, dtype=F32)
    base = flat(reference.lstm_backward(*problem.args))
    picks = torch.Generator().manual_seed(1)
    numel = (problem.args[NAMES.index(name)] if member is None else problem.args[NAMES.index(name)][member]).numel()
    for position in torch.randperm(numel, generator=picks)[:4].tolist():
        depends = [
            moved != still
            for moved, still in zip(
                flat(reference.lstm_backward(*set_one(problem.args, name, member, position, 0.37))), base, strict=True
            )
        ]
        for value in (torch.inf, -torch.inf, torch.nan):
            results = flat(spec.lstm_backward(*set_one(single.args, name, member, position, value), backend=backend))
            for index, (result, expected) in enumerate(zip(results, depends, strict=True)):
                assert torch.equal(result.isnan(), expected), f"output {index} for {value} at {position}"
                assert not result.isinf().any()


def set_one(args, name, member, position, value):
    changed = apply(torch.clone, args[NAMES.index(name)])
    (changed if member is None else changed[member]).view(-1)[position] = value
    return replaced(args, **{name: changed})


def test_finite_values_that_overflow_half_precision_are_infinite():
    args = Problem(T=1, dtype=F16).args
    args = replaced(args, params=[torch.full_like(p, 3e4) for p in args[2]], dy=torch.full_like(args[3], 3e3))
    dx = spec.lstm_backward(*args, backend=CPU)[0]
    assert dx.isinf().all()


@pytest.mark.parametrize("mask", list(itertools.product([True, False], repeat=4)), ids=str)
def test_masked_outputs_are_not_computed(mask):
    args = Problem(T=9, layers=2, bidirectional=True, dtype=F32).args
    everything = spec.lstm_backward(*args, backend=CPU)
    with poisoned_memory():
        results = lstm_backward(*args[:-1], mask, backend=CPU)
    for wanted, result, full in zip(mask, results, everything, strict=True):
        assert (result is not None) == wanted
        if wanted:
            torch.testing.assert_close(result, full, rtol=0, atol=0)
    sizes = [spec.lstm_backward.plan([*args[:-1], m], backend=CPU).workspace_size for m in (mask, None)]
    assert sizes[0] < sizes[1] or mask[3]


@pytest.mark.parametrize("given", list(itertools.product([True, False], repeat=3)), ids=str)
@pytest.mark.parametrize("sizes", [None, (3, 3, 2, 1)], ids=["fixed", "variable"])
def test_an_absent_gradient_is_zero(given, sizes):
    args = Problem(layers=2, bidirectional=True, sizes=sizes, dtype=F32).args
    some = {
        name: args[NAMES.index(name)] if there else None for name, there in zip(("dy", "dh", "dc"), given, strict=True)
    }
    zeros = {
        name: torch.zeros_like(args[NAMES.index(name)]) if value is None else value for name, value in some.items()
    }
    with poisoned_memory():
        same_bits(
            spec.lstm_backward(*replaced(args, **some), backend=CPU),
            spec.lstm_backward(*replaced(args, **zeros), backend=CPU),
        )


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("layout", [strided, transposed], ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("sizes", [None, (5, 4, 4, 2)], ids=["fixed", "variable"])
def test_layouts_change_nothing(dtype, layout, sizes):
    """Inputs and outputs in other places; inputs stay as they were and gaps between outputs untouched."""
    args = Problem(4, 5, 9, 34, layers=2, bidirectional=True, sizes=sizes, dtype=dtype).args
    relaid = [apply(layout, arg) for arg in args]
    kept = apply(torch.clone, relaid[:13])
    expected = spec.lstm_backward(*args, backend=CPU)
    outs = tuple(apply(layout, apply(lambda t: torch.full_like(t, torch.nan), list(expected))))
    results = spec.lstm_backward(*relaid, out=outs, backend=CPU)
    same_bits(results, expected)
    for value, copy in zip(relaid[:13], kept, strict=True):
        torch.testing.assert_close(value, copy, rtol=0, atol=0)


def test_expanded_inputs():
    args = Problem(4, 5, 9, 34, dtype=F32).args
    one = {"dy": args[3][:1, :1], "dh": args[4][:, :, :1], "input": args[0][:, :1], "i": [args[6][0][:1]]}
    wide = {name: apply(lambda t, n=name: t.expand(shape_of(args, n)), value) for name, value in one.items()}
    dense = {name: apply(torch.clone, value) for name, value in wide.items()}
    same_bits(
        spec.lstm_backward(*replaced(args, **wide), backend=CPU),
        spec.lstm_backward(*replaced(args, **dense), backend=CPU),
    )


def shape_of(args, name):
    value = args[NAMES.index(name)]
    return (value[0] if isinstance(value, list) else value).shape


@pytest.mark.parametrize(
    "options",
    [
        {"N": 40, "H": 40},
        {"N": 1, "H": 100, "bidirectional": True},
        {"N": 200, "H": 20},
        {"N": 20, "H": 300},
        {"N": 8, "H": 300},
    ],
    ids=option_id,
)
def test_bits_do_not_depend_on_the_number_of_threads(options):
    args = Problem(30, I=20, **options, dtype=F32).args
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = spec.lstm_backward(*args, backend=CPU)
        for counts in ((1, 2, 3, 5), (4, 1, 5)):  # a plan has memory for the threads of its first call
            spec.lstm_backward._plans.clear()
            for count in counts:
                torch.set_num_threads(count)
                with poisoned_memory():
                    same_bits(spec.lstm_backward(*args, backend=CPU), expected)
    finally:
        torch.set_num_threads(threads)


def test_one_plan_serves_many_threads():
    problems = [Problem(20, 8, 20, 40, layers=2, seed=seed, dtype=F32).args for seed in range(4)]
    expected = [spec.lstm_backward(*args, backend=CPU) for args in problems]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for result, want in zip(
                pool.map(lambda args: spec.lstm_backward(*args, backend=CPU), problems), expected, strict=True
            ):
                same_bits(result, want)
