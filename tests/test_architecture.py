"""The shape of the code: who imports whom, where doors are, what a family contains, how long files and kernels are."""

import ast
from functools import cache
from pathlib import Path

import pytest

import aclgrad

PACKAGE = Path(aclgrad.__file__).parent
FAMILIES = sorted(p for p in (PACKAGE / "ops").iterdir() if p.is_dir() and p.name[0] not in "_.")
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE, LONGEST_KERNEL = 300, 150
LONG_FILES: dict[str, str] = {}
"""Files that are longer, each with the reason."""

_ONE_LOOP = "the weights and the cell state stay in registers over all steps: one function holds the loop and its state"
LONG_KERNELS: dict[str, str] = {
    "ops/lstm/triton/recurrence/persistent/backward_kernel.py::persistent_backward": _ONE_LOOP,
    "ops/lstm/triton/recurrence/persistent/forward_kernel.py::persistent_forward": _ONE_LOOP,
}
"""Compiled functions that are longer, `file::function`, each with the reason."""

PUBLIC = {"__init__", "acl", "aclnn", "custom", "nn", "npu", "torch_npu"}
"""Thin modules at the top, which only show what `frontends` and the families have."""

LAYERS = {
    "core": ("core",),
    "cpu": ("core", "cpu"),
    "gpu": ("core", "cpu", "gpu"),  # compiled code launches the steps of a recurrence
    "ops": ("core", "cpu", "gpu", "ops"),
    "frontends": ("core", "frontends"),
    "public": ("core", "cpu", "gpu", "ops", "frontends", "public"),
    "npu": ("core", "frontends", "public", "npu"),
    "capi": ("core", "frontends", "public", "capi"),
    "testing": ("core", "frontends", "public", "testing"),
    "cli": ("core", "frontends", "public", "testing", "capi", "cli"),
}
"""Who may import whom. The command line and the C interface are doors on top of others: layers of their own.
So is `npu`, which shows programs the other doors by the vendor's names."""


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path):
    """Absolute names of the modules a file imports, at its top level or inside functions."""
    package = ["aclgrad", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def layer(parts):
    """The layer of a module, by the parts of its name or path behind the package's."""
    if parts[0] == "frontends" and len(parts) > 1 and parts[1] in ("capi", "cli", "npu"):
        return parts[1]
    if parts[0] in LAYERS:
        return parts[0]
    return {"__main__": "cli", "__main__.py": "cli"}.get(parts[0], "public")


def shown(path):
    return str(path.relative_to(PACKAGE))


def test_imports_point_one_way():
    for path in SOURCES:
        parts = path.relative_to(PACKAGE).parts
        mine = layer(parts)
        for module in imported(path):
            target = module.split(".")[1:]
            if not module.startswith("aclgrad.") or target == ["__version__"]:
                continue
            if mine == "ops" and target[0] == "testing" and parts[-1].startswith(("cases", "peers")):
                continue
            assert layer(target) in LAYERS[mine], f"{mine} must not import {module}: {shown(path)}"
            if mine == "ops" and target[0] == "ops" and len(parts) > 2 and len(target) > 1:
                assert target[1] in (parts[1], "_shared"), f"family {parts[1]} must not import {module}: {shown(path)}"


def test_families_are_named_in_one_place():
    """`aclgrad/__init__.py` has a line for each; all others find them in the registry."""
    for path in SOURCES:
        inside = path.relative_to(PACKAGE).parts
        named = {family.name for family in FAMILIES for module in imported(path)
                 if module.startswith(f"aclgrad.ops.{family.name}.")}  # fmt: skip
        if shown(path) == "__init__.py":
            assert named == {family.name for family in FAMILIES}
            assert path.read_text(encoding="utf-8").count("from .ops.") == len(FAMILIES)
        elif inside[0] != "ops":
            assert not named, f"{path} names {named}"


def test_doors_live_under_frontends():
    """At the top there are thin modules only: no classes, and no functions but those that look a name up."""
    tops = [path for path in PACKAGE.glob("*.py") if path.stem not in ("__main__", "_version")]
    assert {path.stem for path in tops} | {"acl", "npu"} == PUBLIC
    for path in [*tops, *(PACKAGE / "acl").glob("*.py"), *(PACKAGE / "npu").glob("*.py")]:
        for node in ast.walk(parsed(path)):
            assert not isinstance(node, ast.ClassDef | ast.AsyncFunctionDef), path
            if isinstance(node, ast.FunctionDef):
                assert node.name in ("__getattr__", "__dir__"), f"{path.name}: {node.name}"
            if isinstance(node, ast.Attribute):
                assert not (node.attr == "update" and ast.unparse(node.value) == "globals()"), path


def strings(path):
    """The constants of a file that are no docstrings."""
    tree = parsed(path)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_core_names_no_backend_and_no_operator():
    """Not in an import, which the layers forbid, and not in a string."""
    upper = tuple(f"aclgrad.{name}" for name in ("cpu", "gpu", "ops", "frontends", "testing"))
    forbidden = (*upper, "triton", "numba", "kernel_cpu", "kernel_triton", *(f"{f.name}." for f in FAMILIES))
    for path in (PACKAGE / "core").rglob("*.py"):
        for text in strings(path):
            assert not text.startswith(forbidden), f"{path.name}: {text!r}"


PARTS = ("__init__.py", "spec.py", "reference.py", "cases.py", "kernel_cpu.py", "kernel_triton.py", "README.md")
OPTIONAL = ("functional.py", "autograd.py", "module.py", "peers.py", "torch_npu.py")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda p: p.name)
def test_a_family_is_whole(family):
    for name in PARTS:
        assert (family / name).is_file(), f"{family.name} lacks {name}"
    for name in OPTIONAL[2:]:
        if (family / name).is_file() and name != "peers.py":
            assert "__all__" in (family / name).read_text(encoding="utf-8"), f"{family.name}/{name} exports nothing"


