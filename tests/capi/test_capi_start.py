"""Python inside a C program: it starts whatever the environment is, or says why not, and changes nothing else."""

import json
import shutil
import signal
import sys
import sysconfig
from pathlib import Path

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.capi import build

BASE = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
"""The Python that this environment was made from."""

REFUSED = 2
SOURCES = build.PACKAGE_ROOT
POISON = "raise SystemExit('poisoned')\n"


@pytest.fixture(scope="module")
def probe(compiler):
    return compiler(PROGRAMS / "probe.c", "-std=gnu11")


def poisoned(folder):
    folder.mkdir()
    for name in ("torch", "numba", "numpy", "aclgrad", "site", "encodings", "sitecustomize", "typing"):
        (folder / f"{name}.py").write_text(POISON)
    return str(folder)


def other_python(folder):
    folder.mkdir()
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        fake = folder / name
        fake.write_text("#!/bin/sh\nexit 7\n")
        fake.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def other_library(folder):
    """It is passed by."""
    folder.mkdir()
    (folder / sysconfig.get_config_var("INSTSONAME")).write_bytes(b"not a library")
    return str(folder)


ENVIRONMENTS = {
    "nothing at all": lambda tmp: {},
    "everything against it": lambda tmp: environment(
        PATH=other_python(tmp / "bin"), VIRTUAL_ENV="/nowhere", HOME=None, PYTHONHOME="/nowhere",
        PYTHONSTARTUP="/nowhere", PYTHONINSPECT="1", PYTHONPATH=poisoned(tmp / "path"), PYTHONNOUSERSITE=None,
        LC_ALL="xx_YY.KOI8", LANG="xx", PYTHONUTF8="0", ACLGRAD_PYTHON="", LD_LIBRARY_PATH=other_library(tmp / "lib"),
    ),
}  # fmt: skip
ONE_BY_ONE = {
    "as it is": lambda tmp: environment(),
    "no Python named": lambda tmp: environment(ACLGRAD_PYTHON=""),
    "another library of Python's name": lambda tmp: environment(LD_LIBRARY_PATH=other_library(tmp / "lib")),
    "a system path, no home": lambda tmp: environment(PATH="/usr/bin:/bin", HOME=None, VIRTUAL_ENV=None),
    "another python first": lambda tmp: environment(PATH=other_python(tmp / "bin"), VIRTUAL_ENV="/nowhere"),
    "PYTHONHOME": lambda tmp: environment(PYTHONHOME="/nowhere", PYTHONSTARTUP="/nowhere", PYTHONINSPECT="1"),
    "PYTHONPATH": lambda tmp: environment(PYTHONPATH=poisoned(tmp / "path"), PYTHONNOUSERSITE=None),
    "a locale that does not exist": lambda tmp: environment(LC_ALL="xx_YY.KOI8", LANG="xx", PYTHONUTF8="0"),
}


@pytest.mark.parametrize(
    "made", [*ENVIRONMENTS.values(), *(pytest.param(made, marks=pytest.mark.slow) for made in ONE_BY_ONE.values())],
    ids=[*ENVIRONMENTS, *ONE_BY_ONE],
)  # fmt: skip
def test_it_starts_in_every_environment_and_the_process_stays_as_it_was(probe, tmp_path, made):
    """What can be in its way comes all at once; one by one it is slow."""
    done = run([probe], env=made(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "0 faults\n"), done.stderr[-2000:]


@pytest.mark.slow
def test_modules_in_the_working_directory_are_not_imported(probe, tmp_path):
    folder = poisoned(tmp_path / "here")
    assert run([probe], env=environment(), cwd=folder).stdout == "0 faults\n"


def test_an_interrupt_still_ends_the_program(probe):
    assert run([probe, "interrupt"], env=environment()).returncode == -signal.SIGINT


def test_a_python_without_packages_is_refused_with_a_message(probe, tmp_path):
    """An environment of the same Python that has neither torch nor numba."""
    bare = tmp_path / "bäre"
    (bare / "bin").mkdir(parents=True)
    (bare / "bin" / "python3").symlink_to(BASE)
    (bare / "pyvenv.cfg").write_text(f"home = {BASE.parent}\n")
    (bare / "lib" / f"python3.{sys.version_info.minor}" / "site-packages").mkdir(parents=True)
    done = run([probe], env=environment(ACLGRAD_PYTHON=str(bare / "bin" / "python3")))
    assert done.returncode == REFUSED
    assert f"aclInit: 500000 {bare}/bin/python3 is a Python without torch; set ACLGRAD_PYTHON to one" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("aclgrad: ") == 1


def test_a_python_without_its_library_is_refused_and_does_not_end_the_program(probe, tmp_path):
    """CPython itself would call exit()."""
    home = tmp_path / "home"
    library = home / "lib" / f"python3.{sys.version_info.minor}"
    for folder in (home / "bin", library / "lib-dynload", tmp_path / "bin"):
        folder.mkdir(parents=True)
    (library / "os.py").touch()
    (tmp_path / "bin" / "python3").symlink_to(BASE)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home / 'bin'}\n")
    done = run([probe], env=environment(ACLGRAD_PYTHON=str(tmp_path / "bin" / "python3")))
    found = sys.version_info < (3, 11)  # the library that Python was built with; torch is not there
    reason = "is a Python without torch" if found else "Python cannot start with"
    assert done.returncode == REFUSED and "aclInit: 500000" in done.stdout
    assert reason in done.stdout or "is not a Python" in done.stdout


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 7", "is not a Python"),
        ("echo hello", "is not a Python"),
        ("printf '3.2 1'", "is Python 3.2, and the library was built for {}"),
        ("printf '{} 0'", "is a Python without torch"),
    ],
)
def test_what_is_wrong_with_a_chosen_python_is_told(probe, tmp_path, script, told):
    series = f"{sys.version_info.major}.{sys.version_info.minor}"
    chosen = tmp_path / "chosen"
    chosen.write_text(f"#!/bin/sh\n{script.format(series)}\n")
    chosen.chmod(0o755)
    done = run([probe], env=environment(ACLGRAD_PYTHON=str(chosen)))
    assert done.returncode == REFUSED
    assert f"aclInit: 500000 {chosen} {told.format(series)}" in done.stdout
    assert "Traceback" not in done.stderr
    chosen.chmod(0o644)
    assert "cannot be run (Permission denied)" in run([probe], env=environment(ACLGRAD_PYTHON=str(chosen))).stdout


