"""The aclnn door: the same bits as the Python door, the documents' statuses, the two-phase rules."""

import pytest
import torch
from matrix import OPERATORS, flat, matrix, same
from test_contract import NAMES, legal, refusals

from aclgrad import acl, aclnn
from aclgrad.core.spec import InOut, Out, OutList, Tensor
from aclgrad.frontends.aclnn.executor import EXECUTORS
from aclgrad.testing import program
from aclgrad.testing.cases import DOCUMENT, EDGE, SMOKE, suite
from aclgrad.testing.poison import fill
from aclgrad.testing.verdicts import own, run

NULL, INVALID, RUNTIME = 161001, 161002, 361001


def pair(operator):
    return getattr(aclnn, f"{operator.spec.aclnn}GetWorkspaceSize"), getattr(aclnn, operator.spec.aclnn)


def poisoned_outs(operator, args):
    outs = operator.plan(args).allocate()
    for out in flat(list(outs)):
        if out is not None:
            fill(out)
    return complete(operator, args, outs)


def complete(operator, args, outs):
    """The aclnn door wants a tensor for every output, produced or not."""
    named = {param.name: arg for param, arg in zip(operator.spec.args, args, strict=True)}
    if operator.spec.name == "lstm_cell_backward" and outs[2] is None:
        return (*outs[:2], torch.full((4 * named["cx"].shape[1],), 7.0, dtype=named["cx"].dtype))
    return outs


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE, EDGE, DOCUMENT, doors="aclnn"))
def test_equals_the_python_door_bit_for_bit(operator, case, dtype):
    args = case.build(dtype)
    expected = run(operator, args)
    args, outs = own(operator.spec, args), poisoned_outs(operator, args)
    first, second = pair(operator)
    size, executor, status = first(*args, *outs)
    assert status == 0, acl.get_recent_err_msg()
    workspace = fill(torch.empty(size, dtype=torch.uint8)) if size else None
    assert second(workspace, size, executor, None) == 0, acl.get_recent_err_msg()
    same(operator.spec.written(args, outs), expected)


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE, EDGE, DOCUMENT, doors="aclnn"))
def test_handles_on_device_memory_equal_the_run(operator, case, dtype):
    args = case.build(dtype)
    expected = run(operator, args)
    status, outs, _ = program.run(operator, args, poisoned_outs(operator, args))
    assert status == 0
    same(outs, expected)


def test_bias_gradient_is_left_alone_without_bias():
    operator = next(o for o in OPERATORS if o.spec.name == "lstm_cell_backward")
    case = next(c for c in suite(operator.spec).cases if c.name == "no_bias")
    args = case.build()
    _, outs, _ = program.run(operator, args, poisoned_outs(operator, args))
    assert bool((outs[2] == 7).all())


@pytest.mark.parametrize(("operator", "invalid"), refusals("aclnn"))
def test_refuses(operator, invalid, monkeypatch):
    for name, value in invalid.environment.items():
        monkeypatch.setenv(name, value)
    args, outs = legal(operator)
    changed = invalid.apply({**args, **outs})
    tensors = [t for t in flat([changed[name] for name in outs]) if isinstance(t, torch.Tensor)]
    before = [t.clone() for t in tensors]
    live = len(EXECUTORS)
    acl.get_recent_err_msg()
    size, executor, status = pair(operator)[0](*changed.values())
    assert (size, executor, status) == (0, None, invalid.raises.status)
    assert len(EXECUTORS) == live
    message = acl.get_recent_err_msg()
    assert message.startswith(f"{operator.spec.aclnn}GetWorkspaceSize: ")
    if invalid.argument:
        assert operator.spec.params[invalid.argument].aclnn in message
    for tensor, copy in zip(tensors, before, strict=True):
        torch.testing.assert_close(tensor, copy, rtol=0, atol=0, equal_nan=True)


