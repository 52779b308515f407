"""Operators from outside the package: found, served by every door, and what is said of packages that cannot be."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import aclgrad
from aclgrad import aclnn
from aclgrad.core import registry
from aclgrad.core.errors import AclgradError, InvalidArgument, NoBackend
from aclgrad.frontends.acl import boundary
from aclgrad.frontends.capi import build
from aclgrad.frontends.custom import discovery

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "custom_operator"
SPEC = """
from aclgrad.custom import F32, OpSpec, Out, Tensor, dtype_of, register, required, shape_of
register(OpSpec(
    name="{name}", aclnn="aclnn{name}", package=__package__, args=(Tensor("x", "self", (F32,)),),
    outs=(Out("out", "out", (F32,), shape_of("x"), dtype_of("x")),), rules=(required("x"),),
))
"""


@pytest.fixture
def example(tmp_path):
    """A copy of the example's folder."""
    return shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("*.so", "__pycache__", "build"))


@pytest.fixture
def family(tmp_path, monkeypatch):
    """Makes a package of one operator, with or without its parts; none of them is left behind."""
    before = {operator.spec.name for operator in registry.operators()}
    modules, functions = set(sys.modules), set(boundary.FUNCTIONS)

    def make(name, parts=("reference", "cases"), text=None):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(SPEC.format(name=name) if text is None else text)
        for part in parts:
            (folder / f"{part}.py").write_text(f"def {name}(x):\n    return 3 * x\n")
        monkeypatch.setenv(discovery.VARIABLE, str(folder))
        return folder

    followers = list(registry._followers)
    registry._followers.clear()  # torch's library cannot forget an op
    yield make
    registry._followers.extend(followers)
    for operator in list(registry.operators()):
        if operator.spec.name not in before:
            registry.forget(operator.spec.name)
    for name in set(boundary.FUNCTIONS) - functions:
        for table in (boundary.FUNCTIONS, aclnn._names, vars(aclnn)):
            table.pop(name, None)
    for module in set(sys.modules) - modules:
        if (getattr(sys.modules[module], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[module]


def cannot_be_built():
    try:
        build.cxx_compiler()
        build.shared_python()
    except build.Unavailable as missing:
        return str(missing)
    return ""


@pytest.mark.parametrize("doors", [(), pytest.param(("c",), marks=pytest.mark.slow)], ids=["Python", "C as well"])
def test_the_example_is_in_every_door(python, example, tmp_path, doors):
    if reason := cannot_be_built():
        pytest.skip(f"the C interface cannot be built here: {reason}")
    environment = {**os.environ, discovery.VARIABLE: str(example / "squared_relu")}
    done = python(HERE / "doors.py", example, tmp_path, *doors, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found in every door" in done.stdout


@pytest.mark.slow
def test_the_examples_script_builds_and_runs_it(example, tmp_path):
    if reason := cannot_be_built():
        pytest.skip(f"the C interface cannot be built here: {reason}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"ACLGRAD_CACHE": str(tmp_path / "cache"), "PATH": path}
    done = subprocess.run(["sh", example / "run.sh"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "null: 161001"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import squared_relu, aclgrad", "import aclgrad, aclgrad.aclnn, squared_relu"])
def test_whoever_is_imported_first(example, first):
    """Aclgrad may import the package, or the package aclgrad."""
    use = (
        "; x = aclgrad.core.spec.torch.tensor([-1.0, 2.0]); out = aclgrad.squared_relu(x); "
        "status = aclgrad.aclnn.aclnnSquaredReluGetWorkspaceSize(x, out)[2]; print(out.tolist(), status)"
    )
    for named in ("", str(example / "squared_relu")):
        environment = os.environ | {"PYTHONPATH": str(example), discovery.VARIABLE: named}
        done = subprocess.run(
            [sys.executable, "-c", first + use], capture_output=True, text=True, check=False, env=environment
        )
        assert done.stdout == "[0.0, 4.0] 0\n", done.stderr


def test_a_named_folder_is_a_family(family):
    family("tripled")
    discovery.load()
    assert torch.equal(aclgrad.tripled(torch.ones(2)), torch.full((2,), 3.0))
    assert aclnn.aclnntripledGetWorkspaceSize(None, None)[2] == 161001
    assert "tripled" in dir(aclgrad)
    discovery.load()  # twice is once
    assert [operator.spec.name for operator in discovery.outside()] == ["tripled"]


def test_the_contract_of_the_page(family):
    page = (HERE.parents[1] / "docs" / "custom-operators.md").read_text()
    family("my_op", text=page.partition("```python\n")[2].partition("```")[0])
    discovery.load()
    assert torch.equal(aclgrad.my_op(torch.ones(2)), torch.full((2,), 3.0))
    assert aclnn.aclnnMyOpGetWorkspaceSize(torch.ones(2), torch.ones(3))[2] == 161002


@pytest.mark.parametrize("part", discovery.PARTS)
def test_a_part_that_is_missing_is_told_and_nothing_stays(family, part):
    family(f"without_{part}", [other for other in discovery.PARTS if other != part])
    with pytest.raises(InvalidArgument, match=rf"has no {part}\.py, expected one beside the contracts"):
        discovery.load()
    assert not list(discovery.outside())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has registered no operator whose package is 'broken'"),
        ("import nothing_of_this_name", "fails with ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (SPEC.format(name="hardsigmoid"), "is registered twice, aclgrad.ops.hardsigmoid has it"),
        (SPEC.format(name="LSTM"), "operator LSTM = aclnnLSTM of broken is registered twice, aclgrad.ops.lstm has it"),
    ],
    ids=["empty", "import", "name", "function"],
)
def test_a_broken_family_is_told_and_nothing_stays(family, text, told):
    family("broken", text=text)
    with pytest.raises(InvalidArgument) as refused:
        discovery.load()
    assert told in str(refused.value)
    assert not list(discovery.outside())


@pytest.mark.parametrize("word", ["no_such_package", "/no/such/folder"])
def test_a_name_that_leads_nowhere_is_told(monkeypatch, word):
    monkeypatch.setenv(discovery.VARIABLE, word)
    with pytest.raises(InvalidArgument, match=f"ACLGRAD_PLUGINS names .?{word}"):
        discovery.load()


def test_an_installed_family_is_found(family, tmp_path, monkeypatch):
    family("installed")
    facts = tmp_path / "installed-1.0.dist-info"  # what pip writes
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    text = (EXAMPLE / "pyproject.toml").read_text().partition(f'[project.entry-points."{discovery.GROUP}"]\n')[2]
    line = text.splitlines()[0].replace('"', "").replace("squared_relu", "installed")
    (facts / "entry_points.txt").write_text(f"[{discovery.GROUP}]\n{line}\n")
    monkeypatch.delenv(discovery.VARIABLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery.load()
    assert [operator.spec.name for operator in discovery.outside()] == ["installed"]


def test_an_installed_family_that_is_broken_is_left_out_with_a_warning(family, monkeypatch):
    family("fallen", text="1 / 0")

    class Point:
        value = os.environ[discovery.VARIABLE]

    monkeypatch.delenv(discovery.VARIABLE)
    monkeypatch.setattr(discovery, "entry_points", lambda group: [Point] if group == discovery.GROUP else [])
    with pytest.warns(RuntimeWarning, match="are left out: ZeroDivisionError"):
        discovery.load()


def test_a_library_that_fails_or_lacks_the_function(family, tmp_path):
    if reason := cannot_be_built():
        pytest.skip(reason)
    source, library = tmp_path / "k.c", tmp_path / "libk.so"
    source.write_text("int failing(const void *values) { return values != 0 ? 7 : 0; }\n")
    subprocess.run([*build.c_compiler(), "-shared", "-fPIC", source, "-o", library], check=True)
    folder = family("from_c", parts=("cases",))
    kernel = textwrap.dedent(
        f"""
        from aclgrad.custom import SharedLibrary
        from_c = SharedLibrary({str(library)!r}).NAME
        """
    )
    (folder / "reference.py").write_text(kernel.replace("NAME", "formula('failing', 'from_c')"))
    (folder / "kernel_cpu.py").write_text(kernel.replace("NAME", "kernel('absent')"))
    discovery.load()
    with pytest.raises(NoBackend, match="has no function absent"):
        aclgrad.from_c(torch.ones(2))
    with pytest.raises(AclgradError, match=r"the function failing of libk.so returned 7, expected 0"):
        aclgrad.from_c(torch.ones(2), backend="reference")
