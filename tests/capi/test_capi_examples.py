"""The examples do what they say: they compile without a warning, find their results right, and leave nothing behind."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from capi_helpers import environment, run

from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.capi.prototypes import pair
from aclgrad.testing.cases import DOCUMENT, suite

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = sorted((EXAMPLES / "c").glob("*.c*"))
STANDARDS = {".c": ("-std=c11",), ".cpp": ("-std=c++17",)}


@pytest.fixture(scope="module")
def ran(compiler, request):
    """What every program did, by its name: checked or not, two at a time, for each starts a Python."""

    def one(source):
        program = compiler(source, "-Werror", "-pedantic", *STANDARDS[source.suffix])
        return source.stem, run([program], env=environment(ACLGRAD_STRICT="1" if request.param else None))

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, SOURCES))


def test_every_gradient_operator_has_an_example():
    """Those that have a document; a program for a forward operator looks the same."""
    documented = [o.spec for o in aclnn_operators() if any(DOCUMENT in case.tags for case in suite(o.spec).cases)]
    assert {source.stem for source in SOURCES} == {
        Path(pair(spec)[0].header).stem.removeprefix("aclnn_") for spec in documented
    }


@pytest.mark.parametrize("ran", [pytest.param(False, id="plain"), pytest.param(True, id="strict")], indirect=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", [source.stem for source in SOURCES])
def test_an_example_finds_its_results_right(ran, name):
    done = ran[name]
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    title, *lines = done.stdout.splitlines()
    assert title.startswith("aclnn") and lines
    assert all(re.search(r" [1-9]\d* numbers, 0 wrong, ", line) for line in lines)


def test_a_wrong_result_is_noticed(compiler, tmp_path):
    """The example with another formula for what it expects."""
    for name in ("common.h", "common.hpp"):
        shutil.copy(EXAMPLES / "c" / name, tmp_path)
    text = (EXAMPLES / "c" / "hardsigmoid_backward.c").read_text()
    changed = tmp_path / "changed.c"
    changed.write_text(text.replace("-3 < at && at < 3", "-3 <= at && at < 3"))
    done = run([compiler(changed, "-std=c11")], env=environment())
    assert done.returncode == 1
    assert " 1 wrong" in done.stdout


def test_the_cmake_file_of_the_readme_builds_them(installation, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not here")
    readme = (EXAMPLES / "README.md").read_text()
    (cmake,) = re.findall(r"```cmake\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "CMakeLists.txt").write_text(cmake)
    for name in ("common.h", "common.hpp", "batch_norm_elemt_backward.cpp"):
        shutil.copy(EXAMPLES / "c" / name, tmp_path)
    made = tmp_path / "build"
    configured = run(["cmake", "-S", tmp_path, "-B", made, f"-Daclgrad_DIR={installation.cmake}"])
    assert configured.returncode == 0, configured.stderr
    built = run(["cmake", "--build", made])
    assert built.returncode == 0, built.stdout + built.stderr
    done = run([made / "batch_norm_elemt_backward"], env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
