"""Where a file of the repository stands on the site, and what becomes of the links in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import aclgrad

FAMILIES = Path(aclgrad.__file__).parent / "ops"
ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/aclgrad/aclgrad"
FOLDERS = {"docs": "", "examples": "", "benchmarks/results": "benchmarks/"}
"""Folders whose pages are part of the site, and their folder there."""
RENAMED = {"README.md": "index.md", "docs/operators.md": "operators/index.md", "examples/README.md": "examples.md"}
PICTURES = (".png", ".svg")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(?=\))")


class BrokenLink(ValueError):
    """A link in a page leads to nothing in the repository."""


@cache
def places() -> dict[Path, str]:
    """The page on the site of every Markdown file that is one: those of the root, of documentation, of families."""
    found = {path: path.name.lower() for path in sorted(ROOT.glob("*.md"))}
    for folder, there in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.md")):
            inside = path.relative_to(ROOT / folder).as_posix()
            found[path] = there + re.sub(r"\bREADME\.md$", "index.md", inside)
    for path in sorted(FAMILIES.rglob("README.md")):
        found[path] = f"families/{'-'.join(path.parent.relative_to(FAMILIES).parts)}.md"
    found |= {ROOT / path: there for path, there in RENAMED.items()}
    return found


def relocated(text: str, source: Path, page: str) -> str:
    """A text of a file as it stands on a page of the site: its links lead to pages of the site where there are such.

    Links to pictures lead to their copies (`pictures`), all others to the repository on the net.
    """

    def moved(found: re.Match[str]) -> str:
        return found[1] + _target(found[2], source, page)

    return outside_code(text, lambda part: LINK.sub(moved, part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A text with a change made to all of it but its fenced blocks."""
    parts, end = [], 0
    for block in FENCED.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def _target(target: str, source: Path, page: str) -> str:
    address, mark, anchor = target.partition("#")
    if ":" in address:
        return target
    path = (source.parent / address).resolve() if address else source
    if path.is_dir() and (path / "README.md") in places():
        path /= "README.md"
    if not path.exists():
        raise BrokenLink(f"{source.relative_to(ROOT)} links to {target}, which is not there")
    if path in places():
        there = places()[path]
        return mark + anchor if there == page else relative(there, page) + mark + anchor
    inside = path.relative_to(ROOT).as_posix()
    if path.suffix in PICTURES:
        return relative(f"pictures/{inside}", page)
    return f"{REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{inside}{mark}{anchor}"


def relative(target: str, page: str) -> str:
    """The address of a page of the site, seen from another one."""
    return PurePosixPath(os.path.relpath(target, PurePosixPath(page).parent)).as_posix()


def pictures() -> dict[str, Path]:
    """The pictures that pages show, and those of results, by their place on the site."""
    shown = {*_shown(), *(ROOT / "benchmarks/results").rglob("*.png")}
    return {f"pictures/{path.relative_to(ROOT).as_posix()}": path for path in sorted(shown)}


def _shown() -> Iterator[Path]:
    for source in places():
        for _, target in LINK.findall(FENCED.sub("", source.read_text(encoding="utf-8"))):
            path = (source.parent / target).resolve()
            if path.suffix in PICTURES and path.is_relative_to(ROOT) and path.exists():
                yield path
