"""A checked run: every kind of mistake by name, found when it should be and not otherwise, and the report."""

from __future__ import annotations

import inspect
import logging
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from acl_helpers import (
    D2D,
    D2H,
    DEFAULT,
    H2D,
    PHASE_ONE,
    PHASE_TWO,
    address,
    create,
    download,
    fill,
    found,
    launch,
    malloc,
    new_event,
    new_stream,
    three_tensors,
)  # fmt: skip

from aclgrad import acl, aclnn
from aclgrad.frontends.acl import boundary, findings, meta
from aclgrad.frontends.acl.findings import Finding, Kind
from aclgrad.frontends.acl.places import Place
from aclgrad.testing.program import program

# --- a right program ---------------------------------------------------------------------------------------------


def test_a_right_program_has_no_findings(strict, capfd):
    assert acl.init() == 0
    assert acl.init() == 100002, "callers may ignore this one"
    assert acl.rt.set_device(0) == 0
    stream, event = new_stream(), new_event()
    operands = three_tensors()
    assert launch(operands, stream) == 0
    assert acl.rt.record_event(event, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    download(address(operands[2]), 32)
    members = [create(data=0), create(data=0)]
    owner = meta.aclCreateTensorList(members, 2)
    numbers, scalars = meta.aclCreateIntArray([1], 1), meta.aclCreateScalarList([meta.aclCreateScalar(1, 3)], 1)
    assert (
        meta.aclDestroyTensorList(owner) == meta.aclDestroyIntArray(numbers) == meta.aclDestroyScalarList(scalars) == 0
    )
    for tensor in operands:
        assert acl.rt.free(address(tensor)) == 0
        assert aclnn.aclDestroyTensor(tensor) == 0
    host, _ = acl.rt.malloc_host(8)
    assert acl.rt.free_host(host) == acl.rt.destroy_event(event) == acl.rt.destroy_stream(stream) == 0
    assert acl.rt.reset_device(0) == acl.finalize() == 0
    assert acl.findings() == ()
    assert capfd.readouterr().err == ""


def test_the_projects_own_program_has_no_findings(strict):
    tensor = torch.randn(4, 2)
    with program() as running:
        operands = tuple(running.upload(tensor) for _ in range(3))
        assert launch(operands, running.stream) == 0
        assert acl.rt.synchronize_stream(running.stream) == 0
    assert acl.findings() == ()


# --- mistakes ----------------------------------------------------------------------------------------------------


def read_past_end():
    pointer = malloc(8)
    return acl.rt.memcpy(malloc(64), 64, pointer, 9, D2D)


def copy_race():
    pointer = malloc(64)
    assert fill(pointer, new_stream()) == 0
    return acl.rt.memcpy(malloc(64), 64, pointer, 64, D2D)


def stream_race():
    pointer = malloc(64)
    assert fill(pointer, new_stream()) == 0
    return acl.rt.memset_async(pointer, 64, 1, 64, new_stream())


def freed_in_use():
    pointer = malloc(64)
    assert fill(pointer, new_stream()) == 0
    return acl.rt.free(pointer)


def stream_destroyed_busy():
    stream = new_stream()
    assert fill(malloc(64), stream) == 0
    return acl.rt.destroy_stream(stream)


def member_destroyed_twice():
    member = create()
    owner = meta.aclCreateTensorList([member], 1)
    assert meta.aclDestroyTensor(member) == 0
    return meta.aclDestroyTensorList(owner)


def unaligned_data():
    return meta.aclSetRawTensorAddr(create(), malloc(64) + 4)


def not_initialised():
    acl.finalize()
    return acl.rt.set_device(0)


def no_current_device():
    operands = three_tensors()
    assert acl.rt.reset_device_force(0) == 0
    return launch(operands, 0)


def wrong_context():
    stream, pointer = new_stream(), malloc(8)
    assert acl.rt.create_context(0)[1] == 0
    return acl.rt.memset_async(pointer, 8, 0, 8, stream)


def event_never_recorded():
    return acl.rt.stream_wait_event(new_stream(), new_event())


def destroyed_too_early():
    operands, stream = three_tensors(), new_stream()
    _, executor, status = PHASE_ONE(*operands)
    assert status == aclnn.aclDestroyTensor(operands[0]) == 0
    return PHASE_TWO(0, 0, executor, stream)


def host_access():
    array = acl.util.ptr_to_numpy(malloc(64), (16,), np.float32)
    return 0 if array is not None else 107016


def uninitialised_read():
    return acl.rt.memcpy(malloc(8), 8, malloc(8), 8, D2D)


def wrong_kind():
    pointer = malloc(8)
    assert acl.rt.memset(pointer, 8, 0, 8) == 0
    return acl.rt.memcpy(malloc(8), 8, pointer, 8, D2H)


def doubtful_argument():
    x, w, target = torch.zeros(8, 16, dtype=torch.float16), torch.zeros(128, 16, dtype=torch.float16), torch.zeros(8)
    outs = [torch.zeros(8) for _ in range(3)] + [torch.zeros(1, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64)]
    return aclnn.aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(x, w, target.long(), 100, 227, *outs, None)[2]


def failed_call():
    return acl.rt.free(0xDEADBEEF)


MISTAKES = {
    Kind.READ_PAST_END: (read_past_end, 107000),
    Kind.COPY_RACE: (copy_race, 107000),
    Kind.STREAM_RACE: (stream_race, 107000),
    Kind.FREED_IN_USE: (freed_in_use, 207002),
    Kind.STREAM_DESTROYED_BUSY: (stream_destroyed_busy, 107000),
    Kind.MEMBER_DESTROYED_TWICE: (member_destroyed_twice, 161002),
    Kind.UNALIGNED_DATA: (unaligned_data, 161002),
    Kind.NOT_INITIALISED: (not_initialised, 100001),
    Kind.NO_CURRENT_DEVICE: (no_current_device, 361001),
    Kind.WRONG_CONTEXT: (wrong_context, 107003),
    Kind.EVENT_NEVER_RECORDED: (event_never_recorded, 107000),
    Kind.DESTROYED_TOO_EARLY: (destroyed_too_early, 161002),
    Kind.HOST_ACCESS: (host_access, 107016),
    Kind.UNINITIALISED_READ: (uninitialised_read, 0),
    Kind.WRONG_KIND: (wrong_kind, 0),
    Kind.DOUBTFUL_ARGUMENT: (doubtful_argument, 0),
    Kind.FAILED_CALL: (failed_call, 207002),
}
SEEN_WITHOUT_LOOKING = {
    Kind.READ_PAST_END, Kind.MEMBER_DESTROYED_TWICE, Kind.UNALIGNED_DATA, Kind.NOT_INITIALISED, Kind.HOST_ACCESS,
    Kind.DOUBTFUL_ARGUMENT,
}  # fmt: skip
ALWAYS_REFUSED = {Kind.FAILED_CALL, Kind.NO_CURRENT_DEVICE, Kind.WRONG_CONTEXT}


def test_every_mistake_has_a_test():
    elsewhere = {Kind.UNSUPPORTED_CALL}  # through the C door alone
    assert set(MISTAKES) | elsewhere == {kind for kind in Kind if kind.is_mistake}


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.title)
def test_a_mistake_is_an_error_when_checked(checked, kind):
    make, code = MISTAKES[kind]
    assert make() == code
    assert acl.get_recent_err_msg() or not code
    (finding,) = [finding for finding in acl.findings() if finding.kind.is_mistake]
    assert (finding.kind, finding.count) == (kind, 1)
    last = inspect.getsourcelines(make)[1] + len(inspect.getsource(make).splitlines()) - 1
    inner = kind is Kind.NO_CURRENT_DEVICE  # its call is in a helper
    here = f"{Path(__file__).name}:{last - (kind is Kind.HOST_ACCESS)} in {make.__name__}"
    assert finding.place.endswith(" in launch" if inner else here)
    assert finding.stack[0] == finding.place
    assert finding.stack[inner].endswith(here)
    assert finding.stack[inner + 1].endswith(" in test_a_mistake_is_an_error_when_checked")
    assert finding.message


