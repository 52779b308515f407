"""The header files, by their path below the include folder.

What is served has headers of our own. What is only declared stands in files beside them, which compilers take for the
system's: a declaration that takes any arguments would be worth a warning elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path

from ..acl.enums import AclError, AclnnStatus, EventFlag, FailureMode, StreamFlag
from ..acl.rt.query import VERSION
from . import foreign
from .foreign import Foreign
from .prototypes import CALLBACKS, ENUM_TYPES, OPAQUE_TYPES, RUNTIME_HANDLES, Prototype

WIDTH = 116
KERNEL_HEADER = Path(__file__).parents[1] / "custom" / "kernel.h"
"""For functions of custom operators in shared libraries."""

_INCLUDES = {
    "acl/acl_base.h": ["<stdbool.h>", "<stddef.h>", "<stdint.h>"],
    "acl/acl_rt.h": ['"acl_base.h"'],
    "acl/acl.h": ['"acl_base.h"', '"acl_rt.h"', '"acl_op.h"', '"acl_mdl.h"'],
    "acl/acl_rt_allocator.h": ['"acl_rt.h"'],
    "acl/acl_mdl.h": ['"acl_base.h"', '"acl_rt.h"'],
    "acl/acl_op.h": ['"acl_base.h"', '"acl_rt.h"'],
    "acl/acl_op_compiler.h": ['"acl_op.h"'],
    "acl/acl_dump.h": ['"acl_base.h"'],
    "aclnn/acl_meta.h": ['"../acl/acl_base.h"', '"../acl/acl_rt.h"'],
}
_OPERATOR_INCLUDES = ['"../aclnn/acl_meta.h"']

_FORWARDING = {
    "aclnn/aclnn_base.h": "acl_meta.h",
    "acl/acl_base_rt.h": "acl_base.h",
    "acl/acl_base_mdl.h": "acl_base.h",
    "acl/error_codes/rt_error_codes.h": "../acl_base.h",
    "acl/acl_op_api.h": "../aclnn/acl_meta.h",
    "acl/acl_rt_memory_soma.h": "acl_rt.h",
}
"""Names under which programs also look for a header."""

_BASE_ENUMS = ("aclDataType", "aclFormat", "aclMemType", "aclSysParamOpt", "aclLogLevel")

_BASE_MACROS = """\
#define ACL_FUNC_VISIBILITY
#define ACL_DEPRECATED
#define ACL_DEPRECATED_MESSAGE(message)
/* As C++ and C of 2023 write it; before, C knew of functions without a prototype. */
#if defined(__clang__)
#define ACLGRAD_KNOWS_C23 (__clang_major__ > 14)
#else
#define ACLGRAD_KNOWS_C23 (__GNUC__ > 12)
#endif
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L && ACLGRAD_KNOWS_C23)
#define ACLGRAD_ANY_ARGUMENTS ...
#else
#define ACLGRAD_ANY_ARGUMENTS
#endif"""

_APP_LOG = """\
/* Write a line into the log aclgrad.app. */
void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...);
#if (defined(__cplusplus) && __cplusplus >= 201103L) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define ACL_APP_LOG(level, ...) aclAppLog(level, __func__, __FILE__, __LINE__, __VA_ARGS__)
#endif"""

_RUNTIME_TYPES = """\
typedef void (*aclrtCallback)(void *userData);
typedef void (*aclrtHostFunc)(void *args);
typedef struct { uint32_t id; aclrtMemLocationType type; } aclrtMemLocation;
typedef struct { aclrtMemLocation location; uint32_t pageSize, rsv[4]; } aclrtPtrAttributes;
typedef enum { ACL_RT_MEM_ATTR_RSV, ACL_RT_MEM_ATTR_MODULE_ID, ACL_RT_MEM_ATTR_DEVICE_ID, ACL_RT_MEM_ATTR_VA_FLAG
} aclrtMallocAttrType;
typedef union { uint16_t moduleId; uint32_t deviceId, vaFlag; uint8_t rsv[8]; } aclrtMallocAttrValue;
typedef struct { aclrtMallocAttrType attr; aclrtMallocAttrValue value; } aclrtMallocAttribute;
typedef struct { aclrtMallocAttribute *attrs; size_t numAttrs; } aclrtMallocConfig;"""

