"""The C functions a program links with: each packs its arguments and hands them to Python through `boot.c`."""

from __future__ import annotations

from collections.abc import Sequence

from ..acl.enums import AclError, AclnnStatus
from .foreign import Foreign
from .prototypes import CALLBACKS, ENUM_TYPES, RUNTIME_HANDLES, VALUE_TYPES, Parameter, Prototype

_UNSIGNED = ("size_t", "uint32_t", "uint64_t", "aclFloat16")
_REAL = ("float", "double")


def guards(prototypes: tuple[Prototype, ...]) -> str:
    """C definitions of all functions; the position of a prototype is the number of its Python function."""
    return "\n".join([_guard(index, prototype) for index, prototype in enumerate(prototypes)])


def _guard(index: int, prototype: Prototype) -> str:
    returned = "" if prototype.returns == "void" else f"return ({prototype.returns})"
    words = ", ".join([f"{_word(param.type)}({_value(param)})" for param in prototype.params])
    arguments = f"(const struct word[]){{{words}}}, {len(prototype.params)}" if words else "NULL, 0"
    failed = failure(prototype)
    return (
        f"{prototype}\n{{\n"
        f"    {returned}call({index}, {arguments},\n"
        f"        __builtin_return_address(0), {failed}).as.{_MEMBERS[failed.partition('(')[0]]};\n}}\n"
    )


def _value(param: Parameter) -> str:
    """A parameter; compilers make enumerations without negative members unsigned, and -1 a large number."""
    return f"(int){param.name}" if param.type in ENUM_TYPES else param.name


def foreign_stubs(functions: Sequence[Foreign]) -> str:
    """C definitions of functions that are only declared: without their parameters, which nobody looks at.

    There are so many of them that to optimise them takes three quarters of the build, for nothing.
    """
    lines = [
        "#if defined(__clang__)",
        "#pragma clang optimize off",
        "#elif defined(__GNUC__)",
        '#pragma GCC optimize("O0")',
        "#endif",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "long aclgrad_foreign(const char *name, void *from, long failed);",
        "#define CALLED(name, failed) aclgrad_foreign(#name, __builtin_return_address(0), failed)",
        "#define CODE(name, failed) int name(void) { return (int)CALLED(name, failed); }",
        "#define SIZE(name, failed) size_t name(void) { CALLED(name, failed); return 0; }",
        "#define ADDRESS(name, failed) void *name(void) { CALLED(name, failed); return NULL; }",
        "#define MEMBER(name, failed) int name(void) { CALLED(name, failed); return -1; }",
        "#define NOTHING(name, failed) void name(void) { CALLED(name, failed); }",
    ]
    return "\n".join([*lines, *(f"{_stub(each.returns)}({each.name}, {_failed(each)})" for each in functions), ""])


def _stub(returns: str) -> str:
    if returns in ("aclError", "aclnnStatus"):
        return "CODE"
    if returns in ("aclDataType", "aclFormat"):
        return "MEMBER"
    return "NOTHING" if returns == "void" else "SIZE" if returns in ("size_t", "uint32_t") else "ADDRESS"


def _failed(function: Foreign) -> int:
    """The code when Python cannot answer."""
    return int(AclnnStatus.ACLNN_ERR_INNER if function.returns == "aclnnStatus" else AclError.ACL_ERROR_INTERNAL_ERROR)


def failure(prototype: Prototype) -> str:
    """What a function returns when Python cannot answer, as a word of C."""
    if prototype.name == "aclGetRecentErrMsg":
        return "TEXT(explanation)"
    special = {
        "aclError": f"NUMBER({AclError.ACL_ERROR_INTERNAL_ERROR:d})",
        "aclnnStatus": f"NUMBER({AclnnStatus.ACLNN_ERR_INNER:d})",
        "const char *": "TEXT(NULL)",
        "void": "NOTHING(0)",
        "aclDataType": "NUMBER(-1)",
        "aclFormat": "NUMBER(-1)",
        "float": "REAL(NAN)",
    }
    if prototype.returns in special:
        return special[prototype.returns]
    kind = _word(prototype.returns)
    return f"{kind}({'NULL' if kind == 'POINTER' else 0})"


_MEMBERS = {
    "NUMBER": "number",
    "COUNT": "count",
    "REAL": "real",
    "FLAG": "count",
    "POINTER": "pointer",
    "TEXT": "text",
    "NOTHING": "number",
}


def _word(c_type: str) -> str:
    """The macro of `boot.c` that packs a value of this type."""
    if Parameter(c_type, "").is_pointer or c_type in (*RUNTIME_HANDLES, *CALLBACKS):
        return "POINTER"
    if c_type not in VALUE_TYPES:
        raise ValueError(f"no word for C type {c_type!r}")
    if c_type == "bool":
        return "FLAG"
    if c_type in _REAL:
        return "REAL"
    return "COUNT" if c_type in _UNSIGNED else "NUMBER"
