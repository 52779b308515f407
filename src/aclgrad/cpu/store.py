"""Machine code on disk: one sealed file for each kernel, CPU and version of numba.

A compiled kernel is worth more than its file. Whatever is wrong with the disk, the kernel runs: a file that cannot be
read, or whose seal is broken, is compiled anew and replaced; what cannot be written is not kept, and a warning says so
once in a process. The seal is a hash of the contents and of what they were made for, so neither half a file nor that of
another kernel is ever executed. It guards against accidents, not against whoever may write to the folder.

Of several processes that need a kernel at the same time, as those of a torchrun do, one compiles it while the others
wait for its file; where files cannot be locked, or that takes too long, each compiles.

numba decides where the folder lies (NUMBA_CACHE_DIR, else ours, `core/cache.py`, which need only be readable, else
beside the source, else the user's cache folder); where all these cannot be written, it is a temporary one. numba's own
files are an index and the code apart from it, which processes that write at once can leave at odds.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.serialize import dumps

from ..core import cache
from .parts import KernelCompiler

fcntl: Any
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

SUFFIX, KIND = ".nbc", "kernels"
NOT_KEPT = "are not kept, and each process compiles them anew"
PATIENCE, LOOK = 60.0, 0.02
"""Seconds that somebody else may compile, and between two looks whether it has ended."""

_SEAL = hashlib.sha256().digest_size
_log = logging.getLogger(__name__)


def cfunc(function: Any, signature: Any, options: dict[str, Any], family: str) -> Any:
    """`numba.cfunc` with this store for its cache; `cache_hits` of the result is 1 if it came from the disk.

    `family` begins the function's name, and the names under which older sources of the same kernel were kept.
    """
    types = (signature.args, signature.return_type)
    code: Any = CFunc(function, types, locals={}, options=dict(options), pipeline_class=KernelCompiler)
    try:
        code._cache = Store(function, family)
    except (OSError, RuntimeError) as nowhere:
        _warn(NOT_KEPT, f"no folder for them can be written ({nowhere})")
    try:
        code.compile()
    finally:
        if isinstance(code._cache, Store):
            code._cache.unlock()
    return code


_PROVIDED: Any = CompileResultCacheImpl._locator_classes[0]


class _Filled(_PROVIDED):
    """Our folder where somebody else has filled it and this user may only read: as in an image of a container."""

    def ensure_cache_path(self) -> None:
        """Nothing need be written."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """None unless there is such a folder and numba looks at it."""
        folder = cache.chosen(KIND)
        there = folder is not None and folder.is_dir() and str(folder) == numba.config.CACHE_DIR
        return super().from_function(function, file) if there else None


class _Files(CompileResultCacheImpl):
    """numba's way to keep a kernel, and to choose the folder."""

    _locator_classes = [_PROVIDED, _Filled, *CompileResultCacheImpl._locator_classes[1:]]  # noqa: RUF012


class Store(FunctionCache):
    """What numba asks for a kernel's code, and gives it to. Nothing that happens to a file is an error here."""

    _impl_class = _Files

    def __init__(self, function: Any, family: str) -> None:
        try:
            with _located(cache.chosen(KIND)):
                super().__init__(function)
        except RuntimeError as nowhere:  # numba has no better class for "no locator available"
            with _located(cache.temporary(KIND)):
                super().__init__(function)
            if not any(Path(self.cache_path).glob(f"*{SUFFIX}")):  # what is found there again needs no words
                _warn(f"are kept in {self.cache_path} alone", nowhere)
        self._folder = Path(self.cache_path)
        self._family = family
        self._locked: tuple[Path, Any] | None = None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The kernel as `save_overload` was given it, or None; then nobody else compiles it until `unlock`."""
        target.refresh()
        identity, path = self._identity(signature, target.codegen())
        if not path.exists():
            self._lock(path)
        try:
            sealed = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._unusable(path, error)
        if _seal(identity, sealed[_SEAL:]) != sealed[:_SEAL]:
            return self._unusable(path, "it is damaged")
        try:
            return self._impl.rebuild(target, pickle.loads(sealed[_SEAL:]))  # noqa: S301  # our own file
        except Exception as error:  # noqa: BLE001
            # Unpickling imports and LLVM links, so anything may be raised. Compiling comes next, and what is wrong
            # with the kernel itself is raised there.
            return self._unusable(path, error)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a kernel if the disk lets us, and remove what its older sources left there."""
        if not self._impl.check_cachable(compiled):
            return
        identity, path = self._identity(signature, compiled.codegen)
        contents = dumps(self._impl.reduce(compiled))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(path, _seal(identity, contents) + contents)
        except OSError as error:
            _warn(NOT_KEPT, f"{self._folder} cannot be written ({error})")
            return
        for stale in self._older():
            with suppress(OSError):  # another process may have been quicker, or it is somebody else's
                stale.unlink()

    def _lock(self, path: Path) -> None:
        """Wait until no other process compiles for this file, if that can be known."""
        if fcntl is None:
            return
        beside = path.with_name(f"{path.name}.lock")
        end = time.monotonic() + PATIENCE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = beside.open("wb")
        except OSError:
            return
        self._locked = beside, file
        while time.monotonic() < end and not path.exists():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOOK)
            except OSError:
                return
            else:
                return

    def unlock(self) -> None:
        """Let others have it."""
        if self._locked is None or fcntl is None:
            return
        (beside, file), self._locked = self._locked, None
        with suppress(OSError):
            beside.unlink()
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file open, too
        file.close()

    def _older(self) -> list[Path]:
        """Files of the same kernel from other sources, those of a process that was killed as it wrote among them."""
        try:
            kept = list(self._folder.glob(f"*.{self._family}*"))
        except OSError:
            return []
        return [path for path in kept if self._py_func.__name__ not in path.name]

    def _identity(self, signature: Any, codegen: Any) -> tuple[bytes, Path]:
        """What the code is for, down to the CPU's features, and where it lies."""
        versions = (numba.__version__, llvmlite.__version__)
        identity = repr((self._py_func.__qualname__, self._index_key(signature, codegen), versions)).encode()
        name = f"{self._impl.filename_base}.{hashlib.sha256(identity).hexdigest()[:12]}{SUFFIX}"
        return identity, self._folder / name

    def _unusable(self, path: Path, why: object) -> None:
        """Say that a file is as good as none; no RuntimeWarning, because it is replaced and nobody need do anything."""
        _log.warning("%s is compiled anew: %s", path, why)


@contextmanager
def _located(folder: Path | None) -> Iterator[None]:
    """Let numba look at this folder first, unless its user has named another."""
    named = numba.config.CACHE_DIR
    if folder is not None and not named:
        numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = named


def _seal(identity: bytes, contents: bytes) -> bytes:
    return hashlib.sha256(identity + contents).digest()


def _write(path: Path, contents: bytes) -> None:
    """Put a file in its place whole or not at all."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")  # distinct also among machines that share it
    try:
        unfinished.write_bytes(contents)
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


_warned = False


def _warn(what: str, why: object) -> None:
    """Say once in a process that kernels are not kept, or where nobody looks for them."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"compiled CPU kernels {what}: {why}; set {cache.VARIABLE} to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
