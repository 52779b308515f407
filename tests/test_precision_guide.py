"""The guide for those who write kernels: every block of it runs, in its order, and says what it promises."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aclgrad.frontends.cli import app
from page_blocks import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "precision.md"
FILES = {"c": "gradient.c", "json": "arguments.json"}
RUNNER = CliRunner(env={"COLUMNS": "110"})


def spoken(text):
    """Words without the layout of tables."""
    return " ".join(text.split())


def in_shell(line):
    """Run a command; what it said."""
    words, promised = shlex.split(line, comments=True), re.search(r"# exits (\d)", line)
    if words[0] != "aclgrad":
        subprocess.run(words, check=True)
        return ""
    done = RUNNER.invoke(app, words[1:])
    assert done.exit_code == (int(promised[1]) if promised else 0), done.output
    return done.output


def in_python(block, namespace, capsys):
    """Run statements; a comment after a line that prints is what it prints."""
    capsys.readouterr()
    exec(block, namespace)
    promised = re.findall(r"^print\(.*\n# (.*)$", block, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == promised


def test_every_block_of_the_guide_runs(tmp_path, monkeypatch, capsys):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    monkeypatch.chdir(tmp_path)
    namespace, said = {}, ""
    for found in blocks(GUIDE.name, GUIDE.read_text(encoding="utf-8")):
        kind, block = found.language, found.text
        if kind == "sh":
            said += " ".join(spoken(in_shell(line)) for line in block.splitlines())
        elif kind == "python":
            in_python(block, namespace, capsys)
        elif kind in FILES:
            (tmp_path / FILES[kind]).write_text(block)
        else:
            assert kind == "text"
            assert all(spoken(line) in said for line in block.splitlines()), said
    assert (tmp_path / "described" / "self.pt").exists()
    assert {path.name for path in tmp_path.iterdir()} >= {"report.html", "result.csv", "ci.xml"}
