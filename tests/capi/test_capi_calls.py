"""The C functions in a process where Python runs: every case's bits, and what bad input gets."""

import ctypes
import gc
import itertools
import json
import mmap
import re

import pytest
import torch
from capi_helpers import CProgram

from aclgrad import acl
from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.acl import devices, meta
from aclgrad.frontends.acl.enums import AclDataType
from aclgrad.frontends.acl.tensors import BOOL_ARRAYS, FLOAT_ARRAYS, SCALARS
from aclgrad.frontends.capi.prototypes import CALLBACKS, RUNTIME_HANDLES, Role, prototypes
from aclgrad.testing.cases import DOCUMENT, EDGE, REAL, SMOKE, is_documented, suite
from aclgrad.testing.program import run

WILD = 0xDEADBEEF000
NON_CANONICAL = 0x4AC1_0000_0000_0001
PARAM_INVALID, NULLPTR, PARAM = 161002, 161001, 100000
TABLE = {prototype.name: prototype for prototype in prototypes()}


CASES = [
    pytest.param(
        operator,
        case,
        dtype,
        id=f"{operator.spec.name}-{case.name}-{str(dtype)[6:]}",
        marks=[] if dtype == case.dtypes[0] else [pytest.mark.slow],
    )
    for operator in aclnn_operators()
    for case in suite(operator.spec).cases
    if case.tags & {SMOKE, EDGE, DOCUMENT, REAL}
    for dtype in case.dtypes
    if is_documented(operator.spec, case, dtype)
]


def flat(outs):
    return [t for out in outs if out is not None for t in (out if isinstance(out, (list, tuple)) else [out])]


@pytest.mark.parametrize(("operator", "case", "dtype"), CASES)
def test_every_case_gives_the_bits_of_the_aclnn_door(c, operator, case, dtype):
    args = case.build(dtype, seed=7)
    outs = operator.plan(args).allocate()
    status, expected, _ = run(operator, args, outs)
    program = CProgram(c)
    c_status, results = program.run(operator, args, outs)
    program.close()
    assert c_status == status
    if status == 0:
        for result, want in zip(results, flat(expected), strict=True):
            assert result.shape == want.shape and result.stride() == want.stride()
            assert bits(result) == bits(want)


def bits(tensor):
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


# --- out-pointers ----------------------------------------------------------------------------------------------------

OUTS = [
    pytest.param(prototype, index, id=f"{prototype.name}-{param.name}")
    for prototype in TABLE.values()
    for index, param in enumerate(prototype.params)
    if param.role in (Role.OUT, Role.OUT_ARRAY) and param.name != "refCount"
]


def arguments(c, prototype, index, bad):
    """Something that may be passed for every parameter, `bad` for one of them."""
    room = (ctypes.c_uint64 * 4)(*[0x5A5A5A5A5A5A5A5A] * 4)
    values = [
        0 if param.role in (Role.VALUE, Role.TEXT, Role.ARRAY) else ctypes.addressof(room) for param in prototype.params
    ]
    values[index] = bad
    return [
        float(v) if p.type in ("float", "double") else v for v, p in zip(values, prototype.params, strict=True)
    ], room


@pytest.mark.parametrize(("prototype", "index"), OUTS)
def test_bad_out_pointers_are_refused_and_nothing_is_written(c, prototype, index):
    null, wrong = (PARAM, PARAM) if prototype.returns == "aclError" else (NULLPTR, PARAM_INVALID)
    name = prototype.params[index].name
    for bad, code in ((0, null), (WILD, wrong), (NON_CANONICAL, wrong), (2**64 - 4, wrong)):
        values, room = arguments(c, prototype, index, bad)
        assert getattr(c, prototype.name)(*values) == code
        assert f"{prototype.name}: {name} " in c.message()
        assert list(room) == [0x5A5A5A5A5A5A5A5A] * 4


def test_a_read_only_page_is_no_room_for_results(c):
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    readable = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert c.aclrtCreateStream(readable) == PARAM
    assert "expected writable memory" in c.message()


