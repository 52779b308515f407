"""LSTMs that are reset inside their sequences: the formulas, and kernels where `tests/conformance` does not look."""

import itertools
from dataclasses import replace

import pytest
import torch

from aclgrad.core.backends import widen
from aclgrad.core.devices import described
from aclgrad.core.known import Known
from aclgrad.core.memory import Scratch, tensors_in
from aclgrad.core.spec import F16, F32, F64
from aclgrad.ops.lstm import reference, spec, spec_resets
from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.cases import Data

T, N, I, H = 4, 3, 5, 6  # noqa: E741  the documents' letters
FORWARD, BACKWARD = spec_resets.lstm_with_resets, spec_resets.lstm_with_resets_backward
OPTIONS = [
    {"layers": layers, "bidirectional": bidirectional, "bias": bias, "batch_first": batch_first, "sizes": sizes}
    for layers, bidirectional, bias in ((1, False, True), (2, True, False), (2, True, True))
    for batch_first in (False, True)
    for sizes in (None, (3, 3, 2, 1))
]
WEIRD_SIZES = ((0, 0, 0, 0), (-5, 1, 99, 2), (1, 2, 3, 3), (2, 0, 3, 1))


def forward_arguments(dtype=F64, *, layers=1, bidirectional=False, bias=True, batch_first=False, sizes=None, share=0.4):
    data, chains = Data(dtype), layers * (1 + bidirectional)
    rows = (T * N,) if sizes is not None else (N, T) if batch_first else (T, N)
    x, hx = data.normal(*rows, I), [data.normal(chains, N, H) for _ in range(2)]
    params = []
    for layer, _ in itertools.product(range(layers), range(1 + bidirectional)):
        params.append(data.normal(4 * H, I if layer == 0 else (1 + bidirectional) * H, scale=H**-0.5))
        params += [data.normal(4 * H, H, scale=H**-0.5), *(data.normal(4 * H) for _ in range(2 if bias else 0))]
    lengths = None if sizes is None else torch.tensor(sizes)
    return x, params, data.flags(T, N, share=share), hx, lengths, bias, layers, 0.0, True, bidirectional, batch_first


def backward_arguments(forward, dtype=F64):
    """Of the gradient, of what the textbook's forward pass saves."""
    x, params, reset, hx, lengths, *options = forward
    output, hy, _, *saved = reference.lstm_with_resets(*widen(list(forward)))
    data = Data(dtype, seed=1)
    dy = data.normal(*(x.shape[:-1]), output.shape[-1])
    dh, dc = data.normal(*hy.shape), data.normal(*hy.shape)
    saved = [[part.to(dtype) for part in parts] for parts in saved]
    return x, hx, params, dy, dh, dc, *saved, reset, lengths, *options, None


def check(operator, formula, args, backend):
    """A kernel, on poisoned memory, is within the tolerance rule."""
    with poisoned_memory():
        results = operator(*args, backend=backend)
    truth, naive = tensors_in(formula(*widen(list(args)))), tensors_in(formula(*args))
    for k, (result, true, base) in enumerate(zip(tensors_in(results), truth, naive, strict=True)):
        assert_within_baseline(result, true, base, f"output {k}")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_formulas_equal_autograd(options):
    forward = forward_arguments(**options)
    args = backward_arguments(forward)
    x, params, reset, hx, *rest = forward
    leaves = [leaf.clone().requires_grad_() for leaf in (x, *hx, *params)]
    output, hy, cy, *_ = reference.lstm_with_resets(leaves[0], leaves[3:], reset, leaves[1:3], *rest)
    dy, dh, dc = args[3:6]
    expected = torch.autograd.grad((output.reshape(dy.shape), hy, cy), leaves, (dy, dh, dc))
    found = reference.lstm_with_resets_backward(*args)
    for result, want in zip([*found[:3], *found[3]], expected, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-13)


