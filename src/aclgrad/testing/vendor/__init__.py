"""The vendor's test kits: lists of cases that they run, and files that they load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.plan import Operator
from ..data.sampling import Sample

ADAPTERS: dict[str, Callable[[Operator, Sequence[Sample], Path], Sequence[Path]]] = {}
