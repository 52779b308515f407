"""Every backend is as close to float64 as twice a naive run in the same dtype, on poisoned memory."""

import pytest
import torch
from matrix import DOCUMENTED, KERNELS, LARGE, OPERATORS, cases, device_of, flat, matrix, same

from aclgrad.core.errors import NoBackend
from aclgrad.core.memory import tensors_in
from aclgrad.core.plan import Operator
from aclgrad.testing import poisoned_memory, verdicts
from aclgrad.testing.cases import EDGE, SMOKE
from aclgrad.testing.guards import Guarded
from aclgrad.testing.layouts import LAYOUTS, SENTINEL, apply
from aclgrad.testing.verdicts import own, run


@pytest.fixture(params=[*KERNELS, "reference"])
def backend(request):
    with torch.device(device_of(request.param)):
        yield request.param


@pytest.fixture(params=KERNELS)
def kernels(request):
    """A backend with kernels of its own; what is not about numbers is interpreted in one dtype (`conftest.py`)."""
    with torch.device(device_of(request.param)):
        yield request.param


def check(operator, args, dtype, results, label=""):
    for name, verdict in verdicts(operator.spec, args, results, dtype):
        assert verdict.ok, f"{label} {name}: {verdict}"


def launched(operator, args, backend):
    """What a call writes, given exactly the planned workspace between guards; all of its memory is poisoned."""
    plan, guard = operator.plan(args, backend=backend), 64
    block = torch.full((guard + plan.workspace_size + guard,), SENTINEL, dtype=torch.uint8)
    workspace = block[guard : guard + plan.workspace_size].fill_(0xFF)
    with poisoned_memory():
        outs = plan.allocate()
    mine = own(operator.spec, args)
    plan.launch(mine, outs, workspace if plan.workspace_size else None)
    for place, bytes_there in (("before", block[:guard]), ("behind", block[-guard:])):
        assert bool((bytes_there == SENTINEL).all()), f"bytes {place} the planned workspace were written"
    return list(operator.spec.written(mine, outs))


def launched_into_gaps(operator, args, backend):
    """What a call writes into outputs that have gaps between their elements, which stay as they were."""
    guards = []

    def gapped(meta):
        guards.append(Guarded(meta.shape, meta.dtype, gaps=True))
        return guards[-1].tensor

    outs = [
        meta if meta is None else gapped(meta) if hasattr(meta, "shape") else [gapped(member) for member in meta]
        for meta in operator.plan(args, backend=backend).outs
    ]
    mine = own(operator.spec, args)
    with poisoned_memory():
        operator(*mine, out=outs[0] if len(outs) == 1 else tuple(outs), backend=backend)
    assert all(guard.intact for guard in guards), "bytes between the elements of an output were written"
    return list(operator.spec.written(mine, outs))


def unchanged(tensors, copies):
    """Bit for bit, NaNs included."""
    for tensor, copy in zip(tensors, copies, strict=True):
        bits, before = (t.contiguous().view(-1).view(torch.uint8) for t in (tensor, copy))
        assert torch.equal(bits, before), "an input was changed"


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix())
def test_a_call(operator, case, dtype, backend):
    """As accurate as a naive run, within the planned workspace, its inputs left alone.

    Smoke cases in their first dtype: with the same bits the next time, when the outputs have gaps, and when torch's
    default device is another and the call is planned anew.
    """
    args = case.build(dtype)
    before = [tensor.clone() for tensor in tensors_in(args)]
    results = launched(operator, args, backend)
    unchanged(tensors_in(args), before)  # first of all: what is right follows from them
    check(operator, args, dtype, results)
    if SMOKE in case.tags and backend != "reference" and dtype == case.dtypes[0]:
        same(launched_into_gaps(operator, args, backend), results, "into outputs with gaps")
        with torch.device("meta"):
            again = run(Operator(operator.spec), args, backend)
        same(again, results, "with another default device")
        unchanged(tensors_in(args), before)


def of_tiles(operator, case, dtype):
    """What GPU kernels take other tiles for where there are few elements, as there are in all that is interpreted."""
    sizes = SMOKE in case.tags or case.name == "past_every_block"
    return sizes and dtype == case.dtypes[0] and operator.spec.package.endswith(TILED)


TILED = ("hardsigmoid", "lstm_cell", "sync_batch_norm", ".lstm")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("operator", "case", "dtype"), [call for call in matrix(SMOKE, EDGE) if of_tiles(*call.values)]
)
def test_few_elements_go_the_ways_of_many(operator, case, dtype, monkeypatch):
    launch = pytest.importorskip("aclgrad.gpu.launch")
    monkeypatch.setattr(launch, "FEW", -1)
    with torch.device(device_of("triton")):
        args = case.build(dtype)
        check(operator, args, dtype, launched(Operator(operator.spec), args, "triton"))


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_takes_any_layout_and_gives_the_same_bits(operator, case, dtype, kernels):
    """On a GPU the order of a sum follows the layout (a program's threads do), so there the results are judged."""
    args = case.build(dtype)
    expected = run(operator, args, kernels) if kernels == "cpu" else None
    for name, layout in LAYOUTS.items():
        with poisoned_memory():
            results = run(operator, [apply(layout, arg) for arg in args], kernels)
        if kernels == "cpu":
            same(results, expected, name)
        else:
            check(operator, args, dtype, results, name)


@pytest.mark.parametrize(("operator", "case", "dtype"), [*matrix(SMOKE), *matrix(EDGE, names=LARGE)])
def test_same_bits_for_any_number_of_threads(operator, case, dtype):
    """Within the workspace that is planned for so many."""
    args = case.build(dtype)
    expected = run(operator, args, "cpu")
    threads = torch.get_num_threads()
    try:
        for count in (2, 3):
            torch.set_num_threads(count)
            same(launched(operator, args, "cpu"), expected, f"with {count} threads")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("operator", DOCUMENTED, ids=lambda operator: operator.spec.name)
def test_the_documents_example_gives_the_printed_numbers(operator, backend):
    (case,) = cases(operator, "document")
    for result, printed in zip(flat(operator(*case.build(), backend=backend)), flat(case.expected()), strict=True):
        torch.testing.assert_close(result.float().cpu(), printed.float().cpu(), rtol=0, atol=1e-6)  # printed with %f


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
@pytest.mark.gpu
def test_the_triton_kernels_say_why_they_refuse_float64(operator):
    (case, *_) = cases(operator, SMOKE)
    with torch.device(device_of("triton")):
        args = case.build(torch.float64)
    with pytest.raises(NoBackend, match="triton: computes in float32, these are float64"):
        operator(*args, backend="triton")