_C_LINKAGE = '#ifdef __cplusplus\nextern "C" {\n#endif'
_END_OF_LINKAGE = "#ifdef __cplusplus\n}\n#endif"


def headers(prototypes: tuple[Prototype, ...]) -> dict[str, str]:
    """The text of every header."""
    declared = _by_header(foreign.functions())
    served = dict.fromkeys((*_INCLUDES, *(prototype.header for prototype in prototypes)))
    files = {header: _header(header, [p for p in prototypes if p.header == header], declared) for header in served}
    files |= {_beside(header): _declared(header, mine) for header, mine in declared.items()}
    files |= dict(_operator_headers({p.name: p.header for p in prototypes if p.header.startswith("aclnnop/")}))
    files |= {header: _guarded(header, f'#include "{target}"') for header, target in _FORWARDING.items()}
    opdev = {f"aclnn/opdev/{name}": (foreign.FOLDER / name).read_text("utf-8") for name in ("fp16_t.h", "bfloat16.h")}
    return files | opdev | {"aclgrad/kernel.h": KERNEL_HEADER.read_text("utf-8")}


def _by_header(functions: Iterable[Foreign]) -> dict[str, list[Foreign]]:
    found: dict[str, list[Foreign]] = {}
    for function in functions:
        found.setdefault(function.header, []).append(function)
    return found


def _beside(header: str) -> str:
    """Where what is only declared stands, of a header of ours."""
    return f"acl/declared/{header.rpartition('/')[2]}"


def _header(header: str, served: list[Prototype], declared: dict[str, list[Foreign]]) -> str:
    body = [
        "\n".join([f"#include {name}" for name in _INCLUDES.get(header, _OPERATOR_INCLUDES)]),
        _C_LINKAGE,
        *_types(header),
        *[_declaration(prototype) for prototype in served],
        *([_APP_LOG] if header == "acl/acl_base.h" else []),
        _END_OF_LINKAGE,
    ]
    if header in declared:
        folder = "" if header.startswith("acl/") else "../acl/"
        body.append(f'#include "{folder}{_beside(header).removeprefix("acl/")}"')
    return _guarded(header, "\n\n".join(body))


def _declared(header: str, functions: list[Foreign]) -> str:
    """The file beside a header of ours: types, and functions that are only declared."""
    types = [(foreign.FOLDER / name).read_text(encoding="utf-8").strip() for name in foreign.TYPES.get(header, ())]
    lines = "\n".join(f"{function};" for function in functions)
    ours = f'#include "{"../" if header.startswith("acl/") else "../../aclnn/"}{header.rpartition("/")[2]}"'
    return _guarded(_beside(header), "\n\n".join([_SYSTEM, ours, _C_LINKAGE, *types, lines, _END_OF_LINKAGE]))


_SYSTEM = "/* Declared, so that programs build; a call says at run time what is missing. */\n#pragma GCC system_header"


