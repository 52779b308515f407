"""Where compiled code is kept, if the user chooses: ACLGRAD_CACHE moves all of it at once."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "ACLGRAD_CACHE"


def chosen_cache(kind: str) -> Path | None:
    """The folder for one kind of compiled code in the folder that ACLGRAD_CACHE names; None if it names none.

    >>> os.environ[CACHE_VARIABLE] = "/var/cache/aclgrad"
    >>> print(chosen_cache("cpu"))
    /var/cache/aclgrad/cpu
    >>> del os.environ[CACHE_VARIABLE]
    >>> chosen_cache("cpu") is None
    True
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).absolute() / kind if chosen else None
