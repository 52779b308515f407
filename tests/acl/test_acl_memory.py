"""Device and host memory: allocation, copies in every direction, and what lies outside a block."""

from __future__ import annotations

import ctypes
import logging
import mmap
from itertools import pairwise

import numpy as np
import pytest
from acl_helpers import D2D, D2H, DEFAULT, H2D, H2H, UNMAPPED, download, malloc, upload

from aclgrad import acl
from aclgrad.frontends.acl import raw
from aclgrad.frontends.acl.blocks import DEVICE

NON_CANONICAL = 0x4AC1 << 48


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096, 1 << 20])
def test_allocation_is_padded_and_aligned(device, size):
    pointer = malloc(size)
    block = DEVICE.owner(pointer)
    assert pointer % 64 == 0
    assert block.size == size
    assert block.storage.numel() == -(-size // 32) * 32 + 32
    assert acl.rt.free(pointer) == 0


def test_malloc_of_impossible_sizes(device):
    assert acl.rt.malloc(0, 0) == (0, 100000)
    for size in (-1, 2**64, "8", 8.0, None, True, object()):
        assert acl.rt.malloc(size, 0) == acl.rt.malloc_host(size) == (0, 100000)
        assert "size" in acl.get_recent_err_msg()
    for size in (2**64 - 1, 2**62, 1 << 50):
        assert acl.rt.malloc(size, 0) == acl.rt.malloc_host(size) == (0, 207001)
        assert "free" in acl.get_recent_err_msg()
    assert acl.rt.malloc_host(0) == (0, 100000)


def test_an_argument_is_judged_before_the_context():
    assert acl.rt.malloc(0, 0) == (0, 100000)


def test_policies(device):
    for policy in (*range(8), 0x100, 0x1002, 0x100000, 0x101107):
        pointer, ret = acl.rt.malloc(8, policy)
        assert ret == 0
        acl.rt.free(pointer)
    for policy in (8, 0xFF, 0x200, 0x2000000, 2**31 - 1):
        assert acl.rt.malloc(8, policy) == (0, 107018)
    for policy in (-1, 2**31, "0", None, 0.0):
        assert acl.rt.malloc(8, policy) == (0, 100000)


def test_free(device):
    pointer, host = malloc(64), acl.rt.malloc_host(64)[0]
    assert acl.rt.free(0) == acl.rt.free(None) == acl.rt.free("x") == acl.rt.free(-1) == 100000
    assert acl.rt.free_host(0) == acl.rt.free_host(None) == 100000
    assert acl.rt.free(pointer + 8) == 207002
    assert "8 bytes inside" in acl.get_recent_err_msg()
    assert acl.rt.free(0xDEADBEEF) == acl.rt.free_host(0xDEADBEEF) == 207002
    assert acl.rt.free(host) == acl.rt.free_host(pointer) == 107016
    assert acl.rt.free(pointer) == acl.rt.free_host(host) == 0
    assert acl.rt.free(pointer) == acl.rt.free_host(host) == 207002


def test_mem_info_counts_what_is_allocated(device):
    free, total, ret = acl.rt.get_mem_info(acl.ACL_HBM_MEM)
    assert ret == 0
    pointer = malloc(1 << 20)
    assert acl.rt.get_mem_info(0) == (free - (1 << 20), total, 0)
    acl.rt.free(pointer)
    assert acl.rt.get_mem_info(17) == (free, total, 0)
    for wrong in (18, -1, "0", None):
        assert acl.rt.get_mem_info(wrong) == (0, 0, 100000)


@pytest.mark.parametrize("size", [1, 7, 4096, 65537, 3 << 20])
def test_round_trip(device, size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    first = upload(data)
    second = malloc(size)
    assert acl.rt.memcpy(second, size, first, size, D2D) == 0
    assert download(second, size) == data.tobytes()


def test_default_kind_finds_the_direction(device):
    data, out = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    a, b, host = malloc(100), malloc(100), acl.rt.malloc_host(100)[0]
    steps = [acl.util.numpy_to_ptr(data), a, b, host, acl.util.numpy_to_ptr(out)]
    for src, dst in pairwise(steps):
        assert acl.rt.memcpy(dst, 100, src, 100, DEFAULT) == 0
    assert (out == data).all()


def test_host_to_buf_to_device_is_host_to_device(device):
    data = np.arange(10, dtype=np.uint8)
    pointer = malloc(10)
    assert acl.rt.memcpy(pointer, 10, acl.util.numpy_to_ptr(data), 10, 5) == 0
    assert download(pointer, 10) == data.tobytes()


def test_the_addresses_decide_and_not_the_kind(device):
    a, b, array = malloc(8), malloc(8), np.zeros(16, np.uint8)
    h = acl.util.numpy_to_ptr(array)
    odd = [(h, a, H2D), (h, h + 8, H2D), (a, b, H2D), (a, h, D2H), (h, h + 8, D2H), (a, b, D2H)]
    odd += [(a, h, D2D), (h, a, D2D), (a, b, H2H), (h, a, H2H), (a, h, H2H), (a, b, 5)]
    for dst, src, kind in odd:
        for filled, value in ((src, 7), (dst, 0)):
            ctypes.memset(filled, value, 8)
        assert acl.rt.memcpy(dst, 8, src, 8, kind) == 0, (dst, src, kind)
        assert ctypes.string_at(dst, 8) == b"\7" * 8


@pytest.mark.parametrize("size", [64, 1 << 20], ids=["kept", "given back"])
def test_freed_device_memory_is_not_taken_for_the_programs_own(device, size):
    pointer, host = malloc(size), acl.rt.malloc_host(64)[0]
    assert acl.rt.free(pointer) == 0
    for dst, src, kind in ((pointer, host, H2D), (host, pointer, D2H)):
        assert acl.rt.memcpy(dst, 64, src, 64, kind) == 107016
        assert "in a freed block" in acl.get_recent_err_msg()
    assert acl.rt.free(pointer) == 207002
    message = acl.get_recent_err_msg()
    assert "was freed already" in message or "in a freed block" in message


def test_memcpy_table(device):
    a, b, array = malloc(8), malloc(8), np.zeros(8, np.uint8)
    h = acl.util.numpy_to_ptr(array)
    assert acl.rt.memcpy(a, 8, h, 0, H2D) == 0
    assert acl.rt.memcpy(0, 0, 0, 0, 99) == 0
    assert acl.rt.memcpy(0, 8, h, 8, H2D) == acl.rt.memcpy(a, 8, None, 8, H2D) == 100000
    for kind in (-1, 6, 7, 99, None, "1", 1.0, True):
        assert acl.rt.memcpy(a, 8, h, 8, kind) == 100000
        assert "kind" in acl.get_recent_err_msg()
    assert acl.rt.memcpy(a, 7, h, 8, H2D) == 107000
    assert "destMax" in acl.get_recent_err_msg()
    assert acl.rt.memcpy(a, 8, a, 8, D2D) == 0
    assert acl.rt.memcpy(a, 8, b, 8, D2D) == 0


def test_writes_past_the_end_are_refused(device):
    a, b, array = malloc(8), malloc(64), np.zeros(64, np.uint8)
    h = acl.util.numpy_to_ptr(array)
    host = acl.rt.malloc_host(8)[0]
    assert acl.rt.memcpy(a, 9, h, 9, H2D) == 107000
    assert acl.rt.memcpy(a + 4, 8, h, 5, H2D) == 107000
    assert acl.rt.memcpy(a, 64, b, 64, D2D) == 107000
    assert acl.rt.memcpy(host, 64, b, 9, D2H) == 107000
    assert acl.rt.memcpy(a, 2**64 - 1, h, 2**63, H2D) == 107000
    assert "8 bytes left" in acl.get_recent_err_msg()
    assert acl.rt.memset(a, 64, 0, 9) == 107000


def test_reads_past_the_end_of_host_blocks_are_refused(device):
    host, a = acl.rt.malloc_host(8)[0], malloc(64)
    assert acl.rt.memcpy(a, 64, host, 9, H2D) == 107000


def test_reads_past_the_end_of_device_blocks_give_zeros_and_one_warning(device, caplog):
    caplog.set_level(logging.WARNING, "aclgrad.acl")
    data = np.full(10, 7, np.uint8)
    pointer = upload(data)
    for _ in range(2):
        assert download(pointer + 2, 20) == bytes([7] * 8 + [0] * 12)
    target = malloc(20)
    assert acl.rt.memcpy(target, 20, pointer, 20, D2D) == 0
    assert download(target, 20) == bytes([7] * 10 + [0] * 10)
    assert len(caplog.records) == 1


def test_strict_refuses_reads_past_the_end(checked, caplog):
    pointer, out = upload(np.zeros(10, np.uint8)), np.full(20, 9, np.uint8)
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 20, pointer, 20, D2H) == 107000
    assert (out == 9).all()
    assert not caplog.records


def test_freed_memory_is_unknown(device):
    pointer, array = malloc(64), np.zeros(64, np.uint8)
    acl.rt.free(pointer)
    h = acl.util.numpy_to_ptr(array)
    assert acl.rt.memcpy(pointer, 64, h, 64, H2D) == acl.rt.memcpy(h, 64, pointer, 64, D2H) == 107016
    assert acl.rt.memset(pointer, 64, 0, 64) == 107016


@pytest.mark.parametrize("size", [64, 1 << 17, 1 << 22])
def test_a_freed_block_is_not_taken_for_host_memory(device, size):
    stale, stale_host, live = malloc(size), acl.rt.malloc_host(size)[0], malloc(64)
    assert acl.rt.free(stale) == acl.rt.free_host(stale_host) == 0
    for pointer in (stale, stale + 8, stale_host, stale_host + 8):
        for kind in (D2H, DEFAULT):
            assert acl.rt.memcpy(pointer, 56, live, 56, kind) == 107016
        for kind in (H2D, DEFAULT):
            assert acl.rt.memcpy(live, 56, pointer, 56, kind) == 107016
        assert acl.util.ptr_to_bytes(pointer, 8) is None
    assert "freed" in acl.get_recent_err_msg()


@pytest.mark.parametrize("wild", [1, UNMAPPED, 0xDEADBEEF, NON_CANONICAL, 2**63, 2**64 - 4, 2**64 - 1])
def test_wild_host_pointers_get_a_code(device, wild):
    pointer, host = malloc(64), acl.rt.malloc_host(64)[0]
    for dst, src, kind in ((pointer, wild, H2D), (wild, pointer, D2H), (wild, host, H2H), (host, wild, H2H)):
        assert acl.rt.memcpy(dst, 64, src, 64, kind) == 107000
        assert "not mapped" in acl.get_recent_err_msg()
        assert acl.rt.memcpy_async(dst, 64, src, 64, kind, 0) == (207000 if kind == H2H else 107000)
    for dst, src, kind in ((pointer, wild, D2D), (wild, host, H2D)):
        assert acl.rt.memcpy(dst, 64, src, 64, kind) == acl.rt.memcpy_async(dst, 64, src, 64, kind, 0) == 107016
        assert "expected device memory" in acl.get_recent_err_msg()
    assert acl.util.ptr_to_bytes(wild, 64) is None
    assert acl.util.ptr_to_numpy(wild, (64,), np.uint8) is None


@pytest.mark.skipif(raw._populate is None, reason="this system does not tell pages' permissions")
@pytest.mark.parametrize("pages", [1, 64])
def test_host_memory_that_may_only_be_read(device, pages):
    size = pages * mmap.PAGESIZE
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    start = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    pointer = malloc(size)
    assert acl.rt.memcpy(pointer, size, start, size, H2D) == 0
    assert acl.rt.memcpy(start, size, pointer, size, D2H) == 107000
    assert acl.rt.memcpy(pointer, size, start + 1, size - 1, H2D) == 0
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.munmap(start, size)
    assert acl.rt.memcpy(pointer, size, start, size, H2D) == 107000


def test_systems_that_only_know_mapped_from_unmapped(device, monkeypatch):
    monkeypatch.setattr(raw, "_populate", None)
    assert not raw.accessible(UNMAPPED, 8, write=False)
    array = np.zeros(1 << 20, np.uint8)
    assert raw.accessible(acl.util.numpy_to_ptr(array), array.nbytes, write=True)
    monkeypatch.setattr(raw, "_libc", None)
    assert raw.accessible(UNMAPPED, 8, write=False)


def test_the_kernels_list_of_mappings_knows_permissions():
    array = np.zeros(1 << 22, np.uint8)
    start = acl.util.numpy_to_ptr(array)
    assert raw._listed(start, array.nbytes, write=True)
    assert not raw._listed(UNMAPPED, 8, write=False)
    assert not raw._listed(start, 2**46, write=False)


@pytest.mark.parametrize("protection", [mmap.PROT_READ, mmap.PROT_EXEC, mmap.PROT_READ | mmap.PROT_EXEC])
def test_code_is_told_from_data(protection):
    page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start), mmap.PAGESIZE, protection) == 0
    assert raw.executable(start) == bool(protection & mmap.PROT_EXEC)
    assert not raw.executable(UNMAPPED)


