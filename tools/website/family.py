"""What a family's README says about one of its operators: formulas, numerics, how the document is read."""

from __future__ import annotations

import re
from pathlib import Path

from aclgrad.core.spec import OpSpec

from .places import FAMILIES

FORMULA = re.compile(r"<!-- formula: ([^>]*) -->\n\n(```math\n.*?^```)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
CHOICES = "Where the document leaves a choice"
SHAPES = ("Types and shapes", "Arguments", "Limits")
NUMBERS = ("Numerics", "Numbers")


def readme(spec: OpSpec) -> Path:
    """The README of an operator's family."""
    return FAMILIES / spec.package.rpartition(".")[2] / "README.md"


def formulas(spec: OpSpec, text: str) -> str:
    """The formulas that a comment above them gives to an operator, each with the paragraphs around it."""
    found: list[str] = []
    for formula in FORMULA.finditer(text):
        if spec.name in formula[1].replace(",", " ").split():
            before = text[: formula.start()].rstrip().rpartition("\n\n")[2]
            after = text[formula.end() :].lstrip("\n").partition("\n\n")[0]
            for paragraph in (before, formula[2], after):
                if is_prose(paragraph) and paragraph not in found:
                    found.append(paragraph)
    return "\n\n".join(found)


def is_prose(paragraph: str) -> bool:
    """Whether it is text or a formula, and no heading, comment, table or code."""
    return paragraph.startswith("```math") or not paragraph.startswith(("#", "<!--", "|", "```", "    "))


def section(text: str, *titles: str) -> str:
    """What stands under the first heading of one of these titles, without the heading; empty if there is none."""
    for title in titles:
        found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        if found:
            return COMMENT.sub("", found[1]).strip()
    return ""


def choices(spec: OpSpec, text: str) -> str:
    """The table of how the document is read where it leaves a choice; rows that name other operators are left out."""
    lines = section(text, CHOICES).splitlines()
    return "\n".join(line for line in lines if not line.startswith("|") or concerns(spec, line))


def concerns(spec: OpSpec, row: str) -> bool:
    """Whether a row of a table is about an operator: it names it by its document's name, or names none."""
    named = set(re.findall(r"`(aclnn\w+)`", row))
    return not named or spec.aclnn in named
