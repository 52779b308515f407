"""Every function of the C interface, with every argument wrong in turn: a code or null, a message, no exception."""

from __future__ import annotations

import inspect
import logging
import math

import numpy as np
import pytest

from aclgrad import acl
from aclgrad.frontends.acl import boundary, meta

FUNCTIONS = {
    name: function
    for name, function in boundary.FUNCTIONS.items()
    if function.__module__.startswith("aclgrad.frontends.acl.")
}
TENSOR = ((4, 2), 2, 0, None, 0, 2, (4, 2), 2, 0)
HOST = np.zeros(64, np.uint8)


def malloc() -> int:
    return acl.rt.malloc(64, 0)[0]


def tensor() -> int:
    return meta.aclCreateTensor(*TENSOR)


def recorded() -> int:
    event = acl.rt.create_event()[0]
    acl.rt.record_event(event, 0)
    return event


# Arguments that make each function succeed.
RIGHT = {
    "aclrtSetDevice": lambda: (0,),
    "aclrtResetDevice": lambda: (0,),
    "aclrtResetDeviceForce": lambda: (0,),
    "aclrtCreateContext": lambda: (0,),
    "aclrtDestroyContext": lambda: (acl.rt.create_context(0)[0],),
    "aclrtSetCurrentContext": lambda: (acl.rt.get_context()[0],),
    "aclrtCreateStreamWithConfig": lambda: (0, 0),
    "aclrtDestroyStream": lambda: (acl.rt.create_stream()[0],),
    "aclrtSynchronizeStream": lambda: (0,),
    "aclrtSynchronizeStreamWithTimeout": lambda: (0, 1),
    "aclrtStreamQuery": lambda: (0,),
    "aclrtCreateEventWithFlag": lambda: (0,),
    "aclrtDestroyEvent": lambda: (recorded(),),
    "aclrtRecordEvent": lambda: (recorded(), 0),
    "aclrtResetEvent": lambda: (recorded(), 0),
    "aclrtStreamWaitEvent": lambda: (0, recorded()),
    "aclrtSynchronizeEvent": lambda: (recorded(),),
    "aclrtQueryEventStatus": lambda: (recorded(),),
    "aclrtEventElapsedTime": lambda: (recorded(), recorded()),
    "aclrtMalloc": lambda: (8, 0),
    "aclrtFree": lambda: (malloc(),),
    "aclrtMallocHost": lambda: (8,),
    "aclrtFreeHost": lambda: (acl.rt.malloc_host(8)[0],),
    "aclrtMemcpy": lambda: (malloc(), 64, HOST.ctypes.data, 64, 1),
    "aclrtMemcpyAsync": lambda: (malloc(), 64, HOST.ctypes.data, 64, 1, 0),
    "aclrtMemset": lambda: (malloc(), 64, 0, 64),
    "aclrtMemsetAsync": lambda: (malloc(), 64, 0, 64, 0),
    "aclrtGetMemInfo": lambda: (0,),
    "aclDataTypeSize": lambda: (0,),
    "aclFloat16ToFloat": lambda: (0x3C00,),
    "aclFloatToFloat16": lambda: (1.0,),
    "acl.util.bytes_to_ptr": lambda: (b"abc",),
    "acl.util.ptr_to_bytes": lambda: (HOST.ctypes.data, 64),
    "acl.util.numpy_to_ptr": lambda: (HOST,),
    "acl.util.numpy_contiguous_to_ptr": lambda: (HOST,),
    "acl.util.ptr_to_numpy": lambda: (HOST.ctypes.data, (8, 8), 2),
    "aclInit": lambda: (None,),
    "aclnnInit": lambda: (None,),
    "aclCreateTensor": lambda: TENSOR,
    "aclInitTensor": lambda: (tensor(), *TENSOR),
    "aclCreateScalar": lambda: (1.0, 0),
    "aclCreateIntArray": lambda: ([1], 1),
    "aclCreateFloatArray": lambda: ([1.0], 1),
    "aclCreateBoolArray": lambda: ([True], 1),
    "aclCreateTensorList": lambda: ([tensor()], 1),
    "aclCreateScalarList": lambda: ([meta.aclCreateScalar(1, 3)], 1),
    "aclDestroyTensor": lambda: (tensor(),),
    "aclDestroyScalar": lambda: (meta.aclCreateScalar(1, 3),),
    "aclDestroyIntArray": lambda: (meta.aclCreateIntArray([1], 1),),
    "aclDestroyFloatArray": lambda: (meta.aclCreateFloatArray([1], 1),),
    "aclDestroyBoolArray": lambda: (meta.aclCreateBoolArray([1], 1),),
    "aclDestroyTensorList": lambda: (meta.aclCreateTensorList([tensor()], 1),),
    "aclDestroyScalarList": lambda: (meta.aclCreateScalarList([], 0),),
    "aclGetViewShape": lambda: (tensor(),),
    "aclGetStorageShape": lambda: (tensor(),),
    "aclGetViewStrides": lambda: (tensor(),),
    "aclGetViewOffset": lambda: (tensor(),),
    "aclGetFormat": lambda: (tensor(),),
    "aclGetDataType": lambda: (tensor(),),
    "aclGetRawTensorAddr": lambda: (tensor(),),
    "aclSetRawTensorAddr": lambda: (tensor(), 0),
    "aclGetIntArraySize": lambda: (meta.aclCreateIntArray([1], 1),),
    "aclGetFloatArraySize": lambda: (meta.aclCreateFloatArray([1], 1),),
    "aclGetBoolArraySize": lambda: (meta.aclCreateBoolArray([1], 1),),
    "aclGetTensorListSize": lambda: (meta.aclCreateTensorList([], 0),),
    "aclGetScalarListSize": lambda: (meta.aclCreateScalarList([], 0),),
}
WITHOUT_ARGUMENTS = {
    "aclFinalize",
    "aclFinalizeReference",
    "aclGetRecentErrMsg",
    "aclrtGetSocName",
    "aclrtGetDevice",
    "aclrtGetDeviceCount",
    "aclrtSynchronizeDevice",
    "aclrtGetCurrentContext",
    "aclrtCreateStream",
    "aclrtCreateEvent",
    "aclnnFinalize",
}
INSTEAD_OF_A_CODE = {0, None, (0, None)}