def test_memset(device):
    pointer, host = malloc(64), acl.rt.malloc_host(64)[0]
    assert acl.rt.memset(pointer, 64, 0x1AB, 64) == 0
    assert acl.rt.memset(pointer + 10, 54, -1, 5) == 0
    assert download(pointer, 64) == b"\xab" * 10 + b"\xff" * 5 + b"\xab" * 49
    assert acl.rt.memset(host, 64, 3, 64) == 0
    assert acl.util.ptr_to_bytes(host, 64) == b"\x03" * 64
    assert acl.rt.memset(pointer, 64, 0, 0) == 0
    assert acl.rt.memset(0, 64, 0, 64) == acl.rt.memset(None, 64, 0, 0) == 100000
    assert acl.rt.memset(pointer, 8, 0, 9) == 107000
    assert acl.rt.memset(acl.util.numpy_to_ptr(np.zeros(64)), 64, 0, 8) == 107016
    assert acl.rt.memset(pointer, 64, 2**31, 8) == acl.rt.memset(pointer, 64, "0", 8) == 100000
    assert acl.rt.memset(pointer, 64, 0, -1) == acl.rt.memset(pointer, -1, 0, 0) == 100000


def test_overlapping_copies_move(device):
    pointer = upload(np.arange(32, dtype=np.uint8))
    assert acl.rt.memcpy(pointer + 4, 28, pointer, 28, D2D) == 0
    assert download(pointer, 32) == bytes([0, 1, 2, 3, *range(28)])


