"""Python programs under the checker: each mistake is found in its line and nothing else, right ones have no finding."""

from __future__ import annotations

import inspect

import pytest
from bugs import PROGRAMS

from aclgrad import acl

AT_LEAST = 10
"""Programs of either sort; tests/capi has those in C++."""
WRONG = [name for name, (_, kind) in PROGRAMS.items() if kind is not None]
RIGHT = [name for name, (_, kind) in PROGRAMS.items() if kind is None]


def findings_of(name):
    body, _ = PROGRAMS[name]
    assert acl.init() == acl.rt.set_device(0) == 0
    stream, _ = acl.rt.create_stream()
    body(stream)
    acl.rt.synchronize_device()
    acl.rt.destroy_stream(stream)
    acl.rt.reset_device(0)
    assert acl.finalize() == 0
    return acl.findings()


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found_in_its_line(strict, capfd, name):
    body, kind = PROGRAMS[name]
    lines, first = inspect.getsourcelines(body)
    (marked,) = [first + k for k, line in enumerate(lines) if line.endswith("# here\n")]
    found = findings_of(name)
    assert {finding.kind for finding in found} == {kind}
    assert {finding.place.split(" in ")[0].rpartition("/")[2] for finding in found} == {f"bugs.py:{marked}"}
    assert f"{kind.title}: " in capfd.readouterr().err, "the report names it"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_has_no_findings(strict, capfd, name):
    assert findings_of(name) == ()
    assert capfd.readouterr().err == ""


def test_there_are_enough_of_both():
    assert min(len(WRONG), len(RIGHT)) >= AT_LEAST
