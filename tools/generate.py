"""Write what follows from the contracts: the doors' stubs for editors and type checkers, and the table of operators.

    make generate        or: python tools/generate.py

`tests/test_generated.py` fails where a file is not what would be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import aclgrad
from aclgrad.core import registry
from aclgrad.core.meta import dtype_name
from aclgrad.core.plan import Operator
from aclgrad.core.profile import BINARY, DOCUMENT, VARIABLE
from aclgrad.core.spec import BoolArray, Flag, Float, Int, Out, OutList, Param, Tensor, TensorList
from aclgrad.frontends.aclnn.surface import ENUMERATIONS, MODULES, functions
from aclgrad.frontends.capi import foreign
from aclgrad.frontends.capi.prototypes import prototypes
from aclgrad.frontends.collected import modules
from aclgrad.testing.cases import suite

PACKAGE = Path(aclgrad.__file__).parent
OURS = "aclgrad."  # packages of custom operators that are installed here are none of ours
DOCS = Path(__file__).parents[1] / "docs"
NOTE = "# Written by `make generate`; edit tools/generate.py or the contracts instead."
MODELS = ["TWINS", "convert", "revert"]
TYPES: dict[type[Param], str] = {
    TensorList: "_List",
    OutList: "_List",
    BoolArray: "_Bools",
    Flag: "bool",
    Int: "int",
    Float: "float",
}


def families() -> list[str]:
    """The packages of our own families."""
    return [family for family in registry.families() if family.startswith(OURS)]


def aclnn_operators() -> list[Operator]:
    """Our own operators that a document knows."""
    return [operator for operator in registry.aclnn_operators() if operator.spec.package.startswith(OURS)]


def generated() -> dict[Path, str]:
    """Every file that is written, and its text."""
    return {
        PACKAGE / "aclnn.pyi": aclnn_stub(),
        PACKAGE / "nn.pyi": collected_stub(
            "module",
            {"torch_conversion": ["Report"], "torch_decompositions": ["decompositions"], "torch_modules": MODELS},
        ),
        PACKAGE / "torch_npu.pyi": collected_stub("torch_npu", {}),
        DOCS / "operators.md": table(),
        DOCS / "profiles.md": profiles(),
        DOCS / "c-abi.md": counted((DOCS / "c-abi.md").read_text(encoding="utf-8")),
    }


def aclnn_stub() -> str:
    """The functions of `aclgrad.aclnn` with the documents' parameters."""
    lines = [
        NOTE,
        "from collections.abc import Sequence",
        "from typing import TypeAlias",
        "",
        "from torch import Tensor",
        "",
    ]
    lines += [imported("aclgrad.frontends.acl.enums", enumeration.__name__) for enumeration in ENUMERATIONS]
    for module in sorted(MODULES, key=lambda module: module.__name__):
        lines += [imported(module.__name__, name) for name in sorted(functions(module), key=str.lower)]
    lines += [
        "",
        "_Tensor: TypeAlias = Tensor | int | None  # used in place, a handle, or absent",
        "_List: TypeAlias = Sequence[_Tensor] | int | None",
        "_Bools: TypeAlias = Sequence[bool] | int | None",
        "",
    ]
    for operator in aclnn_operators():
        lines += pair_stub(operator)
    lines += [f"{item.name}: {enumeration.__name__}" for enumeration in ENUMERATIONS for item in enumeration]
    return "\n".join(lines) + "\n"


def pair_stub(operator: Operator) -> list[str]:
    """Both phases of an operator."""
    spec = operator.spec
    arguments = [f"    {param.aclnn}: {TYPES.get(type(param), '_Tensor')}," for param in (*spec.args, *spec.outs)]
    return [
        f"def {spec.aclnn}GetWorkspaceSize(",
        *arguments,
        ") -> tuple[int, int | None, int]:",
        f'    """Phase one: {spec.summary}."""',
        "",
        f"def {spec.aclnn}(",
        "    workspace: Tensor | int | None,",
        "    workspaceSize: int,",
        "    executor: int | None,",
        "    stream: int | None,",
        ") -> int:",
        f'    """Phase two: {spec.summary}."""',
        "",
    ]


