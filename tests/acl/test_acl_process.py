"""Initialisation, messages, and facts about types: the rows of the behaviour table that need no device."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from aclgrad import acl, aclnn
from aclgrad.frontends.acl.enums import ACL_DATA_TYPES, DATA_TYPE_SIZES, PRIVATE_FORMATS, TORCH_DTYPES, AclDataType


def test_init_and_finalize_cycle():
    assert acl.init() == 0
    assert acl.finalize() == 0
    assert acl.init() == 0
    assert acl.finalize() == 0


def test_a_second_init_is_refused_but_counted():
    assert acl.init(None) == 0
    assert acl.init() == 100002
    assert "aclInit" in acl.get_recent_err_msg()
    assert acl.finalize_reference() == (1, 0)
    assert acl.finalize_reference() == (0, 0)
    assert acl.finalize_reference() == (0, 100037)


def test_finalize_clears_the_counter_whatever_its_value():
    acl.init(), acl.init(), acl.init()
    assert acl.finalize() == 0
    assert acl.finalize() == 100037
    assert acl.finalize_reference() == (0, 100037)
    assert acl.init() == 0


def test_finalize_without_init():
    assert acl.finalize() == 100037


def test_configuration_files(tmp_path):
    good, bad, huge = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "huge.json"
    good.write_text("{}")
    bad.write_text("{")
    with huge.open("wb") as file:
        file.truncate((10 << 20) + 1)
    for path, code in ((good, 0), (bad, 100006), (huge, 100005), (tmp_path / "none", 100003), (tmp_path, 100003)):
        assert acl.init(str(path)) == code, path
        acl.finalize()
    for odd in (5, 1.5, object(), ["x"]):
        assert acl.init(odd) == 100000
    assert acl.init("a\0b") in (100003, 100006)
    assert acl.init(str(good).encode()) == 0
    acl.finalize()
    assert acl.init("") == 0


def test_a_message_is_given_once_and_only_the_newest():
    assert acl.get_recent_err_msg() is None
    acl.finalize()
    acl.rt.free(0)
    message = acl.get_recent_err_msg()
    assert "aclrtFree" in message
    assert "devPtr is null" in message
    assert "100000" in message
    assert acl.get_recent_err_msg() is None


def test_success_keeps_an_older_message():
    acl.finalize()
    acl.init()
    assert "aclFinalize" in acl.get_recent_err_msg()


def test_messages_belong_to_threads():
    acl.rt.free(0)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(acl.get_recent_err_msg()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert acl.get_recent_err_msg() is not None


def test_soc_name(monkeypatch):
    monkeypatch.delenv("ACLGRAD_SOC", raising=False)
    assert acl.get_soc_name() == acl.rt.get_soc_name() == "Ascend910B"
    monkeypatch.setenv("ACLGRAD_SOC", "Ascend310P")
    assert acl.get_soc_name() == "Ascend310P"
    monkeypatch.setenv("ACLGRAD_SOC", "")
    assert acl.get_soc_name() == "Ascend910B"


@pytest.mark.parametrize("name", ["ascend910b", "Nope", "Ascend", " Ascend910B"])
def test_a_chip_that_does_not_exist_is_refused(name, monkeypatch):
    monkeypatch.setenv("ACLGRAD_SOC", name)
    assert acl.init() == 100000
    assert f"ACLGRAD_SOC is {name!r}, expected a chip's name such as Ascend910B" in acl.get_recent_err_msg()
    assert acl.get_soc_name() is None
    x = torch.ones(3)
    assert aclnn.aclnnHardsigmoidGetWorkspaceSize(x, torch.empty(3))[2] == 161002
    assert "ACLGRAD_SOC" in acl.get_recent_err_msg()


SIZES = {
    0: [-1, 13],
    1: [2, 4, 12, 29, 30, 34, 35, 36, 37],
    2: [1, 6, 7, 27],
    4: [0, 3, 8, 33],
    8: [9, 10, 11, 16, 38, 39, 40, 41],
    16: [17],
}


def test_data_type_sizes():
    for size, numbers in SIZES.items():
        assert [acl.data_type_size(number) for number in numbers] == [size] * len(numbers)
    assert sum(map(len, SIZES.values())) == len(AclDataType)
    assert acl.data_type_size(5) == 0
    assert "aclDataTypeSize" in acl.get_recent_err_msg()


def test_torch_dtypes_map_both_ways_and_agree_about_size():
    for member, dtype in TORCH_DTYPES.items():
        assert ACL_DATA_TYPES[dtype] is member
        assert DATA_TYPE_SIZES[member] == dtype.itemsize
    assert ACL_DATA_TYPES[torch.bfloat16] == acl.ACL_BF16 == 27


def test_constants_have_their_c_names():
    assert acl.ACL_MEMCPY_HOST_TO_DEVICE == 1
    assert acl.ACL_MEM_MALLOC_HUGE_FIRST == acl.ACL_FLOAT == acl.ACL_SUCCESS == acl.ACL_ERROR_NONE == 0
    assert acl.ACL_FORMAT_NCL == 47
    assert "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT" in dir(acl)
    assert int(acl.ACL_FORMAT_FRACTAL_NZ) in PRIVATE_FORMATS
    with pytest.raises(AttributeError, match="ACL_NONSENSE"):
        _ = acl.ACL_NONSENSE


def test_submodules_can_be_imported():
    import aclgrad.acl.rt
    import aclgrad.acl.util

    assert aclgrad.acl.rt is acl.rt
    assert aclgrad.acl.util.bytes_to_ptr is acl.util.bytes_to_ptr


def test_every_float16_is_what_torch_says():
    bits = torch.arange(1 << 16, dtype=torch.int32)
    truth = bits.to(torch.uint16).view(torch.float16).double()
    finite = torch.isfinite(truth)
    for number in bits[finite][::7].tolist():
        value = acl.float16_to_float(number)
        assert value == truth[number].item()
        assert acl.float_to_float16(value) == number


def test_float16_of_infinity_and_nan():
    assert acl.float16_to_float(0x7C00) == 65536.0
    assert acl.float16_to_float(0xFC00) == -65536.0
    assert acl.float16_to_float(0x7E00) == 98304.0
    for value in (math.inf, math.nan, 65520.0, 1e300, 10**400):
        assert acl.float_to_float16(value) == 0x7BFF
    for value in (-math.inf, -math.nan, -65520.0, -1e300, -(10**400)):
        assert acl.float_to_float16(value) == 0xFBFF
    assert acl.float_to_float16(65519.0) == 0x7BFF


def test_float16_rounds_to_nearest_even():
    values = torch.randn(2000, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.randint(-8, 5, (2000,))
    expected = values.half().view(torch.uint16).tolist()
    assert [acl.float_to_float16(v) for v in values.tolist()] == expected
    assert acl.float_to_float16(1 + 2**-11) == 0x3C00
    assert acl.float_to_float16(1 + 3 * 2**-11) == 0x3C02