@pytest.mark.parametrize("kind", [kind for kind in MISTAKES if kind not in ALWAYS_REFUSED], ids=lambda k: k.title)
def test_a_mistake_passes_otherwise(device, kind, caplog):
    caplog.set_level(logging.WARNING, "aclgrad.acl")
    make, _ = MISTAKES[kind]
    for _ in range(2):
        acl.rt.set_device(0)
        assert make() == 0
    warnings = [record.getMessage() for record in caplog.records if "once" in record.getMessage()]
    assert len(warnings) == (kind in SEEN_WITHOUT_LOOKING), "one warning for each kind that needs no bookkeeping"
    assert acl.findings() == ()


def test_releasing_calls_release_all_the_same(checked):
    pointer, stream = malloc(64), new_stream()
    assert fill(pointer, stream) == 0
    assert acl.rt.free(pointer) == 207002
    assert "already" not in acl.get_recent_err_msg()
    assert acl.rt.memset(pointer, 64, 0, 64) == 107016
    assert fill(malloc(64), stream) == 0
    assert acl.rt.destroy_stream(stream) == 107000
    assert acl.rt.synchronize_stream(stream) == 107017
    members = [create(), None, create()]
    owner = meta.aclCreateTensorList(members, 3)
    assert meta.aclDestroyTensor(members[2]) == 0
    assert meta.aclDestroyTensorList(owner) == 161002
    assert "[2]" in acl.get_recent_err_msg()
    assert meta.aclGetTensorListSize(owner)[1] == meta.aclGetFormat(members[0])[1] == 161002


