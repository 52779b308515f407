"""The Python door among torch's machinery: what the dispatcher has to know of goes through it, and nothing crashes."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import aclgrad
from aclgrad.core.cuts import cuts_of
from aclgrad.core.dispatch import NotInMemory, has_memory, is_plain
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import operators
from aclgrad.testing.cases import suite
from aclgrad.testing.layouts import apply

OPERATORS = list(operators())
by_name = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
ignoring_tracers = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")


def first_case(operator):
    return list(suite(operator.spec).cases[0].build(torch.float32))


def function_of(operator):
    """The public function; an operator without one is called itself."""
    return getattr(aclgrad, operator.spec.name, operator)


def outcome(operator, arguments):
    """What a call returns and updates, None where nothing is produced."""
    results = function_of(operator)(*arguments)
    listed = list(results) if isinstance(results, tuple) else [results]
    return [*listed, *(arguments[k] for k in operator.spec.updated)]


def assert_same(found, expected):
    assert [value is None for value in found] == [value is None for value in expected]
    torch.testing.assert_close(tensors_in(found), tensors_in(expected), rtol=0, atol=0, equal_nan=True)


def of_tensors(operator, function=outcome):
    """The call as a function of its tensors alone, and those tensors."""
    arguments = first_case(operator)

    def call(*tensors):
        left = iter(tensors)
        return function(operator, [apply(lambda _: next(left), value) for value in arguments])

    return call, tensors_in(arguments)


class Wrapped(torch.Tensor):
    """A tensor around another one, as quantised, masked and logging tensors are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        def unwrapped(value):
            return value.inner if isinstance(value, Wrapped) else value

        results = op(
            *[apply(unwrapped, value) for value in args],
            **{name: apply(unwrapped, value) for name, value in (kwargs or {}).items()},
        )
        if results is None:
            return None
        wrapped = [apply(Wrapped, value) for value in (results if isinstance(results, tuple) else [results])]
        return tuple(wrapped) if isinstance(results, tuple) else wrapped[0]


def functional(tensor):
    return torch._to_functional_tensor(tensor)


def batched(tensor):
    return torch._C._functorch._add_batch_dim(tensor, 0, 1)


def imaginary(tensor):
    """Its values, negated twice: in memory and by whoever looks."""
    return torch.complex(tensor, -tensor).conj().imag


INTANGIBLE = {
    "wrapped": Wrapped,
    "functional": functional,
    "batched": batched,
    "negated": imaginary,
    "zeros": lambda tensor: torch._efficientzerotensor(tuple(tensor.shape)),
    "meta": lambda tensor: tensor.to("meta"),
    "fake": lambda tensor: FakeTensorMode().from_tensor(tensor),
}
by_kind = pytest.mark.parametrize("kind", INTANGIBLE)


@by_kind
def test_tensors_without_memory_are_told_apart(kind):
    tensor = INTANGIBLE[kind](torch.ones(2, 3))
    assert not has_memory(tensor)
    assert not is_plain(tensor)


def test_tensors_with_memory_are_told_apart():
    tensor = torch.ones(2, 3)
    with torch.inference_mode():
        inference = torch.ones(2)
    for value in (tensor, tensor.t(), tensor[:, 1:], torch.nn.Parameter(tensor), inference, tensor.half(), tensor > 0):
        assert has_memory(value)
        assert is_plain(value)

    class Named(torch.Tensor):
        """Has memory, and torch's calls for itself."""

    assert has_memory(tensor.as_subclass(Named))
    assert not is_plain(tensor.as_subclass(Named))


@by_name
def test_no_plan_is_made_for_a_tensor_without_memory(operator, each_case):
    """A kernel would read from an address that is none, and the next real call would use the plan."""
    each_case(refused, {kind: (operator, kind) for kind in INTANGIBLE})


def refused(operator, kind):
    arguments = first_case(operator)
    position = next(k for k, value in enumerate(arguments) if isinstance(value, torch.Tensor))
    arguments[position] = INTANGIBLE[kind](arguments[position])
    planned = len(operator._plans)
    if kind not in ("negated", "zeros"):  # which have other strides, and rules may look at those
        with pytest.raises(aclgrad.AclgradError):
            operator.plan(arguments)
    outs = [None] * len(operator.spec.outs)
    with pytest.raises(aclgrad.AclgradError):
        operator.plan(arguments, outs, strict=True)
    assert len(operator._plans) == planned