def test_without_a_reset_it_is_the_plain_lstm():
    forward = forward_arguments(**OPTIONS[-1], share=0.0)
    x, params, _, *rest = forward
    for plain, found in (
        (reference.lstm(x, params, *rest), FORWARD(*forward, backend="reference")),
        (spec.lstm(x, params, *rest, backend="cpu"), FORWARD(*forward, backend="cpu")),
    ):
        for one, other in zip(tensors_in(plain), tensors_in(found), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("sizes", WEIRD_SIZES, ids=str)
def test_resets_where_lengths_make_no_sense(sizes):
    forward = forward_arguments(F32, layers=2, bidirectional=True, sizes=sizes, share=0.6)
    check(FORWARD, reference.lstm_with_resets, forward, "cpu")
    check(BACKWARD, reference.lstm_with_resets_backward, backward_arguments(forward, F32), "cpu")


def test_resets_and_states_that_lie_anyhow():
    forward = list(forward_arguments(F32, layers=2, bidirectional=True))
    args = list(backward_arguments(tuple(forward), F32))
    for given, formula, operator, place in (
        (forward, reference.lstm_with_resets, FORWARD, 2),
        (args, reference.lstm_with_resets_backward, BACKWARD, 13),
    ):
        given[place] = given[place].t().contiguous().t()
        check(operator, formula, given, "cpu")
        given[place] = given[place].repeat(2, 3)[::2, ::3]
        relaid = [
            [part.transpose(-1, -2).contiguous().transpose(-1, -2) for part in value]
            if isinstance(value, list) and value[0].dim() == 3
            else value
            for value in given
        ]
        check(operator, formula, relaid, "cpu")


@pytest.mark.gpu
@pytest.mark.interpreted(dtype=[F32, F16])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("product", ["LIBRARY", "KERNEL", "SPLIT_LIBRARY"])
def test_launches_per_step(product, dtype, monkeypatch):
    """Whoever multiplies."""
    pytest.importorskip("triton")
    from aclgrad.ops.lstm.triton import choose
    from aclgrad.ops.lstm.triton.recurrence.per_step.cut import PerStep, Product, partials

    if product == "SPLIT_LIBRARY":
        if dtype is not F32:
            pytest.skip("only float32 is split")
        ways = [PerStep(Product.KERNEL)], [PerStep(Product.SPLIT_LIBRARY, partials(4 * H))]
    else:
        ways = ([PerStep(Product[product])],) * 2
    monkeypatch.setattr(choose, "per_step_forward", lambda *_: ways[0])
    monkeypatch.setattr(choose, "per_step_backward", lambda *_: ways[1])
    for name in ("persistent_forward", "persistent_backward"):
        monkeypatch.setattr(choose, name, lambda *_: ())
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        for sizes in (None, (3, 3, 2, 1)):
            forward = forward_arguments(dtype, bidirectional=True, sizes=sizes)
            args = backward_arguments(forward, dtype)
            for operator, formula, given in (
                (FORWARD, reference.lstm_with_resets, forward),
                (BACKWARD, reference.lstm_with_resets_backward, args),
            ):
                monkeypatch.setattr(operator, "_plans", Known())
                check(operator, formula, given, "triton")


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
def test_a_gpu_runs_resets_by_a_way_that_knows_them(forward, monkeypatch):
    """What is warp-specialised does not, though it is what runs the same sizes without resets."""
    pytest.importorskip("triton")
    from aclgrad.ops.lstm.triton import choose
    from aclgrad.ops.lstm.triton.problem import Problem
    from aclgrad.ops.lstm.triton.recurrence.per_step.cut import PerStep

    h200 = choose.Limits(programs=132, all_shared=232448, warpgroups=True)
    monkeypatch.setattr(choose, "INTERPRETING", False)
    monkeypatch.setattr(choose.Limits, "of", lambda _: h200)
    persistent = choose.PersistentForward if forward else choose.PersistentBackward
    for rows, units, known in ((64, 512, persistent), (256, 1024, (persistent, PerStep))):
        dims, strides = (
            LstmDims(128, rows, units, units, 1, 1, 2, False, False),
            {"gates": (rows * 4 * units, 4 * units)},
        )
        plain = Problem(dims, F32, described("h200"), forward, frozenset(), strides)
        flags = Scratch().tensor((1, 128, rows), torch.uint8)
        assert isinstance(choose.choose(replace(plain, anew=flags), split_delta=True).way, known)
    assert not isinstance(choose.choose(plain, split_delta=True).way, known)