class Hostile:
    """An object on which nothing works."""

    def _refuse(self, *args):
        raise RuntimeError("hostile")

    __repr__ = __str__ = __index__ = __len__ = __bool__ = __eq__ = __float__ = __fspath__ = _refuse
    __hash__ = object.__hash__


def returns_no_code(name: str) -> bool:
    return name.startswith(("aclCreate", "acl.util", "aclDataType", "aclFloat", "aclGetRecent", "aclrtGetSoc"))


def is_refusal(name: str, result: object) -> bool:
    if returns_no_code(name):
        return result in INSTEAD_OF_A_CODE or (isinstance(result, float) and math.isnan(result))
    code = result[-1] if isinstance(result, tuple) else result
    return type(code) is int and code != 0


@pytest.fixture(autouse=True)
def _device():
    acl.rt.set_device(0)


def test_every_function_is_listed_here():
    assert RIGHT.keys() | WITHOUT_ARGUMENTS == FUNCTIONS.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_call_succeeds(name):
    acl.finalize()
    acl.get_recent_err_msg()
    result = FUNCTIONS[name](*RIGHT[name]())
    assert acl.get_recent_err_msg() is None
    if not returns_no_code(name):
        assert not is_refusal(name, result)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(
    "wrong", [object(), Hostile(), {}, 1j, Ellipsis], ids=["object", "hostile", "dict", "complex", "dots"]
)
def test_each_argument_wrong_in_turn(name, wrong, caplog):
    for position in range(len(RIGHT[name]())):
        args = list(RIGHT[name]())
        args[position] = wrong
        acl.get_recent_err_msg()
        result = FUNCTIONS[name](*args)
        assert is_refusal(name, result), (position, result)
        message = acl.get_recent_err_msg()
        assert message.startswith(f"{name}: ")
        if not isinstance(wrong, Hostile):
            assert not caplog.records, "a wrong argument is not an internal fault"


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(
    "wrong", [-1, 2**64, 2**5000, "text", b"bytes", 0.5, math.nan, True, None, [], (1,), 0xDEADBEEF]
)
def test_odd_values_never_raise(name, wrong, caplog):
    for position in range(len(RIGHT[name]())):
        args = list(RIGHT[name]())
        args[position] = wrong
        acl.get_recent_err_msg()
        result = FUNCTIONS[name](*args)
        if not returns_no_code(name):
            assert is_refusal(name, result) == (acl.get_recent_err_msg() is not None), (position, result)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_too_few_and_too_many_arguments(name, caplog):
    right = RIGHT.get(name, tuple)()
    for args in ([*right, 0], right[:-1] if len(right) > 1 else [0] * 9):
        acl.get_recent_err_msg()
        assert is_refusal(name, FUNCTIONS[name](*args))
        assert acl.get_recent_err_msg().startswith(f"{name}: ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_signatures_are_plain():
    for name, function in FUNCTIONS.items():
        kinds = {p.kind for p in inspect.signature(function).parameters.values()}
        assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}, name
