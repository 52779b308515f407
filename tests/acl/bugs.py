"""Programs on pyACL and the Python aclnn door with one mistake each, in the line marked "here", and programs without.

`@wrong(kind)` names what is found. Every program gets a stream on device 0 of a checked runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch
from acl_helpers import D2D, D2H, H2D, PHASE_ONE, PHASE_TWO, address, create, launch, malloc, three_tensors

from aclgrad import acl, aclnn
from aclgrad.frontends.acl.kinds import Kind

Body = Callable[[int], None]

PROGRAMS: dict[str, tuple[Body, Kind | None]] = {}
BYTES = 32  # of one of three_tensors()


def wrong(kind: Kind) -> Callable[[Body], Body]:
    """A program with a mistake."""
    return lambda body: _register(body, kind)


def right(body: Body) -> Body:
    """A program without."""
    return _register(body, None)


def _register(body: Body, kind: Kind | None) -> Body:
    PROGRAMS[body.__name__] = body, kind
    return body


def release(*tensors: int) -> None:
    """Destroy tensors and free their memory."""
    for tensor in tensors:
        pointer = address(tensor)
        aclnn.aclDestroyTensor(tensor)
        acl.rt.free(pointer)


def download(pointer: int, size: int = BYTES) -> bytes:
    """Device memory as bytes, copied to memory of the host."""
    host = np.empty(size, np.uint8)
    acl.rt.memcpy(acl.util.numpy_to_ptr(host), size, pointer, size, D2H)
    return host.tobytes()


# --- with a mistake ----------------------------------------------------------------------------------------------


@wrong(Kind.UNINITIALISED_READ)
def a_size_in_elements_instead_of_bytes(stream):
    _, x, out = operands = three_tensors()
    values, pointer = np.ones(8, np.float32), malloc(BYTES)
    acl.rt.memcpy(pointer, BYTES, acl.util.numpy_to_ptr(values), values.size, H2D)
    grad = create(data=pointer)
    _, executor, _ = PHASE_ONE(grad, x, out)
    PHASE_TWO(0, 0, executor, stream)  # here
    acl.rt.synchronize_stream(stream)
    release(grad, *operands)


@wrong(Kind.UNINITIALISED_READ)
def a_result_copied_before_anything_ran(_):
    operands = three_tensors()
    pointer = malloc(BYTES)
    acl.rt.memcpy(address(operands[0]), BYTES, pointer, BYTES, D2D)  # here
    acl.rt.free(pointer)
    release(*operands)


@wrong(Kind.COPY_RACE)
def a_result_copied_without_a_synchronisation(stream):
    operands, host = three_tensors(), np.empty(8, np.float32)
    launch(operands, stream)
    acl.rt.memcpy(host.ctypes.data, BYTES, address(operands[2]), BYTES, D2H)  # here
    acl.rt.synchronize_stream(stream)
    release(*operands)


@wrong(Kind.COPY_RACE)
def an_event_that_is_recorded_too_early(stream):
    operands, host = three_tensors(), np.empty(8, np.float32)
    event, _ = acl.rt.create_event()
    acl.rt.record_event(event, stream)
    launch(operands, stream)
    acl.rt.synchronize_event(event)
    acl.rt.memcpy(host.ctypes.data, BYTES, address(operands[2]), BYTES, D2H)  # here
    acl.rt.synchronize_stream(stream)
    acl.rt.destroy_event(event)
    release(*operands)


@wrong(Kind.STREAM_RACE)
def a_chain_over_two_streams_without_an_event(stream):
    first, second = three_tensors(), three_tensors()
    other, _ = acl.rt.create_stream()
    launch(first, stream)
    _, executor, _ = PHASE_ONE(first[2], *second[1:])
    PHASE_TWO(0, 0, executor, other)  # here
    acl.rt.synchronize_device()
    acl.rt.destroy_stream(other)
    release(*first, *second)


@wrong(Kind.FREED_IN_USE)
def a_tensor_released_before_the_work_is_done(stream):
    operands = three_tensors()
    launch(operands, stream)
    acl.rt.free(address(operands[0]))  # here
    acl.rt.synchronize_stream(stream)
    aclnn.aclDestroyTensor(operands[0])
    release(*operands[1:])


@wrong(Kind.HOST_ACCESS)
def device_memory_as_an_array(_):
    pointer = malloc(BYTES)
    acl.util.ptr_to_numpy(pointer, (8,), 11)  # here
    acl.rt.free(pointer)


@wrong(Kind.HOST_ACCESS)
def device_memory_as_bytes(_):
    pointer = malloc(BYTES)
    acl.util.ptr_to_bytes(pointer, BYTES)  # here
    acl.rt.free(pointer)


@wrong(Kind.DESTROYED_TOO_EARLY)
def an_input_destroyed_between_the_phases(stream):
    operands = three_tensors()
    _, executor, _ = PHASE_ONE(*operands)
    pointer = address(operands[1])
    aclnn.aclDestroyTensor(operands[1])
    PHASE_TWO(0, 0, executor, stream)  # here
    acl.rt.free(pointer)
    release(operands[0], operands[2])


@wrong(Kind.MEMBER_DESTROYED_TWICE)
def a_list_and_its_members_destroyed(_):
    members = [create(), create()]
    owner = aclnn.aclCreateTensorList(members, 2)
    for member in members:
        aclnn.aclDestroyTensor(member)
    aclnn.aclDestroyTensorList(owner)  # here


@wrong(Kind.NO_CURRENT_DEVICE)
def a_worker_thread_without_a_device(stream):
    operands = three_tensors()

    def work():
        acl.rt.memset_async(address(operands[0]), BYTES, 0, BYTES, stream)  # here

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    release(*operands)


@wrong(Kind.FAILED_CALL)
def a_tensor_larger_than_its_memory(stream):
    operands, pointer = three_tensors(), malloc(BYTES // 2)
    acl.rt.memset(pointer, BYTES // 2, 0, BYTES // 2)
    grad = create(data=pointer)
    _, executor, _ = PHASE_ONE(grad, *operands[1:])
    PHASE_TWO(0, 0, executor, stream)  # here
    release(grad, *operands)


@wrong(Kind.FAILED_CALL)
def an_array_of_numpy_as_a_tensors_memory(stream):
    operands, values = three_tensors(), np.zeros(64, np.float32)
    grad = create(data=-(-values.ctypes.data // 32) * 32)
    _, executor, _ = PHASE_ONE(grad, *operands[1:])
    PHASE_TWO(0, 0, executor, stream)  # here
    aclnn.aclDestroyTensor(grad)
    release(*operands)


@wrong(Kind.FAILED_CALL)
def a_dtype_that_the_operator_has_not(_):
    grad, x = torch.ones(8, dtype=torch.float64), torch.ones(8, dtype=torch.float64)
    aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, torch.empty_like(x))  # here


@wrong(Kind.FAILED_CALL)
def a_workspace_that_was_never_made(stream):
    x, w = torch.ones(8, 128, dtype=torch.float16), torch.ones(128, 128, dtype=torch.float16)
    rows, target = torch.ones(8), torch.zeros(8, dtype=torch.int64)
    dx, dw, mask = torch.empty_like(x), torch.empty_like(w), torch.zeros(1, dtype=torch.uint8)
    size, executor, _ = aclnn.aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
        rows, x, w, mask, target, 0.0, rows, rows, None, dx, dw
    )
    aclnn.aclnnFusedLinearCrossEntropyLossGrad(None, size, executor, stream)  # here


@wrong(Kind.EXECUTOR_NEVER_RUN)
def an_executor_that_is_forgotten(_):
    x = torch.ones(8)
    aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(x, x, torch.empty(8))  # here


@wrong(Kind.TENSOR_LEAKED)
def a_tensor_made_in_every_step(stream):
    operands = three_tensors()
    pointer = address(operands[0])
    for _ in range(3):
        grad = aclnn.aclCreateTensor((4, 2), 2, 0, None, 0, 2, (4, 2), 2, pointer)  # here
        launch((grad, *operands[1:]), stream)
    acl.rt.synchronize_stream(stream)
    release(*operands)


@wrong(Kind.DEVICE_MEMORY_LEAKED)
def a_workspace_that_grows_and_is_not_freed(_):
    pointer = 0
    for size in (32, 64):
        pointer, _ret = acl.rt.malloc(size, 0)  # here
    acl.rt.free(pointer)


@wrong(Kind.STREAM_DESTROYED_BUSY)
def work_that_nobody_waits_for(_):
    pointer = malloc(BYTES)
    forgotten, _ = acl.rt.create_stream()
    acl.rt.memset_async(pointer, BYTES, 0, BYTES, forgotten)
    acl.rt.destroy_stream(forgotten)  # here
    acl.rt.free(pointer)


@wrong(Kind.STREAM_LEAKED)
def a_stream_that_ends_with_its_device(_):
    acl.rt.create_stream()  # here


# --- without -----------------------------------------------------------------------------------------------------


@right
def both_phases_on_tensors_of_torch(stream):
    x, out = torch.tensor([-4.0, 0.0, 1.0]), torch.empty(3)
    size, executor, _ = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(torch.full((3,), 6.0), x, out)
    aclnn.aclnnHardsigmoidBackward(None, size, executor, stream)
    acl.rt.synchronize_stream(stream)
    assert out.tolist() == [0, 1, 1]


@right
def a_workspace_of_torch(stream):
    x, w = torch.ones(8, 128, dtype=torch.float16), torch.ones(128, 128, dtype=torch.float16)
    rows, target = torch.ones(8), torch.zeros(8, dtype=torch.int64)
    dx, dw, mask = torch.empty_like(x), torch.empty_like(w), torch.zeros(1, dtype=torch.uint8)
    size, executor, _ = aclnn.aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
        rows, x, w, mask, target, 0.0, rows, rows, None, dx, dw
    )
    workspace = torch.empty(max(size, 1), dtype=torch.uint8)
    assert aclnn.aclnnFusedLinearCrossEntropyLossGrad(workspace, size, executor, stream) == 0
    acl.rt.synchronize_stream(stream)


@right
def upload_run_and_download(stream):
    operands = three_tensors()
    assert launch(operands, stream) == 0
    acl.rt.synchronize_stream(stream)
    assert np.frombuffer(download(address(operands[2])), np.float32)[0] == np.float32(1 / 6)
    release(*operands)


@right
def the_same_memory_step_after_step(stream):
    operands, values = three_tensors(), np.ones(8, np.float32)
    for step in range(5):
        values[:] = step
        acl.rt.memcpy_async(address(operands[0]), BYTES, values.ctypes.data, BYTES, H2D, stream)
        assert launch(operands, stream) == 0
        acl.rt.memcpy_async(values.ctypes.data, BYTES, address(operands[2]), BYTES, D2H, stream)
    release(*operands)


@right
def the_null_stream_orders_everything(_):
    operands = three_tensors()
    assert launch(operands, 0) == 0
    acl.rt.synchronize_stream(0)
    download(address(operands[2]))
    release(*operands)


@right
def an_event_between_two_streams(stream):
    first, second = three_tensors(), three_tensors()
    (other, _), (event, _) = acl.rt.create_stream(), acl.rt.create_event()
    launch(first, stream)
    acl.rt.record_event(event, stream)
    acl.rt.stream_wait_event(other, event)
    launch((first[2], *second[1:]), other)
    acl.rt.synchronize_stream(other)
    download(address(second[2]))
    acl.rt.synchronize_stream(stream)
    acl.rt.destroy_event(event)
    acl.rt.destroy_stream(other)
    release(*first, *second)


@right
def bytes_by_way_of_page_locked_memory(stream):
    operands = three_tensors()
    host, _ = acl.rt.malloc_host(BYTES)
    acl.rt.memcpy_async(host, BYTES, address(operands[0]), BYTES, D2H, stream)
    acl.rt.synchronize_stream(stream)
    assert acl.util.ptr_to_bytes(host, BYTES) == np.ones(8, np.float32).tobytes()
    acl.rt.free_host(host)
    release(*operands)


@right
def a_thread_that_sets_its_context(stream):
    operands = three_tensors()
    context, _ = acl.rt.get_context()

    def work():
        acl.rt.set_context(context)
        launch(operands, stream)
        acl.rt.synchronize_stream(stream)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    download(address(operands[2]))
    release(*operands)


@right
def a_callback_in_a_thread_of_reports(stream):
    called = []
    run = threading.Event()

    def serve(_):
        acl.rt.set_device(0)
        while not run.is_set():
            acl.rt.process_report(10)
        acl.rt.reset_device(0)

    thread, _ = acl.util.start_thread(serve, [None])
    acl.rt.subscribe_report(thread, stream)
    acl.rt.launch_callback(called.append, 7, 1, stream)
    acl.rt.synchronize_stream(stream)
    acl.rt.unsubscribe_report(thread, stream)
    run.set()
    acl.util.stop_thread(thread)
    assert called == [7]


@right
def a_context_of_its_own(stream):
    before, _ = acl.rt.get_context()
    own, _ = acl.rt.create_context(0)
    other, _ = acl.rt.create_stream()
    operands = three_tensors()
    launch(operands, other)
    acl.rt.synchronize_stream(other)
    release(*operands)
    acl.rt.destroy_stream(other)
    acl.rt.destroy_context(own)
    acl.rt.set_context(before)
    acl.rt.synchronize_stream(stream)