class Device:
    """Handles for an operator's first case."""

    def __init__(self, running, operator):
        self.running, self.operator = running, operator
        self.args, self.outs = legal(operator)
        spec = operator.spec
        self.handles = [running.argument(p, v) for p, v in zip(spec.args, self.args.values(), strict=True)]
        self.out_handles = [running.argument(p, v) for p, v in zip(spec.outs, self.outs.values(), strict=True)]
        self.first, self.second = pair(operator)

    def plan(self):
        size, executor, status = self.first(*self.handles, *self.out_handles)
        assert status == 0, acl.get_recent_err_msg()
        return size, executor

    def run(self, size, executor, workspace="fresh", stream=None):
        if workspace == "fresh":
            workspace = self.running.malloc(size) if size else 0
        status = self.second(workspace, size, executor, stream or self.running.stream)
        assert acl.rt.synchronize_stream(self.running.stream) == 0
        return status

    def results(self):
        return [program._fetch(self.running, h, o) for h, o in zip(self.out_handles, self.outs.values(), strict=True)]

    def expected(self):
        return run(self.operator, list(self.args.values()))[: len(self.outs)]

    def is_wiped(self):
        """True if no output was written since `wipe`."""
        results = [result for result in flat(self.results()) if result is not None and result.numel()]
        return all(bool((result.view(-1).view(torch.uint8) == 255).all()) for result in results)

    def wipe(self):
        for param, handle, out in zip(self.operator.spec.outs, self.out_handles, self.outs.values(), strict=True):
            if out is None:
                continue
            members = program.TENSOR_LISTS.get(handle, "x").handles if isinstance(param, OutList) else [handle]
            for member, tensor in zip(members, flat([out]), strict=True):
                address = aclnn.aclGetRawTensorAddr(member)[0]
                size = tensor.numel() * tensor.element_size()
                assert acl.rt.memset(address, size, 255, size) == 0


@pytest.fixture
def running():
    with program.program() as running:
        yield running


@pytest.fixture(params=OPERATORS, ids=NAMES)
def device(request, running):
    return Device(running, request.param)


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
    other = next(o for o in OPERATORS if o is not device.operator)
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
    operator = next(o for o in OPERATORS if o.spec.name == "lstm_cell_backward")
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


def test_a_tensor_described_anew_between_the_phases_is_refused(device):
    size, executor = device.plan()
    index = next(k for k, p in enumerate(device.operator.spec.args) if p.__class__ in (Tensor, InOut))
    handle = device.handles[index]
    address, dtype = aclnn.aclGetRawTensorAddr(handle)[0], aclnn.aclGetDataType(handle)[0]
    assert aclnn.aclInitTensor(handle, [1 << 20], 1, dtype, None, 0, 2, [1 << 20], 1, address) == 0
    assert device.run(size, executor) == INVALID


def test_a_null_data_address_is_reported_when_run(running):
    operator = next(o for o in OPERATORS if o.spec.name == "hardsigmoid_backward")
    shape = [2, 3]
    null = aclnn.aclCreateTensor(shape, 2, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_ND, shape, 2, None)
    fine = running.upload(torch.ones(shape))
    out = running.upload(torch.ones(shape))
    size, executor, status = pair(operator)[0](null, fine, out)
    assert status == 0
    assert pair(operator)[1](0, size, executor, running.stream) == NULL
    assert "gradOutput" in acl.get_recent_err_msg()


def test_views_past_their_block_are_reported_when_run(running):
    operator = next(o for o in OPERATORS if o.spec.name == "hardsigmoid_backward")
    address = running.malloc(16)
    long = aclnn.aclCreateTensor([8], 1, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_ND, [8], 1, address)
    fine, out = running.upload(torch.ones(8)), running.upload(torch.ones(8))
    for arguments in ((long, fine, out), (fine, long, out), (fine, out, long)):
        size, executor, status = pair(operator)[0](*arguments)
        assert status == 0
        assert pair(operator)[1](0, size, executor, running.stream) == RUNTIME


FORMATS = {
    "hardsigmoid_backward": ("anything", 29, 0),
    "lstm_cell_backward": ("ND", 0, INVALID),
    "lstm_backward": ("ND or NCL", 0, INVALID),
    "linear_cross_entropy_backward": ("ND", 47, INVALID),
    "batch_norm_elemt_backward": ("not private", 29, INVALID),
    "hardsigmoid": ("that of out", 29, INVALID),
    "hardsigmoid_": ("anything", 29, 0),
    "lstm_cell": ("anything", 29, 0),
    "lstm": ("anything, with a warning", 29, 0),
    "linear_online_max_sum": ("anything", 29, 0),
    "cross_entropy_with_max_sum": ("anything", 29, 0),
    "batch_norm_stats": ("not private", 29, INVALID),
    "batch_norm_gather_stats_with_counts": ("not private", 29, INVALID),
    "batch_norm_elemt": ("that of output, not private", 29, INVALID),
    "batch_norm_reduce_backward": ("that of grad_out, not private", 29, INVALID),
}
ACCEPTED = {
    "lstm_backward": (2, 47),
    "batch_norm_elemt_backward": (0, 1, 2, 30, 47),
    "hardsigmoid_backward": (0, 3, 47),
    "lstm_cell_backward": (2,),
    "linear_cross_entropy_backward": (2,),
    "hardsigmoid": (2,),
    "batch_norm_stats": (0, 2, 30),
    "batch_norm_gather_stats_with_counts": (0, 2, 30),
    "batch_norm_elemt": (2,),
    "batch_norm_reduce_backward": (2,),
}