def _operator_headers(served: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Headers of operators: of those that are only declared, other names of ours, and one for each library."""
    operators = foreign.operators()
    by_header: dict[str, list[Foreign]] = {}
    for operator in operators:
        by_header.setdefault(operator.headers[0], []).extend(operator.functions)
    taken = set(served.values()) | set(by_header)
    for header, functions in by_header.items():
        lines = "\n".join(f"{function};" for function in functions)
        yield header, _guarded(header, f'{_SYSTEM}\n#include "../aclnn/acl_meta.h"\n\n{_linked(lines)}')
    others = [(other, operator.headers[0]) for operator in operators for other in operator.headers[1:]]
    others += [(other, header) for name, header in served.items() for other in foreign.headers_of(name)]
    for other, header in others:
        if other not in taken and not other.endswith("_get_workspace_size.h"):
            taken.add(other)
            yield other, _guarded(other, f'#include "{header.rpartition("/")[2]}"')
    libraries: dict[str, set[str]] = {}
    for operator in operators:
        libraries.setdefault(operator.library, set()).add(operator.headers[0])
    libraries.setdefault("nn", set()).update(served.values())
    for library, mine in libraries.items():
        yield _collection(f"aclnnop/aclnn_ops_{library}.h", sorted(mine))
    yield _collection("aclnnop/aclnn_all.h", [f"aclnnop/aclnn_ops_{library}.h" for library in libraries])


def _linked(lines: str) -> str:
    return f"{_C_LINKAGE}\n\n{lines}\n\n{_END_OF_LINKAGE}"


def _collection(header: str, parts: list[str]) -> tuple[str, str]:
    return header, _guarded(header, "\n".join(f'#include "{part.rpartition("/")[2]}"' for part in parts))


def _types(header: str) -> list[str]:
    """The types and constants that a header defines before its functions."""
    if header == "acl/acl_base.h":
        return [
            _BASE_MACROS,
            "typedef int aclError;\ntypedef uint16_t aclFloat16;",
            "typedef struct aclDataBuffer aclDataBuffer;\ntypedef struct aclTensorDesc aclTensorDesc;",
            *[_enum(name) for name in _BASE_ENUMS],
            *_codes(),
        ]
    if header == "acl/acl_rt.h":
        flags = [*EventFlag.__members__.items(), *StreamFlag.__members__.items(), *FailureMode.__members__.items()]
        version = zip(("MAJOR", "MINOR", "PATCH"), VERSION, strict=True)
        return [
            "\n".join([f"#define ACL_{part}_VERSION {number}" for part, number in version]),
            "\n".join([f"typedef void *{name};" for name in RUNTIME_HANDLES]),
            *[_enum(name) for name in ENUM_TYPES if name not in _BASE_ENUMS],
            _RUNTIME_TYPES,
            "\n".join([f"#define {name} {member.value:#010x}U" for name, member in flags]),
        ]
    if header == "aclnn/acl_meta.h":
        opaque = "\n".join([f"typedef struct {name} {name};" for name in OPAQUE_TYPES])
        return [f"typedef int32_t aclnnStatus;\n{opaque}", _constants("aclnnStatus", AclnnStatus.__members__)]
    return []


def _guarded(header: str, body: str) -> str:
    macro = f"ACLGRAD_{re.sub(r'[^A-Z0-9]', '_', header.upper())}"
    return f"#ifndef {macro}\n#define {macro}\n\n{body}\n\n#endif\n"


def _enum(name: str) -> str:
    members = ",\n".join([f"    {item} = {member.value}" for item, member in ENUM_TYPES[name].__members__.items()])
    return f"typedef enum {{\n{members}\n}} {name};"


def _constants(c_type: str, members: Mapping[str, IntEnum]) -> str:
    return "\n".join([f"static const {c_type} {name} = {m.value};" for name, m in members.items()])


def _codes() -> list[str]:
    """aclError's codes: those of the runtime are macros, which C takes for a case of a switch, the others variables."""
    members = AclError.__members__.items()
    of_runtime = [f"#define {name} {m.value}" for name, m in members if name.startswith(_OF_RUNTIME)]
    others = {name: m for name, m in members if not name.startswith(_OF_RUNTIME)}
    return [_constants("int", others), "\n".join(of_runtime)]


_OF_RUNTIME = "ACL_ERROR_RT_"


def _declaration(prototype: Prototype) -> str:
    start = f"{prototype}".partition("(")[0] + "("
    lines, line = [], start
    for position, param in enumerate(prototype.params):
        text = f"{param}" + (", " if position < len(prototype.params) - 1 else "")
        if len(line) + len(text) > WIDTH:
            lines.append(line.rstrip())
            line = " " * len(start)
        line += text
    lines.append(f"{line}{'' if prototype.params else 'void'});")
    return "\n".join([f"/* {prototype.comment} */", *lines])


assert all(f"(*{name})" in _RUNTIME_TYPES for name in CALLBACKS)
