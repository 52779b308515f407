"""The compiled library with its headers: built on the machine where it runs, kept in a cache folder.

    <cache>/<key>/include, lib64, set_env.sh      one build, sealed; the key covers everything it was made from
    <cache>/<environment>                         a link to the newest build for one Python environment

Programs refer to the link, so building anew cures those that were compiled before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ..._version import __version__
from ...core import cache
from ..custom import discovery
from . import foreign
from .guards import foreign_stubs, guards
from .headers import headers
from .installation import LINKS, NAMES, texts
from .installation import Installation as Installation
from .prototypes import fingerprint, prototypes

PACKAGE_ROOT = Path(__file__).parents[3]
CACHE_VARIABLE = cache.VARIABLE
LIBRARY = "libaclgrad_capi.so"
SEAL = ".seal"  # a hash of a build's files
_OPTIONS = ("-std=c11", "-O2", "-g0", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra")


class BuildError(RuntimeError):
    """The library could not be built; the message says why."""


class Unwritable(BuildError):
    """A folder cannot be written; the message says which, and what to do."""


class Unavailable(BuildError):
    """The library cannot be built here; the message says what is missing."""


def installation() -> Installation:
    """The build of this environment, from the cache folder; made if there is none for the present versions."""
    folder = cache_folder()
    built = folder / _key()
    link = folder / f"python-{_digest(sys.executable, str(PACKAGE_ROOT), *discovery.named())}"
    with _explained(folder, f"set {CACHE_VARIABLE} to a folder that can be written"), _working_folder(folder) as work:
        if not _is_whole(built):
            made = _write_all(work / "build", built).root
            _write(made / SEAL, _seal(made))
            _move(made, built, work / "damaged")
        if link.resolve() != built.resolve():
            outdated = link.resolve() if link.is_symlink() else None
            (work / "link").symlink_to(built.name)
            (work / "link").replace(link)
            if outdated is not None:
                shutil.rmtree(outdated, ignore_errors=True)
    return Installation(link)


def _move(made: Path, built: Path, aside: Path) -> None:
    """Put a build in its place; what is there and not whole goes aside."""
    if _is_whole(built):
        return  # another process was quicker, and its build is as good
    with suppress(FileNotFoundError):
        built.rename(aside)
    try:
        made.rename(built)
    except OSError:
        if not _is_whole(built):
            raise


def _is_whole(built: Path) -> bool:
    """Whether a build is there as it was made."""
    try:
        return (built / SEAL).read_bytes() == _seal(built).encode()
    except OSError:
        return False


def _seal(root: Path) -> str:
    """A hash of every file in a build, by its place in it."""
    joined = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != SEAL:
            joined.update(os.fsencode(path.relative_to(root)) + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return joined.hexdigest()


def write_installation(root: Path) -> Installation:
    """Compile the library and write everything into the folder `root`."""
    with _explained(root, "choose a folder that can be written"):
        return _write_all(root, root)


def _write_all(root: Path, place: Path) -> Installation:
    """Write everything into the folder `root`, which is to be moved to `place`."""
    made = Installation(root)
    for name, text in headers(prototypes()).items():
        _write(made.include / name, text)
    for name, text in texts(place.absolute()).items():
        _write(root / name, text)
    _compile(made)
    for name, target in {**LINKS, **{f"lib64/lib{name}.so": LIBRARY for name in NAMES}}.items():
        link = root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return made


def cache_folder() -> Path:
    """ACLGRAD_CACHE, or the user's cache folder, or a private one among the temporary files."""
    chosen = cache.chosen("capi")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # leaves ~ where no home is
    homes = [Path(user) / "aclgrad" / "capi"] if Path(user).is_absolute() else []
    refused: OSError | None = None
    for candidate in [chosen] if chosen is not None else [*homes, None]:
        try:
            folder = cache.temporary("capi") if candidate is None else candidate
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{folder} cannot be written")
            return folder
        except OSError as error:
            refused = error
    raise BuildError(f"no cache folder: {refused}; set {CACHE_VARIABLE} to a folder that can be written")


def compiler(variable: str, names: tuple[str, ...]) -> list[str]:
    """The command of a compiler: what the environment variable says, or the first of `names` that exists."""
    chosen = os.environ.get(variable, "").strip()
    if chosen:
        try:
            return shlex.split(chosen)
        except ValueError as error:
            raise BuildError(f"{variable} is {chosen!r}, expected a command: {error}") from None
    for name in names:
        if shutil.which(name):
            return [name]
    raise Unavailable(f"no compiler found (looked for {', '.join(names)}); install one or set {variable}")


