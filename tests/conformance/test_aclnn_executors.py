"""Executors of the aclnn door: what may happen between the phases, workspaces, repetition, other addresses."""

import pytest
import torch
from aclnn_device import INVALID, NULL, RUNTIME, Device, pair
from matrix import ACLNN, same

from aclgrad import acl, aclnn
from aclgrad.core.memory import tensors_in
from aclgrad.core.spec import InOut, Out, Tensor
from aclgrad.testing import program
from aclgrad.testing.cases import suite


def test_an_executor_runs_once(device):
    size, executor = device.plan()
    assert device.run(size, executor) == 0
    same(device.results(), device.expected())
    device.wipe()
    assert device.run(size, executor) == INVALID
    assert "destroyed" in acl.get_recent_err_msg()
    assert device.is_wiped()


def test_null_and_foreign_executors(device):
    assert device.second(0, 0, None, device.running.stream) == NULL
    assert device.second(0, 0, 0, device.running.stream) == NULL
    for foreign in (12345, -1, 2**70, "x", 1.5, device.running.stream, device.handles[0]):
        assert device.second(0, 0, foreign, device.running.stream) == INVALID, foreign
        assert "executor" in acl.get_recent_err_msg()


def test_an_executor_of_another_operator(device):
    other = next(o for o in ACLNN if o is not device.operator)
    size, executor = device.plan()
    assert pair(other)[1](0, 0, executor, device.running.stream) == INVALID
    assert device.operator.spec.aclnn in acl.get_recent_err_msg()
    assert device.run(size, executor) == 0


def test_a_missing_workspace_releases_the_executor(device):
    size, executor = device.plan()
    if not size:
        pytest.skip("needs no workspace here")
    assert device.run(size, executor, workspace=0) == NULL
    assert "workspace" in acl.get_recent_err_msg()
    assert device.run(size, executor) == INVALID