def test_results_are_written_on_success_only(c):
    stream = ctypes.c_size_t(5)
    assert c.aclrtCreateStream(ctypes.addressof(stream)) == 0 and stream.value > 2**48
    size, executor = ctypes.c_uint64(5), ctypes.c_size_t(6)
    status = c.aclnnHardsigmoidBackwardGetWorkspaceSize(0, 0, 0, ctypes.addressof(size), ctypes.addressof(executor))
    assert (status, size.value, executor.value) == (NULLPTR, 5, 6)
    assert "gradOutput" in c.message()
    assert c.aclrtDestroyStream(stream.value) == 0


# --- arrays and strings ----------------------------------------------------------------------------------------------


def dims(*values):
    return (ctypes.c_int64 * len(values))(*values)


def create(c, view, rank, stride=0, storage=0, storage_rank=0, dtype=0, offset=0, form=2, data=0):
    return c.aclCreateTensor(view, rank, dtype, stride, offset, form, storage, storage_rank, data)


def test_arrays_are_read_where_they_are_and_nowhere_else(c):
    shape = dims(4, 2)
    at = ctypes.addressof(shape)
    good = create(c, at, 2)
    assert good
    refused = {
        "null dims": (0, 2),
        "wild dims": (WILD, 2),
        "non-canonical dims": (NON_CANONICAL, 2),
        "endless dims": (at, 2**61),
        "dims beyond all addresses": (at, 2**64 - 1),
        "wild stride": (at, 2, WILD),
        "wild storage": (at, 2, 0, WILD, 3),
        "a data type that is none": (at, 2, 0, 0, 0, 999),
        "a negative data type": (at, 2, 0, 0, 0, -7),
        "a negative offset": (at, 2, 0, 0, 0, 0, -1),
        "a format that is none": (at, 2, 0, 0, 0, 0, 0, 999),
    }
    for name, values in refused.items():
        assert not create(c, *values), name
        assert c.message().startswith("aclCreateTensor: "), name
    assert not create(c, ctypes.addressof(dims(-1, 2)), 2) and "viewDims[0] is -1" in c.message()
    assert not create(c, ctypes.addressof(dims(2**62, 2**62)), 2) and "viewDims" in c.message()
    assert create(c, 0, 0) and create(c, at, 0)
    assert c.aclDestroyTensor(good) == 0


def test_a_wild_list_member_is_refused(c):
    members = (ctypes.c_size_t * 2)(0, WILD)
    assert not c.aclCreateTensorList(ctypes.addressof(members), 2)
    assert "value[1]" in c.message()
    assert not c.aclCreateTensorList(WILD, 1) and "readable" in c.message()
    empty = c.aclCreateTensorList(0, 0)
    assert empty and c.aclDestroyTensorList(empty) == 0


def test_strings_end_or_are_refused(c, tmp_path):
    c.aclFinalize()
    assert c.aclInit(ctypes.cast(WILD, ctypes.c_char_p)) == PARAM and "configPath" in c.message()
    assert c.aclInit(b"/nowhere/\xff\xfe.json") == 100003
    assert c.aclInit(b"x" * (1 << 17)) == PARAM and "no end" in c.message()
    config = tmp_path / ("ä" * 40 + ".json")
    config.write_text("{}")
    assert c.aclInit(str(config).encode()) == 0
    assert c.aclnnInit(None) == c.aclnnFinalize() == 0


def test_arrays_of_every_kind_are_copied(c):
    integers, reals = dims(-(2**63), 2**63 - 1), (ctypes.c_float * 3)(1.5, float("inf"), -0.1)
    truths = (ctypes.c_uint8 * 4)(0, 1, 2, 255)  # a C bool may hold any byte
    for what, values in (("Int", integers), ("Float", reals), ("Bool", truths)):
        handle = getattr(c, f"aclCreate{what}Array")(ctypes.addressof(values), len(values))
        assert handle, c.message()
        get = getattr(c, f"aclGet{what}ArraySize")
        assert c.out(get, handle, kind=ctypes.c_uint64, first=False) == (0, len(values))
        destroy = getattr(c, f"aclDestroy{what}Array")
        assert destroy(handle) == 0 and destroy(handle) == PARAM_INVALID and destroy(0) == 0
    handle = c.aclCreateBoolArray(ctypes.addressof(truths), 4)
    assert BOOL_ARRAYS.get(handle, "").values == (False, True, True, True)
    reals_handle = c.aclCreateFloatArray(ctypes.addressof(reals), 3)
    assert FLOAT_ARRAYS.get(reals_handle, "").values == tuple(reals)
    assert c.aclDestroyBoolArray(handle) == c.aclDestroyFloatArray(reals_handle) == 0


