"""Where files are kept from one process to the next: `ACLGRAD_CACHE` names a folder for all of them.

<folder>/capi       libraries and headers for C programs
<folder>/kernels    compiled CPU kernels, unless NUMBA_CACHE_DIR says where
<folder>/triton     compiled GPU kernels, unless TRITON_CACHE_DIR says where
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

VARIABLE = "ACLGRAD_CACHE"


def chosen(kind: str) -> Path | None:
    """The folder for one kind of files that the variable names; None if it names none."""
    root = os.environ.get(VARIABLE)
    return Path(root).absolute() / kind if root else None


def temporary(kind: str) -> Path:
    """A folder among the temporary files that belongs to this user alone, made if there is none; else an OSError."""
    user = os.getuid() if hasattr(os, "getuid") else 0  # Windows has a folder for each user
    root = Path(tempfile.gettempdir()) / f"aclgrad-{user}"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)  # before what lies in it: a mode is that of the last folder
    if root.stat().st_uid != user:
        raise PermissionError(f"{root} belongs to somebody else")
    folder = root / kind
    folder.mkdir(exist_ok=True)
    return folder
