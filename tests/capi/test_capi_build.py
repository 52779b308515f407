"""From the command line to a program that runs: cc, config, capi build and CMake; and what is said where one lacks."""

import errno
import os
import shlex
import shutil
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import pytest
from capi_helpers import environment, run
from typer.testing import CliRunner

from aclgrad.frontends.capi import build
from aclgrad.frontends.cli.app import app

PROGRAM = """
#include <stdio.h>
#include "acl/acl.h"
#include "aclnnop/level2/aclnn_lstm_backward.h"
int main(void)
{
    uint64_t size;
    aclOpExecutor *executor;
    int null = aclnnLstmBackwardGetWorkspaceSize(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, true, 1, 0.0, true, false, false, NULL, NULL, NULL, NULL, NULL, &size, &executor);
    printf("%s %d %d\\n", aclrtGetSocName(), aclInit(NULL), null);
    return 0;
}
"""
PRINTED = "Ascend910B 0 161001\n"


@pytest.fixture
def cache(installation, tmp_path, monkeypatch):
    """A cache folder of our own, on a machine that can build."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "capi"


@pytest.fixture
def few_headers(monkeypatch):
    """Of the operators' thousand headers a build writes the one that PROGRAM includes: a disk takes long for more."""
    headers = build.headers

    def some(table):
        operators, mine = "aclnnop/", "aclnn_lstm_backward.h"
        return {name: text for name, text in headers(table).items() if operators not in name or name.endswith(mine)}

    monkeypatch.setattr(build, "headers", some)


@pytest.fixture
def compiled(cache, few_headers, installation, monkeypatch):
    """The cache folder, where a build copies the library compiled before: the compiler is not what is tested."""

    def copy(made):
        made.lib.mkdir(parents=True, exist_ok=True)
        shutil.copy(installation.lib / build.LIBRARY, made.lib)

    monkeypatch.setattr(build, "_compile", copy)
    return cache


def aclgrad(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("suffix", [pytest.param("c", marks=pytest.mark.slow), "cpp"])
def test_cc_makes_a_program_that_runs_as_it_is(cache, tmp_path, suffix):
    source, program = tmp_path / f"program.{suffix}", tmp_path / "a program"
    source.write_text(PROGRAM)
    standard = "-std=c11" if suffix == "c" else "-std=c++11"  # each is refused by the other compiler
    assert aclgrad("cc", "-Wall", "-Werror", standard, source, "-o", program).exit_code == 0
    assert run([program], env=environment()).stdout == PRINTED
    assert aclgrad("cc", "-c", source, "-o", tmp_path / "object.o").exit_code == 0
    assert aclgrad("cc", tmp_path / "nowhere.c").exit_code != 0


def test_config_tells_what_other_builds_need(compiled, tmp_path):
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM)
    told = aclgrad("config", "--cflags", "--libs")
    assert told.exit_code == 0
    assert run([*build.cxx_compiler(), source, "-o", program, *shlex.split(told.output)]).returncode == 0
    assert run([program], env=environment()).stdout == PRINTED
    assert aclgrad("config").exit_code != 0


