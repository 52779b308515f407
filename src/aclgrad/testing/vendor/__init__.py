"""CANN's test kits ATK and TTK: their lists of cases, and the files that make them take our golden results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.plan import Operator
from ..data.calls import Call
from . import atk, ttk
from .answers import for_kit as for_kit
from .answers import golden_of as golden_of
from .lists import Listed as Listed

ADAPTERS: dict[str, Callable[[Operator, Sequence[Call], Path], Sequence[Path]]] = {"ttk": ttk.write, "atk": atk.write}
"""What writes the files that a kit loads."""

LISTS: dict[str, Callable[[Operator, Path], Sequence[Listed]]] = {"ttk": ttk.read, "atk": atk.read}
"""What reads a kit's list of cases."""
