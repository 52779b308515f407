"""Handles of every kind: their life, who owns whom, arrays, lists and scalars."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from acl_helpers import create

from aclgrad import InvalidArgument, NullArgument, acl
from aclgrad.frontends.acl import meta, tensors
from aclgrad.frontends.acl.enums import TORCH_DTYPES, AclDataType
from aclgrad.frontends.acl.handles import Table

FLOAT = 0


KINDS = {
    "Tensor": lambda: create(),
    "Scalar": lambda: meta.aclCreateScalar(1.5, FLOAT),
    "IntArray": lambda: meta.aclCreateIntArray([1, 2], 2),
    "FloatArray": lambda: meta.aclCreateFloatArray([1, 2.5], 2),
    "BoolArray": lambda: meta.aclCreateBoolArray([True, 0], 2),
    "TensorList": lambda: meta.aclCreateTensorList([create(), None], 2),
    "ScalarList": lambda: meta.aclCreateScalarList([meta.aclCreateScalar(1, 3)], 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_life_cycle(kind):
    destroy = getattr(meta, f"aclDestroy{kind}")
    handle = KINDS[kind]()
    assert handle
    assert destroy(0) == destroy(None) == 0
    for other in KINDS:
        if other != kind:
            assert getattr(meta, f"aclDestroy{other}")(handle) == 161002
            assert f"another kind: acl{kind}" in acl.get_recent_err_msg()
    assert destroy(handle) == 0
    assert destroy(handle) == 161002
    assert f"destroyed handle: acl{kind}" in acl.get_recent_err_msg()
    for wrong in (0xDEADBEEF, handle + 10**6, "x", 1.0, -1, 2**300, object()):
        assert destroy(wrong) == 161002
        assert f"aclDestroy{kind}" in acl.get_recent_err_msg()


def test_a_list_owns_its_members():
    members = [create() for _ in range(3)]
    owner = meta.aclCreateTensorList(members, 3)
    assert meta.aclGetTensorListSize(owner) == (3, 0)
    assert meta.aclDestroyTensorList(owner) == 0
    for member in members:
        assert meta.aclGetFormat(member)[1] == meta.aclDestroyTensor(member) == 161002


def test_members_may_be_destroyed_first():
    members = [create() for _ in range(3)]
    owner = meta.aclCreateTensorList(members, 3)
    for member in members[:2]:
        assert meta.aclDestroyTensor(member) == 0
    assert [m.shape for m in tensors.TENSOR_LISTS.get(owner, "list").members] == [(4, 2)] * 3
    assert meta.aclDestroyTensorList(owner) == 0
    assert meta.aclDestroyTensor(members[2]) == 161002


def test_lists_share_and_repeat_members():
    member = create()
    first, second = meta.aclCreateTensorList([member, member], 2), meta.aclCreateTensorList([member], 1)
    assert meta.aclDestroyTensorList(first) == meta.aclDestroyTensorList(second) == 0


def test_wrong_lists():
    scalar, stale = meta.aclCreateScalar(1, 3), create()
    meta.aclDestroyTensor(stale)
    for value, size in (
        ([scalar], 1),
        ([stale], 1),
        ([0xBAD], 1),
        (["x"], 1),
        ([1.5], 1),
        (None, 1),
        ([], 1),
        ([create()], -1),
        (5, 1),
        ("ab", 2),
    ):
        assert meta.aclCreateTensorList(value, size) == 0, value
        assert "value" in acl.get_recent_err_msg() or "size" in (acl.get_recent_err_msg() or "size")
    assert meta.aclCreateTensorList(None, 0)
    assert meta.aclCreateScalarList([create()], 1) == 0


def test_arrays_copy_their_values():
    source = [1, -(2**63), 2**63 - 1]
    ints = meta.aclCreateIntArray(source, 3)
    source[0] = 9
    assert tensors.INT_ARRAYS.get(ints, "a").values == (1, -(2**63), 2**63 - 1)
    floats = meta.aclCreateFloatArray(np.array([0.1, math.inf]), 2)
    assert tensors.FLOAT_ARRAYS.get(floats, "a").values == (float(np.float32(0.1)), math.inf)
    bools = meta.aclCreateBoolArray([True, False, 1, 0], 4)
    assert tensors.BOOL_ARRAYS.get(bools, "a").values == (True, False, True, False)
    assert meta.aclGetIntArraySize(ints) == (3, 0)
    assert meta.aclGetFloatArraySize(floats) == (2, 0)
    assert meta.aclGetBoolArraySize(bools) == (4, 0)
    assert meta.aclCreateIntArray(None, 0)


def test_wrong_arrays():
    assert (
        meta.aclCreateIntArray([2**63], 1) == meta.aclCreateIntArray([1.0], 1) == meta.aclCreateIntArray(None, 1) == 0
    )
    assert meta.aclCreateFloatArray(["1"], 1) == meta.aclCreateFloatArray([10**400], 1) == 0
    assert meta.aclCreateFloatArray([None], 1) == meta.aclCreateFloatArray([1j], 1) == 0
    assert meta.aclCreateBoolArray([2], 1) == meta.aclCreateBoolArray([None], 1) == 0
    assert meta.aclCreateBoolArray([True], 2) == 0


def test_scalars_are_rounded_to_their_type():
    def value(number, kind):
        return tensors.SCALARS.get(meta.aclCreateScalar(number, kind), "s").value

    assert value(0.1, AclDataType.ACL_FLOAT) == float(np.float32(0.1))
    assert value(0.1, AclDataType.ACL_DOUBLE) == 0.1
    assert value(65520.0, AclDataType.ACL_FLOAT16) == math.inf
    assert value(1 / 3, AclDataType.ACL_BF16) == torch.tensor(1 / 3).bfloat16().item()
    assert value(255, AclDataType.ACL_UINT8) == 255
    assert value(2**64 - 1, AclDataType.ACL_UINT64) == 2**64 - 1
    assert value(1, AclDataType.ACL_BOOL) is True
    assert value(1 + 2j, AclDataType.ACL_COMPLEX64) == 1 + 2j
    for kind in TORCH_DTYPES:
        assert value(1, kind) == 1


def test_wrong_scalars():
    for number, kind in (
        (256, 4),
        (-1, 4),
        (1.5, 3),
        (2, 12),
        ("1", 0),
        (None, 0),
        (1, 13),
        (1, -1),
        (1, 99),
        (True, 0),
    ):
        assert meta.aclCreateScalar(number, kind) == 0, (number, kind)
        assert "aclCreateScalar" in acl.get_recent_err_msg()


def test_aclnn_init_and_finalize(tmp_path):
    assert meta.aclnnInit(None) == meta.aclnnInit() == meta.aclnnFinalize() == meta.aclnnFinalize() == 0
    assert meta.aclnnInit(5) == 161002
    assert meta.aclnnInit(str(tmp_path / "missing.json")) == 161002
    assert "missing.json" in acl.get_recent_err_msg()


def test_a_table_for_other_kinds():
    table: Table[str] = Table("executor")
    handle = table.add("plan")
    assert table.find(handle) == table.get(handle, "executor") == table.get(np.int64(handle), "executor") == "plan"
    assert table.find(None) is table.find(5) is table.find([]) is None
    with pytest.raises(NullArgument):
        table.get(0, "executor")
    with pytest.raises(InvalidArgument, match="another kind: aclTensor"):
        table.get(create(), "executor")
    assert table.pop(handle, "executor") == "plan"
    with pytest.raises(InvalidArgument, match="executor is a destroyed handle"):
        table.get(handle, "executor")
    assert table.discard(handle) is None
    assert len(table) == 0
