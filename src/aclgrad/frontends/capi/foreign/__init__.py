"""The functions of CANN's public headers that aclgrad declares, so that programs build, and does not serve.

operators.txt    operators by library: names, and headers where they do not follow from the name
functions.txt    everything else: return types, names and types of the parameters, by header
*_types.h        the types that those functions need, by header; *_constants.h their flags and sizes
fp16_t.h, bfloat16.h    numbers of half precision for programs that fill tensors

Called, such a function names itself and tells what there is, and returns the code for what is not supported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...acl.boundary import Mistake, logger, refusal
from ...acl.enums import AclError, AclnnStatus
from ...acl.findings import Kind
from ..prototypes import prototypes, snake

FOLDER = Path(__file__).parent
TYPES = {
    "acl/acl_base.h": ("base_types.h",),
    "acl/acl_rt.h": ("runtime_constants.h", "runtime_types.h", "graph_types.h"),
    "acl/acl_mdl.h": ("model_types.h",),
    "acl/acl_op.h": ("operator_types.h",),
    "acl/acl_op_compiler.h": ("compiler_types.h",),
    "acl/acl_dump.h": ("dump_types.h",),
}
"""The files in which the types of each header stand."""
ANY = "ACLGRAD_ANY_ARGUMENTS"
"""The parameters of a function whose own are not known here."""
PHASE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"


@dataclass(frozen=True)
class Foreign:
    """A function that is only declared. `types` are those of its parameters, as C has them between the parentheses."""

    header: str
    returns: str
    name: str
    types: str

    def __str__(self) -> str:
        return f"{self.returns}{'' if self.returns.endswith('*') else ' '}{self.name}({self.types})"


@dataclass(frozen=True)
class ForeignOperator:
    """An operator that is only declared: its two phases, the library it is in, and the headers that have it."""

    name: str
    library: str
    headers: tuple[str, ...]

    @property
    def functions(self) -> tuple[Foreign, Foreign]:
        """Both phases. Of the first only the name is known for sure in every version, so it takes any arguments."""
        header = self.headers[0]
        return (
            Foreign(header, "aclnnStatus", f"{self.name}GetWorkspaceSize", ANY),
            Foreign(header, "aclnnStatus", self.name, PHASE_TWO),
        )


def functions() -> tuple[Foreign, ...]:
    """All functions that are only declared, without those of operators."""
    served, found = {prototype.name for prototype in prototypes()}, []
    for header, line in _lines("functions.txt"):
        head, _, types = line.removesuffix(")").partition("(")
        returns, _, name = head.rpartition(" ")
        if name not in served:
            found.append(Foreign(header, returns or "aclError", name, ANY if types == "..." else types))
    return tuple(found)


def operators() -> tuple[ForeignOperator, ...]:
    """All operators that are only declared."""
    served = {prototype.name for prototype in prototypes()}
    return tuple(operator for operator in _all_operators() if operator.name not in served)


def every_function() -> tuple[Foreign, ...]:
    """All of them, in the order that the library has them in."""
    return (*functions(), *(function for operator in operators() for function in operator.functions))


@cache
def _all_operators() -> tuple[ForeignOperator, ...]:
    found = []
    for library, line in _lines("operators.txt"):
        for word in line.split():
            name, _, header = word.partition("=")
            twice, name = name.endswith("+"), name.removesuffix("+")
            headers = (f"aclnnop/aclnn_{header}.h",) if header else headers_of(f"aclnn{name}")
            found.append(ForeignOperator(f"aclnn{name}", library, headers))
            if twice:
                found.append(ForeignOperator(f"aclnnInplace{name}", library, headers))
    return tuple(found)


def headers_of(function: str) -> tuple[str, ...]:
    """The names that the header of an operator may have, the likeliest first: capitals are read in several ways."""
    plain = snake(function)
    apart = snake(re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", function)).replace("__", "_")
    names = [plain, apart, apart.replace("mat_mul", "matmul"), apart.replace("_inplace_", "_")]
    return tuple(dict.fromkeys(f"aclnnop/{name}.h" for name in names))


def _lines(file: str) -> Iterator[tuple[str, str]]:
    """(section, line) of a file's lines that say something."""
    section = ""
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            yield section, line


def code_of(name: str) -> AclError | AclnnStatus:
    """What a function returns that is not supported."""
    if name.startswith("aclnn"):
        return AclnnStatus.ACLNN_ERR_INNER_FIND_KERNEL_ERROR
    if name.startswith("aclrt"):
        return AclError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    return AclError.ACL_ERROR_API_NOT_SUPPORT


def call(name: str) -> int:
    """Somebody has called such a function: leave a message and a finding, and say so in the log. Returns the code."""
    code = code_of(name)
    message = f"aclgrad has no {name.removesuffix('GetWorkspaceSize')}, {what_there_is(name)}"
    if name not in _mentioned:
        _mentioned.add(name)
        logger.warning("%s: %s (said once)", name, message)
    fault = Mistake(Kind.UNSUPPORTED_CALL, message)
    fault.code = code
    return refusal(name, fault, lambda _: code)


_mentioned: set[str] = set()


def what_there_is(name: str) -> str:
    """What aclgrad has instead of a function, in words."""
    base = name.removesuffix("GetWorkspaceSize")
    mine = [p.name for p in prototypes() if not p.name.endswith("GetWorkspaceSize")]
    if name.startswith("aclnn"):
        operators = [each for each in mine if each.startswith("aclnn") and each not in ("aclnnInit", "aclnnFinalize")]
        near = difflib.get_close_matches(base, operators, 3, 0.75)
        return f"it has {', '.join(near)} and others" if near else f"it has {', '.join(operators)}"
    if name.startswith(("aclmdl", "aclop")):
        return "it runs aclnn operators and no models: see `aclgrad list` for those it has"
    near = difflib.get_close_matches(base, mine, 3, 0.75)
    return f"it has {', '.join(near)}" if near else "nor anything like it"