def c_compiler() -> list[str]:
    """The command of the C compiler."""
    return compiler("CC", ("cc", "gcc", "clang"))


def cxx_compiler() -> list[str]:
    """The command of the C++ compiler."""
    return compiler("CXX", ("c++", "g++", "clang++"))


def source() -> str:
    """The library's C text."""
    constants = {
        "PROGRAM": sys.executable,
        "ROOT": str(PACKAGE_ROOT),
        "FINGERPRINT": fingerprint(),
        "MODULE": f"{__package__}.adapters",
        "PYTHON_SERIES": "{}.{}".format(*sys.version_info[:2]),
        "PLUGINS": os.pathsep.join(discovery.named()),
        "PLUGINS_NAME": discovery.CHOSEN,
    }
    defined = [f"#define {name} {_c_string(value)}" for name, value in constants.items()]
    served = prototypes()
    numbers = {
        "MOST_ARGUMENTS": max(len(prototype.params) for prototype in served),
        "FOREIGN": len(served),
        "APP_LOG": len(served) + 1,
    }
    defined += [f"#define {name} {value}" for name, value in numbers.items()]
    included = [f'#include "{header}"' for header in dict.fromkeys(p.header for p in prototypes())]
    head = ["#define _GNU_SOURCE 1", "#define PY_SSIZE_T_CLEAN", "#include <Python.h>", *included, *defined]
    boot = Path(__file__).with_name("boot.c").read_text(encoding="utf-8")
    return "\n".join([*head, boot, guards(prototypes())])


def shared_python() -> Path:
    """The shared library of the running Python."""
    variables = sysconfig.get_config_vars()
    names = [str(variables[key]) for key in ("INSTSONAME", "LDLIBRARY") if variables.get(key)]
    folders = [Path(sys.base_prefix) / "lib"]
    if variables.get("LIBDIR"):
        home = Path(variables["LIBDIR"])
        folders = [home, home / str(variables.get("MULTIARCH") or ""), *folders]
    for folder in folders:
        for name in names:
            if ".so" in name and (folder / name).is_file():
                return folder / name
    raise Unavailable(
        f"this Python ({sys.executable}) has no shared library to put into C programs; use one that has: "
        "the distribution's with its libpython package, conda's, uv's, or pyenv's with "
        "PYTHON_CONFIGURE_OPTS=--enable-shared"
    )


def _compile(made: Installation) -> None:
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"the C interface needs Linux, and this is {sys.platform}")
    python, include = shared_python(), sysconfig.get_paths()["include"]
    if not (Path(include) / "Python.h").is_file():
        raise Unavailable(f"Python.h is not in {include}; install the development package of this Python")
    made.lib.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aclgrad-") as folder:
        sources = [Path(folder) / "capi.c", Path(folder) / "foreign.c"]
        sources[0].write_text(source(), encoding="utf-8")
        sources[1].write_text(foreign_stubs(foreign.every_function()), encoding="utf-8")
        compiled = made.lib / f".{LIBRARY}.{os.getpid()}"
        command = [
            *c_compiler(), *_OPTIONS, f"-I{made.include}", f"-I{include}", *map(str, sources), "-o", str(compiled),
            str(python), f"-Wl,--disable-new-dtags,-rpath,{python.parent}", "-Wl,-z,nodelete", "-ldl",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # the user's compiler
        except OSError as error:
            raise BuildError(f"the compiler {command[0]} cannot be run: {error}") from None
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    compiled.replace(made.lib / LIBRARY)  # programs that run keep the file they have


def _key() -> str:
    files = json.dumps([headers(prototypes()), texts(Path()), LINKS, NAMES])
    parts = (__version__, source(), sys.version, torch.__version__, str(shared_python()))
    return _digest(*parts, files, *_OPTIONS)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _c_string(text: str) -> str:
    """A C literal of any bytes."""
    return '"' + "".join([f"\\{byte:03o}" for byte in os.fsencode(text)]) + '"'


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _explained(folder: Path, remedy: str) -> Iterator[None]:
    """Errors of the file system as such of the build; those of a full disk do not even name a file."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{folder} cannot be written: {error}; {remedy} (TMPDIR for the compiler's files)") from error


@contextmanager
def _working_folder(cache: Path) -> Iterator[Path]:
    """A folder beside the builds, so that a finished one can be moved among them in one step."""
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=cache))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