def test_files_stay_small():
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LONGEST_FILE or shown(path) in LONG_FILES, f"{shown(path)}: {lines} lines"


def test_kernels_stay_small():
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                lines, name = node.end_lineno - node.lineno + 1, f"{shown(path)}::{node.name}"
                assert lines <= LONGEST_KERNEL or name in LONG_KERNELS, f"{name}: {lines} lines"


def test_every_exception_is_needed():
    for name in LONG_FILES:
        assert len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) > LONGEST_FILE, name
    for name in LONG_KERNELS:
        path, _, function = name.partition("::")
        found = [node for node in ast.walk(parsed(PACKAGE / path)) if getattr(node, "name", "") == function]
        assert any(node.end_lineno - node.lineno + 1 > LONGEST_KERNEL for node in found), name


def test_importing_is_quick_and_has_no_side_effects(python):
    """numba, rich and the other doors come when they are used; no thread, no file, nothing printed."""
    code = (
        "import sys, threading, torch; before = set(sys.modules); threads = threading.active_count(); import aclgrad\n"
        "heavy = {'numba', 'llvmlite', 'rich', 'typer', 'matplotlib', 'triton'}\n"
        "heavy |= {f'aclgrad.{door}' for door in ('acl', 'aclnn', 'npu', 'testing', 'torch_npu')}\n"
        "late = heavy & (set(sys.modules) - before)\n"
        "assert not late, late\n"
        "assert threading.active_count() == threads\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_door_is_there_after_a_plain_import(python):
    doors = ("acl", "aclnn", "nn", "npu", "testing", "torch_npu")
    code = (
        "import aclgrad\n"
        f"for door in {doors}:\n"
        "    assert door in dir(aclgrad), door\n"
        "    assert getattr(aclgrad, door).__name__ == f'aclgrad.{door}', door\n"
        "assert {'lstm', 'hardsigmoid', '__version__'} <= set(dir(aclgrad))\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_printed():
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", path
