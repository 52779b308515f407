"""The C functions a program links with: each packs its arguments and hands them to Python through `boot.c`."""

from __future__ import annotations

from ..acl.enums import AclError, AclnnStatus
from .prototypes import ENUM_TYPES, VALUE_TYPES, Parameter, Prototype

_UNSIGNED = ("size_t", "uint32_t", "uint64_t", "aclFloat16")
_REAL = ("float", "double")


def guards(prototypes: tuple[Prototype, ...]) -> str:
    """C definitions of all functions; the position of a prototype is the number of its Python function."""
    return "\n".join([_guard(index, prototype) for index, prototype in enumerate(prototypes)])


def _guard(index: int, prototype: Prototype) -> str:
    words = ", ".join([f"{_word(param.type)}({param.name})" for param in prototype.params])
    arguments = f"(const struct word[]){{{words}}}, {len(prototype.params)}" if words else "NULL, 0"
    failed = failure(prototype)
    return (
        f"{prototype}\n{{\n"
        f"    return ({prototype.returns})call({index}, {arguments},\n"
        f"        __builtin_return_address(0), {failed}).as.{_MEMBERS[failed.partition('(')[0]]};\n}}\n"
    )


def failure(prototype: Prototype) -> str:
    """What a function returns when Python cannot answer, as a word of C."""
    if prototype.name == "aclGetRecentErrMsg":
        return "TEXT(explanation)"
    special = {
        "aclError": f"NUMBER({AclError.ACL_ERROR_INTERNAL_ERROR:d})",
        "aclnnStatus": f"NUMBER({AclnnStatus.ACLNN_ERR_INNER:d})",
        "const char *": "TEXT(NULL)",
        "float": "REAL(NAN)",
    }
    kind = _word(prototype.returns)
    return special.get(prototype.returns, f"{kind}({'NULL' if kind == 'POINTER' else 0})")


_MEMBERS = {"NUMBER": "number", "COUNT": "count", "REAL": "real", "FLAG": "count", "POINTER": "pointer", "TEXT": "text"}


def _word(c_type: str) -> str:
    """The macro of `boot.c` that packs a value of this type."""
    if Parameter(c_type, "").is_pointer or (c_type.startswith("aclrt") and c_type not in ENUM_TYPES):
        return "POINTER"
    if c_type not in VALUE_TYPES:
        raise ValueError(f"no word for C type {c_type!r}")
    if c_type == "bool":
        return "FLAG"
    if c_type in _REAL:
        return "REAL"
    return "COUNT" if c_type in _UNSIGNED else "NUMBER"