def collected_stub(name: str, own: dict[str, list[str]]) -> str:
    """A door that the families furnish by their modules of this name, with some names of its own from `frontends`."""
    lines = [imported(f"aclgrad.frontends.{module}", word) for module, words in own.items() for word in words]
    lines += sorted(f"from .{path.removeprefix(OURS)} import *" for path in modules(name) if path.startswith(OURS))
    return "\n".join([NOTE, *lines]) + "\n"


def imported(module: str, name: str) -> str:
    """A name of one of the package's modules, seen from the package."""
    return f"from .{module.removeprefix(OURS)} import {name} as {name}"


def table() -> str:
    """The operators by families, their names in both languages and the dtypes of their main input."""
    lines = ["# Operators", "", "<!-- Written by `make generate` from the contracts. -->"]
    for family in families():
        name = family.rpartition(".")[2]
        lines += [
            "",
            f"## [{name}](../src/{family.replace('.', '/')}/README.md)",
            "",
            "| Python | aclnn | dtypes | also in Python |",
            "|---|---|---|---|",
        ]
        lines += [row(operator) for operator in aclnn_operators() if operator.spec.package == family]
    return "\n".join(lines) + "\n"


def row(operator: Operator) -> str:
    """An operator's line in the table."""
    spec = operator.spec
    main = spec.params[suite(spec).main]
    assert isinstance(main, Tensor | Out)  # our own cases
    dtypes = f"{listed(map(dtype_name, main.dtypes))} | {listed(map(dtype_name, main.generous))}"
    return f"| `{spec.name}` | `{spec.aclnn}` | {dtypes} |"


PROFILES = f"""\
# Documents and binaries

<!-- Written by `make generate` from the contracts. -->

CANN's documents of the operators and its code do not say the same everywhere. `{VARIABLE}` says which of them the
functions of aclnn, in Python and in C, behave like: `{DOCUMENT}` (the default) what the documents promise, `{BINARY}`
what the vendor's public code does, and so the binaries made from it. It is read by `aclInit` and by every phase one;
anything else is refused by both. Where the document is silent, or misprinted, both profiles do what the code does.
Python's own functions, `aclgrad.*`, know no profile: they take whatever has a meaning.

What stands in brackets is not imitated: results are those of the document in both profiles.
"""


def profiles() -> str:
    """What the profiles differ in."""
    lines = [PROFILES, "| aclnn | | `document` | `binary` |", "|---|---|---|---|"]
    for operator in aclnn_operators():
        for found in operator.spec.differences:
            binary = found.binary if found.imitated else f"({found.binary})"
            lines.append(f"| `{operator.spec.aclnn}` | {found.question} | {found.document} | {binary} |")
    return "\n".join(lines) + "\n"


GROUPS = {
    "aclrt": "runtime",
    "aclmdl": "models",
    "aclop": "operators of models",
    "acl": "meta objects, buffers, dumps and others",
    "aclnn": "operators, both phases",
}


def counted(page: str) -> str:
    """The page with the numbers of functions that C programs find: declared, and served."""
    ours = {f"{operator.spec.aclnn}{phase}" for operator in aclnn_operators() for phase in ("", "GetWorkspaceSize")}
    served = [p.name for p in prototypes() if p.header.startswith(("acl/", "aclnn/")) or p.name in ours]
    declared = [function.name for function in foreign.every_function()]
    rows = ["| | declared | served |", "|---|---:|---:|"]
    for start, what in GROUPS.items():
        mine, others = ([name for name in names if group(name) == start] for names in (served, declared))
        rows.append(f"| `{start}…`: {what} | {len(mine) + len(others):,} | {len(mine)} |")
    rows.append(f"| all | {len(served) + len(declared):,} | {len(served)} |")
    before, marker, rest = page.partition("<!-- functions: start -->\n")
    return "".join([before, marker, "\n".join(rows), "\n", *rest.partition("<!-- functions: end -->")[1:]])


def group(name: str) -> str:
    """The longest of the starts that a function's name has."""
    return max((start for start in GROUPS if name.startswith(start)), key=len)


def listed(words: Iterable[str]) -> str:
    """Words with commas between them."""
    return ", ".join(words)


def main() -> None:
    """Write every file that has changed and say which."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