@pytest.mark.slow
def test_cmake_finds_the_package_and_the_layout_of_samples(cache, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not here")
    (tmp_path / "program.cpp").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.14)\nproject(samples CXX)\n"
        "find_package(aclgrad REQUIRED)\n"
        "add_executable(ours program.cpp)\ntarget_link_libraries(ours PRIVATE aclgrad::aclnn)\n"
        "set(ASCEND_PATH $ENV{ASCEND_CUSTOM_PATH})\n"
        "add_executable(theirs program.cpp)\n"
        "target_include_directories(theirs PRIVATE ${ASCEND_PATH}/include ${ASCEND_PATH}/include/aclnn)\n"
        "target_link_libraries(theirs PRIVATE ${ASCEND_PATH}/lib64/libascendcl.so ${ASCEND_PATH}/lib64/libnnopbase.so\n"
        "  ${ASCEND_PATH}/lib64/libopapi_math.so ${ASCEND_PATH}/lib64/libopapi_nn.so)\n"
    )
    out = tmp_path / "written here"
    assert aclgrad("capi", "build", "--out", out).exit_code == 0
    folder = aclgrad("config", "--cmake-dir").output.strip()
    made, sourced = tmp_path / "made", f". '{out}/set_env.sh'"
    configure = f"cmake -S '{tmp_path}' -B '{made}' -Daclgrad_DIR='{folder}' -DCMAKE_SKIP_RPATH=TRUE"
    done = run(
        ["sh", "-c", f"cd '{tmp_path}' && {sourced} && {configure} && cmake --build '{made}'"], env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("ours", "theirs"):
        ran = run(["bash", "-c", f"{sourced}; '{made}/{name}'"], env=environment())
        assert ran.stdout == PRINTED, ran.stderr


@pytest.mark.slow
def test_a_folder_that_was_moved_knows_where_it_is(tmp_path):
    out = tmp_path / "it's here"
    assert aclgrad("capi", "build", "--out", out).exit_code == 0
    for shell in ("sh", "bash"):
        done = run([shell, "-c", '. "$0/set_env.sh"; echo "$ASCEND_CUSTOM_PATH"', str(out)], env=environment())
        assert done.stdout.strip() == str(out), done.stderr
    moved = out.rename(tmp_path / "and now there")
    done = run(["bash", "-c", '. "$0/set_env.sh"; echo "$ASCEND_CUSTOM_PATH"', str(moved)], env=environment())
    assert done.stdout.strip() == str(moved), done.stderr


def test_every_library_name_is_there(installation):
    for name in ("ascendcl", "acl_rt", "nnopbase", "opapi", "opapi_math", "opapi_nn", "cust_opapi"):
        assert (installation.lib / f"lib{name}.so").resolve().name == build.LIBRARY


def test_it_is_built_once_and_anew_for_another_version(compiled, monkeypatch):
    first = build.installation()
    inode = (first.lib / build.LIBRARY).stat().st_ino
    assert (build.installation().lib / build.LIBRARY).stat().st_ino == inode
    monkeypatch.setattr(build.torch, "__version__", "99.0")
    second = build.installation()
    assert second.root == first.root, "programs refer to a path that stays"
    assert (second.lib / build.LIBRARY).stat().st_ino != inode
    assert len(list(compiled.iterdir())) == 2, "the old build is gone"


@pytest.mark.slow
def test_two_at_once_are_as_good_as_one(cache):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: build.installation().root, range(4)))
    assert len(set(made)) == 1
    assert (made[0] / "lib64" / build.LIBRARY).is_file()
    assert len(list(cache.iterdir())) == 2, "one build and one link"


DAMAGES = {
    "an empty library": lambda made: (made.lib / build.LIBRARY).write_bytes(b""),
    "half a library": lambda made: os.truncate(made.lib / build.LIBRARY, 5000),
    "a header less": lambda made: (made.include / "acl" / "acl.h").unlink(),
    "no seal": lambda made: (made.root / build.SEAL).unlink(),
    "a file": lambda made: (shutil.rmtree(made.root.resolve()), made.root.resolve().write_text("")),
}


def test_a_damaged_build_is_made_anew(compiled):
    made = build.installation()
    size = (made.lib / build.LIBRARY).stat().st_size
    for name, damage in DAMAGES.items():
        damage(made)
        assert build.installation().root == made.root, name
        assert (made.lib / build.LIBRARY).stat().st_size == size, name
        assert "aclInit" in (made.include / "acl" / "acl.h").read_text(), name
    assert len(list(compiled.iterdir())) == 2, "one build and one link"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_is_named_with_its_remedy(compiled, tmp_path, monkeypatch, number):
    def refuse(*arguments, **options):
        raise OSError(number, os.strerror(number))  # a full disk names no file

    for place, method in ((build.Path, "write_text"), (build.Path, "rename"), (build.tempfile, "mkdtemp")):
        with monkeypatch.context() as patch:
            patch.setattr(place, method, refuse)
            done = aclgrad("config", "--libs")
        assert done.exit_code == 1
        assert f"{compiled} cannot be written" in done.output and "set ACLGRAD_CACHE" in done.output
    monkeypatch.setattr(build.Path, "write_text", refuse)
    done = aclgrad("capi", "build", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--out" in done.output and os.strerror(number).split()[0] in done.output


@pytest.mark.usefixtures("few_headers")
def test_what_lacks_is_named(cache, tmp_path, monkeypatch):
    def fails(*arguments):
        done = aclgrad(*arguments)
        assert done.exit_code == 1
        return done.output

    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        without.delenv("CC", raising=False)
        assert "no compiler found (looked for cc, gcc, clang)" in fails("capi", "build", "--out", tmp_path / "a")
    with monkeypatch.context() as without:
        without.setenv("CC", "false")
        assert "failed" in fails("capi", "build", "--out", tmp_path / "b")
    with monkeypatch.context() as without:
        without.setattr(sysconfig, "get_config_vars", lambda: {"LDLIBRARY": "libpython3.a"})
        assert "has no shared library" in fails("config", "--libs")
    with monkeypatch.context() as without:
        without.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
        assert "Python.h is not in" in fails("capi", "build", "--out", tmp_path / "c")
    with monkeypatch.context() as without:
        (tmp_path / "file").touch()
        without.setenv(build.CACHE_VARIABLE, str(tmp_path / "file"))
        assert "set ACLGRAD_CACHE" in fails("config", "--libs")


def test_without_a_home_the_cache_is_among_the_temporary_files(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.delenv(build.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path))
    assert build.cache_folder() == tmp_path / f"aclgrad-{os.getuid()}" / "capi"
