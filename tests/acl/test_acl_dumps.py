"""Dumps that aclInit's configuration asks for: which calls and tensors, when, and that `aclgrad verify` reads them."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch
from acl_helpers import PHASE_ONE, PHASE_TWO, Gate, address, create, download, fill, three_tensors, upload

from aclgrad import acl, aclnn
from aclgrad.frontends.acl import devices, dumping
from aclgrad.frontends.dumps import msprobe
from aclgrad.testing import verify

NAME = "Aclnn.aclnnHardsigmoidBackward.0.forward"


@pytest.fixture
def started(tmp_path):
    """Initialises with a dump section, and device 0; returns the calls in the dump so far."""

    def start(**section):
        config = tmp_path / "acl.json"
        config.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_list": [], **section}}))
        assert acl.init(str(config)) == 0, acl.get_recent_err_msg()
        assert acl.rt.set_device(0) == 0
        return lambda: {
            name: record
            for place in sorted(tmp_path.glob(f"*/{msprobe.JSON}"))
            for name, record in msprobe.read_calls(place.parent).items()
        }

    return start


def values(stored):
    return None if stored is None else stored.load().flatten().tolist()


@pytest.mark.parametrize(
    ("mode", "inputs", "outputs"), [("all", 2, 1), ("input", 2, 0), ("output", 0, 1), (None, 0, 1)]
)
def test_every_call_is_dumped_in_the_mode(started, mode, inputs, outputs):
    calls = started(dump_op_switch="on", **({} if mode is None else {"dump_mode": mode}))
    operands = three_tensors()
    for _ in range(2):
        _, executor, _ = PHASE_ONE(*operands)
        assert PHASE_TWO(0, 0, executor, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    first, second = calls().values()
    assert (first.name, second.name) == (NAME, NAME.replace("0", "1"))
    assert (len(first.arguments), len(first.outputs)) == (inputs, outputs)
    for stored in first.outputs:
        assert values(stored) == pytest.approx([1 / 6] * 8)


def test_inputs_are_those_before_the_call_and_everything_is_taken_when_the_stream_comes_to_it(started):
    calls = started(dump_op_switch="on", dump_mode="all")
    stream = acl.rt.create_stream()[0]
    x = create(dims=(8,), data=upload(np.full(8, 3.0, np.float32)))
    gate = Gate(devices.stream_of(stream))
    assert fill(address(x), stream, 32) == 0  # later, and before the call
    _, executor, status = aclnn.aclnnInplaceHardsigmoidGetWorkspaceSize(x)
    assert status == 0
    assert aclnn.aclnnInplaceHardsigmoid(0, 0, executor, stream) == 0
    assert calls() == {}
    gate.open()
    assert acl.rt.synchronize_stream(stream) == 0
    (record,) = calls().values()
    (before,), (after,) = record.arguments, record.outputs
    assert before.load().view(torch.uint8).eq(1).all()
    assert values(after) == np.frombuffer(download(address(x), 32), np.float32).tolist() != values(before)


def test_what_a_program_asks_for_is_dumped_without_the_switch(started):
    calls = started(dump_mode="all")
    operands = three_tensors()
    _, executor, _ = PHASE_ONE(*operands)
    assert PHASE_TWO(0, 0, executor, 0) == 0
    assert aclnn.aclDumpOpTensors("HardsigmoidBackward", "net/relu.1", operands, 2, 1, 0) == 0
    for tensor in operands:
        assert aclnn.aclDestroyTensor(tensor) == 0
    assert acl.rt.synchronize_stream(0) == 0
    assert list(calls()) == ["net_relu_1.HardsigmoidBackward.0.forward"]


def test_the_dump_is_judged_by_verify(started, tmp_path):
    calls = started(dump_op_switch="on", dump_mode="all")
    x, weight, target = torch.randn(8, 16).half(), torch.randn(200, 16).half(), torch.arange(8)
    outs = [torch.zeros(8) for _ in range(3)] + [torch.zeros(1, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64)]
    arguments = (x, weight, target, 0, 200, *outs, None)
    size, executor, status = aclnn.aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(*arguments)
    assert status == 0
    workspace = torch.empty(max(size, 1), dtype=torch.uint8)
    assert aclnn.aclnnFusedLinearOnlineMaxSum(workspace, size, executor, 0) == 0
    assert acl.rt.synchronize_stream(0) == 0
    (record,) = calls().values()
    assert record.arguments[3:] == [0, 200]
    report = verify("linear_online_max_sum", None, tmp_path)
    assert (report.exit_code, [call.name.partition("/")[2] for call in report.calls]) == (0, [record.name])


def test_nothing_is_dumped_in_the_next_life(started):
    calls = started(dump_op_switch="on")
    assert acl.finalize() == acl.init() == acl.rt.set_device(0) == 0
    _, executor, _ = PHASE_ONE(*three_tensors())
    assert PHASE_TWO(0, 0, executor, 0) == acl.rt.synchronize_stream(0) == 0
    assert aclnn.aclDumpOpTensors("A", "b", [], 0, 0, 0) == 0
    assert calls() == {}


def test_a_dump_that_fails_is_told_and_the_work_is_done(started, tmp_path, caplog):
    started(dump_op_switch="on")
    dumping.current.folder.write_text("in the way")
    operands = three_tensors()
    _, executor, _ = PHASE_ONE(*operands)
    assert PHASE_TWO(0, 0, executor, 0) == acl.rt.synchronize_stream(0) == 0
    assert "could not be dumped" in caplog.text
    assert download(address(operands[2]), 4) == np.float32(1 / 6).tobytes()


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ([], "dump is [], expected an object"),
        ({"dump_path": "/no/such/folder"}, "dump_path is '/no/such/folder', expected a folder that exists"),
        ({"dump_path": 5}, "dump_path is 5, expected a folder"),
        ({"dump_op_switch": "on"}, "dump_op_switch is 'on' without a dump_path, expected the folder"),
        ({"dump_mode": "everything"}, "dump_mode is 'everything', expected output or input or all"),
        ({"dump_op_switch": True}, "dump_op_switch is True, expected off or on"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value),
)
def test_a_section_that_means_nothing_is_refused(tmp_path, section, told):
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"dump": section}))
    assert acl.init(str(config)) == 100000
    assert told in acl.get_recent_err_msg()
    assert dumping.current is None


def test_what_has_no_effect_is_named(started, caplog):
    caplog.set_level(logging.WARNING, "aclgrad.acl")
    started(dump_scene="lite_exception", dump_data="stats")
    assert "dump_scene, dump_data of the dump section has no effect here" in caplog.text


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({0: None}, 161001, "opType is null"),
        ({1: 5}, 161002, "opName is 5"),
        ({2: None}, 161001, "tensors is null"),
        ({2: [0]}, 161001, "tensors[0] is null"),
        ({2: [7]}, 161002, "tensors[0] is 7"),
        ({3: 2}, 161002, "tensors has 1 members, expected inputTensorNum + outputTensorNum = 2"),
        ({4: -1}, 161002, "outputTensorNum is -1"),
        ({5: 3}, 361001, "stream is 3"),
    ],
)
def test_a_wrong_dump_is_refused(device, change, status, told):
    arguments = ["A", "b", [torch.ones(2)], 1, 0, 0]
    for position, value in change.items():
        arguments[position] = value
    assert aclnn.aclDumpOpTensors(*arguments) == status
    assert told in acl.get_recent_err_msg()
