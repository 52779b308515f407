"""The shape of the code: who imports whom, what a family contains, how long a file may be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "aclgrad"
FAMILIES = sorted(p for p in (PACKAGE / "ops").iterdir() if p.is_dir() and not p.name.startswith("_"))
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 350


def imported(path):
    """Absolute names of the modules a file imports, at its top level or inside functions."""
    package = ["aclgrad", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


ALLOWED = {
    "core": ("core",),
    "cpu": ("core", "cpu"),
    "gpu": ("core", "cpu", "gpu"),  # compiled code launches the steps of a recurrence
    "ops": ("core", "cpu", "gpu", "ops"),
    "frontends": ("core", "frontends", "testing", "ops", "acl", "aclnn"),
    "testing": ("core", "testing", "acl", "aclnn", "frontends"),
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    parts = path.relative_to(PACKAGE).parts
    if len(parts) == 1 or parts[0] == "acl":
        return
    allowed = ALLOWED[parts[0]]
    for module in imported(path):
        if not module.startswith("aclgrad."):
            continue
        target = module.split(".")[1]
        if parts[0] == "ops" and parts[-1].startswith("cases") and target == "testing":
            continue
        if target not in {p.name for p in PACKAGE.iterdir() if p.is_dir()} | {"aclnn"}:
            continue  # a name exported at the top
        assert target in allowed, f"{parts[0]} must not import {module}"
        if parts[0] == "ops" and target == "ops" and len(parts) > 2:
            family = module.split(".")[2] if module.count(".") > 1 else parts[1]
            assert family in (parts[1], "_shared"), f"family {parts[1]} must not import {module}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda p: p.name)
def test_a_family_is_whole(family):
    for name in (
        "__init__.py",
        "spec.py",
        "reference.py",
        "functional.py",
        "cases.py",
        "kernel_cpu.py",
        "kernel_triton.py",
        "autograd.py",
        "module.py",
        "README.md",
    ):
        assert (family / name).is_file(), f"{family.name} lacks {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_small(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines"


def test_importing_is_quick_and_has_no_side_effects():
    """numba, rich and the other doors come when they are used; no thread, no file, nothing printed."""
    code = (
        "import sys, threading, torch; before = set(sys.modules); threads = threading.active_count(); import aclgrad\n"
        "heavy = {'numba', 'llvmlite', 'rich', 'typer', 'matplotlib', 'triton'}\n"
        "heavy |= {f'aclgrad.{door}' for door in ('acl', 'aclnn', 'testing', 'torch_npu')}\n"
        "late = heavy & (set(sys.modules) - before)\n"
        "assert not late, late\n"
        "assert threading.active_count() == threads\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_door_is_there_after_a_plain_import():
    doors = ("acl", "aclnn", "nn", "testing", "torch_npu")
    code = (
        "import aclgrad\n"
        f"for door in {doors}:\n"
        "    assert door in dir(aclgrad), door\n"
        "    assert getattr(aclgrad, door).__name__ == f'aclgrad.{door}', door\n"
        "assert {'lstm', 'hardsigmoid', '__version__'} <= set(dir(aclgrad))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_printed_or_asserted_on_users():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", path