@by_name
def test_fake_calls_leave_real_ones_alone(operator):
    expected = outcome(operator, first_case(operator))
    operator._plans.clear()
    call, tensors = of_tensors(operator)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        faked = call(*[mode.from_tensor(tensor) for tensor in tensors])
        mixed = call(*tensors)  # real ones under the mode
    for found in (faked, mixed):
        assert [value is None for value in found] == [value is None for value in expected]
        shapes = [(t.shape, t.stride(), t.dtype) for t in tensors_in(found)]
        assert shapes == [(t.shape, t.stride(), t.dtype) for t in tensors_in(expected)]
    assert_same(outcome(operator, first_case(operator)), expected)


@by_name
def test_meta_tensors_have_the_shapes_of_real_ones(operator):
    call, tensors = of_tensors(operator)
    found = call(*[tensor.to("meta") for tensor in tensors])
    expected = outcome(operator, first_case(operator))
    assert [t.shape for t in tensors_in(found)] == [t.shape for t in tensors_in(expected)]
    assert all(t.is_meta for t in tensors_in(found))


@by_name
def test_tensors_around_tensors_are_dispatched(operator):
    call, tensors = of_tensors(operator)
    found = call(*map(Wrapped, tensors))
    assert all(isinstance(t, Wrapped) for t in tensors_in(found))
    inner = [apply(lambda t: t.inner, value) for value in found]
    assert_same(inner, outcome(operator, first_case(operator)))


@by_name
def test_negated_views_are_read_and_written(operator):
    """Also what is updated in place."""
    call, tensors = of_tensors(operator)
    found = call(*[imaginary(tensor) if tensor.dtype == torch.float32 else tensor for tensor in tensors])
    assert_same(found, outcome(operator, first_case(operator)))


@by_name
def test_functionalised_calls(operator):
    call, tensors = of_tensors(operator)
    functionalised = torch.func.functionalize(lambda *given: tensors_in(call(*given)))
    if operator.spec.updated:
        with pytest.raises(aclgrad.Unsupported, match="writes to its arguments"):
            functionalised(*tensors)
    else:
        assert_same(functionalised(*tensors), tensors_in(outcome(operator, first_case(operator))))


@ignoring_tracers
@by_name
def test_a_graph_holds_the_call(operator):
    """Of other values than those it was recorded with."""
    call, tensors = of_tensors(operator)
    again = [torch.flip(t, (0,)) if t.is_floating_point() and t.dim() else t for t in tensors]
    expected = tensors_in(call(*[t.clone() for t in again]))
    for first in (False, True):  # before all else that the dispatcher does, as exporters record
        graph = make_fx(lambda *given: tensors_in(call(*[t.clone() for t in given])), pre_dispatch=first)(*tensors)
        assert any(f"aclgrad.{operator.spec.name}" in str(node.target) for node in graph.graph.nodes), graph.code
        assert_same(graph(*again), expected)


@ignoring_tracers
@by_name
def test_a_trace_holds_the_call(operator):
    call, tensors = of_tensors(operator)

    def flat(*given):
        return tuple(tensors_in(call(*[t.clone() for t in given])))

    traced = torch.jit.trace(flat, tuple(tensors), check_trace=False)
    assert f"aclgrad::{operator.spec.name}" in str(traced.graph)
    again = [torch.flip(t, (0,)) if t.is_floating_point() and t.dim() else t for t in tensors]
    assert_same(list(traced(*again)), list(flat(*again)))


@by_name
def test_compiled_whole_without_a_look_inside(operator):
    """The op is all that the compiler sees; a kernel's own code is not its business."""
    call, tensors = of_tensors(operator)
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(lambda *given: tensors_in(call(*given)), fullgraph=True, backend=backend)
        found = compiled(*first_tensors(operator))
    assert_same(found, tensors_in(outcome(operator, first_case(operator))))
    assert [name for name in seen if "aclgrad" in name] == [f"aclgrad.{operator.spec.name}"]


