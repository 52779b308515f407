"""What a newcomer runs first: the README's examples and the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aclgrad
from aclgrad import acl, aclnn
from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.cli import app

README = Path(__file__).parents[1] / "README.md"
PAGES = sorted(
    page
    for page in README.parent.rglob("*.md")
    if not any(part.startswith(".") for part in page.relative_to(README.parent).parts)
)
runner = CliRunner()


def statements(block):
    """Its lines; indented ones belong to the line above."""
    return re.split(r"\n(?![ \t])", block)


def run_line(line, namespace):
    """One line of an example; a promised error must come, with the promised text."""
    promise = re.search(r"# raises (\w+): (.*)", line)
    if promise is None:
        exec(line, namespace)
        return
    with pytest.raises(getattr(aclgrad, promise[1]), match=re.escape(promise[2])):
        exec(line, namespace)


def test_the_readmes_examples_run_and_print_what_they_say(capsys):
    namespace = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
            lines = statements(block)
            for k, line in enumerate(lines):
                if not line.strip() or line.startswith("#"):
                    continue
                run_line(line, namespace)
                if line.startswith("print("):
                    assert capsys.readouterr().out.strip() == lines[k + 1].removeprefix("# ")
                elif expected := re.search(r"# (\d+)$", line):
                    assert namespace["status"] == int(expected[1])
                if "ret" in namespace:
                    assert namespace["ret"] == 0, line
    finally:
        acl.rt.reset_device_force(0)
        acl.finalize()


def test_the_readme_names_no_operator_that_is_not_there():
    """The table that it links to is made from the contracts; its own is a choice."""
    text = README.read_text(encoding="utf-8")
    assert "(docs/operators.md)" in text
    named = set(re.findall(r"aclnn[A-Z]\w+", text)) - {"aclnnXxx", "aclnnXxxGetWorkspaceSize"}
    assert named and named <= set(aclnn.__all__)


def anchors(page):
    """What a link into a page may name: its headings as Markdown viewers spell them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_lines_are_no_longer_than_120_columns(page):
    """But rows of tables, which cannot be wrapped."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def test_list_and_explain():
    listed = runner.invoke(app, ["list"])
    assert listed.exit_code == 0
    for operator in aclnn_operators():
        assert operator.spec.aclnn in listed.output
        explained = runner.invoke(app, ["explain", operator.spec.name])
        assert explained.exit_code == 0
        for param in (*operator.spec.args, *operator.spec.outs):
            assert param.aclnn in explained.output
        assert "backend cpu: runs here" in explained.output


def test_version_and_mistakes():
    assert runner.invoke(app, ["--version"]).output.strip() == f"aclgrad {aclgrad.__version__}"
    wrong = runner.invoke(app, ["explain", "nonsense"])
    assert wrong.exit_code == 2
    assert "nonsense" in wrong.output


def test_selftest_judges_a_backend():
    judged = runner.invoke(app, ["selftest", "hardsigmoid_backward", "--backend", "reference"])
    assert judged.exit_code == 0, judged.output
    assert "WRONG" not in judged.output


def test_selftest_fails_for_a_wrong_kernel(monkeypatch):
    from aclgrad.ops.hardsigmoid import reference, spec

    right = reference.hardsigmoid_backward
    monkeypatch.setattr(spec.hardsigmoid_backward, "_plans", {})
    monkeypatch.setattr(
        "aclgrad.core.backends.ReferenceLaunch.__call__",
        lambda self, args, outs, workspace: outs[0].copy_(right(*args) * 1.001),
    )
    judged = runner.invoke(app, ["selftest", "hardsigmoid_backward", "--backend", "reference"])
    assert judged.exit_code == 1
    assert "WRONG" in judged.output


@pytest.mark.slow
def test_demo_holds():
    done = subprocess.run(
        [sys.executable, "-m", "aclgrad.frontends.cli", "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for operator in aclnn_operators():
        assert f" {operator.spec.name} " in done.stdout
    assert "WRONG" not in done.stdout
