"""Machine code on disk: one sealed file for each kernel, CPU and version of numba.

A compiled kernel is worth more than its file. Whatever is wrong with the disk, the kernel runs: a file that cannot be
read, or whose seal is broken, is compiled anew and replaced; what cannot be written is not kept, and a warning says so
once. The seal is a hash of the contents and of what they were made for, so neither half a file nor another kernel's is
ever executed. It guards against accidents, not against whoever may write to the folder.

The folder lies in the one that ACLGRAD_CACHE names; else numba decides (NUMBA_CACHE_DIR, else beside the source, else
the user's cache folder). numba's own files are an index and the code apart from it, which processes that write at once
can leave at odds.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.serialize import dumps

from ..core.caches import CACHE_VARIABLE, chosen_cache
from .parts import KernelCompiler

SUFFIX = ".nbc"
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
    except (OSError, RuntimeError) as nowhere:  # numba has no better class for "no locator available"
        _warn(f"no folder for them can be written ({nowhere})")
    code.compile()
    return code


class _Chosen:
    """The folder that ACLGRAD_CACHE names, as numba asks for it. What cannot be written may yet be read."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._source = source
        home = source.absolute().parent
        self._folder = folder / f"{home.name}_{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"

    @classmethod
    def from_function(cls, _function: Any, file: str) -> _Chosen | None:
        """The folder for kernels of a source file, if one is chosen."""
        folder = chosen_cache("cpu")
        return None if folder is None else cls(folder, Path(file))

    def get_cache_path(self) -> str:
        """Where files go."""
        return str(self._folder)

    def get_source_stamp(self) -> tuple[float, int]:
        """What numba tells versions of a source apart by; kernels have the text's digest in their names."""
        found = self._source.stat()
        return found.st_mtime, found.st_size

    def get_disambiguator(self) -> str:
        """What else a file's name has to tell: nothing."""
        return ""


class _Files(CompileResultCacheImpl):
    """numba's way to write a kernel, and to choose the folder."""

    _locator_classes = [_Chosen, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012  # numba's own form


class Store(FunctionCache):
    """What numba asks for a kernel's code, and gives it to. Nothing that happens to a file is an error here."""

    _impl_class = _Files

    def __init__(self, function: Any, family: str) -> None:
        super().__init__(function)
        self._folder = Path(self.cache_path)
        self._family = family

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The kernel as `save_overload` was given it, or None."""
        target.refresh()
        identity, path = self._identity(signature, target.codegen())
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
            _warn(f"{self._folder} cannot be written ({error})")
            return
        for stale in self._older():
            with suppress(OSError):  # another process may have been quicker, or it is somebody else's
                stale.unlink()

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


def _warn(why: str) -> None:
    """Say once in a process that kernels are not kept."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"compiled CPU kernels are not kept, and each process compiles them anew: {why}; "
        f"set {CACHE_VARIABLE} to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
