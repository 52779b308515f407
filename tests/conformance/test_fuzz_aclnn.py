"""Random abuse of the aclnn door: it never crashes, never raises, and never calls an illegal call a success."""

import random

import pytest
import torch
from matrix import ACLNN, flat
from test_aclnn import pair

from aclgrad import acl, aclnn
from aclgrad.core.spec import BoolArray, Flag, Float, InOut, Int, Out, OutList, Tensor, TensorList
from aclgrad.frontends.aclnn.executor import EXECUTORS
from aclgrad.testing.cases import suite
from aclgrad.testing.program import program

ROUNDS = 250
DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)
JUNK = (None, 0, -1, 7, 2**63, 1.5, "junk", b"", [], {}, (), True, object, float("nan"), 0x4AC1_0A00_0000_0001)
STATUSES = {0, 161001, 161002, 361001, 561000, 561003, 561103}


def mutate_tensor(rng, tensor):
    """A tensor that differs from a legal one in dtype, shape, strides or device."""
    choice = rng.randrange(8)
    if choice == 0:
        return tensor.to(rng.choice(DTYPES))
    if choice == 1:
        return tensor[..., :-1] if tensor.dim() and tensor.shape[-1] else tensor[None]
    if choice == 2:
        return tensor.reshape(-1)
    if choice == 3:
        return tensor.expand(2, *tensor.shape)
    if choice == 4:
        return torch.empty([rng.randrange(4) for _ in range(rng.randrange(10))], dtype=rng.choice(DTYPES))
    if choice == 5 and tensor.dim() >= 2:
        return tensor.transpose(0, 1)
    if choice == 6:
        return tensor.to("meta")
    return torch.stack([tensor, tensor], -1)[..., 0]  # legal: strided


def mutate(rng, param, value):
    if rng.random() < 0.3:
        return rng.choice(JUNK)
    if isinstance(value, torch.Tensor):
        return mutate_tensor(rng, value)
    if isinstance(param, TensorList | OutList) and isinstance(value, list):
        members = list(value)
        action = rng.randrange(4)
        if action == 0:
            return members[:-1]
        if action == 1:
            return members + members[:1]
        k = rng.randrange(len(members))
        members[k] = mutate_tensor(rng, members[k]) if action == 2 else rng.choice(JUNK)
        return members
    if isinstance(param, Flag):
        return rng.choice([True, False, 2, "x"])
    if isinstance(param, Int):
        return rng.choice([-1, 0, 1, 2, 3, 2**40, 2**64])
    if isinstance(param, Float):
        return rng.choice([0.0, 0.5, float("inf"), -1])
    if isinstance(param, BoolArray):
        return rng.choice([(True,), (True, False, True, True), (1, 2), "xy"])
    return rng.choice(JUNK)


def require_legal(operator, args, outs):
    """A success must be one for an independent look too: tensors everywhere, one device, outputs of derived shapes."""
    params = (*operator.spec.args, *operator.spec.outs)
    kinds = (Tensor, Out, OutList, BoolArray)
    as_handles = [
        None
        if isinstance(param, BoolArray) or (isinstance(param, kinds) and type(value) is int and value == 0)
        else value
        for param, value in zip(params, (*args, *outs), strict=True)
    ]
    for param, value in zip(params, as_handles, strict=True):
        if isinstance(param, Tensor | Out | OutList):
            members = value if isinstance(value, list | tuple) else [value]
            assert all(member is None or isinstance(member, torch.Tensor) for member in members), (param.name, value)
    tensors = [t for t in flat(as_handles[: len(args)]) if isinstance(t, torch.Tensor)]
    assert len({t.device for t in tensors}) == 1
    shapes = [tuple(t.shape) for t in flat(as_handles[len(args) :]) if isinstance(t, torch.Tensor)]
    named = {param.name: value for param, value in zip(operator.spec.args, as_handles, strict=False)}
    fresh = operator.plan(list(named.values()), backend="reference").outs
    produced = [meta.shape for out in fresh if out is not None for meta in ([out] if hasattr(out, "shape") else out)]
    assert [tuple(shape) for shape in produced] == shapes[: len(produced)]


