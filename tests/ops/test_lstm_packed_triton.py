"""Packed sequences on a GPU: tables of rows, counts that make no sense, many times."""

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.backends import widen
from aclgrad.core.memory import Scratch, tensors_in
from aclgrad.ops.lstm import cases_packed, reference, spec_packed
from aclgrad.ops.lstm.triton.packed import PackedRows, launch_dims
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.cases import Case

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MAKE = {spec_packed.lstm_packed: cases_packed.forward, spec_packed.lstm_packed_backward: cases_packed.backward}
BOTH = pytest.mark.parametrize("operator", MAKE, ids=lambda operator: operator.spec.name)
SENTINEL = 1e30
"""Finite, so that a sum of it shows, and larger than anything that is computed."""


def problem(operator, lengths, features=3, units=4, dtype=torch.float32, **options):
    args = Case("packed", MAKE[operator](lengths, features, units, **options), (dtype,)).build(dtype)
    return [placed(arg) for arg in args]


def placed(arg):
    if isinstance(arg, list | tuple):
        return [placed(member) for member in arg]
    return arg.to(DEVICE) if isinstance(arg, torch.Tensor) else arg


def launched(operator, args, made=None):
    """Results past the look at counts that only a CPU's tensors get; outputs may be `made` of those that it has."""
    plan = operator.plan(args, backend="triton")
    with poisoned_memory():
        workspace, outs = plan.workspace(), plan.allocate()
    if made is not None:
        outs = [made(out) for out in outs]
    plan.launch(operator.spec.completed(args), outs, workspace)
    return outs


def judged(operator, args):
    formula = getattr(reference, operator.spec.name)
    found = tensors_in(launched(operator, args))
    truth, naive = (tensors_in(formula(*each)) for each in ([*map(widen, args)], args))
    for index, (result, true, base) in enumerate(zip(found, truth, naive, strict=True)):
        assert_within_baseline(result, true, base, f"output {index}")


@pytest.mark.parametrize("lengths", [(2500, 2100, 3), (1,) * 2000, (1024, 1024), (7, 3, 3, 0)], ids=len)
def test_tables(lengths):
    """More times than a block, more rows than a block, times without rows."""
    operator = spec_packed.lstm_packed
    args = problem(operator, lengths, 1, 1)
    call, counts = operator.plan(args, backend="triton").call, args[3].cpu()
    scratch = Scratch()
    packed = PackedRows(call, launch_dims(call), scratch)
    packed.times()
    with poisoned_memory():
        workspace = torch.empty(scratch.size, dtype=torch.uint8, device=DEVICE).fill_(0xFF)
    packed({"input": args[0], "batch_sizes": args[3]}, workspace)
    starts, found, times = (piece.view(workspace).cpu() for piece in (packed._starts, packed._counts, packed._times))
    total = int(counts.sum())
    assert starts.tolist() == [0, 0, *counts.cumsum(0).tolist()] and found.tolist() == [0, *counts.tolist(), 0]
    assert times[:total].tolist() == torch.arange(len(counts)).repeat_interleave(counts).tolist()
    assert times[total:].tolist() == [len(counts)] * (len(times) - total)


@BOTH
def test_tensors_that_lie_with_gaps(operator):
    """Rows, units and members of lists."""
    args = problem(operator, (5, 4, 4, 1), directions=2, share=0.3)

    def apart(value):
        if isinstance(value, list):
            return [apart(member) if k % 2 else member for k, member in enumerate(value)]
        if not isinstance(value, torch.Tensor) or not value.dim():
            return value
        wide = value.new_full((*value.shape[:-1], 2 * value.shape[-1] + 1), 7)
        wide[..., 1::2] = value
        return wide[..., 1::2]

    judged(operator, [apart(arg) for arg in args])
    plain = launched(operator, args)
    gaps = tuple(apart(list(out) if isinstance(out, tuple) else out) for out in plain)
    operator(*[apart(arg) for arg in args], out=gaps, backend="triton")
    for one, other in zip(tensors_in(plain), tensors_in(gaps), strict=True):
        assert torch.equal(one, other)


def guarded(value):
    """A copy between rows of a sentinel, and the memory that both are in."""
    memory = value.new_full((value.shape[0] + 16, *value.shape[1:]), SENTINEL)
    memory[8:-8] = value
    return memory[8:-8], memory


@BOTH
@pytest.mark.parametrize(
    "counts", [[9, 9, 9, 9], [4, 4, 4, 4], [0, 4, 1, 4], [-5, 4, 3, 2], [1, 0, 0, 0], [1 << 40, 1, 1, 1]], ids=str
)
def test_counts_that_make_no_sense_lead_to_no_other_memory(operator, counts):
    """Nothing that is not there is read or written; the results mean nothing."""
    args = problem(operator, (4, 3, 2, 1), directions=2, share=0.3)
    names = [arg.name for arg in operator.spec.args]
    memories, given = [], list(args)
    given[names.index("batch_sizes")] = torch.tensor(counts, device=DEVICE)
    for name in ("input", "dy"):
        if name in names:
            given[names.index(name)], memory = guarded(args[names.index(name)])
            memories.append(memory)

    def surrounded(out):
        if isinstance(out, list | tuple):
            return [surrounded(member) for member in out]
        inside, memory = guarded(torch.zeros_like(out))
        memories.append(memory)
        return inside

    outs = launched(operator, given, surrounded)
    for memory in memories:
        assert bool((memory[:8] == SENTINEL).all()) and bool((memory[-8:] == SENTINEL).all())
    for result in tensors_in(outs):
        assert bool((result.abs() < 1e6).all())
