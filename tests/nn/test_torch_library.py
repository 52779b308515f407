"""`torch.ops.aclgrad.*`: every operator as torch's own checks want an op to be."""

import inspect

import pytest
import torch
from torch._vmap_internals import _vmap as old_vmap

import aclgrad
from aclgrad.core.dispatch import is_optional_list
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import operators, part
from aclgrad.testing.cases import Data, suite

OPERATORS = list(operators())
PUBLIC = [operator for operator in OPERATORS if hasattr(aclgrad, operator.spec.name)]


PURE = [operator for operator in OPERATORS if not operator.spec.updated]
public = pytest.mark.parametrize("operator", PUBLIC, ids=lambda operator: operator.spec.name)
by_name = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)


def first_case(operator, trained=False):
    """The operator's first case; its tensors of floating point may be leaves that want gradients."""
    arguments = list(suite(operator.spec).cases[0].build(torch.float32))
    if trained:
        for tensor in tensors_in(arguments):
            tensor.requires_grad_(tensor.is_floating_point())
    return arguments


def op(operator):
    return getattr(torch.ops.aclgrad, operator.spec.name).default


@by_name
def test_opcheck(operator):
    torch.library.opcheck(op(operator), first_case(operator))


def own(operator):
    """The gradients that a family has; the others are all the textbook's."""
    known = getattr(part(operator.spec.package, "autograd"), "GRADIENTS", {})
    return operator.spec.name in (*known, "batch_norm_stats")


@pytest.mark.parametrize(
    "operator",
    [pytest.param(each, id=each.spec.name, marks=() if own(each) else pytest.mark.slow) for each in PURE],
)
def test_opcheck_with_gradients(operator):
    torch.library.opcheck(op(operator), first_case(operator, trained=True))


@public
def test_results_are_those_of_the_python_function(operator):
    arguments, again = first_case(operator), first_case(operator)
    function = getattr(aclgrad, operator.spec.name)
    expected, results = function(*arguments), op(operator)(*again)
    for result, want in zip(listed(results), listed(expected), strict=True):
        if want is not None and result is not None:
            torch.testing.assert_close(result, want, rtol=0, atol=0)
    torch.testing.assert_close(tensors_in(again), tensors_in(arguments), rtol=0, atol=0)


def listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


@public
def test_the_schema_has_the_functions_names_and_defaults(operator):
    function = inspect.signature(getattr(aclgrad, operator.spec.name)).parameters
    for argument in op(operator)._schema.arguments:
        default = function[argument.name].default
        if default is inspect.Parameter.empty or is_optional_list(operator.spec.params.get(argument.name)):
            assert not argument.has_default_value(), argument.name
        else:
            assert argument.default_value == default, argument.name


@by_name
def test_arguments_may_be_named(operator):
    names = [arg.name for arg in operator.spec.args]
    results = op(operator)(**dict(zip(names, first_case(operator), strict=True)))
    torch.testing.assert_close(results, op(operator)(*first_case(operator)), rtol=0, atol=0)


@by_name
def test_fake_tensors_have_the_shapes_and_strides_of_real_ones(operator):
    from torch._subclasses.fake_tensor import FakeTensorMode

    arguments = first_case(operator)
    real = tensors_in(listed(op(operator)(*first_case(operator))))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        faked = [
            mode.from_tensor(value)
            if isinstance(value, torch.Tensor)
            else [mode.from_tensor(item) for item in value]
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor)
            else value
            for value in arguments
        ]
        fake = tensors_in(listed(op(operator)(*faked)))
    assert [(t.shape, t.stride(), t.dtype) for t in fake] == [(t.shape, t.stride(), t.dtype) for t in real]


def test_a_refusal_is_the_same_typed_error():
    with pytest.raises(aclgrad.InvalidArgument, match=r"x has shape \[3\]"):
        torch.ops.aclgrad.hardsigmoid_backward(torch.zeros(2), torch.zeros(3))


WAYS = {
    "eager": lambda function: function,
    "mapped": lambda function: lambda x: torch.func.vmap(function)(x[None])[0],
    "mapped by autograd": lambda function: lambda x: old_vmap(function)(x[None])[0],
    "compiled": lambda function: torch.compile(function, backend="aot_eager", fullgraph=True),
    "without gradients": torch.inference_mode(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("given", [{}, {"hx": None}, {"hx": []}], ids=str)
def test_none_stands_for_an_empty_list(given, way):
    data, op = Data(), torch.ops.aclgrad.lstm
    params = [data.normal(12, 4).requires_grad_(), data.normal(12, 3)]
    x = data.normal(3, 2, 4)
    expected = aclgrad.lstm(x, params, has_bias=False)[0]
    assert torch.equal(way(lambda x: op(x, params, has_bias=False, **given)[0])(x), expected)
    if given:
        assert torch.equal(way(lambda x: op(x, params, *given.values(), None, False)[0])(x), expected)


def test_a_tensor_is_no_list():
    x, params = torch.zeros(3, 2, 4), [torch.zeros(12, 4), torch.zeros(12, 3)]
    with pytest.raises(aclgrad.WrongType, match="hx is Tensor, expected a list of tensors"):
        torch.ops.aclgrad.lstm(x, params, torch.zeros(2, 1, 2, 3), None, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_opcheck_of_the_loss_with_its_gradients(dtype, wanted):
    data = Data(dtype)
    x, weight = data.normal(5, 4).requires_grad_(wanted[0]), data.normal(9, 4).requires_grad_(wanted[1])
    target = data.integers(0, 9, 5)
    arguments = (x, weight, target, -100, True, *wanted)
    torch.library.opcheck(torch.ops.aclgrad.loss_and_gradients.default, arguments)
