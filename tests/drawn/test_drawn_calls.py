"""Random legal calls of every operator: right on poisoned memory, wherever operands lie, the same bits again."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from draws import BACKEND, GPU, ONE, SEED, every_draw
from matrix import OPERATORS, same

from aclgrad.core.memory import tensors_in
from aclgrad.core.meta import Meta
from aclgrad.testing import poisoned_memory, verdicts
from aclgrad.testing.layouts import apply
from aclgrad.testing.poison import fill
from aclgrad.testing.samples import MOST_ELEMENTS, sample
from aclgrad.testing.verdicts import own

pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice")  # NumPy's to Triton's interpreter
DRAWS = 300 if GPU else 6
ROOMS = (None, None, 1 << 16, 1 << 20, 50_000_000) if GPU else (None,)
"""What the product of sizes may be, where they are not those of a case or all small."""

PLANTED = (torch.nan, torch.inf, -torch.inf)
UNRELATED = (
    "hardsigmoid", "hardsigmoid_", "hardsigmoid_backward", "batch_norm_stats", "batch_norm", "batch_norm_elemt",
    "linear_online_max_sum", "token_losses", "loss_and_gradients", "lstm", "lstm_cell",
)  # fmt: skip
"""Operators none of whose arguments is made of another, so that each may have any value."""

OF_LOGITS = UNRELATED[6:9]
"""Those whose results are so few that with large logits a naive run may be right by luck; of these `test_drawn_head`
draws enough."""

OPTIONS = ("class_weight", "token_weight", "normalizer")
"""Of a loss. Infinite ones make it infinite or NaN, whichever way the sums are arranged."""

INNER = ("sum_exp_others",)
"""What no user sees, and has no meaning where a logit is infinite or NaN; the loss is NaN, as it should be."""


def eps(dtype):
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def coarsest(call):
    """Of all dtypes in which a call has numbers."""
    return max((tensor.dtype for tensor in tensors_in([*call.args, call.out])), key=eps)


def as_derived(call, written):
    """Results in finer memory than is usual, rounded to what is: sums of float32 are exact to float32, not beyond."""

    def rounded(found, usual):
        if isinstance(found, list):
            return [rounded(item, usual) for item in found]
        if found is None or not found.is_floating_point():
            return found
        return found.to(max(found.dtype, usual, key=eps))

    _, metas = call.operator.judge(call.args)
    sums = [torch.promote_types(dtype, torch.float32) for dtype in (call.dtype, coarsest(call))]
    usual = [meta.dtype if call.dtype == torch.float64 and isinstance(meta, Meta) else sums[0] for meta in metas]
    return [*map(rounded, written, usual), *(rounded(updated, sums[1]) for updated in written[len(metas) :])]


def drawn(operator, dice):
    """A call that the kernels take: those for GPUs do not take float64."""
    for _ in range(20):
        room = dice.choice(ROOMS)
        call = sample(operator, dice, max(2 * (room or 0), MOST_ELEMENTS), room, dice.turn)
        if not (GPU or BACKEND) or not any(t.dtype == torch.float64 for t in tensors_in([*call.args, call.out])):
            break
    return call


def with_values(call, dice):
    """Numbers of another size, or a NaN or an infinity, in one of the tensors; what was done."""
    places = [k for k, arg in enumerate(call.args) if isinstance(arg, torch.Tensor) and arg.is_floating_point()]
    if call.operator.spec.name not in UNRELATED or not places or dice.random() < 0.5:
        return ""
    k = dice.choice(places)
    tensor, name = call.args[k], call.operator.spec.args[k].name
    if not tensor.numel() or 0 in tensor.stride():
        return ""
    scale, offset = 10 ** dice.uniform(-3, 1), dice.choice([0, 0, 1, 30, -100])
    if dice.random() < 0.5 and call.operator.spec.name not in OF_LOGITS:
        tensor.copy_(tensor.double() * scale + offset)
        return f"{name} * {scale} + {offset}"
    if name in OPTIONS:
        return ""
    at, value = tuple(dice.randrange(size) for size in tensor.shape), dice.choice(PLANTED)
    if not math.isnan(value) and dict(zip(call.operator.spec.params, call.args, strict=False)).get("softcap"):
        return ""  # the slope of an infinite logit is 0 but for rounding, which an infinite weight makes infinite
    tensor[at] = value
    return f"{name}{list(at)} = {value}"


def check(operator, dice, say):
    call = drawn(operator, dice)
    say([(str(t.dtype)[6:], tuple(t.shape), t.stride()) for t in tensors_in([*call.args, call.out])])
    say([arg for arg in call.args if isinstance(arg, bool | int | float)])
    said = with_values(call, dice)
    say(said)
    skipped = INNER if said else ()
    spec = operator.spec
    before = own(spec, call.plainly().args)
    by_layout = GPU or BACKEND  # the order of a Triton kernel's sums follows it
    plain = call.plainly()
    again = replace(call, args=own(spec, call.args), out=call.out if by_layout else plain.out)
    copies = [t.clone() for k, arg in enumerate(call.args) if k not in spec.updated for t in tensors_in([arg])]
    with poisoned_memory():
        written = as_derived(call, call(BACKEND))
    read = [t for k, arg in enumerate(call.args) if k not in spec.updated for t in tensors_in([arg])]
    same(read, copies, "what is only read")
    written = [apply(torch.clone, item) for item in written]
    for tensor in tensors_in([again.out]):
        fill(tensor, 0x7B)
    with poisoned_memory(0x7B):
        same(as_derived(call, again(BACKEND)), written, "again")
    if not by_layout:
        same(written, as_derived(call, plain(BACKEND)), "beside contiguous tensors")
    if call.consistent and not any(t.dtype == torch.float64 for t in tensors_in(call.args)):  # no finer truth
        judged = verdicts(spec, before, written, coarsest(call))
        wrong = [f"{name}: {verdict}" for name, verdict in judged if not verdict.ok and name not in skipped]
        assert not wrong, "; ".join(wrong)


TURNS = 1 if GPU or BACKEND or ONE is not None else 6
"""Days until an operator's turn comes again; until then it is slow, since rare dtypes are kernels to be compiled."""


def by_turns(k, operator):
    """The k-th operator as a parameter."""
    marks = () if k % TURNS == SEED % TURNS else pytest.mark.slow
    return pytest.param(operator, id=operator.spec.name, marks=marks)


@pytest.mark.parametrize("operator", list(map(by_turns, range(len(OPERATORS)), OPERATORS)))
def test_random_calls(operator):
    every_draw(operator.spec.name, partial(check, operator), DRAWS)
