"""A sixth family by the steps of CONTRIBUTING.md: one folder, and one line elsewhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aclgrad

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
LINE = "from .ops.softsign import *\n"
GENERATE = ROOT / "tools" / "generate.py"
OPTIONAL = ("functional.py", "autograd.py", "module.py")


@pytest.fixture
def package(tmp_path):
    """A copy of the package with the family in it."""
    package = tmp_path / "aclgrad"
    shutil.copytree(Path(aclgrad.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "softsign", package / "ops" / "softsign", ignore=shutil.ignore_patterns("__pycache__"))
    init = package / "__init__.py"
    text = init.read_text(encoding="utf-8")
    before = "from .ops.sync_batch_norm import *\n"
    assert before in text
    init.write_text(text.replace(before, LINE + before), encoding="utf-8")
    return package


def run(package, *command):
    """The output of a Python command that imports the copy."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_functions_gradients_and_modules_are_optional(package):
    family = package / "ops" / "softsign"
    for name in OPTIONAL:
        (family / name).unlink()
    (family / "__init__.py").write_text("from . import spec as spec\n\n__all__ = []\n")
    assert "found in every door" in run(package, HERE / "doors.py", GENERATE, "bare")


BOTH = """
import runpy, sys
parent, doors, generate, *options = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, parent)
import pytest
if pytest.main(options) == 0:
    sys.argv[1:] = [generate]
    runpy.run_path(doors)
"""


def test_the_conformance_matrix_and_every_door_have_it(package, python):
    """In one process. All kinds of tests in one dtype: they follow from the registry, so a few stand for the rest."""
    files = [ROOT / "tests" / "conformance" / f"test_{name}.py" for name in ("backends", "contract", "aclnn")]
    words = "softsign_backward and (float32 or refuses or signature or formats) and not past_every_block"
    options = ("-p", "no:xdist", "-p", "no:cacheprovider", "-k", words)
    done = python("-c", BOTH, package.parent, HERE / "doors.py", GENERATE, *options, *files, cwd=ROOT)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    passed = int(said.rpartition(" passed")[0].split()[-1])
    assert passed > 20, said  # all that a door refuses is one of them
    assert "found in every door" in said
