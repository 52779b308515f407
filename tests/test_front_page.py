"""What a newcomer runs first: the README's examples and the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aclgrad
from aclgrad import acl, aclnn
from aclgrad.core.known import Known
from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.cli import app
from page_blocks import anchors, blocks, run_python, without_blocks

README = Path(__file__).parents[1] / "README.md"
PAGES = sorted(
    page
    for page in README.parent.rglob("*.md")
    if not any(part.startswith(".") for part in page.relative_to(README.parent).parts)
)
runner = CliRunner()


def test_the_readmes_examples_run_and_print_what_they_say():
    found = blocks("README.md", README.read_text(encoding="utf-8"))
    try:
        run_python([block for block in found if block.language == "python"])
    finally:
        acl.rt.reset_device_force(0)
        acl.finalize()


def test_the_readme_names_no_operator_that_is_not_there():
    """The table that it links to is made from the contracts; its own is a choice."""
    text = README.read_text(encoding="utf-8")
    assert "(docs/operators.md)" in text
    named = set(re.findall(r"aclnn[A-Z]\w+", text)) - {"aclnnXxx", "aclnnXxxGetWorkspaceSize"}
    assert named and named <= set(aclnn.__all__)


PAGE_BY_NAME = {str(page.relative_to(README.parent)): (page,) for page in PAGES}


def test_links_lead_somewhere(each_case):
    each_case(leads_somewhere, PAGE_BY_NAME)


def leads_somewhere(page):
    text = without_blocks(page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), f"{page.name} links to {target}#{anchor}"


def test_lines_are_no_longer_than_120_columns(each_case):
    each_case(fits, PAGE_BY_NAME)


def fits(page):
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
    monkeypatch.setattr(spec.hardsigmoid_backward, "_plans", Known())
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