def first_tensors(operator):
    return tensors_in(first_case(operator))


@by_name
def test_a_mode_sees_the_call(operator):
    seen = []

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(str(op))
            return op(*args, **(kwargs or {}))

    with Listening():
        found = outcome(operator, first_case(operator))
    assert f"aclgrad.{operator.spec.name}.default" in seen
    assert_same(found, outcome(operator, first_case(operator)))


@by_name
def test_what_is_wrong_is_said_in_the_same_words(operator):
    """With a gradient wanted, under a mode and directly."""

    def told(change):
        arguments = first_case(operator)
        main = [arg.name for arg in operator.spec.args].index(suite(operator.spec).main)
        arguments[main] = arguments[main].to(torch.complex64)
        change(arguments)
        with pytest.raises(aclgrad.AclgradError) as caught:
            function_of(operator)(*arguments)
        return type(caught.value), str(caught.value)

    def differentiable(arguments):
        read = [value for k, value in enumerate(arguments) if k not in operator.spec.updated]
        for tensor in tensors_in(read):
            tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())

    plain = told(lambda arguments: None)
    assert told(differentiable) == plain
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert told(lambda arguments: None) == plain


def test_a_traced_call_has_no_choice_of_backends():
    x = torch.ones(3)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(aclgrad.Unsupported, match="backend is 'reference'"):
        aclgrad.hardsigmoid(x, backend="reference")
    x.requires_grad_()
    y = aclgrad.hardsigmoid(x, backend="reference")
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 1 / 6))
    with pytest.raises(aclgrad.InvalidArgument, match="backend is 'nosuch'"):
        aclgrad.hardsigmoid(x, backend="nosuch")


def test_out_where_calls_are_traced():
    x = torch.randn(5)

    def into(x):
        out = torch.empty_like(x)
        assert aclgrad.hardsigmoid(x, out=out) is out
        return out

    torch.testing.assert_close(make_fx(into)(torch.zeros(5))(x), aclgrad.hardsigmoid(x), rtol=0, atol=0)
    compiled = torch.compile(into, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), aclgrad.hardsigmoid(x), rtol=0, atol=0)
    with (
        FakeTensorMode() as mode,
        pytest.raises(aclgrad.InvalidArgument, match=r"out is torch.float32 \[4\], expected"),
    ):
        aclgrad.hardsigmoid(mode.from_tensor(x), out=torch.empty(4))


def test_logits_that_are_asked_for_where_calls_are_traced():
    x, weight, target = torch.randn(3, 4), torch.randn(5, 4), torch.tensor([1, 0, 4])

    def logits(x, weight, target):
        return aclgrad.linear_online_max_sum(x, weight, target, 0, 5, return_logits=True)[-1]

    expected = logits(x, weight, target)
    torch.testing.assert_close(expected, x @ weight.t())
    torch.testing.assert_close(make_fx(logits)(x * 0, weight, target)(x, weight, target), expected, rtol=0, atol=0)
    compiled = torch.compile(logits, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight, target), expected, rtol=0, atol=0)
    assert aclgrad.linear_online_max_sum(x.requires_grad_(), weight, target, 0, 5)[-1] is None


@pytest.fixture
def one_process():
    """A group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_distributed_tensors_are_not_read(one_process):
    """An op that knows no cut is none of theirs, as any op of torch's without a rule; others return their like."""
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    for operator in OPERATORS:
        call, tensors = of_tensors(operator)
        shards = [distribute_tensor(t.clone(), one_process, [Shard(0)]) if t.dim() else t for t in tensors]
        if cuts_of(operator.spec) is None:
            with pytest.raises((NotImplementedError, RuntimeError, TypeError), match=r"sharding strategy|DTensor"):
                call(*shards)
        else:
            assert all(isinstance(result, DTensor) for result in tensors_in(call(*shards)))


def test_not_in_memory_is_an_invalid_argument():
    assert issubclass(NotInMemory, aclgrad.InvalidArgument)
