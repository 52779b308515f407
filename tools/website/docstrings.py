"""What docstrings say of their examples, in Markdown: lines that begin with >>> become blocks of code."""

from __future__ import annotations

import doctest
from typing import Any

import griffe


class Examples(griffe.Extension):
    """For mkdocstrings, which reads docstrings as Markdown."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute with what griffe knows of it."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring whose examples are fenced."""
    parts: list[str] = []
    examples: list[str] = []
    for piece in [*doctest.DocTestParser().parse(docstring), None]:
        if isinstance(piece, doctest.Example):
            shown = piece.source.rstrip("\n").replace("\n", "\n... ")
            examples.append(f">>> {shown}\n{piece.want}")
        elif piece is None or piece.strip():
            if examples:
                parts.append("```pycon\n" + "".join(examples).rstrip() + "\n```")
                examples = []
            parts += [piece.strip()] if piece else []
    return "\n\n".join(parts)
