"""Every op under vmap, of both kinds that torch has: what is computed is a stack of single calls."""

import pytest
import torch
from torch._vmap_internals import _vmap as old_vmap
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import aclgrad
import aclgrad.nn
from aclgrad.core.registry import operators
from aclgrad.testing.cases import Data, suite

OPERATORS = list(operators())
by_name = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
SAMPLES = 3
KINDS = {"torch.func": torch.func.vmap, "is_grads_batched": old_vmap}
both_kinds = pytest.mark.parametrize("vmap", KINDS.values(), ids=KINDS)


def samples(operator):
    """The first case with other numbers every time, as flat lists, and how they nest."""
    built = [tree_flatten(suite(operator.spec).cases[0].build(torch.float32, seed=k)) for k in range(SAMPLES)]
    return [flat for flat, _ in built], built[0][1]


def op(operator):
    return getattr(torch.ops.aclgrad, operator.spec.name).default


def all_results(operator, tree):
    """A function of flat arguments: the op's results and what it updated, one flat tuple of tensors."""

    def call(*flat):
        arguments = tree_unflatten(list(flat), tree)
        results = op(operator)(*arguments)
        written = [arguments[k] for k in operator.spec.updated]
        return tuple(tensor for tensor in tree_leaves([results, written]) if isinstance(tensor, torch.Tensor))

    return call


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def assert_stacked(operator, vmap, dims):
    """Mapped along these dimensions, of every value one or None, the op gives what single calls give."""
    rows, tree = samples(operator)
    wanted = [None if not is_tensor(value) else dim(value) for value, dim in zip(rows[0], dims(rows[0]), strict=True)]
    mapped = [i for i, dim in enumerate(wanted) if dim is not None]
    columns = [torch.stack([row[i] for row in rows], dim=wanted[i]) for i in mapped]
    call = all_results(operator, tree)

    def of_mapped(*tensors):  # the older kind takes tensors alone
        place = dict(zip(mapped, tensors, strict=True))
        return call(*(place.get(i, value) for i, value in enumerate(rows[0])))

    found = vmap(of_mapped, tuple(wanted[i] for i in mapped), 0)(*columns)
    expected = [call(*(row[i] if i in mapped else value for i, value in enumerate(rows[0]))) for row in rows]
    assert len(found) == len(expected[0]) > 0
    for result, *parts in zip(found, *expected, strict=True):
        torch.testing.assert_close(result, torch.stack(parts), rtol=0, atol=0, equal_nan=True)


@both_kinds
@pytest.mark.parametrize("place", [lambda value: 0, lambda value: value.dim()], ids=["first", "last"])
@by_name
def test_a_mapped_op_is_a_stack_of_calls(operator, place, vmap):
    assert_stacked(operator, vmap, lambda values: [place] * len(values))


@both_kinds
@by_name
def test_one_mapped_argument_among_shared_ones(operator, vmap):
    """With those that are updated: every sample needs its own."""
    mapped = {0, *operator.spec.updated}
    assert_stacked(
        operator, vmap, lambda values: [lambda _, i=i: 0 if i in mapped else None for i in range(len(values))]
    )


@both_kinds
def test_what_all_samples_share_is_not_updated(vmap):
    x = Data().normal(SAMPLES, 4, 2)
    running = torch.zeros(2), torch.ones(2)

    def call(x):
        mean, invstd = torch.ops.aclgrad.batch_norm_stats(x, 1e-5)
        parts = mean[None], invstd[None]
        return torch.ops.aclgrad.batch_norm_gather_stats_with_counts(
            x, *parts, *running, 0.1, 1e-5, torch.tensor([4.0])
        )[0]

    with pytest.raises(aclgrad.Unsupported, match="running_mean is one tensor for all samples of a vmap, expected one"):
        vmap(call)(x)
    assert not running[0].any()


def test_no_samples():
    with pytest.raises(aclgrad.InvalidArgument, match="mapped over 0 samples, expected at least one"):
        torch.func.vmap(torch.ops.aclgrad.hardsigmoid)(torch.zeros(0, 3))


def test_maps_of_maps():
    x = Data().normal(2, SAMPLES, 5)
    mapped = torch.func.vmap(torch.func.vmap(torch.ops.aclgrad.hardsigmoid, 1), 0, 1)
    expected = torch.ops.aclgrad.hardsigmoid(x).transpose(0, 1)
    torch.testing.assert_close(mapped(x.transpose(1, 2)), expected, rtol=0, atol=0)


def in_place(x):
    torch.ops.aclgrad.hardsigmoid_(x)
    return x


def test_an_update_of_mapped_tensors_is_seen_outside():
    x, w = Data().normal(SAMPLES, 5), torch.ones(SAMPLES, 5, requires_grad=True)
    expected, product = torch.ops.aclgrad.hardsigmoid(x), x * w
    torch.func.vmap(in_place)(x)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_the_python_functions_can_be_mapped():
    x = Data().normal(SAMPLES, 5)
    torch.testing.assert_close(torch.func.vmap(aclgrad.hardsigmoid)(x), aclgrad.hardsigmoid(x), rtol=0, atol=0)


@both_kinds
@pytest.mark.parametrize("mapped", ["h", "c"])
def test_a_state_of_an_lstm_alone_can_be_mapped(mapped, vmap):
    data, module = Data(), aclgrad.nn.LSTM(4, 3)
    x, given = data.normal(5, 2, 4), {"h": data.normal(1, 2, 3), "c": data.normal(1, 2, 3)}
    states = data.normal(SAMPLES, 1, 2, 3)

    def by_module(state):
        return module(x, tuple((given | {mapped: state}).values()))[0]

    def by_function(state):
        with torch.no_grad():
            return aclgrad.lstm(x, module._flat_weights, tuple((given | {mapped: state}).values()))[0]

    for function in (by_module, by_function):
        expected = torch.stack([function(state) for state in states])
        torch.testing.assert_close(vmap(function)(states), expected, rtol=0, atol=0)


def test_compiled_maps_agree():
    x, params = Data().normal(SAMPLES, 2, 1, 4), [Data().normal(12, 4), Data().normal(12, 3)]
    mapped = torch.func.vmap(lambda x: torch.ops.aclgrad.lstm(x, params, has_bias=False)[0])
    compiled = torch.compile(mapped, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), mapped(x), rtol=0, atol=0)


def test_what_is_asked_for_by_a_flag_is_mapped_too():
    x, weight, target = Data().normal(SAMPLES, 5, 4), Data().normal(7, 4), Data().integers(0, 7, SAMPLES, 5)

    def logits(x, target):
        return torch.ops.aclgrad.linear_online_max_sum(x, weight, target, 0, 7, return_logits=True)[-1]

    torch.testing.assert_close(torch.func.vmap(logits)(x, target), x @ weight.t())