def test_scalars_are_read_by_their_type(c):
    samples = {
        AclDataType.ACL_FLOAT: torch.tensor([1.25]),
        AclDataType.ACL_FLOAT16: torch.tensor([-0.1], dtype=torch.float16),
        AclDataType.ACL_BF16: torch.tensor([3.0], dtype=torch.bfloat16),
        AclDataType.ACL_DOUBLE: torch.tensor([0.1], dtype=torch.float64),
        AclDataType.ACL_INT64: torch.tensor([-(2**63)]),
        AclDataType.ACL_UINT8: torch.tensor([255], dtype=torch.uint8),
        AclDataType.ACL_BOOL: torch.tensor([True]),
        AclDataType.ACL_COMPLEX64: torch.tensor([1 - 2j]),
    }
    for kind, value in samples.items():
        handle = c.aclCreateScalar(value.data_ptr(), kind)
        assert SCALARS.get(handle, "").value == value.item(), kind
        assert c.aclDestroyScalar(handle) == 0
    assert not c.aclCreateScalar(0, 0) and "value is null" in c.message()
    assert not c.aclCreateScalar(WILD, 0) and "readable" in c.message()
    assert not c.aclCreateScalar(samples[AclDataType.ACL_FLOAT].data_ptr(), 13) and "ACL_STRING" in c.message()
    assert not c.aclCreateScalar(samples[AclDataType.ACL_FLOAT].data_ptr(), 999) and "999" in c.message()


def test_getters_give_arrays_that_the_caller_releases(c):
    shape, stride, storage = dims(4, 2), dims(3, 1), dims(5, 3)
    handle = create(c, ctypes.addressof(shape), 2, ctypes.addressof(stride), ctypes.addressof(storage), 2, offset=1)
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    wanted = (("aclGetViewShape", shape), ("aclGetViewStrides", stride), ("aclGetStorageShape", storage))
    for name, values in wanted:
        array, count = ctypes.c_size_t(), ctypes.c_uint64()
        assert getattr(c, name)(handle, ctypes.addressof(array), ctypes.addressof(count)) == 0
        assert [*(ctypes.c_int64 * count.value).from_address(array.value)] == [*values]
        free(array.value)
        assert getattr(c, name)(0, ctypes.addressof(array), ctypes.addressof(count)) == NULLPTR
    assert c.out(c.aclGetViewOffset, handle, kind=ctypes.c_int64, first=False) == (0, 1)
    assert c.out(c.aclGetDataType, handle, kind=ctypes.c_int, first=False) == (0, 0)
    assert c.out(c.aclGetFormat, handle, kind=ctypes.c_int, first=False) == (0, 2)
    assert c.aclDestroyTensor(handle) == 0


# --- handles and memory ----------------------------------------------------------------------------------------------


def test_handles_are_recognised_and_never_reused(c):
    shape = dims(2)
    first = create(c, ctypes.addressof(shape), 1)
    stream = c.stream()
    assert c.aclDestroyTensor(first) == 0
    for foreign in (first, stream, WILD, NON_CANONICAL, 2**64 - 1, ctypes.addressof(shape)):
        assert c.aclDestroyTensor(foreign) == PARAM_INVALID
        assert c.message()
    assert create(c, ctypes.addressof(shape), 1) != first
    for foreign in (first, WILD, 2**64 - 1):
        assert c.aclrtSynchronizeStream(foreign) == 107017
        assert c.aclrtDestroyStream(foreign) == 107017
        assert c.aclDestroyAclOpExecutor(foreign) == 561000
    assert c.aclDestroyAclOpExecutor(0) == 561103
    assert c.aclrtDestroyStream(stream) == 0 and c.aclrtDestroyStream(stream) == 107017