def test_a_workspace_that_is_too_small(device):
    size, executor = device.plan()
    if not size:
        pytest.skip("needs no workspace here")
    assert device.second(device.running.malloc(size), size - 1, executor, device.running.stream) == INVALID
    assert "workspaceSize" in acl.get_recent_err_msg()
    size, executor = device.plan()
    assert device.second(device.running.malloc(max(size // 2, 1)), size, executor, device.running.stream) == RUNTIME
    size, executor = device.plan()
    assert device.second(0xDEAD000, size, executor, device.running.stream) == RUNTIME
    size, executor = device.plan()
    assert device.second(torch.empty(size - 1, dtype=torch.uint8), size, executor, device.running.stream) == INVALID


def test_a_misaligned_workspace_is_fine(device):
    size, executor = device.plan()
    if not size:
        pytest.skip("needs no workspace here")
    assert device.run(size, executor, workspace=device.running.malloc(size + 8) + 4) == 0
    same(device.results(), device.expected())


def test_a_workspace_over_an_input_is_refused():
    x, w = torch.randn(2, 3, 400), [torch.randn(16, 400), torch.randn(16, 4)]
    outs = [torch.empty(2, 3, 4), torch.empty(1, 3, 4), torch.empty(1, 3, 4), *[None] * 7]
    arguments = (x, w, None, None, False, 1, 0.0, False, False, False, *outs)
    size, executor, status = aclnn.aclnnLSTMGetWorkspaceSize(*arguments)
    assert status == 0, acl.get_recent_err_msg()
    room = torch.empty(size // 4 + x.numel())
    x.data = room[: x.numel()].view(x.shape)
    assert aclnn.aclnnLSTM(room, room.numel() * 4, executor, None) == INVALID
    assert "shares memory with the workspace" in acl.get_recent_err_msg()


def test_torch_tensors_that_changed_between_the_phases_are_refused():
    x, out = torch.randn(4), torch.empty(4)
    for change in (torch.zeros(1), torch.zeros(4).double(), torch.zeros(8)[::2]):
        x.data = torch.randn(4)
        _, executor, _ = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, out)
        x.data = change
        assert aclnn.aclnnHardsigmoid(None, 0, executor, None) == INVALID
        assert "described anew" in acl.get_recent_err_msg()


def test_torch_tensors_moved_between_the_phases_may_not_overlap():
    x, out, room = torch.randn(40), torch.full((40,), 7.0), torch.randn(80)
    _, executor, _ = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, out)
    before, x.data, out.data = room.clone(), room[:40], room[20:60]
    assert aclnn.aclnnHardsigmoid(None, 0, executor, None) == INVALID
    assert "out shares memory with self" in acl.get_recent_err_msg()
    same(room, before)
    _, executor, _ = aclnn.aclnnHardsigmoidGetWorkspaceSize(x.clone(), y := torch.empty(40))
    y.data = room[40:]
    assert aclnn.aclnnHardsigmoid(None, 0, executor, None) == 0
    torch.testing.assert_close(room[40:], torch.nn.functional.hardsigmoid(room[:40]))


def test_a_repeatable_executor_takes_no_tensor_of_another_device():
    x, out = torch.randn(4), torch.empty(4)
    _, executor, _ = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, out)
    aclnn.aclSetAclOpExecutorRepeatable(executor)
    assert aclnn.aclSetInputTensorAddr(executor, 0, torch.empty(4, device="meta"), 1) == INVALID
    assert "device planned for" in acl.get_recent_err_msg()
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0


def test_repeatable_executors_run_again_until_destroyed(device):
    size, executor = device.plan()
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(3):
        device.wipe()
        assert device.run(size, executor) == 0
        same(device.results(), device.expected())
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    assert aclnn.aclDestroyAclOpExecutor(executor) == 561000
    assert device.run(size, executor) == INVALID


def test_repeatable_statuses():
    assert aclnn.aclSetAclOpExecutorRepeatable(None) == 561103
    assert aclnn.aclSetAclOpExecutorRepeatable(0) == 561103
    assert aclnn.aclDestroyAclOpExecutor(None) == 561103
    for junk in (77, "x", 1.5, -3):
        assert aclnn.aclSetAclOpExecutorRepeatable(junk) == 561000
        assert aclnn.aclDestroyAclOpExecutor(junk) == 561000


def test_outputs_move_to_other_addresses(device):
    size, executor = device.plan()
    aclnn.aclSetAclOpExecutorRepeatable(executor)
    moved = Device(device.running, device.operator)
    inputs = [p for p in device.operator.spec.args if isinstance(p, Tensor)]
    for k, (param, handle, target) in enumerate(
        zip(device.operator.spec.outs, device.out_handles, moved.out_handles, strict=True)
    ):
        if handle is None:
            continue
        if isinstance(param, Out):
            address = aclnn.aclGetRawTensorAddr(target)[0]
            setter = aclnn.aclSetOutputTensorAddr if k % 2 else aclnn.aclSetTensorAddr
            assert setter(executor, k if k % 2 else k + len(inputs), handle, address) == 0, acl.get_recent_err_msg()
        else:
            members = program.TENSOR_LISTS.get(target, "x").handles
            for m, member in enumerate(members):
                address = aclnn.aclGetRawTensorAddr(member)[0]
                assert aclnn.aclSetDynamicOutputTensorAddr(executor, k, m, handle, address) == 0
            assert aclnn.aclSetDynamicOutputTensorAddr(executor, k, len(members), handle, address) == INVALID
    device.wipe()
    moved.wipe()
    assert device.run(size, executor) == 0, acl.get_recent_err_msg()
    same(moved.results(), device.expected())
    assert device.is_wiped()


def test_rebinding_is_refused_where_it_cannot_work(device):
    size, executor = device.plan()
    address = device.running.malloc(64)
    assert aclnn.aclSetInputTensorAddr(executor, 0, device.handles[0], address) == INVALID  # not repeatable
    aclnn.aclSetAclOpExecutorRepeatable(executor)
    assert aclnn.aclSetInputTensorAddr(executor, 99, device.handles[0], address) == INVALID
    assert aclnn.aclSetInputTensorAddr(executor, 0, device.handles[0], 0) == NULL
    assert aclnn.aclSetInputTensorAddr(executor, -1, device.handles[0], address) == INVALID
    assert aclnn.aclSetInputTensorAddr(None, 0, device.handles[0], address) == NULL
    assert aclnn.aclSetInputTensorAddr(executor, 0, 4711, address) == INVALID
    workspace = device.running.malloc(size) if size else 0  # before: it must not take the freed block's place
    freed = device.running.malloc(1 << 20)
    acl.rt.free(freed)
    if aclnn.aclSetInputTensorAddr(executor, 0, device.handles[0], freed) == 0:
        assert device.run(size, executor, workspace) == RUNTIME


def test_rebinding_an_output_onto_an_input_is_refused_when_run(running):
    operator = next(o for o in ACLNN if o.spec.name == "lstm_cell_backward")
    device = Device(running, operator)
    size, executor = device.plan()
    aclnn.aclSetAclOpExecutorRepeatable(executor)
    storage = aclnn.aclGetRawTensorAddr(device.handles[4])[0]
    assert aclnn.aclSetOutputTensorAddr(executor, 0, device.out_handles[0], storage) == 0
    assert device.run(size, executor) == INVALID
    assert "shares memory" in acl.get_recent_err_msg()


def test_tensors_may_be_destroyed_between_the_phases(device):
    size, executor = device.plan()
    for param, handle in zip(device.operator.spec.args, device.handles, strict=True):
        if isinstance(param, Tensor) and handle and param.__class__ is Tensor:
            assert aclnn.aclDestroyTensor(handle) == 0
    assert device.run(size, executor) == 0
    same(device.results(), device.expected())


def test_memory_freed_between_the_phases_is_reported(device):
    size, executor = device.plan()
    index = next(k for k, p in enumerate(device.operator.spec.args) if p.__class__ in (Tensor, InOut))
    assert acl.rt.free(aclnn.aclGetRawTensorAddr(device.handles[index])[0]) == 0
    device.wipe()
    assert device.run(size, executor) == RUNTIME
    assert device.operator.spec.args[index].aclnn in acl.get_recent_err_msg()
    assert device.is_wiped()


def operands(operator):
    """Arguments and outputs of the first case, and the tensors among them that have elements."""
    args = suite(operator.spec).cases[0].build()
    outs = operator.plan(args).allocate()
    return [*args, *outs], [tensor for tensor in tensors_in([*args, *outs]) if tensor.numel()]


@pytest.mark.parametrize("operator", ACLNN, ids=lambda operator: operator.spec.name)
@pytest.mark.parametrize("held", [0, 1])
def test_storage_made_too_small_between_the_phases_is_reported(operator, held):
    """Of one tensor after the other, inputs and outputs, also inside lists."""
    first, second = pair(operator)
    for k in range(len(operands(operator)[1])):
        arguments, tensors = operands(operator)
        size, executor, status = first(*arguments)
        assert status == 0
        tensors[k].untyped_storage().resize_(held)
        assert second(torch.empty(size, dtype=torch.uint8), size, executor, None) == RUNTIME, k
        assert f"has a storage of {held} bytes, expected" in acl.get_recent_err_msg()


def test_a_tensor_described_anew_between_the_phases_is_refused(device):
    size, executor = device.plan()
    index = next(k for k, p in enumerate(device.operator.spec.args) if p.__class__ in (Tensor, InOut))
    handle = device.handles[index]
    address, dtype = aclnn.aclGetRawTensorAddr(handle)[0], aclnn.aclGetDataType(handle)[0]
    assert aclnn.aclInitTensor(handle, [1 << 20], 1, dtype, None, 0, 2, [1 << 20], 1, address) == 0
    assert device.run(size, executor) == INVALID


def test_a_null_data_address_is_reported_when_run(running):
    operator = next(o for o in ACLNN if o.spec.name == "hardsigmoid_backward")
    shape = [2, 3]
    null = aclnn.aclCreateTensor(shape, 2, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_ND, shape, 2, None)
    fine = running.upload(torch.ones(shape))
    out = running.upload(torch.ones(shape))
    size, executor, status = pair(operator)[0](null, fine, out)
    assert status == 0
    assert pair(operator)[1](0, size, executor, running.stream) == NULL
    assert "gradOutput" in acl.get_recent_err_msg()


def test_views_past_their_block_are_reported_when_run(running):
    operator = next(o for o in ACLNN if o.spec.name == "hardsigmoid_backward")
    address = running.malloc(16)
    long = aclnn.aclCreateTensor([8], 1, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_ND, [8], 1, address)
    fine, out = running.upload(torch.ones(8)), running.upload(torch.ones(8))
    for arguments in ((long, fine, out), (fine, long, out), (fine, out, long)):
        size, executor, status = pair(operator)[0](*arguments)
        assert status == 0
        assert pair(operator)[1](0, size, executor, running.stream) == RUNTIME


def test_a_destroyed_stream_is_refused(device):
    stream = acl.rt.create_stream()[0]
    acl.rt.destroy_stream(stream)
    size, executor = device.plan()
    workspace = device.running.malloc(size) if size else 0
    assert device.second(workspace, size, executor, stream) == RUNTIME
    assert "stream" in acl.get_recent_err_msg()
