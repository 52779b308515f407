"""The engine with a toy operator: it knows no real one."""

import pytest
import torch

from aclgrad.core import backends
from aclgrad.core.errors import InvalidArgument, NoBackend, NullArgument, Prevented, Unsupported, WrongType
from aclgrad.core.known import KEPT
from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta, contiguous_strides
from aclgrad.core.plan import Operator
from aclgrad.core.rules import dtype_of, required, same_shape, shape_of, supported_dtypes
from aclgrad.core.spec import BF16, F16, F32, F64, Flag, OpSpec, Out, Tensor

CPU = torch.device("cpu")


def toy(**changes):
    spec = {
        "name": "toy", "aclnn": "aclnnToy", "package": "no.such.package",
        "args": (Tensor("a", "aIn", (F32, F16)), Tensor("b", "bIn", (F32,), generous=(F64,)), Flag("twice", "isTwice")),
        "outs": (Out("y", "yOut", (F32,), shape_of("a"), dtype_of("a")),),
        "rules": (required("a", "b", "y"), supported_dtypes("a", "b", "y"), same_shape("a", "b", "y")),
    }  # fmt: skip
    return Operator(OpSpec(**{**spec, **changes}))


class Double:
    workspace = 100

    def __call__(self, args, outs, workspace):
        assert workspace.numel() >= 100
        torch.add(args[0], args[1], alpha=2 if args[2] else 1, out=outs[0])


@pytest.fixture
def operator(monkeypatch):
    monkeypatch.setitem(backends.BACKENDS, "cpu", lambda call: Double())
    return toy()


def test_a_call_is_plan_allocate_launch(operator):
    a, b = torch.randn(3), torch.randn(3)
    assert torch.equal(operator(a, b, True), a + 2 * b)
    out = torch.empty(3)
    assert operator(a, b, False, out=out) is out
    assert torch.equal(out, a + b)


def test_identical_metadata_shares_a_plan(operator):
    first = operator.plan((torch.randn(3), torch.randn(3), True))
    assert operator.plan((torch.randn(3), torch.randn(3), True)) is first
    assert operator.plan((torch.randn(4), torch.randn(4), True)) is not first
    assert operator.plan((torch.randn(6)[::2], torch.randn(3), True)) is not first
    assert operator.plan((torch.randn(3), torch.randn(3), False)) is not first


def test_the_plan_cache_is_bounded(operator):
    for size in range(KEPT + 10):
        meta = torch.empty(size + 1)
        operator.plan((meta, meta, True))
    assert len(operator._plans) <= KEPT


def test_each_door_uses_its_own_names(operator):
    with pytest.raises(NullArgument, match=r"^b is null"):
        operator.plan((torch.ones(1), None, True))
    with pytest.raises(NullArgument, match=r"^bIn is null"):
        operator.plan((torch.ones(1), None, True), (torch.ones(1),), strict=True)
    with pytest.raises(NullArgument, match=r"^yOut is null"):
        operator.plan((torch.ones(1), torch.ones(1), True), (None,), strict=True)
    with pytest.raises(WrongType, match=r"^isTwice is 'x'"):
        operator.plan((torch.ones(1), torch.ones(1), "x"), (torch.ones(1),), strict=True)


def test_the_python_door_is_generous(operator):
    args = (torch.ones(1), torch.ones(1, dtype=F64), True)
    operator.plan(args)
    with pytest.raises(InvalidArgument, match="bIn is float64, expected one of float32"):
        operator.plan(args, (torch.ones(1),), strict=True)


def test_all_refusals_are_listed(monkeypatch):
    def refuse(call):
        raise Unsupported("is tired")

    monkeypatch.setattr(backends, "BACKENDS", {"cpu": refuse, "reference": refuse})
    with pytest.raises(NoBackend) as caught:
        toy()(torch.ones(2), torch.ones(2), True)
    assert "cpu: is tired; reference: is tired" in str(caught.value)
    assert "a float32[2]" in str(caught.value)


