"""Every backend is as close to float64 as twice a naive run in the same dtype, on poisoned memory."""

import pytest
import torch
from matrix import DOCUMENTED, KERNELS, OPERATORS, cases, device_of, flat, matrix, same

from aclgrad.core.errors import NoBackend
from aclgrad.core.memory import tensors_in
from aclgrad.core.plan import Operator
from aclgrad.testing import poisoned_memory, verdicts
from aclgrad.testing.cases import SMOKE
from aclgrad.testing.layouts import LAYOUTS, SENTINEL, apply, sentinel
from aclgrad.testing.verdicts import own, run


@pytest.fixture(params=[*KERNELS, "reference"])
def backend(request):
    with torch.device(device_of(request.param)):
        yield request.param


@pytest.fixture(params=KERNELS)
def kernels(request):
    """A backend with kernels of its own."""
    with torch.device(device_of(request.param)):
        yield request.param


def check(operator, args, dtype, results):
    for name, verdict in verdicts(operator.spec, args, results, dtype):
        assert verdict.ok, f"{name}: {verdict}"


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix())
def test_is_as_accurate_as_a_naive_run(operator, case, dtype, backend):
    args = case.build(dtype)
    with poisoned_memory():
        results = run(operator, args, backend)
    check(operator, args, dtype, results)


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_layout_and_gives_the_same_bits(operator, case, dtype, layout, kernels):
    """On a GPU the order of a sum follows the layout (a program's threads do), so there the results are judged."""
    args = case.build(dtype)
    relaid = [apply(LAYOUTS[layout], arg) for arg in args]
    with poisoned_memory():
        expected, results = run(operator, args, kernels), run(operator, relaid, kernels)
    if kernels == "triton":
        check(operator, args, dtype, results)
    else:
        same(results, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_inputs_are_left_alone(operator, case, dtype, kernels):
    args = case.build(dtype)
    before = [tensor.clone() for tensor in tensors_in(args)]
    run(operator, args, kernels)
    for tensor, copy in zip(tensors_in(args), before, strict=True):
        assert torch.equal(
            tensor.view(torch.uint8) if tensor.dim() else tensor, copy.view(torch.uint8) if copy.dim() else copy
        )


def gapped(meta):
    """An output with gaps between its elements, and the buffer it lies in."""
    buffer = sentinel(3 * meta.numel + 5, meta.dtype)
    strides = [3 * stride for stride in torch.empty(meta.shape, device="meta").stride()]
    return buffer.as_strided(meta.shape, strides, 5), buffer


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_strided_outputs_get_the_same_bits_and_nothing_beside_them(operator, case, dtype, kernels):
    args = case.build(dtype)
    expected = run(operator, args, kernels)
    plan = operator.plan(args, backend=kernels)
    buffers, outs = [], []
    for meta in plan.outs:
        if meta is None:
            outs.append(None)
        elif hasattr(meta, "shape"):
            out, buffer = gapped(meta)
            outs.append(out)
            buffers.append((out, buffer))
        else:
            pairs = [gapped(member) for member in meta]
            outs.append([out for out, _ in pairs])
            buffers += pairs
    operator(*own(operator.spec, args), out=outs[0] if len(outs) == 1 else tuple(outs), backend=kernels)
    same(outs, expected[: len(outs)])
    for out, buffer in buffers:
        written = torch.zeros_like(buffer, dtype=torch.bool)
        written.as_strided(out.shape, out.stride(), 5).fill_(True)
        gaps = buffer[~written].view(torch.uint8)
        assert bool((gaps == SENTINEL).all()), "bytes between the elements of an output were written"


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_same_bits_run_after_run(operator, case, dtype, kernels):
    args = case.build(dtype)
    same(run(operator, args, kernels), run(operator, args, kernels))


@pytest.mark.parametrize(("operator", "case", "dtype"), [p for p in matrix(SMOKE) if p.values[2] == torch.float32])
def test_torchs_default_device_is_of_no_account(operator, case, dtype, kernels):
    args = case.build(dtype)
    expected = run(operator, args, kernels)
    with torch.device("meta"):
        results = run(Operator(operator.spec), args, kernels)  # a new one, which has yet to plan
    same(results, expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_same_bits_for_any_number_of_threads(operator, case, dtype):
    args = case.build(dtype)
    expected = run(operator, args, "cpu")
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            same(run(operator, args, "cpu"), expected)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("operator", DOCUMENTED, ids=lambda operator: operator.spec.name)
def test_the_documents_example_gives_the_printed_numbers(operator, backend):
    (case,) = cases(operator, "document")
    for result, printed in zip(flat(operator(*case.build(), backend=backend)), flat(case.expected()), strict=True):
        torch.testing.assert_close(result.float().cpu(), printed.float().cpu(), rtol=0, atol=1e-6)  # printed with %f


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_the_workspace_is_what_was_planned(operator, case, dtype, kernels):
    """Phase two with exactly the planned bytes, between guards."""
    args = case.build(dtype)
    plan = operator.plan(args, backend=kernels)
    guard = 64
    block = torch.full((plan.workspace_size + 2 * guard,), SENTINEL, dtype=torch.uint8)
    outs, mine = plan.allocate(), own(operator.spec, args)
    plan.launch(mine, outs, block[guard : guard + plan.workspace_size] if plan.workspace_size else None)
    assert bool((block[:guard] == SENTINEL).all()) and bool((block[-guard:] == SENTINEL).all())
    same(operator.spec.written(mine, outs), run(operator, args, kernels))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
@pytest.mark.gpu
def test_the_triton_kernels_say_why_they_refuse_float64(operator):
    (case, *_) = cases(operator, SMOKE)
    with torch.device(device_of("triton")):
        args = case.build(torch.float64)
    with pytest.raises(NoBackend, match="triton: computes in float32, these are float64"):
        operator(*args, backend="triton")
