"""Triton functions compiled for a device, by Triton."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import triton

from ..core.devices import description
from ..core.errors import Prevented, Unsupported
from ..core.first_calls import compiling
from .files import located

Grid = tuple[int, int, int]


def compiled(function: Any, arguments: Sequence[Any], grid: Grid, device: torch.device, **settings: Any) -> Any:
    """A Triton function compiled for a device and loaded there; dtypes or stand-ins are given for tensors.

    A product and a sum may become one instruction unless `enable_fp_fusion` is False. It is said, because Triton 3.9
    warns that it will not always be so.
    """
    if description(device) is not None:
        return NotCompiled()
    name = getattr(function, "__name__", "a kernel")
    with torch.cuda.device(device), located(), _explained(), compiling(name):
        kernel = function.warmup(*arguments, grid=grid, **{"enable_fp_fusion": True, **settings})
        kernel.run  # noqa: B018  loads it
    return kernel


class NotCompiled:
    """Stands for a kernel on a GPU that is only described."""

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        """The launch, which is refused."""
        return self.launch

    def launch(self, *arguments: Any) -> None:  # noqa: ARG002
        """Refuse."""
        raise Unsupported("cannot launch on a GPU that is only described")


UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}


@contextmanager
def _explained() -> Iterator[None]:
    """Triton compiles into files and cannot do without; the error of a full disk does not even name one."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise Prevented(
            f"Triton cannot write compiled kernels to {triton.knobs.cache.dir}: {error}; set ACLGRAD_CACHE or "
            "TRITON_CACHE_DIR to a folder that can be written, or TMPDIR for the compiler's own files"
        ) from error