def test_list_members_that_are_shared_or_repeated_are_destroyed_twice(checked):
    member = create()
    lists = [meta.aclCreateTensorList([member, None], 2) for _ in range(2)]
    assert [meta.aclDestroyTensorList(owner) for owner in lists] == [0, 161002]
    member = create()
    assert meta.aclDestroyTensorList(meta.aclCreateTensorList([member, member], 2)) == 161002
    scalar = meta.aclCreateScalar(1, 3)
    owner = meta.aclCreateScalarList([scalar], 1)
    assert meta.aclDestroyScalar(scalar) == 0
    assert meta.aclDestroyScalarList(owner) == 161002


def test_a_member_may_be_destroyed_if_its_list_never_is(checked):
    member = create()
    assert meta.aclCreateTensorList([member], 1)
    assert meta.aclDestroyTensor(member) == 0
    assert found() == {}


def test_alignment_matters_where_there_is_data(checked):
    pointer = malloc(64)
    assert create(data=pointer + 4) == 0
    assert create(dims=(0, 2), data=pointer + 4)
    assert create(data=0)
    assert create(data=pointer + 32)
    tensor = create(data=pointer)
    assert aclnn.aclInitTensor(tensor, (4, 2), 2, 0, None, 0, 2, (4, 2), 2, pointer + 16) == 161002
    assert address(tensor) == pointer
    assert aclnn.aclSetRawTensorAddr(tensor, pointer + 1) == 161002
    assert address(tensor) == pointer


def test_facts_need_no_init(strict):
    assert acl.rt.get_device_count() == (1, 0)
    assert acl.rt.get_soc_name()
    assert acl.findings() == ()
    assert acl.rt.malloc_host(8) == (0, 100001)


def test_torch_tensors_need_no_device(strict):
    tensors_ = [torch.ones(4, 2) for _ in range(3)]
    _, executor, status = PHASE_ONE(*tensors_)
    assert status == PHASE_TWO(0, 0, executor, 0) == 0
    assert acl.findings() == ()


# --- the report and the switch -----------------------------------------------------------------------------------


def test_the_report():
    entries = [Finding(Kind.DEVICE_MEMORY_LEAKED, f"a.py:{k} in f", "left", 1, 10 * k) for k in range(1, 8)]
    entries += [Finding(Kind.FAILED_CALL, "b.py:3 in g", "aclrtFree: no", 3, 0, ("b.py:3 in g", "b.py:9 in main"))]
    assert findings.report(entries, "at exit (ACLGRAD_STRICT=1)") == (
        "aclgrad: 10 findings at exit (ACLGRAD_STRICT=1)\n"
        "  failed-call: a call returned an error code for another reason (3 x)\n"
        "    3 x at b.py:3 in g\n"
        "        called from b.py:9 in main\n"
        "        aclrtFree: no\n"
        "  device-memory-leaked: memory of aclrtMalloc was never freed (7 x, 280 bytes)\n"
        "    1 x, 10 bytes at a.py:1 in f\n"
        "    1 x, 20 bytes at a.py:2 in f\n"
        "    1 x, 30 bytes at a.py:3 in f\n"
        "    1 x, 40 bytes at a.py:4 in f\n"
        "    1 x, 50 bytes at a.py:5 in f\n"
        "    and at 2 more places\n"
    )


