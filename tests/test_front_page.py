"""What a newcomer runs first: the README's examples and the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aclgrad
from aclgrad import acl
from aclgrad.core.registry import operators
from aclgrad.frontends.cli import app

README = Path(__file__).parents[1] / "README.md"
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


def test_the_readme_names_every_operator():
    text = README.read_text(encoding="utf-8")
    for operator in operators():
        assert operator.spec.name in text
        assert operator.spec.aclnn in text
        folder = operator.spec.package.replace(".", "/")
        assert f"src/{folder}/README.md" in text


def test_links_lead_somewhere():
    root = README.parent
    for page in [README, *root.glob("docs/*.md"), root / "CONTRIBUTING.md", *root.glob("src/aclgrad/ops/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_list_and_explain():
    listed = runner.invoke(app, ["list"])
    assert listed.exit_code == 0
    for operator in operators():
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


def test_verify_judges_a_backend():
    judged = runner.invoke(app, ["verify", "hardsigmoid_backward", "--backend", "reference"])
    assert judged.exit_code == 0, judged.output
    assert "WRONG" not in judged.output


def test_verify_fails_for_a_wrong_kernel(monkeypatch):
    from aclgrad.ops.hardsigmoid import reference, spec

    right = reference.hardsigmoid_backward
    monkeypatch.setattr(spec.hardsigmoid_backward, "_plans", {})
    monkeypatch.setattr(
        "aclgrad.core.backends.ReferenceLaunch.__call__",
        lambda self, args, outs, workspace: outs[0].copy_(right(*args) * 1.001),
    )
    judged = runner.invoke(app, ["verify", "hardsigmoid_backward", "--backend", "reference"])
    assert judged.exit_code == 1
    assert "WRONG" in judged.output


@pytest.mark.slow
def test_demo_holds():
    done = subprocess.run(
        [sys.executable, "-m", "aclgrad.frontends.cli", "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for operator in operators():
        assert f" {operator.spec.name} " in done.stdout
    assert "WRONG" not in done.stdout