@pytest.mark.parametrize("operator", ACLNN, ids=lambda operator: operator.spec.name)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_arguments(operator, seed):
    rng = random.Random(f"{operator.spec.name}-{seed}")
    case = suite(operator.spec).cases[0]
    first, second = pair(operator)
    params = (*operator.spec.args, *operator.spec.outs)
    accepted = 0
    for _ in range(ROUNDS):
        args = case.build()
        values = [*args, *operator.plan(args, backend="reference").allocate()]
        for k in rng.sample(range(len(params)), min(len(params), rng.choice([0, 1, 1, 1, 2, 5]))):
            values[k] = mutate(rng, params[k], values[k])
        live = len(EXECUTORS)
        outs = [t for t in flat(values[len(args) :]) if isinstance(t, torch.Tensor) and t.device.type == "cpu"]
        before = [out.clone() for out in outs]
        size, executor, status = first(*values)
        assert status in STATUSES, (status, acl.get_recent_err_msg())
        if status:
            assert (size, executor) == (0, None)
            assert len(EXECUTORS) == live
            assert acl.get_recent_err_msg()
            for out, copy in zip(outs, before, strict=True):
                torch.testing.assert_close(out, copy, rtol=0, atol=0, equal_nan=True)
            continue
        accepted += 1
        require_legal(operator, values[: len(args)], values[len(args) :])
        workspace = rng.choice([torch.empty(size, dtype=torch.uint8), None, 0, 12345, "x", torch.empty(3)])
        given = rng.choice([size, size, 0, -1, 2**70, "x"])
        status = second(
            workspace, given, rng.choice([executor, executor, None, 99, "x"]), rng.choice([None, 0, None, 4711, "x"])
        )
        assert status in STATUSES
    assert accepted


@pytest.mark.parametrize("seed", range(3))
def test_random_sequences_of_handle_calls(seed):
    """Create, destroy, re-describe, free, plan, run, repeat, in any order, with stale handles and addresses."""
    rng = random.Random(seed)
    operator = next(o for o in ACLNN if o.spec.name == "hardsigmoid_backward")
    first, second = pair(operator)
    with program() as running:
        tensors, blocks, executors, lists = [0], [0, 1, 12345], [(0, 0)], [0]

        def create():
            shape = [rng.randrange(-1, 5) for _ in range(rng.randrange(4))]
            strides = rng.choice([None, [rng.randrange(-2, 9) for _ in shape]])
            tensors.append(
                aclnn.aclCreateTensor(
                    shape, len(shape), rng.choice([0, 0, 0, 1, 27, 3, 99]), strides, rng.choice([0, 0, 3, -1]),
                    rng.choice([2, 2, 0, 29, 77]), shape, len(shape), rng.choice(blocks),
                )
            )  # fmt: skip

        def plan():
            size, executor, status = first(*(rng.choice(tensors) for _ in range(3)))
            assert (status == 0) == (executor is not None)
            if executor:
                executors.append((size, executor))

        def run():
            size, executor = rng.choice(executors)
            status = second(rng.choice(blocks), size, executor, rng.choice([running.stream, 0, 5]))
            assert status in STATUSES

        def malloc():
            address, code = acl.rt.malloc(rng.choice([16, 64, 1000]), 0)
            assert code == 0
            blocks.append(address)

        actions = [
            create, create, plan, plan, run, run, malloc,
            lambda: aclnn.aclDestroyTensor(rng.choice(tensors)),
            lambda: acl.rt.free(rng.choice(blocks)),
            lambda: aclnn.aclSetRawTensorAddr(rng.choice(tensors), rng.choice(blocks)),
            lambda: aclnn.aclSetAclOpExecutorRepeatable(rng.choice(executors)[1]),
            lambda: aclnn.aclDestroyAclOpExecutor(rng.choice(executors)[1]),
            lambda: aclnn.aclSetInputTensorAddr(
                rng.choice(executors)[1], rng.randrange(3), rng.choice(tensors), rng.choice(blocks)
            ),
            lambda: lists.append(aclnn.aclCreateTensorList([rng.choice(tensors)], 1)),
            lambda: aclnn.aclDestroyTensorList(rng.choice(lists)),
            lambda: aclnn.aclInitTensor(rng.choice(tensors), [2, 2], 2, 0, None, 0, 2, [2, 2], 2, rng.choice(blocks)),
            lambda: acl.rt.synchronize_stream(running.stream),
        ]  # fmt: skip
        for _ in range(1500):
            rng.choice(actions)()
        assert acl.rt.synchronize_stream(running.stream) == 0


def test_rules_know_every_kind_of_parameter():
    kinds = {type(param) for operator in ACLNN for param in (*operator.spec.args, *operator.spec.outs)}
    assert kinds == {Tensor, InOut, TensorList, Flag, Int, Float, BoolArray, Out, OutList}