def test_repeated_mistakes_are_one_finding(checked):
    for _ in range(1000):
        failed_call()
    (finding,) = acl.findings()
    assert finding.count == 1000


def test_another_door_tells_the_place(checked, monkeypatch):
    class Line(Place):
        def frames(self):
            return "main.cpp:7", "main.cpp:20"

        def __hash__(self):
            return 7

        def __eq__(self, other):
            return isinstance(other, Line)

    monkeypatch.setattr(findings, "place", Line)
    failed_call()
    monkeypatch.setattr(findings, "place", lambda: None)
    failed_call()
    first, second = acl.findings()
    assert (first.place, first.stack) == ("main.cpp:7", ("main.cpp:7", "main.cpp:20"))
    assert (second.place, second.stack) == (None, ())


@pytest.mark.parametrize("value", ["", "0"])
def test_values_that_mean_no(monkeypatch, value):
    monkeypatch.setenv("ACLGRAD_STRICT", value)
    assert acl.init() == 0
    assert not findings.strict


def test_a_value_that_means_nothing_is_refused_by_init(monkeypatch):
    monkeypatch.setenv("ACLGRAD_STRICT", "yes")
    assert acl.init() == 100000
    assert "ACLGRAD_STRICT is 'yes', expected 0, 1 or nothing" in acl.get_recent_err_msg()
    assert acl.finalize() == 100037
    monkeypatch.setenv("ACLGRAD_STRICT", "1")
    assert acl.init() == 0
    assert findings.strict


def test_the_report_at_exit(python):
    program_text = (
        "import sys; from aclgrad import acl\n"
        "acl.init()\nacl.rt.set_device(0)\ndef work():\n    return acl.rt.malloc(100, 0)\nwork(); work()\nsys.exit(3)"
    )
    done = python("-c", program_text, env={**os.environ, "ACLGRAD_STRICT": "1"})
    assert done.returncode == 3, "the exit status is the program's own"
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "aclgrad: 4 findings at exit (ACLGRAD_STRICT=1)"
    assert "  device-memory-leaked: memory of aclrtMalloc was never freed (2 x, 200 bytes)" in lines
    assert "    2 x, 200 bytes at <string>:5 in work" in lines
    assert any("not-finalised" in line for line in lines)
    assert "    1 x at <string>:2 in <module>" in lines
    quiet = python("-c", program_text, env={**os.environ, "ACLGRAD_STRICT": "0"})
    assert (quiet.returncode, quiet.stderr) == (3, "")


def test_nothing_is_reported_twice(python):
    code = "from aclgrad import acl\nacl.init()\nacl.rt.free(5)\nacl.finalize()\nacl.rt.free(5)"
    done = python("-c", code, env={**os.environ, "ACLGRAD_STRICT": "1"})
    assert re.findall(r"(\d+) findings? at (\w+)", done.stderr) == [("1", "aclFinalize"), ("1", "exit")]
    assert done.stderr.count("failed-call") == done.stderr.count("not-initialised:") == 1


def test_a_report_counts_what_came_since_the_last(strict, capfd):
    for lives in range(3):
        assert acl.init() == 0
        for _ in range(lives + 1):
            failed_call()
        assert acl.finalize() == 0
        assert found() == {"failed-call": lives + 1}
        assert f"aclgrad: {lives + 1} finding" in capfd.readouterr().err


def test_warnings_are_given_through_the_log_only(device, capfd):
    member_destroyed_twice()
    assert boundary._warned == {Kind.MEMBER_DESTROYED_TWICE}
    assert capfd.readouterr().out == ""


def test_default_copies_are_checked_too(checked):
    pointer, out = malloc(64), np.zeros(64, np.uint8)
    assert fill(pointer, new_stream()) == 0
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 64, pointer, 64, DEFAULT) == 107000
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 64, pointer, 64, D2H) == 107000
    assert acl.rt.memcpy(pointer, 64, acl.util.numpy_to_ptr(out), 64, H2D) == 107000
    assert acl.rt.memset(pointer, 64, 0, 64) == 107000
    assert not out.any()
