"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The noun with its number.

    >>> counted(1, "tile"), counted(1200, "tile")
    ('1 tile', '1,200 tiles')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
