"""The checker names the place of a call in a C program."""

import re
import shutil

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.capi.places import CPlace, _function

SOURCE = (PROGRAMS / "leaky.c").read_text().splitlines()


def line_of(text):
    return next(number for number, line in enumerate(SOURCE, start=1) if text in line)


@pytest.mark.parametrize("debugging", [True, False], ids=["with debug information", "stripped"])
def test_findings_have_the_place_of_the_call(compiler, debugging, tmp_path):
    if shutil.which("addr2line") is None:
        pytest.skip("addr2line is not here")
    source = tmp_path / f"leaky{debugging}.c"
    source.write_text("\n".join(SOURCE))
    done = run([compiler(source, "-g" if debugging else "-s")], env=environment(ACLGRAD_STRICT="1"))
    assert done.returncode == 0
    for kind, call, function in (
        ("device-memory-leaked", "aclrtMalloc(", "forgotten"),
        ("read-past-end", "aclrtMemcpy(", "main"),
        ("failed-call", "aclrtFree(", "main"),
    ):
        found = re.search(rf"  {kind}: .*\n    [^\n]* at (.*)\n", done.stderr)[1]
        if debugging:
            assert found == f"{source}:{line_of(call)} in {function}"
        else:
            assert re.fullmatch(rf"{source.stem}\+0x[0-9a-f]+", found)


def test_an_address_of_nothing_is_told_as_it_is():
    assert str(CPlace((0xDEADBEEF000,))) == "0xdeadbeef000"
    assert str(CPlace((0, 0xDEADBEEF000))) == "0x0"


def test_functions_lose_their_parameters_and_lambdas_none():
    for signature, name in (
        ("main", "main"),
        ("upload(std::vector<float> const&, void (*)(int))", "upload"),
        ("(anonymous namespace)::Guard::~Guard()", "Guard::~Guard"),
        (
            "main::{lambda(int, char const*)#1}::operator()(int, char const*) const",
            "main::{lambda(int, char const*)#1}::operator()",
        ),
        ("??", ""),
    ):
        assert _function(signature) == name
