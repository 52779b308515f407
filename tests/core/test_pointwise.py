"""Element-wise launches of both toolboxes: optional inputs, several outputs, in place, any strides and dtypes.

The operators are made up, so that no family is needed to have them; each is one formula per backend.
"""

from __future__ import annotations

import pytest
import torch

from aclgrad.core.memory import workspace
from aclgrad.core.meta import meta_of
from aclgrad.core.pointwise import PointwiseOperands
from aclgrad.core.rules import dtype_of, shape_of
from aclgrad.core.spec import BF16, F16, F32, F64, Call, InOut, OpSpec, Out, Tensor
from aclgrad.cpu import compiler, pointwise
from aclgrad.cpu.lanes import cast

FLOATS = (F16, BF16, F32, F64)
SPEC = OpSpec(
    name="made_up",
    aclnn="",
    args=(Tensor("x", "x", FLOATS), InOut("y", "y", FLOATS), Tensor("z", "z", FLOATS)),
    outs=(
        Out("sum", "sum", FLOATS, shape_of("x"), dtype_of("x")),
        Out("difference", "difference", FLOATS, shape_of("x"), dtype_of("x")),
    ),
    rules=(),
)


@compiler.jit
def _sum(x, y, z):
    return x + y if z is None else x + y + z


@compiler.jit
def _sum_and_difference(x, y):
    return x + y, x - y


@compiler.jit
def _twice(y):
    return y * cast(2.0, y)


def _cpu_formulas():
    return pointwise.Pointwise, {"sum": _sum, "both": _sum_and_difference, "twice": _twice}


def _triton_formulas():
    pytest.importorskip("triton")
    from pointwise_formulas import FORMULAS

    from aclgrad.gpu.launch import INTERPRETING
    from aclgrad.gpu.pointwise import Pointwise

    if not INTERPRETING:
        pytest.skip("runs in Triton's interpreter")
    return Pointwise, FORMULAS


@pytest.fixture(params=[_cpu_formulas, _triton_formulas], ids=["cpu", "triton"])
def toolbox(request):
    return request.param()


def launch(toolbox, formula, inputs, outs, **tensors):
    """Launch a formula on these tensors, those of the contract that are not given being absent."""
    make, formulas = toolbox
    values = {name: meta_of(tensor) for name, tensor in tensors.items()}
    found = [tensors.get(name) for name in SPEC.params]
    run = make(Call(SPEC, values, strict=False), formulas[formula], inputs, outs)
    run(found[:3], found[3:], workspace(run.workspace, torch.device("cpu")))


LAYOUTS = {
    "gapless": lambda t: t,
    "sliced": lambda t: torch.stack([t, t], -1)[..., 0],
    "transposed": lambda t: t.t().contiguous().t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("with_z", [True, False], ids=["with_z", "without_z"])
def test_an_optional_input_may_be_absent(toolbox, with_z, layout):
    x, y, z = torch.randn(3, 37, 70, generator=torch.Generator().manual_seed(1)).unbind()
    given = {"x": LAYOUTS[layout](x), "y": y.bfloat16(), **({"z": z.half()} if with_z else {})}
    out = torch.full_like(x, torch.nan)
    launch(toolbox, "sum", ("x", "y", "z"), ("sum",), **given, sum=out)
    expected = x + y.bfloat16().float() + (z.half().float() if with_z else 0)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_several_outputs_each_in_its_dtype(toolbox, layout):
    x, y = torch.randn(2, 37, 70, generator=torch.Generator().manual_seed(2)).unbind()
    total, difference = torch.full_like(x, torch.nan), LAYOUTS[layout](torch.full_like(x, torch.nan).half())
    outs = {"sum": total, "difference": difference}
    launch(toolbox, "both", ("x", "y"), tuple(outs), x=LAYOUTS[layout](x), y=y, **outs)
    assert torch.equal(total, x + y)
    assert torch.equal(difference, (x - y).half())


def test_an_output_that_is_not_wanted_is_not_written(toolbox):
    x, y = torch.randn(2, 2000, generator=torch.Generator().manual_seed(3)).unbind()
    difference = torch.full_like(x, torch.nan)
    launch(toolbox, "both", ("x", "y"), ("sum", "difference"), x=x, y=y, difference=difference)
    assert torch.equal(difference, x - y)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_place(toolbox, layout):
    y = LAYOUTS[layout](torch.randn(37, 70, generator=torch.Generator().manual_seed(4)))
    expected = 2 * y
    launch(toolbox, "twice", ("y",), ("y",), y=y)
    assert torch.equal(y, expected)


def test_operands_stand_in_the_formulas_order():
    x, out = torch.randn(2, 3), torch.randn(2, 3).half()
    call = Call(SPEC, {"x": meta_of(x), "sum": meta_of(out)}, strict=False)
    operands = PointwiseOperands(call, ("z", "x"), ("sum",))
    assert operands.all((1, 2, 3, 4, 5)) == (3, 1, 4)
    assert operands.present((1, 2, 3, 4, 5)) == (1, 4)
    assert operands.spread(operands.dtypes) == (None, F32, F16)
    assert PointwiseOperands(call, ("x", "y", "z"), ("sum", "difference")).all is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("columns", "steps", "start", "widest"),
    [(12, (12, 16), 0, 8), (12, (14, 16), 0, 4), (12, (12, 16), 2, 4), (12, (12, 16), 1, 2), (7, (7, 8), 0, 2)],
)
def test_copies_are_made_of_wide_elements(dtype, columns, steps, start, widest):
    pytest.importorskip("triton")
    from aclgrad.gpu.launch import INTERPRETING
    from aclgrad.gpu.pointwise import copying, in_wide_elements

    if not INTERPRETING:
        pytest.skip("runs in Triton's interpreter")
    source, target = (torch.zeros(99, dtype=dtype)[start:].as_strided((5, columns), (step, 1)) for step in steps)
    source.copy_(torch.randint(-9, 9, (5, columns)))
    to, origin = in_wide_elements(target, source)
    if dtype == torch.bfloat16:
        assert to.element_size() == widest
    assert to.element_size() == origin.element_size() >= dtype.itemsize
    copying(to, origin)(origin, to)
    assert torch.equal(target, source)
