"""The aclnn door: the same bits as the Python door, the documents' statuses, the two-phase rules."""

import pytest
import torch
from aclnn_device import INVALID, Device, pair
from matrix import ACLNN, flat, matrix, same
from test_contract import legal, refusals

from aclgrad import acl, aclnn
from aclgrad.core.errors import NullArgument
from aclgrad.core.known import Known
from aclgrad.frontends.aclnn.executor import EXECUTORS
from aclgrad.testing import program
from aclgrad.testing.cases import DOCUMENT, EDGE, SMOKE, suite
from aclgrad.testing.poison import fill
from aclgrad.testing.verdicts import own, run

LEFT = 7.0  # in an output that is not produced


def poisoned_outs(operator, args):
    outs = operator.plan(args).allocate()
    for out in flat(list(outs)):
        if out is not None:
            fill(out)
    return complete(operator, args, outs)


def complete(operator, args, outs):
    """The aclnn door wants a tensor for some outputs that are not produced; it leaves them alone."""
    call, _ = operator.judge(args)
    outs = list(outs)
    while True:
        try:
            operator.judge(args, outs, strict=True, soc="Ascend910B")
        except NullArgument as missing:
            index = next(k for k, param in enumerate(operator.spec.outs) if param.aclnn == missing.argument)
            outs[index] = torch.full((), LEFT, dtype=operator.spec.outs[index].dtype(call))
            outs[index] = outs[index].repeat(operator.spec.outs[index].shape(call))
        else:
            return tuple(outs)


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
    operator = next(o for o in ACLNN if o.spec.name == "lstm_cell_backward")
    case = next(c for c in suite(operator.spec).cases if c.name == "no_bias")
    args = case.build()
    _, outs, _ = program.run(operator, args, poisoned_outs(operator, args))
    assert bool((outs[2] == LEFT).all())


@pytest.mark.parametrize("operator", ACLNN, ids=lambda operator: operator.spec.name)
def test_refuses(operator, each_case):
    each_case(check_refusal, refusals(operator, "aclnn"))


def check_refusal(operator, invalid):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in invalid.environment.items():
            patch.setenv(name, value)
        check_code_and_message(operator, invalid)


def check_code_and_message(operator, invalid):
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


def reformatted(running, tensor, format):
    handle = running.upload(tensor)
    address, dtype = aclnn.aclGetRawTensorAddr(handle)[0], aclnn.aclGetDataType(handle)[0]
    shape = list(tensor.shape)
    return aclnn.aclCreateTensor(shape, len(shape), dtype, None, 0, format, shape, len(shape), address)


def test_formats(device):
    known = suite(device.operator.spec)
    index = next(k for k, p in enumerate(device.operator.spec.args) if p.name == known.main)
    tensor = list(device.args.values())[index]
    for number in (*known.formats, *known.refused_formats):
        handles = list(device.handles)
        handles[index] = reformatted(device.running, tensor, number)
        size, executor, status = device.first(*handles, *device.out_handles)
        assert status == (INVALID if number in known.refused_formats else 0), (number, acl.get_recent_err_msg())
        if status:
            assert "format" in acl.get_recent_err_msg()


def test_a_private_format_of_an_lstm_is_refused_on_950_only(running, monkeypatch, caplog):
    device = Device(running, next(o for o in ACLNN if o.spec.name == "lstm"))
    monkeypatch.setattr(device.operator, "_plans", Known())
    handles = [reformatted(running, device.args["input"], 29), *device.handles[1:]]
    assert device.first(*handles, *device.out_handles)[2] == 0
    assert "input has the private format 29" in caplog.text
    monkeypatch.setenv("ACLGRAD_SOC", "Ascend950")
    assert device.first(*handles, *device.out_handles)[2] == INVALID


def test_a_view_with_offset_and_strides(running):
    operator = next(o for o in ACLNN if o.spec.name == "hardsigmoid_backward")
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


def test_dropout_is_accepted_and_ignored(caplog):
    from aclgrad.ops.lstm import spec

    spec._mentioned.clear()
    operator = next(o for o in ACLNN if o.spec.name == "lstm_backward")
    args, outs = legal(operator)
    args["dropout"] = 0.3
    for _ in range(2):
        _, executor, status = pair(operator)[0](*args.values(), *outs.values())
        assert status == 0
        args["dropout"] += 0.1
    assert len([r for r in caplog.records if "dropout" in r.message]) == 1