def reformatted(running, tensor, format):
    handle = running.upload(tensor)
    address, dtype = aclnn.aclGetRawTensorAddr(handle)[0], aclnn.aclGetDataType(handle)[0]
    shape = list(tensor.shape)
    return aclnn.aclCreateTensor(shape, len(shape), dtype, None, 0, format, shape, len(shape), address)


def test_formats(device):
    name = device.operator.spec.name
    index = next(k for k, p in enumerate(device.operator.spec.args) if p.name == suite(device.operator.spec).main)
    tensor = list(device.args.values())[index]
    cases = [(FORMATS[name][1], FORMATS[name][2])] + [(number, 0) for number in ACCEPTED.get(name, (0, 2, 47))]
    for number, expected in cases:
        handles = list(device.handles)
        handles[index] = reformatted(device.running, tensor, number)
        size, executor, status = device.first(*handles, *device.out_handles)
        assert status == expected, (number, acl.get_recent_err_msg())
        if expected:
            assert "format" in acl.get_recent_err_msg()


def test_a_private_format_of_an_lstm_is_refused_on_950_only(running, monkeypatch, caplog):
    device = Device(running, next(o for o in OPERATORS if o.spec.name == "lstm"))
    monkeypatch.setattr(device.operator, "_plans", {})
    handles = [reformatted(running, device.args["input"], 29), *device.handles[1:]]
    assert device.first(*handles, *device.out_handles)[2] == 0
    assert "input has the private format 29" in caplog.text
    monkeypatch.setenv("ACLGRAD_SOC", "Ascend950")
    assert device.first(*handles, *device.out_handles)[2] == INVALID


def test_a_view_with_offset_and_strides(running):
    operator = next(o for o in OPERATORS if o.spec.name == "hardsigmoid_backward")
    base = torch.randn(64)
    address = aclnn.aclGetRawTensorAddr(running.upload(base))[0]
    view = aclnn.aclCreateTensor([3, 4], 2, aclnn.ACL_FLOAT, [2, 9], 5, aclnn.ACL_FORMAT_ND, [64], 1, address)
    x = torch.randn(3, 4)
    out = running.upload(torch.empty(3, 4))
    size, executor, status = pair(operator)[0](view, running.upload(x), out)
    assert status == 0 and pair(operator)[1](0, size, executor, running.stream) == 0
    acl.rt.synchronize_stream(running.stream)
    expected = operator(base.as_strided((3, 4), (2, 9), 5), x)
    assert torch.equal(running.download(out, torch.empty(3, 4)), expected)


def test_keyword_arguments_by_the_documents_names():
    x = torch.randn(5)
    out = torch.empty(5)
    size, executor, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(gradOutput=x, self=x, out=out)
    assert status == 0 and aclnn.aclnnHardsigmoidBackward(None, size, executor, None) == 0
    _, _, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(gradOutput=x, itself=x, out=out)
    assert status == INVALID


def test_a_destroyed_stream_is_refused(device):
    stream = acl.rt.create_stream()[0]
    acl.rt.destroy_stream(stream)
    size, executor = device.plan()
    workspace = device.running.malloc(size) if size else 0
    assert device.second(workspace, size, executor, stream) == RUNTIME
    assert "stream" in acl.get_recent_err_msg()


def test_dropout_is_accepted_and_ignored(caplog):
    from aclgrad.ops.lstm import spec

    spec._mentioned.clear()
    operator = next(o for o in OPERATORS if o.spec.name == "lstm_backward")
    args, outs = legal(operator)
    args["dropout"] = 0.3
    for _ in range(2):
        _, executor, status = pair(operator)[0](*args.values(), *outs.values())
        assert status == 0
        args["dropout"] += 0.1
    assert len([r for r in caplog.records if "dropout" in r.message]) == 1
