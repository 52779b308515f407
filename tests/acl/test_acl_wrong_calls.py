"""Every function of the C interface, with every argument wrong in turn: a code or null, a message, no exception."""

from __future__ import annotations

import inspect
import logging
import math
import threading

import numpy as np
import pytest

from aclgrad import acl
from aclgrad.frontends.acl import boundary, engine_cpu, meta

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


def subscribed(thread: int) -> int:
    stream = acl.rt.create_stream()[0]
    acl.rt.subscribe_report(thread, stream)
    return stream


def waiting() -> int:
    stream = subscribed(threading.get_ident())
    acl.rt.launch_callback(nothing, 0, 0, stream)
    acl.rt.synchronize_stream(stream)
    return 1000


def desc() -> int:
    return acl.create_tensor_desc(0, [2, 3], 2)


def nothing(_: object) -> None:
    pass


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
    "aclrtMallocAlign32": lambda: (8, 0),
    "aclrtMallocCached": lambda: (8, 0),
    "aclrtMallocWithCfg": lambda: (8, 0, 0),
    "aclrtMallocHostWithCfg": lambda: (8, 0),
    "aclrtMemFlush": lambda: (malloc(), 64),
    "aclrtMemInvalidate": lambda: (malloc(), 64),
    "aclrtFreeWithDevSync": lambda: (malloc(),),
    "aclrtFreeHostWithDevSync": lambda: (acl.rt.malloc_host(8)[0],),
    "aclrtMemcpy2d": lambda: (malloc(), 16, HOST.ctypes.data, 16, 8, 4, 1),
    "aclrtMemcpy2dAsync": lambda: (malloc(), 16, HOST.ctypes.data, 16, 8, 4, 1, 0),
    "aclrtPointerGetAttributes": lambda: (malloc(),),
    "aclrtMemGetAddressRange": lambda: (malloc(),),
    "aclrtSynchronizeDeviceWithTimeout": lambda: (10,),
    "aclrtDestroyStreamForce": lambda: (acl.rt.create_stream()[0],),
    "aclrtStreamGetPriority": lambda: (0,),
    "aclrtStreamGetFlags": lambda: (0,),
    "aclrtStreamGetId": lambda: (0,),
    "aclrtSetStreamFailureMode": lambda: (0, 1),
    "aclrtSubscribeReport": lambda: (1, acl.rt.create_stream()[0]),
    "aclrtUnSubscribeReport": lambda: (1, subscribed(1)),
    "aclrtLaunchCallback": lambda: (print, 0, 0, subscribed(1)),
    "aclrtProcessReport": lambda: (waiting(),),
    "aclrtLaunchHostFunc": lambda: (0, nothing, 0),
    "aclrtCreateEventExWithFlag": lambda: (8,),
    "aclrtStreamWaitEventWithTimeout": lambda: (0, recorded(), 10),
    "aclrtSynchronizeEventWithTimeout": lambda: (recorded(), 10),
    "aclrtQueryEvent": lambda: (recorded(),),
    "aclrtQueryEventWaitStatus": lambda: (recorded(),),
    "aclrtEventGetTimestamp": lambda: (recorded(),),
    "aclrtPeekAtLastError": lambda: (0,),
    "aclrtGetLastError": lambda: (0,),
    "aclrtDeviceCanAccessPeer": lambda: (0, 0),
    "aclrtDeviceEnablePeerAccess": lambda: (1, 0),
    "aclrtDeviceDisablePeerAccess": lambda: (1,),
    "aclrtDevicePeerAccessStatus": lambda: (0, 0),
    "aclrtQueryDeviceStatus": lambda: (0,),
    "aclrtGetPrimaryCtxState": lambda: (0,),
    "aclrtSetOpWaitTimeout": lambda: (1,),
    "aclrtSetOpExecuteTimeOut": lambda: (1,),
    "aclrtSetOpExecuteTimeOutWithMs": lambda: (1,),
    "aclrtSetSysParamOpt": lambda: (0, 1),
    "aclrtGetSysParamOpt": lambda: (0,),
    "aclrtCtxSetSysParamOpt": lambda: (0, 1),
    "aclrtCtxGetSysParamOpt": lambda: (0,),
    "aclCreateDataBuffer": lambda: (0, 8),
    "aclDestroyDataBuffer": lambda: (acl.create_data_buffer(0, 8),),
    "aclUpdateDataBuffer": lambda: (acl.create_data_buffer(0, 8), 0, 4),
    "aclGetDataBufferAddr": lambda: (acl.create_data_buffer(8, 8),),
    "aclGetDataBufferSize": lambda: (acl.create_data_buffer(0, 8),),
    "aclGetDataBufferSizeV2": lambda: (acl.create_data_buffer(0, 8),),
    "aclCreateTensorDesc": lambda: (0, [2, 3], 2),
    "aclDestroyTensorDesc": lambda: (desc(),),
    "aclGetTensorDescType": lambda: (desc(),),
    "aclGetTensorDescFormat": lambda: (desc(),),
    "aclGetTensorDescSize": lambda: (desc(),),
    "aclGetTensorDescElementCount": lambda: (desc(),),
    "aclGetTensorDescNumDims": lambda: (desc(),),
    "aclGetTensorDescDim": lambda: (desc(), 1),
    "aclGetTensorDescDimV2": lambda: (desc(), 1),
    "aclSetTensorDescName": lambda: (desc(), "w"),
    "aclGetTensorDescName": lambda: (desc(),),
    "aclSetTensorFormat": lambda: (desc(), 2),
    "aclSetTensorShape": lambda: (desc(), [4]),
    "aclSetTensorStorageFormat": lambda: (desc(), 2),
    "aclSetTensorStorageShape": lambda: (desc(), [4]),
    "acl.util.start_thread": lambda: (nothing, []),
    "acl.util.stop_thread": lambda: (acl.util.start_thread(nothing, [])[0],),
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
    "aclrtGetRunMode",
    "aclrtGetVersion",
    "aclrtDeviceGetStreamPriorityRange",
    "aclrtCtxGetCurrentDefaultStream",
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
INSTEAD_OF_A_CODE = {0, None, (0, None), (0, 100000), 100000, 500000, -1, ""}
ANYTHING = {
    ("aclrtLaunchCallback", 1), ("aclrtLaunchHostFunc", 2), ("aclCreateTensorDesc", 1), ("aclSetTensorShape", 1),
    ("aclSetTensorStorageShape", 1),
}  # fmt: skip
"""Arguments that may be whatever the callback takes, or any iterable."""


