"""Plans for other numbers of rows: the same launch, other shapes, and nothing that the contract would not allow."""

import pytest
import torch

from aclgrad.core.errors import InvalidArgument
from aclgrad.core.memory import tensors_in
from aclgrad.core.plan import Operator
from aclgrad.core.rows import rounded_rows
from aclgrad.ops.lstm import cases_packed, spec_packed
from aclgrad.ops.lstm.dims import SAVED
from aclgrad.testing import poisoned_memory
from aclgrad.testing.cases import Data

FORWARD, BACKWARD = (operator.spec for operator in (spec_packed.lstm_packed, spec_packed.lstm_packed_backward))
MAKE = {FORWARD.name: cases_packed.forward, BACKWARD.name: cases_packed.backward}
BOTH = pytest.mark.parametrize("spec", [FORWARD, BACKWARD], ids=lambda spec: spec.name)


def arguments(spec, lengths, **options):
    return list(MAKE[spec.name](lengths, 3, 4, directions=2, share=0.3, **options)(Data()))


def test_rounding():
    rounded = [rounded_rows(count) for count in range(3000)]
    assert all(count <= near < 1.25 * count + 1 for count, near in enumerate(rounded))
    assert all(rounded_rows(near) == near for near in rounded)
    assert rounded == sorted(rounded)
    assert len(set(rounded[1024:2048])) == 5  # the first and the last are powers of two


@BOTH
def test_calls_with_nearly_as_many_rows_share_a_launch(spec):
    operator = Operator(spec)
    lengths = [(4, 4, 4, 4), (4, 4, 4, 3), (4, 4, 4, 2), (4, 4, 4, 3)]  # 16, 15, 14 and 15 rows
    assert rounded_rows(15) == rounded_rows(16) != rounded_rows(14)
    plans = [operator.plan(arguments(spec, each)) for each in lengths]
    assert plans[1].launch is plans[0].launch
    assert plans[2].launch is not plans[0].launch
    assert plans[3] is plans[1] is operator.plan(arguments(spec, lengths[1]))
    for plan, each in zip(plans, lengths, strict=True):
        fresh = Operator(spec).plan(arguments(spec, each))
        assert (plan.outs, plan.call.values, plan.call.dims) == (fresh.outs, fresh.call.values, fresh.call.dims)
        assert plan.nbytes == fresh.nbytes


@BOTH
@pytest.mark.parametrize("total", [15, 700])
@pytest.mark.parametrize("backend", ["cpu", pytest.param("triton", marks=pytest.mark.gpu)])
@pytest.mark.interpreted(total=[15])
def test_results_are_those_of_a_plan_of_its_own(spec, total, backend):
    pytest.importorskip("triton")
    lengths = (total // 2, total - total // 2 - 2, 2)
    more = (total // 2, total - total // 2 - 2, 3)
    assert rounded_rows(total) == rounded_rows(total + 1)
    device = torch.device("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")
    with device:
        operator, given, others = Operator(spec), arguments(spec, lengths), arguments(spec, more)
    first = operator.plan(others, backend=backend)
    assert operator.plan(given, backend=backend).launch is first.launch
    with poisoned_memory():
        found, expected = (each(*given, backend=backend) for each in (operator, Operator(spec)))
    for result, want in zip(tensors_in(found), tensors_in(expected), strict=True):
        assert torch.equal(result, want)


@BOTH
def test_rows_that_do_not_fit_are_refused_as_ever(spec):
    names = [arg.name for arg in spec.args]
    operator = Operator(spec)
    operator.plan(arguments(spec, (4, 4, 4, 3)))
    for name in set(names) & {"reset", "dy", SAVED[0], SAVED[-1]}:
        given = arguments(spec, (4, 4, 4, 4))
        place = names.index(name)
        many = given[place]
        given[place] = [part[:-1] for part in many] if isinstance(many, list) else many[:-1]
        with pytest.raises(InvalidArgument, match=rf"{name}.* has shape \[15"):
            operator(*given)


def test_given_outputs_have_a_plan_of_their_own():
    operator, given = Operator(FORWARD), arguments(FORWARD, (4, 4, 4, 3))
    expected = operator(*given)
    outs = tuple(torch.zeros_like(e) if isinstance(e, torch.Tensor) else [p * 0 for p in e] for e in expected)
    found = operator(*given, out=outs)
    for result, want in zip(tensors_in(found), tensors_in(expected), strict=True):
        assert torch.equal(result, want)
    with pytest.raises(InvalidArgument, match=r"output has shape \[15, 8\], expected \[16, 8\]"):
        operator(*arguments(FORWARD, (4, 4, 4, 4)), out=outs)