def test_memory_is_checked_through_c_too(c):
    block, host = c.malloc(64), (ctypes.c_uint8 * 128)()
    at = ctypes.addressof(host)
    assert c.aclrtMemcpy(block, 64, at, 65, 1) == 107000
    assert c.aclrtMemcpy(block, 128, at, 128, 1) == 107000  # a write past the end
    assert c.aclrtMemcpy(at, 64, WILD, 64, 2) == 107016
    assert c.aclrtMemcpy(WILD, 64, block, 64, 2) == 107000
    assert c.aclrtMemcpy(block, 64, at, 64, 99) == PARAM
    assert c.aclrtMemset(block, 64, 7, 64) == 0
    assert c.aclrtMemcpy(at, 128, block, 100, 2) == 0  # a read past the end gives zeros
    assert bytes(host) == bytes([7] * 64 + [0] * 64)
    assert c.aclrtFree(block + 1) == 207002
    assert c.aclrtFree(block) == 0 and c.aclrtFree(block) == 207002
    assert c.out(c.aclrtMalloc, 2**63, 0) == (207001, 0)
    assert c.out(c.aclrtMalloc, 64, 77) == (107018, 0)


def test_an_executor_runs_once(c):
    program = CProgram(c)
    tensors = [program.upload(torch.ones(4)) for _ in range(3)]
    size, executor = ctypes.c_uint64(), ctypes.c_size_t()
    plan = (*tensors, ctypes.addressof(size), ctypes.addressof(executor))
    assert c.aclnnHardsigmoidBackwardGetWorkspaceSize(*plan) == 0
    assert c.aclnnBatchNormElemtBackward(0, 0, executor.value, program.stream) == PARAM_INVALID
    assert c.aclnnHardsigmoidBackward(0, 0, executor.value, program.stream) == 0
    assert c.aclnnHardsigmoidBackward(0, 0, executor.value, program.stream) == PARAM_INVALID
    assert c.aclnnHardsigmoidBackward(0, 0, 0, program.stream) == NULLPTR
    assert c.aclnnHardsigmoidBackward(0, 0, WILD, program.stream) == PARAM_INVALID
    assert c.aclnnHardsigmoidBackwardGetWorkspaceSize(*plan) == 0
    assert c.aclSetAclOpExecutorRepeatable(executor.value) == 0
    for _ in range(3):
        assert c.aclnnHardsigmoidBackward(0, 0, executor.value, program.stream) == 0
    assert c.aclSetInputTensorAddr(executor.value, 0, tensors[0], WILD) == 0
    assert c.aclnnHardsigmoidBackward(0, 0, executor.value, program.stream) == 361001
    assert c.aclDestroyAclOpExecutor(executor.value) == 0
    program.close()


# --- values and messages ---------------------------------------------------------------------------------------------


def test_plain_values_come_back(c):
    assert c.aclDataTypeSize(27) == 2 and c.aclDataTypeSize(999) == 0
    assert c.aclFloatToFloat16(float("inf")) == 0x7BFF and c.aclFloat16ToFloat(0x7C00) == 65536
    assert c.aclFloat16ToFloat(0x3C00) == 1.0
    assert c.aclrtGetSocName() == acl.get_soc_name().encode()
    assert c.out(c.aclrtGetDeviceCount, kind=ctypes.c_uint32) == (0, 1)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert c.aclrtGetMemInfo(1, ctypes.addressof(free), ctypes.addressof(total)) == 0
    assert 0 < free.value <= total.value