@pytest.mark.parametrize("path", ["/nowhere/python", "/etc/passwd"])
def test_a_python_that_is_not_there_is_refused_with_a_message(probe, path):
    done = run([probe], env=environment(ACLGRAD_PYTHON=path))
    told = f"{path} cannot be run" if Path(path).exists() else f"there is no Python at {path}"
    assert done.returncode == REFUSED and told in done.stdout


@pytest.mark.slow
def test_a_plug_in_host_loads_it_locally_and_twice(compiler, installation):
    host = compiler(PROGRAMS / "plugin.c", "-Wl,--as-needed")
    done = run([host, installation.lib / "libopapi.so"], env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].startswith("0 Ascend")


LOAD = "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); print(lib.aclInit(None))"


def test_a_python_that_runs_already_and_lacks_torch_is_refused(installation):
    done = run([BASE, "-I", "-c", LOAD, installation.lib / "libascendcl.so"], env=environment())
    assert done.stdout == "500000\n", done.stderr
    assert "cannot be loaded" in done.stderr


def test_a_library_of_another_version_is_refused(installation, tmp_path):
    """What was built from other signatures differs in their fingerprint."""
    other = build.Installation(shutil.copytree(installation.root, tmp_path / "other", symlinks=True))
    library, mine = other.lib / build.LIBRARY, build.fingerprint().encode()
    contents = library.read_bytes()
    assert contents.count(mine) == 1
    library.write_bytes(contents.replace(mine, mine[::-1]))
    done = run([sys.executable, "-c", LOAD, other.lib / "libascendcl.so"], env=environment(PYTHONPATH=str(SOURCES)))
    assert done.stdout == "500000\n" and "built from another version of aclgrad" in done.stderr


def test_another_version_of_python_is_refused(installation):
    minor = sys.version_info.minor
    names = [f"python3.{k}" for k in range(8, 20) if k != minor]
    siblings = [str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin/python3")]
    for candidate in [*filter(None, map(shutil.which, names)), *siblings]:
        asked = run([candidate, "-I", "-c", "import sys, json, ctypes; print(json.dumps(sys.version_info[:2]))"])
        if asked.returncode == 0 and json.loads(asked.stdout) != [3, minor]:
            done = run([candidate, "-I", "-c", LOAD, installation.lib / "libascendcl.so"], env=environment())
            assert done.stdout == "500000\n" and "is loaded into 3." in done.stderr
            return
    pytest.skip("no other Python is here")


def test_threads_race_on_the_first_call_and_keep_their_own_messages(compiler):
    done = run([compiler(PROGRAMS / "threads.cpp", "-O1")], env=environment())
    assert (done.returncode, done.stdout) == (0, "0 faults\n"), done.stderr[-2000:]


@pytest.mark.parametrize(
    "milliseconds", [pytest.param(0, marks=pytest.mark.slow), 200, pytest.param(900, marks=pytest.mark.slow)]
)
def test_the_process_may_end_while_other_threads_go_on_calling(compiler, milliseconds):
    """While kernels are loaded, and while they run."""
    done = run([compiler(PROGRAMS / "exiting.cpp", "-O1"), milliseconds], env=environment())
    assert (done.returncode, done.stdout) == (0, "leaving\n"), done.stderr[-2000:]


def test_calls_out_of_their_time_get_codes(compiler):
    done = run([compiler(PROGRAMS / "lifetimes.cpp")], env=environment())
    assert done.stdout.splitlines() == ["0 faults", "exit: device count 0", "destructor: free 0, finalize 0"], (
        done.stderr
    )
    assert done.returncode == 0


@pytest.mark.slow
def test_many_calls_leave_the_resident_memory_where_it_was(compiler):
    """12 calls a round and 1,000 threads; one leaked object a round, or one thread's state, would be seen."""
    done = run([compiler(PROGRAMS / "steady.cpp", "-O1"), "8500"], env=environment())
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[0]) < 768
