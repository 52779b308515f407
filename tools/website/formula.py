"""Formulas: LaTeX in Markdown, MathML in the page. It is made here, so that no page needs a script for it."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def mathml(latex: str) -> str:
    """A displayed formula; what is wrong with it is raised."""
    import math_core

    return str(math_core.LatexToMathML().convert_with_local_state(latex, displaystyle=True))


def fence(source: str, *_: Any, **__: Any) -> str:
    """A block between ```math and ```, as pymdownx.superfences asks for it."""
    return f'<div class="formula">{mathml(source)}</div>'
