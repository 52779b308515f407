"""Seeded bugs are found with file and line, right programs have no findings: one compiled program, one process.

The bugs are the wrong examples of docs/findings, a page for each kind, and those of bugs.cpp; so every page is true.
"""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.acl import journal
from aclgrad.frontends.acl.findings import Kind

PAGES = Path(__file__).parents[2] / "docs" / "findings"
LAST = "not-finalised"  # a process ends but once
AT_LEAST = {"wrong": 40, "right": 20}


class Program(NamedTuple):
    name: str
    kind: str | None  # of a wrong one
    place: str | None  # file:line of the mistake
    whole: bool
    text: str

    @property
    def function(self):
        return self.name.replace("-", "_")


def from_pages():
    for kind in Kind:
        page = PAGES / f"{kind.title}.md"
        lines = page.read_text().splitlines()
        starts = [k for k, line in enumerate(lines) if line.startswith("```cpp")]
        assert len(starts) == 2, page.name
        for side, start in zip(("wrong", "right"), starts, strict=True):
            end = lines.index("```", start)
            body = lines[start + 1 : end]
            text = "\n".join([f'#line {start + 2} "{page.name}"', *body, "}"])
            marked = [start + 2 + k for k, line in enumerate(body) if line.endswith("// here")]
            assert len(marked) == (side == "wrong"), page.name
            name = f"{side}_{kind.title}"
            head = f"static void {name.replace('-', '_')}(aclrtStream stream)\n{{ (void)stream;\n"
            place = f"{page.name}:{marked[0]}" if marked else None
            yield Program(name, kind.title if marked else None, place, "whole" in lines[start], head + text)


def from_file():
    """What bugs.cpp defines."""
    lines = (PROGRAMS / "bugs.cpp").read_text().splitlines()
    for k, line in enumerate(lines):
        found = re.match(r"static void ((wrong|right)_\w+)\(", line)
        if found:
            end = lines.index("}", k)
            marked = [n + 1 for n in range(k, end) if lines[n].endswith("// here")]
            assert len(marked) == (found[2] == "wrong"), found[1]
            kind = lines[k - 1].removeprefix("// ") if marked else None
            yield Program(found[1], kind, f"bugs.cpp:{marked[0]}" if marked else None, False, "")


ALL = sorted([*from_pages(), *from_file()], key=lambda program: program.name == f"wrong_{LAST}")


@pytest.fixture(scope="module")
def found(compiler, tmp_path_factory):
    """(what was found, by function) of one run of everything."""
    if shutil.which("addr2line") is None:
        pytest.skip("addr2line is not here")
    folder = tmp_path_factory.mktemp("checked")
    table = ",\n".join(f'    {{"{p.name}", {p.function}, {"true" if p.whole else "false"}}}' for p in ALL)
    source = folder / "everything.cpp"
    source.write_text(
        f'#include "{PROGRAMS}/bugs.cpp"\n#include "aclnnop/aclnn_add.h"\n'
        + "\n".join(program.text for program in ALL)
        + "\nint foreign_add(uint64_t *size, aclOpExecutor **executor)\n"
        "{ return aclnnAddGetWorkspaceSize((aclTensor *)0, (aclTensor *)0, (aclScalar *)0, 0, size, executor); }\n"
        f"int main() {{ return all({{\n{table}\n}}); }}\n"
    )
    program = compiler(source, "-g", "-O0", "-std=c++17")
    (folder / "journal").mkdir()
    done = run([program], env=environment(ACLGRAD_STRICT="1", ACLGRAD_JOURNAL=str(folder / "journal")))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    by_function = {}
    for finding in journal.read(folder / "journal"):
        names = [name for frame in finding.stack if (name := re.search(r" in ((wrong|right)_\w+)", frame))]
        by_function.setdefault(names[-1][1] if names else None, []).append(finding)
    return by_function


@pytest.mark.parametrize("program", [p for p in ALL if p.kind], ids=lambda p: p.name)
def test_a_seeded_bug_is_found_in_its_line(found, program):
    mine = found.get(program.function, [])
    assert {finding.kind.title for finding in mine} == {program.kind}
    assert any(frame.split(" in ")[0].endswith(program.place) for finding in mine for frame in finding.stack), mine


@pytest.mark.parametrize("program", [p for p in ALL if not p.kind], ids=lambda p: p.name)
def test_a_right_program_has_no_findings(found, program):
    assert found.get(program.function, []) == []


def test_nothing_is_found_outside_the_programs(found):
    assert found.get(None, []) == []


def test_there_are_enough_of_both():
    for side, least in AT_LEAST.items():
        assert sum(program.name.startswith(side) for program in ALL) >= least


def test_every_kind_has_a_page_that_says_what_it_means():
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == {kind.title for kind in Kind}
    for kind in Kind:
        text = (PAGES / f"{kind.title}.md").read_text()
        assert text.startswith(f"# {kind.title}\n\n{kind.meaning[0].upper()}"), kind.title
        assert " ".join(text.split()).count(kind.meaning[1:]) == 1
        for part in ("**On a device.**", "Wrong:", "Right:", "**The cure.**"):
            assert part in text, (kind.title, part)


def test_the_overview_lists_every_kind():
    row = r"^\| \[`([a-z-]+)`\]\(([a-z-]+).md\) \| ([^|]+) \| (\d+|any|) \|$"
    rows = re.findall(row, (PAGES / "README.md").read_text(), re.MULTILINE)
    codes = [str(int(k.code)) if k.code else "any" if k.group.value == "mistake" else "" for k in Kind]
    assert rows == [(k.title, k.title, k.meaning, code) for k, code in zip(Kind, codes, strict=True)]


def test_a_journal_is_lines_of_json(tmp_path):
    (tmp_path / "1.jsonl").write_text('{"occasion": "aclFinalize"}\n{"kind": "copy-race"')
    assert journal.read(tmp_path) == []
    assert json.loads((tmp_path / "1.jsonl").read_text().splitlines()[0])["occasion"]