class Hostile:
    """An object on which nothing works."""

    def _refuse(self, *args):
        raise RuntimeError("hostile")

    __repr__ = __str__ = __index__ = __len__ = __bool__ = __eq__ = __float__ = __fspath__ = _refuse
    __hash__ = object.__hash__


def returns_no_code(name: str) -> bool:
    named = ("aclCreate", "acl.util", "aclDataType", "aclFloat", "aclGetRecent", "aclrtGetSoc", "aclGetDataBuffer")
    if name.startswith("aclGetTensorDesc"):
        return not name.endswith("V2")
    others = ("aclDestroyTensorDesc", "aclSetTensorDescName", "aclrtPeekAtLastError", "aclrtGetLastError")
    return name.startswith(named) or name in others


def is_refusal(name: str, result: object) -> bool:
    if returns_no_code(name):
        return result in INSTEAD_OF_A_CODE or (isinstance(result, float) and math.isnan(result))
    code = result[-1] if isinstance(result, tuple) else result
    return type(code) is int and code != 0


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(engine_cpu.CpuEngine, "count", 2)
    acl.rt.set_device(0)


@pytest.fixture
def each_function(each_case):
    """Checks functions one by one, each on device 0 and with what it alone has logged."""

    def run(check, names, *caplog):
        def one(name):
            acl.rt.set_device(0)
            for records in caplog:
                records.clear()
            check(name, *caplog)

        each_case(one, {name: (name,) for name in names})

    return run


def test_every_function_is_listed_here():
    assert RIGHT.keys() | WITHOUT_ARGUMENTS == FUNCTIONS.keys()


def test_the_right_call_succeeds(each_function):
    each_function(check_the_right_call, RIGHT)


def check_the_right_call(name):
    acl.finalize()
    acl.get_recent_err_msg()
    result = FUNCTIONS[name](*RIGHT[name]())
    assert acl.get_recent_err_msg() is None
    if not returns_no_code(name):
        assert not is_refusal(name, result)


def each_with(name, values):
    """(value, position, result) of calls that are right but for one argument."""
    for value in values:
        acl.rt.set_device(0)  # which a call before may have reset
        for position in range(len(RIGHT[name]())):
            args = list(RIGHT[name]())
            args[position] = value
            acl.get_recent_err_msg()
            yield value, position, FUNCTIONS[name](*args)


def test_each_argument_wrong_in_turn(each_function, caplog):
    each_function(check_each_argument, RIGHT, caplog)


def check_each_argument(name, caplog):
    for wrong, position, result in each_with(name, [object(), {}, 1j, Ellipsis, Hostile()]):
        if (name, position) in ANYTHING:
            continue
        assert is_refusal(name, result), (type(wrong), position, result)
        message = acl.get_recent_err_msg()
        assert message.startswith(f"{name}: "), (type(wrong), position)
        if not isinstance(wrong, Hostile):
            assert not caplog.records, "a wrong argument is not an internal fault"


def test_odd_values_never_raise(each_function, caplog):
    each_function(check_odd_values, RIGHT, caplog)


def check_odd_values(name, caplog):
    values = (-1, 2**64, 2**5000, "text", b"bytes", 0.5, math.nan, True, None, [], (1,), 0xDEADBEEF)
    for odd, position, result in each_with(name, values):
        told = acl.get_recent_err_msg() is not None
        assert returns_no_code(name) or is_refusal(name, result) == told, (repr(odd)[:20], position, result)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_too_few_and_too_many_arguments(each_function, caplog):
    each_function(check_the_number_of_arguments, sorted(FUNCTIONS), caplog)


def check_the_number_of_arguments(name, caplog):
    right = RIGHT.get(name, tuple)()
    for args in ([*right, 0], right[:-1] if len(right) > 1 else [0] * 9):
        acl.get_recent_err_msg()
        if name.startswith(("aclrt", "acl.util")) or FUNCTIONS[name].__module__.endswith((".process", ".buffers")):
            with pytest.raises(TypeError, match=rf"^{name}: .* expected "):
                FUNCTIONS[name](*args)
            continue
        assert is_refusal(name, FUNCTIONS[name](*args))
        assert acl.get_recent_err_msg().startswith(f"{name}: ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_signatures_are_plain():
    for name, function in FUNCTIONS.items():
        kinds = {p.kind for p in inspect.signature(function).parameters.values()}
        assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}, name