def test_numpy_integers_are_integers(device):
    pointer, ret = acl.rt.malloc(np.int64(16), np.int32(0))
    assert ret == 0
    assert acl.rt.memset(np.uint64(pointer), np.int64(16), np.int8(1), np.uint16(16)) == 0
    assert download(pointer, 16) == b"\x01" * 16


def test_rows_stay_inside_their_blocks(device):
    host, far = acl.rt.malloc_host(64)[0], malloc(4096)
    array = np.arange(64, dtype=np.uint8)
    data = acl.util.numpy_to_ptr(array)
    assert acl.rt.memcpy_2d(far, 16, data, 8, 8, 8, H2D) == 0
    assert download(far, 24)[16:] == bytes(range(8, 16))
    assert acl.rt.memcpy_2d(host, 16, far, 16, 8, 5, D2H) == 107000  # the last row begins at the end of its block
    assert "only 64 bytes left" in acl.get_recent_err_msg()
    assert acl.rt.memcpy_2d(host, 2**40, far, 2**40, 8, 2**40, D2H) == 107000
    assert acl.rt.memcpy_2d(data, 2**40, data + 8, 2**40, 8, 2**20, H2H) == 107000
    assert acl.rt.memcpy_2d(host, 16, far, 16, 0, 2**40, D2H) == 0
    assert acl.rt.memcpy_2d(host, 8, far, 16, 16, 1, D2H) == 100000
    assert acl.rt.memcpy(host, 64, far + (1 << 40), 64, D2H) == 107016
    assert "past the end of one" in acl.get_recent_err_msg()