def test_a_message_is_given_once_and_stays_valid_until_the_next_is_asked_for(c):
    address_of = ctypes.cast(c.aclGetRecentErrMsg, ctypes.c_void_p).value
    ask = ctypes.CFUNCTYPE(ctypes.c_size_t)(address_of)  # the pointer itself, not what ctypes makes of it
    assert c.aclrtSetDevice(9) == 107001
    address = ask()
    for _ in range(50):
        c.aclrtSetDevice(9)
    gc.collect()
    assert ctypes.string_at(address).startswith(b"aclrtSetDevice: deviceId is 9")
    assert ask() != 0 and ask() == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, RecursionError, MemoryError, ValueError, GeneratorExit]
)
def test_no_exception_becomes_a_success(c, monkeypatch, error):
    def raising(*_):
        raise error("on purpose")

    monkeypatch.setattr("aclgrad.frontends.acl.rt.device.device_id", raising)
    assert c.aclrtSetDevice(0) in (500000, 200000)
    assert error.__name__ in c.message() or error is MemoryError
    monkeypatch.setattr(meta, "describe", raising)
    assert not create(c, 0, 0)
    assert c.message().startswith("aclCreateTensor: ")
    monkeypatch.setattr("aclgrad.frontends.aclnn.pairs.plan_executor", raising)
    room = (ctypes.c_uint64 * 2)(3, 4)
    at = ctypes.addressof(room)
    assert c.aclnnHardsigmoidBackwardGetWorkspaceSize(0, 0, 0, at, at + 8) == 561000
    assert list(room) == [3, 4]


def test_an_answer_of_the_wrong_type_is_a_failure(c, monkeypatch):
    monkeypatch.setattr("aclgrad.frontends.acl.rt.device.SUCCESS", "all is well")
    assert c.aclrtSetDevice(0) == 500000
    assert "TypeError" in c.message()
    monkeypatch.undo()
    assert devices.current_context() is not None


def test_tensors_are_dumped(loaded, tmp_path):
    """With the handles of an array, which may be destroyed before the stream comes to it."""
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_mode": "all"}}))
    assert loaded.aclInit(str(config).encode()) == loaded.aclrtSetDevice(0) == 0
    address = loaded.malloc(32)
    handles = (ctypes.c_size_t * 2)(*[loaded.tensor((8,), torch.float32, (1,), address) for _ in range(2)])
    array = ctypes.addressof(handles)
    assert loaded.aclDumpOpTensors(b"Add", b"add_custom", array, 1, 1, 0) == 0, loaded.message()
    for handle in handles:
        loaded.aclDestroyTensor(handle)
    assert loaded.aclDumpOpTensors(b"Add", b"add_custom", array, 1, 1, 0) == 161002
    assert loaded.aclDumpOpTensors(None, b"add_custom", array, 1, 1, 0) == 161001
    assert loaded.aclDumpOpTensors(b"Add", b"add_custom", None, 1, 1, 0) == 161001
    assert loaded.aclDumpOpTensors(b"Add", b"add_custom", WILD, 1, 1, 0) == 161002 and "readable" in loaded.message()
    assert loaded.aclrtSynchronizeDevice() == loaded.aclrtFree(address) == loaded.aclrtResetDevice(0) == 0
    assert loaded.aclFinalize() == 0
    files = sorted(path.name for path in tmp_path.glob("*/dump_tensor_data/*"))
    assert files == [f"add_custom.Add.0.forward.{side}.0.pt" for side in ("input", "output")]


LIFE = ("aclInit", "aclFinalize", "aclFinalizeReference", "aclnnFinalize", "aclrtResetDevice", "aclrtResetDeviceForce")
WRONG = (0, 0xDEADBEEF, 0x4AC1FF0000000001)
"""Null, an address, and what looks like a handle."""


def test_messages_name_the_function_and_its_parameter(c):
    """Every function with each of its pointers and handles wrong in turn, beside room for results."""
    room, unnamed, refused = ctypes.create_string_buffer(64), [], 0
    for prototype in prototypes():
        if prototype.name in (*LIFE, "aclrtProcessReport"):
            continue
        names = [param.name for param in prototype.params]
        for position, wrong in itertools.product(range(len(names)), WRONG):
            arguments = [
                None if param.role is Role.TEXT
                else wrong if k == position and (param.is_pointer or param.type in (*RUNTIME_HANDLES, *CALLBACKS))
                else ctypes.addressof(room) if param.role in (Role.OUT, Role.OUT_ARRAY)
                else 0
                for k, param in enumerate(prototype.params)
            ]  # fmt: skip
            c.message()
            getattr(c, prototype.name)(*arguments)
            said = c.message()
            if said is not None:
                refused += 1
                function, _, text = said.partition(": ")
                if function != prototype.name or re.match(r"\w+", text)[0] not in names:
                    unnamed.append(said)
    assert unnamed == []
    assert refused > len(prototypes())
