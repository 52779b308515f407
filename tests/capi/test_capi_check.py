"""`aclgrad check`: what a program's findings do to its exit status, the reports, and known findings."""

import json
import math
from xml.etree import ElementTree

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.acl import suppressions
from aclgrad.frontends.acl.findings import Finding
from aclgrad.frontends.acl.kinds import Kind
from aclgrad.frontends.cli import main

TURNS = 10
LEAK = "device-memory-leaked"
RIGHT_PYTHON = "import aclgrad.acl as acl\nacl.init()\nacl.finalize()\nraise SystemExit(5)\n"


@pytest.fixture(scope="module")
def program(compiler):
    return str(compiler(PROGRAMS / "checked.cpp", "-g", "-O0"))


@pytest.fixture
def check(capfd, monkeypatch):
    """Run the command in this process: (exit status, what was said on stderr)."""
    monkeypatch.delenv("ACLGRAD_STRICT", raising=False)

    def call(*words):
        monkeypatch.setattr("sys.argv", ["aclgrad", "check", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, capfd.readouterr().err

    return call


def test_a_finding_decides_the_exit_status_and_is_reported(check, program, tmp_path):
    reports = [tmp_path / f"report.{suffix}" for suffix in ("json", "xml", "txt")]
    options = [word for path in reports for word in ("--report", path)]
    known = tmp_path / "known.txt"
    known.write_text("copy-race  nothing.cpp:*\n")
    status, said = check(*options, "--suppress", known, "--exit-code", 9, "--", program, "finish")
    assert status == 9
    assert LEAK in said
    assert "checked.cpp:11 in lose" in said
    assert "known.txt:1: nothing was found for copy-race nothing.cpp:*" in said

    data = json.loads(reports[0].read_text())
    (finding,) = data["findings"]
    assert (data["status"], data["suppressed"], data["command"]) == (7, [], [program, "finish"])
    assert finding["kind"] == LEAK
    assert [frame.split(" in ")[1] for frame in finding["stack"]][:2] == ["lose", "main"]

    suite = ElementTree.parse(reports[1]).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "1", "1")
    assert suite.find("testcase/failure").get("type") == LEAK
    assert reports[2].read_text() in said


@pytest.mark.slow
def test_known_findings_leave_the_programs_own_status(check, program, tmp_path):
    known, report = tmp_path / "known.txt", tmp_path / "report.xml"
    known.write_text(f"# ours for years\n{LEAK}  *in lose\n")
    status, said = check("--suppress", known, "--report", report, "--", program)
    assert status == 7
    assert said == "aclgrad: no findings (1 suppressed)\n"
    assert ElementTree.parse(report).getroot().find("testcase/skipped") is not None


@pytest.mark.slow
def test_a_crash_keeps_what_was_found_before(check, program):
    status, said = check("--exit-code", 0, "--", program, "crash")
    assert status == 0
    assert "checked.cpp:23 in main" in said
    assert "devPtr is null" in said
    assert LEAK not in said  # nobody lost memory before the program was killed


def test_a_program_that_ends_without_an_end_is_found(check, program):
    status, said = check("--", program, "vanish")
    assert status == 1
    assert "not-finalised" in said
    assert "checked.cpp:17 in main" in said


@pytest.mark.slow
def test_a_python_program_is_run_with_this_python(check, tmp_path):
    script = tmp_path / "right.py"
    script.write_text(RIGHT_PYTHON)
    assert check("--", script) == (5, "aclgrad: no findings\n")


def test_a_program_that_never_calls_us_is_no_success_of_ours(check):
    status, said = check("--", "true")
    assert status == 0
    assert "nothing was checked: true has not called aclInit" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "no/such/program"], "cannot be run"),
        (["--report", "report.html", "--", "true"], ".json, .xml, .txt"),
        (["--report", "no/folder/report.xml", "--", "true"], "has no folder"),
        (["--suppress", "no/file.txt", "--", "true"], "no/file.txt"),
        (["--exit-code", "256", "--", "true"], "255"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_words_are_told(check, words, told):
    status, said = check(*words)
    assert status == 2
    assert told in " ".join(said.replace("│", " ").split())
    assert "Traceback" not in said


def test_a_kind_that_does_not_exist_is_told(check, tmp_path):
    known = tmp_path / "known.txt"
    known.write_text("\ncopy-rice *\n")
    status, said = check("--suppress", known, "--", "true")
    assert status == 2
    assert "copy-rice" in said


def test_patterns_of_suppressions():
    stack = ("lib/a.cpp:7 in inner<int>", "main.cpp:9 in main::{lambda(int)#1}::operator()", "main.cpp:3 in main")
    finding = Finding(Kind.COPY_RACE, "lib/a.cpp:7", "told", 1, 0, stack)
    for line, covers in {
        "copy-race": True,
        "copy-*  *in main": True,
        "*  lib/*": True,
        "stream-race": False,
        "copy-race  main.cpp:3": False,  # a place is the whole line
        "copy-race  main.cpp:3 *": True,
        "copy-race  *{lambda(int)#1}*  # a lambda's own #": True,
        "copy-race  *{lambda(int)#2}*": False,
        "copy-race\t# everywhere": True,
    }.items():
        (known,) = suppressions.parse(line, "known.txt")
        counting, accepted, unused = suppressions.divide([finding], [known])
        assert (not counting, bool(accepted), not unused) == (covers,) * 3, line


@pytest.mark.slow
def test_a_checked_call_costs_at_most_twice_a_plain_one(compiler):
    cost = compiler(PROGRAMS / "cost.cpp", "-O1")
    best = {None: [math.inf] * 2, "1": [math.inf] * 2}
    for _ in range(TURNS):  # until both have met the machine at its best
        for strict in best:
            done = run([cost], env=environment(ACLGRAD_STRICT=strict))
            assert done.returncode == 0, done.stderr
            best[strict] = [min(pair) for pair in zip(best[strict], map(float, done.stdout.split()), strict=True)]
        ratios = [after / before for before, after in zip(best[None], best["1"], strict=True)]
        if max(ratios) <= 2:
            return
    pytest.fail(f"a checked call costs {ratios} times a plain one, expected at most 2")
