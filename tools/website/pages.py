"""The whole site as text: every page by its place, and the order in which the navigation has them."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from aclgrad import nn, testing, torch_npu
from aclgrad.core.errors import AclgradError
from aclgrad.core.registry import families, operators
from aclgrad.frontends.acl.codes import AclError, AclnnStatus

from . import operator_page
from .family import COMMENT
from .places import outside_code, pictures, places, relative, relocated

DOORS = (nn, testing, torch_npu)
"""Modules whose functions and classes have a page."""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Guides": ("guides/*", "contributing.md", "*"),
    "Operators": ("operators/index.md",),
    "Doors": ("pytorch.md", "aclnn.md", "c-abi.md", "codes.md", "api/*"),
    "Checker": ("findings/index.md", "findings/*"),
    "Speed": ("performance.md", "benchmarks/*", "scale.md", "experiments.md"),
    "Project": ("architecture.md", "changelog.md"),
}
"""Parts of the navigation, by patterns of pages. What no pattern names goes to the one that has the star."""
TITLES = {"guides/precision.md": "For operator developers", "contributing.md": "For contributors"}
"""What pages are called there, if not by their heading."""


PLANES = """# Sizes that nobody named

A cell is a size, its number and colour how many times faster than the peer it ran, both by turns in one run; blue is
faster, red with a dark edge slower. Sizes lie on a grid or are drawn at random from a seed, so nobody has chosen them.
[How it is measured](../performance.md#measuring)."""


def pages() -> dict[str, str]:
    """The Markdown of every page of the site, by its place."""
    found = {}
    for source, there in places().items():
        text = relocated(source.read_text(encoding="utf-8"), source, there)
        found[there] = outside_code(text, lambda part: COMMENT.sub("", part))
    found["operators/index.md"] = _linked(found["operators/index.md"])
    found["codes.md"] = _codes()
    found |= _planes()
    found |= {f"api/{door.__name__.rpartition('.')[2]}.md": _api(door) for door in DOORS}
    found |= {operator_page.path(operator.spec): operator_page.page(operator) for operator in operators()}
    return {there: _titled(there, text) for there, text in found.items()}


def _linked(text: str) -> str:
    """The table of operators with links to their pages."""
    return re.sub(r"^\| `(\w+)` \|", r"| [`\1`](\1.md) |", text, flags=re.MULTILINE)


def _planes() -> dict[str, str]:
    """A page of the heat maps that `python -m benchmarks plane --save` drew; none without any."""
    there = "benchmarks/planes.md"
    maps = [
        f"## {_plane(Path(picture).stem)}\n\n[![A cell for each size: how many times faster]"
        f"({relative(picture, there)})]({relative(picture, there)})"
        for picture in pictures()
        if picture.startswith("pictures/benchmarks/results/plane/")
    ]
    return {there: "\n\n".join([PLANES, *maps]) + "\n"} if maps else {}


def _plane(name: str) -> str:
    """What a plane's file, named by machine, family and seed, is about."""
    machine, family, seed = name.rsplit("-", 2)
    sizes = "a grid of sizes" if seed == "grid" else f"sizes drawn from seed {seed}"
    return f"{family.replace('_', ' ')} on {machine.replace('-', ' ')}: {sizes}"


def _titled(there: str, text: str) -> str:
    """A page with a heading; committed results, written to be shown in another page, get theirs and their picture."""
    if text.lstrip().startswith("#"):
        return text
    name = there.removesuffix(".md").rpartition("/")[2]
    picture = f"pictures/benchmarks/results/{name}.png"
    drawn = relative(picture, there)
    shown = [f"[![Every row; a click shows it in full]({drawn})]({drawn})"] if picture in pictures() else []
    return "\n\n".join([f"# {text.lstrip().partition(' · ')[0]}", *shown, text])


def _api(door: ModuleType) -> str:
    """What a module has for everybody, from the docstrings."""
    public = {name: getattr(door, name) for name in sorted(getattr(door, "__all__", dir(door)), key=str.lower)}
    shown = {
        name: value
        for name, value in public.items()
        if not name.startswith("_") and isinstance(value, type | FunctionType) and value.__module__ != "typing"
    }
    said = (door.__doc__ or "").strip().partition("\n\n")[0]
    paths = {name: f"{value.__module__}.{value.__qualname__}" for name, value in shown.items()}
    parts = []
    for path in dict.fromkeys(paths.values()):
        others = [f"`{name}`" for name, there in paths.items() if there == path and not path.endswith(f".{name}")]
        parts.append("\n\n".join([f"::: {path}", *([f"Also as {', '.join(others)}."] if others else [])]))
    return "\n\n".join([f"# {door.__name__}", said, *parts]) + "\n"


def _codes() -> str:
    """Every number that a call may return, and the error that carries it in Python."""
    errors: dict[int, list[type[AclgradError]]] = {}
    for error in _subclasses(AclgradError):
        errors.setdefault(error.status, []).append(error)
    rows = [
        [f"{status.value}", f"`{status.name}`", ", ".join(f"`{error.__name__}`" for error in errors.get(status, ()))]
        for status in AclnnStatus
    ]
    meanings = [
        [f"`{error.__name__}`", str(error.status), (error.__doc__ or "").partition("\n")[0]]
        for error in _subclasses(AclgradError)
    ]
    return "\n\n".join(
        [
            "# Codes and errors",
            "What the functions of aclnn and acl return, and what the Python door raises. `acl.get_recent_err_msg()` "
            "(in C `aclGetRecentErrMsg`) has the words: function, argument, what was found, what was expected. "
            "[Errors and their cures](errors.md) goes through the frequent ones.",
            "## Errors in Python",
            operator_page.table(["Error", "Status", "Means"], meanings),
            "## aclnnStatus",
            operator_page.table(["Number", "Name", "In Python"], rows),
            "## aclError",
            operator_page.table(["Number", "Name"], [[str(code.value), f"`{code.name}`"] for code in AclError]),
        ]
    )


def _subclasses(error: type[AclgradError]) -> list[type[AclgradError]]:
    return [error, *(found for child in error.__subclasses__() for found in _subclasses(child))]


def navigation(found: dict[str, str]) -> list[Any]:
    """What MkDocs calls nav: every page once."""
    named = {pattern for patterns in SECTIONS.values() for pattern in patterns if pattern != "*"}
    left = [page for page in sorted(found) if page != "index.md"]
    entries: dict[str, list[Any]] = {}
    for title, patterns in SECTIONS.items():
        for pattern in patterns:
            chosen = [
                page
                for page in left
                if fnmatch(page, pattern)
                and (pattern != "*" or not page.startswith(("operators/", "families/")))
                and (pattern != "*" or not any(fnmatch(page, other) for other in named))
            ]
            entries.setdefault(title, []).extend(chosen)
            left = [page for page in left if page not in chosen]
    entries["Operators"] += _by_family(left)
    titled = {
        title: [{TITLES[page]: page} if isinstance(page, str) and page in TITLES else page for page in chosen]
        for title, chosen in entries.items()
    }
    return [{"Home": "index.md"}, *({title: chosen} for title, chosen in titled.items())]


def _by_family(left: list[str]) -> list[Any]:
    """Operators by families, each behind its page."""
    found = []
    for package in families():
        name = package.rpartition(".")[2]
        own = [operator_page.path(operator.spec) for operator in operators() if operator.spec.package == package]
        maps = [page for page in left if page.startswith(f"families/{name}-")]
        found.append({name: [*own, {"derivation, kernels": f"families/{name}.md"}, *maps]})
    return found
