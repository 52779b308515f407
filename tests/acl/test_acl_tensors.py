"""Meta objects: what can be created, what is refused, who owns whom, and when memory is really looked at."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from acl_helpers import FLOAT, ND, behind, create

from aclgrad import DeviceMemoryError, InvalidArgument, NullArgument, acl
from aclgrad.frontends.acl import meta, tensors
from aclgrad.frontends.acl.blocks import DEVICE
from aclgrad.frontends.acl.enums import TORCH_DTYPES, AclDataType, AclFormat


@pytest.fixture
def memory(device) -> int:
    pointer, _ = acl.rt.malloc(256, 0)
    data = np.arange(64, dtype=np.float32)
    assert acl.rt.memcpy(pointer, 256, acl.util.numpy_to_ptr(data), 256, 1) == 0
    return pointer


def test_handles_are_never_reused_and_cannot_be_addresses():
    handles = {create() for _ in range(50)}
    for handle in handles:
        assert meta.aclDestroyTensor(handle) == 0
    again = {create() for _ in range(50)}
    assert len(handles | again) == 100
    for handle in again:
        assert 2**57 < handle < 2**63
        assert (handle & ((1 << 56) - 1)) >> 52  # non-canonical even if the top byte is ignored


def test_getters():
    handle = create((2, 3), AclDataType.ACL_BF16, (12, 4), 5, AclFormat.ACL_FORMAT_NCL, (7, 8), 0x1000)
    assert meta.aclGetViewShape(handle) == ((2, 3), 2, 0)
    assert meta.aclGetViewStrides(handle) == ((12, 4), 2, 0)
    assert meta.aclGetStorageShape(handle) == ((7, 8), 2, 0)
    assert meta.aclGetViewOffset(handle) == (5, 0)
    assert meta.aclGetFormat(handle) == (47, 0)
    assert meta.aclGetDataType(handle) == (27, 0)
    assert meta.aclGetRawTensorAddr(handle) == (0x1000, 0)
    for value in (*meta.aclGetFormat(handle), *meta.aclGetDataType(handle)):
        assert type(value) is int


def test_null_stride_means_contiguous():
    assert meta.aclGetViewStrides(create((2, 3, 4)))[0] == (12, 4, 1)
    assert meta.aclGetViewStrides(create((2, 0, 4)))[0] == (4, 4, 1)
    scalar = create(())
    assert meta.aclGetViewShape(scalar) == ((), 0, 0)
    assert meta.aclCreateTensor(None, 0, FLOAT, None, 0, ND, None, 0, None) != 0


def test_only_the_counted_elements_are_read():
    handle = meta.aclCreateTensor([2, 3, "x"], 2, FLOAT, [3, 1, None], 0, ND, [6, -1], 1, 0)
    assert meta.aclGetViewShape(handle) == ((2, 3), 2, 0)
    assert meta.aclGetStorageShape(handle) == ((6,), 1, 0)


@pytest.mark.parametrize("getter", [n for n in dir(meta) if n.startswith("aclGet")])
def test_getters_refuse(getter):
    get = getattr(meta, getter)
    stale = meta.aclCreateIntArray([1], 1)
    meta.aclDestroyIntArray(stale)
    for wrong, status in ((0, 161001), (None, 161001), (0xBAD, 161002), (stale, 161002), ("x", 161002), (1.5, 161002)):
        assert get(wrong)[-1] == status
        assert getter in acl.get_recent_err_msg()


BAD = {
    "negative_dim": {"dims": (2, -1)},
    "negative_stride": {"stride": (2, -1)},
    "short_stride": {"stride": (2,)},
    "huge_count": {"dims": (2**32, 2**32)},
    "huge_bytes": {"dims": (2**61, 1), "dtype": 11},
    "huge_stride": {"dims": (2, 2), "stride": (2**63 - 1, 1)},
    "dim_beyond_int64": {"dims": (2**63,)},
    "huge_empty": {"dims": (0, 2**62, 2**62)},
    "huge_offset": {"offset": 2**63 - 1},
    "negative_offset": {"offset": -1},
    "unknown_dtype": {"dtype": 5},
    "dtype_of_torch": {"dtype": torch.float32},
    "unknown_format": {"fmt": 17},
    "negative_storage": {"storage": (-8,)},
    "float_dim": {"dims": (2.0, 2)},
    "bool_dim": {"dims": (True, 2)},
    "text_stride": {"stride": "ab"},
    "scalar_stride": {"stride": 3},
    "dict_stride": {"stride": {0: 1, 1: 2}},
    "text_data": {"data": "x"},
    "negative_data": {"data": -1},
    "none_offset": {"offset": None},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_metadata_gives_null_and_a_message(name):
    before = len(tensors.TENSORS)
    assert create(**BAD[name]) == 0
    message = acl.get_recent_err_msg()
    assert message.startswith("aclCreateTensor: ")
    assert "expected" in message
    assert len(tensors.TENSORS) == before
    good = create()
    fields = {"dims": (4, 2), "dtype": FLOAT, "stride": None, "offset": 0, "fmt": ND, "storage": (4, 2), "data": 0}
    f = {**fields, **BAD[name]}
    args = (f["dims"], len(f["dims"]), f["dtype"], f["stride"], f["offset"], f["fmt"], f["storage"], len(f["storage"]))
    assert meta.aclInitTensor(good, *args, f["data"]) == 161002
    assert meta.aclGetViewShape(good) == ((4, 2), 2, 0)


def test_null_and_short_dims():
    assert meta.aclCreateTensor(None, 2, FLOAT, None, 0, ND, (4,), 1, 0) == 0
    assert "viewDims is null" in acl.get_recent_err_msg()
    assert meta.aclCreateTensor((4,), 1, FLOAT, None, 0, ND, None, 1, 0) == 0
    assert meta.aclCreateTensor((4,), 2, FLOAT, None, 0, ND, (4,), 1, 0) == 0
    assert "1 elements" in acl.get_recent_err_msg()
    for count in (-1, None, "1", 2**64, 2**63):
        assert meta.aclCreateTensor((4,), count, FLOAT, None, 0, ND, (4,), 1, 0) == 0


def test_every_data_type_and_format_can_be_named(memory):
    for kind in AclDataType:
        tensor = behind(create((2,), kind, data=memory))
        if kind in TORCH_DTYPES:
            assert tensor.tensor().dtype is tensor.dtype is TORCH_DTYPES[kind]
        else:
            assert tensor.dtype is kind
            with pytest.raises(InvalidArgument, match=kind.name):
                tensor.tensor()
    for fmt in AclFormat:
        assert behind(create(fmt=fmt)).meta.format == fmt


def test_tensor_views_the_memory(memory):
    tensor = behind(create((2, 3), stride=(8, 2), offset=1, data=memory + 8))
    assert tensor.tensor().tolist() == [[3, 5, 7], [11, 13, 15]]
    assert tensor.tensor() is tensor.tensor()
    tensor.tensor().zero_()
    assert DEVICE.view(memory, (9,), (1,), 0, torch.float32).tolist() == [0, 1, 2, 0, 4, 0, 6, 0, 8]


def test_tensor_is_checked_against_its_block(memory):
    for fields in (
        {"dims": (65,)},
        {"dims": (64,), "offset": 1},
        {"dims": (1,), "data": memory + 2},
        {"dims": (1,), "data": memory + 256},
        {"dims": (1,), "data": 0x1000},
    ):
        handle = create(**{"data": memory, **fields})
        assert handle, fields
        with pytest.raises(DeviceMemoryError):
            behind(handle).tensor()
    with pytest.raises(NullArgument):
        behind(create()).tensor()
    assert behind(create((3, 0))).tensor().shape == (3, 0)


def test_freed_memory_is_noticed_and_given_back(device):
    pointer, _ = acl.rt.malloc(1 << 20, 0)
    tensor = behind(create((64,), data=pointer))
    storage = weakref.ref(DEVICE.owner(pointer).storage)
    tensor.tensor()
    assert acl.rt.free(pointer) == 0
    with pytest.raises(DeviceMemoryError, match="in a freed device block, expected a live one"):
        tensor.tensor()
    gc.collect()
    assert storage() is None


def test_rebinding(memory):
    handle = create((2,), data=memory)
    tensor = behind(handle)
    assert tensor.tensor().tolist() == [0, 1]
    assert meta.aclSetRawTensorAddr(handle, memory + 16) == 0
    assert meta.aclGetRawTensorAddr(handle) == (memory + 16, 0)
    assert tensor.tensor().tolist() == [4, 5]
    assert meta.aclSetRawTensorAddr(handle, None) == 0
    with pytest.raises(NullArgument):
        tensor.tensor()
    assert meta.aclSetRawTensorAddr(handle, "x") == meta.aclSetRawTensorAddr(5, memory) == 161002
    assert meta.aclSetRawTensorAddr(0, memory) == 161001


def test_init_tensor_describes_anew(memory):
    handle = create((2,), data=memory)
    tensor = behind(handle)
    tensor.tensor()
    assert meta.aclInitTensor(handle, (3,), 1, 3, None, 0, ND, (3,), 1, memory) == 0
    assert tensor.tensor().dtype is torch.int32
    assert tensor.shape == (3,)
    assert meta.aclInitTensor(0, (3,), 1, 3, None, 0, ND, (3,), 1, memory) == 161001
    assert meta.aclInitTensor(77, (3,), 1, 3, None, 0, ND, (3,), 1, memory) == 161002


def test_a_destroyed_tensor_serves_whoever_holds_it_and_leaves_nothing_behind(memory):
    handle = create((2,), data=memory)
    tensor = behind(handle)
    tensor.tensor()
    assert meta.aclDestroyTensor(handle) == 0
    assert tensor.tensor().tolist() == [0, 1]
    watched = weakref.ref(tensor)
    del tensor
    assert watched() is None
    assert not DEVICE.owner(memory).borrowers