def test_an_explicit_backend_never_falls_back(monkeypatch):
    def refuse(call):
        raise Unsupported("is tired")

    monkeypatch.setattr(backends, "BACKENDS", {"cpu": refuse, "other": lambda call: Double()})
    operator = toy()
    assert operator.plan((torch.ones(2), torch.ones(2), True)).backend == "other"
    with pytest.raises(NoBackend):
        operator.plan((torch.ones(2), torch.ones(2), True), backend="cpu")
    with pytest.raises(InvalidArgument, match="backend is 'gpu', expected one of cpu, other"):
        operator.plan((torch.ones(2), torch.ones(2), True), backend="gpu")


def test_what_the_user_prevents_is_said_rather_than_worked_around(monkeypatch):
    def prevented(call):
        raise Prevented("the switch is off")

    def refuse(call):
        raise Unsupported("is tired")

    kinds = {"first": refuse, "cpu": prevented, "reference": lambda call: Double()}
    monkeypatch.setattr(backends, "BACKENDS", kinds)
    operator, args = toy(), (torch.ones(2), torch.ones(2), True)
    with pytest.raises(NoBackend, match=r"first: is tired; cpu: the switch is off$"):
        operator.plan(args)
    assert operator.plan(args, backend="reference").backend == "reference"


def test_a_family_without_a_kernel_says_so():
    with pytest.raises(NoBackend, match="cannot be loaded"):
        toy()(torch.ones(2), torch.ones(2), True)


def test_a_plan_depends_on_no_values(operator):
    plan = operator.plan((torch.full((2,), torch.nan), torch.ones(2), True))
    assert not any(isinstance(value, torch.Tensor) for value in plan.call.values.values())


@pytest.mark.parametrize(
    ("shape", "strides", "dense", "overlapping"),
    [
        ((), (), True, False),
        ((3,), (1,), True, False),
        ((3,), (2,), False, False),
        ((3,), (0,), False, True),
        ((2, 3), (3, 1), True, False),
        ((2, 3), (1, 2), True, False),
        ((2, 3), (1, 1), False, True),
        ((2, 3), (2, 1), False, True),
        ((1, 3), (0, 1), True, False),
        ((0, 3), (0, 0), False, False),
        ((2, 3, 4), (12, 1, 3), True, False),
        ((2, 3), (8, 2), False, False),
    ],
)
def test_layout_facts(shape, strides, dense, overlapping):
    meta = Meta(shape, strides, F32, CPU)
    addresses = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in _indices(shape)]
    assert meta.overlaps_itself() == overlapping == (len(set(addresses)) < len(addresses))
    if meta.numel:
        assert meta.is_dense() == dense == (sorted(addresses) == list(range(len(addresses))))
        assert meta.span == 4 * (max(addresses) + 1)
    else:
        assert meta.span == 0


def _indices(shape):
    return (
        [tuple(i) for i in torch.cartesian_prod(*[torch.arange(n) for n in shape]).view(-1, len(shape)).tolist()]
        if (shape and 0 not in shape)
        else ([()] if not shape else [])
    )


def test_contiguous_strides_are_torchs():
    for shape in ((), (3,), (2, 0, 4), (1, 5, 1), (2, 3, 4, 5)):
        assert contiguous_strides(shape) == torch.empty(shape).stride()


def test_scratch_pieces_are_aligned_and_disjoint():
    scratch = Scratch()
    pieces = [
        scratch.tensor((3, 5), F32),
        scratch.tensor((), F64),
        scratch.tensor((7,), BF16),
        scratch.tensor((0,), F32),
    ]
    workspace = torch.zeros(scratch.size, dtype=torch.uint8)
    for k, piece in enumerate(pieces):
        assert piece.offset % 64 == 0
        piece.view(workspace).fill_(k + 1)
    assert [piece.view(workspace).float().unique().tolist() for piece in pieces[:3]] == [[1.0], [2.0], [3.0]]
    assert pieces[0].view(workspace).shape == (3, 5)


def test_lazily_negated_and_sparse_tensors_are_named(operator):
    imaginary = torch.randn(3, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    with pytest.raises(InvalidArgument, match="a is a lazily negated view"):
        operator.plan((imaginary, torch.ones(3), True))
    with pytest.raises(InvalidArgument, match=r"a has layout torch\.sparse_coo"):
        operator.plan((torch.ones(3).to_sparse(), torch.ones(3), True))
