"""The C programs on the operators' pages compile without a warning and run without findings."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from capi_helpers import environment, run
from website.examples import c_example

from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.capi.build import c_compiler

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A file for every operator that a document knows."""
    folder = tmp_path_factory.mktemp("pages")
    found = [folder / f"{operator.spec.name}_page.c" for operator in aclnn_operators()]
    for source, operator in zip(found, aclnn_operators(), strict=True):
        source.write_text(c_example(operator) + "\n", encoding="utf-8")
    return found


def test_they_compile_without_a_warning(installation, sources):
    done = run([*c_compiler(), "-fsyntax-only", *STRICT, *installation.compile_flags, *sources])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_they_run_and_leave_nothing_behind(compiler, sources):
    def one(source):
        return source.stem, run([compiler(source, *STRICT)], env=environment(ACLGRAD_STRICT="1"))

    with ThreadPoolExecutor(2) as pool:
        for name, done in pool.map(one, sources):
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name
