"""A folder like CANN's: programs in the style of the vendor's samples build and run in it without an edit."""

import re
import shutil
from contextlib import suppress

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.acl.findings import Kind
from aclgrad.frontends.capi import foreign
from aclgrad.frontends.capi.build import c_compiler
from test_documents import document

SAMPLE = PROGRAMS / "sample"
COMPILERS = {"gcc": "g++", "clang": "clang++"}


def need(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not here")


@pytest.mark.parametrize("family", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_a_sample_builds_and_runs_by_its_script(installation, tmp_path, family):
    need("bash", "cmake", "make", COMPILERS[family])
    shutil.copytree(SAMPLE, tmp_path / "sample")
    found = environment(
        ASCEND_INSTALL_PATH=str(installation.root), CC=family, CXX=COMPILERS[family], ASCEND_HOME_PATH=None,
        LD_LIBRARY_PATH=None,
    )  # fmt: skip
    done = run(["bash", tmp_path / "sample" / "run.sh"], env=found)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "run mode host" in done.stdout
    assert re.findall(r"result (\S+)", done.stdout) == ["0", "0", "1", "1", "1", "1", "1", "0"]
    assert re.search(
        r"aclnnAdd 561003: aclnnAddGetWorkspaceSize: aclgrad has no aclnnAdd, it has .*aclnnLSTM", done.stdout
    )
    assert done.stderr.count("aclgrad has no aclnnAdd") == 1, "the log says it, too, and once"


@pytest.mark.parametrize("family", [pytest.param("gcc", marks=pytest.mark.slow), "clang"])
def test_pkg_config_and_what_samples_ask_of_the_runtime(installation, tmp_path, family):
    need("pkg-config", family)
    found = environment(PKG_CONFIG_PATH=str(installation.pkg_config), ACLGRAD_STRICT="1")
    flags = run(["pkg-config", "--cflags", "--libs", "aclgrad"], env=found).stdout.split()
    program = tmp_path / "newcomers"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = run([family, *options, PROGRAMS / "newcomers.c", "-o", program, *flags])
    assert done.returncode == 0, done.stderr[-2000:]
    done = run([program], env=environment())
    assert (done.returncode, done.stdout) == (0, "0 faults\n"), done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_cmake_finds_the_package(installation, tmp_path):
    need("cmake", "make")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(found)\nfind_package(aclgrad REQUIRED)\n"
        f"add_executable(found {SAMPLE / 'src' / 'main.cpp'})\n"
        f"target_include_directories(found PRIVATE {SAMPLE / 'inc'})\n"
        "target_link_libraries(found PRIVATE aclgrad::aclnn)\n"
    )
    script = f". {installation.root}/set_env.sh && cmake -S . -B build && make -C build && build/found"
    done = run(["sh", "-c", script], env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_every_name_that_samples_link_with_is_there(installation, tmp_path):
    """By its name in each folder, and by its path, as runtime samples have it."""
    source, libraries = tmp_path / "linked.c", ["ascendcl", "acl_op_compiler", "acl_cblas", "acl_dvpp", "runtime"]
    source.write_text('#include "acl/acl.h"\nint main(void) { return aclrtGetSocName() == 0; }\n')
    for folder in ("lib64", "lib64/stub", "runtime/lib64/stub", "acllib/lib64", "x86_64-linux/devlib"):
        if (place := installation.root / folder).is_dir():
            options = [*installation.compile_flags, f"-L{place}", *(f"-l{name}" for name in libraries)]
            done = run([*c_compiler(), source, "-o", tmp_path / "linked", *options, place / "libacl_rt.so"])
            assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++11", "c++17"])
def test_half_precision_is_that_of_the_host(installation, tmp_path, standard):
    """Every number of 16 bits there and back, and the borders of rounding."""
    source = tmp_path / "halves.cpp"
    source.write_text(HALVES)
    for compiler in COMPILERS.values():
        if shutil.which(compiler):
            flags = [f"-std={standard}", "-O1", "-Wall", "-Wextra", "-Werror", *installation.compile_flags]
            done = run([compiler, *flags, source, "-o", tmp_path / "halves"])
            assert done.returncode == 0, done.stderr[-2000:]
            assert run([tmp_path / "halves"]).returncode == 0


HALVES = """
#include "aclnn/opdev/bfloat16.h"
#include "aclnn/opdev/fp16_t.h"
int main()
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        float half = op::fp16_t::from_bits(bits), brain = op::bfloat16((uint16_t)bits, op::bfloat16::from_bits());
        if ((half == half && op::fp16_t(half).val != bits) || (brain == brain && op::bfloat16(brain).value != bits)) {
            return 1;
        }
    }
    op::fp16_t sum = op::fp16_t(1.5f) * op::fp16_t(2) + 1;
    bool right = sum == op::fp16_t(4) && op::fp16_t(65519.9f).val == 0x7BFF && op::fp16_t(65520.0f).val == 0x7C00
        && op::fp16_t(2.9802322e-8f).val == 0 && op::fp16_t(2.9802326e-8f).val == 1 && op::fp16_t(-0.0f).val == 0x8000
        && op::bfloat16(1.00390625f).value == 0x3F80 && op::bfloat16(1.01171875f).value == 0x3F82;
    return right ? 0 : 2;
}
"""


def test_what_is_only_declared_is_told_apart(c, monkeypatch):
    """A name of a kind each: its code, and a message that names it and what there is."""
    operators, functions = foreign.operators(), foreign.functions()
    assert len(operators) > 1000
    assert len(functions) > 400
    for name, code, there in (
        ("aclnnMatmulGetWorkspaceSize", 561003, "aclnnLSTM"),
        ("aclnnHardswishBackward", 561003, "aclnnHardsigmoidBackward"),
        ("aclrtCreateNotify", 207000, "aclrtCreate"),
        ("aclmdlLoadFromFile", 200001, "no models"),
        ("aclopExecute", 200001, "no models"),
    ):
        assert foreign.call(name) == code
        assert re.match(rf"{name}: aclgrad has no {name.removesuffix('GetWorkspaceSize')}, ", message := c.message()), (
            message
        )
        assert there in message
        assert f"({code} " in message


def test_a_call_of_what_is_not_served_is_a_finding(c, monkeypatch):
    from aclgrad import acl
    from aclgrad.frontends.acl import findings

    monkeypatch.setattr(findings, "strict", True)
    findings.begin()
    foreign.call("aclmdlUnload")
    assert [finding.kind for finding in acl.findings()] == [Kind.UNSUPPORTED_CALL]
    findings._entries.clear()


@pytest.mark.slow
@pytest.mark.parametrize("family", COMPILERS)
def test_a_documents_program_builds_in_the_folder(installation, tmp_path, family):
    """As the documentation of CANN builds it: include folders by name, libraries of the operators' repositories."""
    from aclgrad.core.registry import aclnn_operators

    need(COMPILERS[family])
    texts = {}
    for operator in aclnn_operators():
        with suppress(pytest.skip.Exception):  # some have none
            texts[operator.spec.aclnn] = document(operator)
    if not texts:
        pytest.skip("the documents are not here")
    for name, text in texts.items():
        blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        (source,) = [block for block in blocks if "int main(" in block]
        (tmp_path / "test.cpp").write_text(source)
        flags = [f"-I{installation.root}/{folder}" for folder in ("include", "include/aclnn")]
        libraries = ["-lascendcl", "-lnnopbase", "-lopapi_math", "-lopapi_nn"]
        done = run([COMPILERS[family], "-std=c++11", tmp_path / "test.cpp", "-o", tmp_path / "test", *flags,
                    f"-L{installation.root}/lib64", *libraries])  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        found = environment(LD_LIBRARY_PATH=str(installation.lib))
        assert run([tmp_path / "test"], env=found).returncode == 0, name
