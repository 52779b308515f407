"""Blocks, the views torch has of them, and addresses of Python objects."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from acl_helpers import UNMAPPED, download, malloc, upload

from aclgrad import DeviceMemoryError, NullArgument, acl
from aclgrad.frontends.acl.blocks import DEVICE, HOST, KEPT_BLOCK_BYTES, KEPT_BLOCKS, KEPT_BYTES


def test_owner_finds_any_address_of_many_blocks(device):
    rng = random.Random(0)
    pointers = [malloc(rng.randint(1, 300)) for _ in range(300)]
    for pointer in rng.sample(pointers, 100):
        acl.rt.free(pointer)
        pointers.remove(pointer)
    for pointer in pointers:
        block = DEVICE.owner(pointer)
        assert DEVICE.owner(pointer + block.size - 1) is block
        assert DEVICE.owner(pointer + block.size) is None
        assert DEVICE.owner(pointer - 1) is None
        acl.rt.free(pointer)
        assert DEVICE.owner(pointer) is None


def test_memory_does_not_depend_on_torchs_modes(device):
    with torch.inference_mode(), torch.device("meta"):
        pointer = malloc(64)
        view = DEVICE.view(pointer, (16,), (1,), 0, torch.float32)
        assert view.device.type == "cpu"
    DEVICE.view(pointer, (16,), (1,), 0, torch.float32).fill_(2)
    assert download(pointer, 64) == np.full(16, 2, np.float32).tobytes()


def test_freed_blocks_are_kept_within_bounds(device):
    before = len(DEVICE._blocks)
    for _ in range(3):
        pointers = [malloc(size) for size in [KEPT_BLOCK_BYTES] * 200 + [1] * 1000 + [KEPT_BLOCK_BYTES + 1] * 3]
        for pointer in pointers:
            assert acl.rt.free(pointer) == 0
    assert DEVICE._kept_bytes == sum(block.size for block in DEVICE._kept) <= KEPT_BYTES
    assert len(DEVICE._kept) <= KEPT_BLOCKS
    assert len(DEVICE._blocks) == len(DEVICE._addresses) <= before + KEPT_BLOCKS
    assert DEVICE._addresses == sorted(DEVICE._blocks)


def test_views(device):
    data = np.arange(24, dtype=np.float32)
    pointer = upload(data)
    assert torch.equal(
        DEVICE.view(pointer, (2, 3), (12, 2), 1, torch.float32), torch.tensor([[1, 3, 5], [13, 15, 17.0]])
    )
    assert DEVICE.view(pointer + 20, (), (), 0, torch.float32).item() == 5
    assert DEVICE.view(pointer, (0, 5), (5, 1), 10**9, torch.float32).shape == (0, 5)
    assert DEVICE.view(0, (0,), (1,), 0, torch.float64).numel() == 0
    view = DEVICE.view(pointer + 92, (4,), (0,), 0, torch.float32)
    assert view.tolist() == [23.0] * 4
    view = DEVICE.view(pointer, (24,), (1,), 0, torch.float32)
    view.mul_(2)
    assert download(pointer, 96) == (data * 2).tobytes()
    assert view.data_ptr() == pointer


def test_views_stay_inside_their_block(device):
    pointer = malloc(96)
    for args in (
        (pointer, (25,), (1,), 0),
        (pointer, (24,), (1,), 1),
        (pointer + 4, (24,), (1,), 0),
        (pointer, (2, 2), (23, 1), 0),
        (pointer, (1,), (1,), 24),
        (pointer, (2,), (2**62,), 0),
        (pointer + 1, (1,), (1,), 0),
        (pointer + 96, (1,), (1,), 0),
        (UNMAPPED, (1,), (1,), 0),
    ):
        with pytest.raises(DeviceMemoryError):
            DEVICE.view(*args, torch.float32)
    with pytest.raises(NullArgument):
        DEVICE.view(0, (1,), (1,), 0, torch.float32)
    odd = malloc(7)
    with pytest.raises(DeviceMemoryError):
        DEVICE.view(odd, (2,), (1,), 0, torch.float32)


def test_util_pointers(device):
    text = b"hello, device"
    assert acl.util.ptr_to_bytes(acl.util.bytes_to_ptr(text), len(text)) == text
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert acl.util.ptr_to_bytes(acl.util.numpy_to_ptr(array), 48) == array.tobytes()
    pointer, same = acl.util.numpy_contiguous_to_ptr(array)
    assert same is array
    assert pointer == array.ctypes.data
    pointer, _copy = acl.util.numpy_contiguous_to_ptr(array.T)
    assert acl.util.ptr_to_bytes(pointer, 48) == array.T.tobytes()
    alias = acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (4, 3), 11)
    alias[0, 1] = 99
    assert array[0, 1] == 99
    host = acl.rt.malloc_host(16)[0]
    assert acl.rt.memset(host, 16, 1, 16) == 0
    view = acl.util.ptr_to_numpy(host, (2, 2), np.int32)
    assert acl.rt.free_host(host) == 0
    assert (view == 0x01010101).all()
    assert acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (0, 3), 12).shape == (0, 3)


def test_util_refuses(device):
    host = acl.rt.malloc_host(16)[0]
    assert acl.util.bytes_to_ptr("text") == acl.util.numpy_to_ptr([1]) == acl.util.numpy_to_ptr(None) == 0
    assert acl.util.numpy_contiguous_to_ptr(3) == (0, None)
    assert acl.util.ptr_to_bytes(host, 17) is acl.util.ptr_to_bytes(0, 1) is acl.util.ptr_to_bytes(host, -1) is None
    for shape, kind in (((5,), 11), ((4,), 17), ((4,), "f"), ((4,), None), ((-1,), 11), ("a", 11), (4, 11)):
        assert acl.util.ptr_to_numpy(host, shape, kind) is None, (shape, kind)
        assert "ptr_to_numpy" in acl.get_recent_err_msg()
    assert acl.util.ptr_to_numpy(host, (2**62, 2**62), 11) is None
    assert HOST.owner(host).size == 16
