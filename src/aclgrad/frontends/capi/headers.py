"""The header files, by their path below the include folder."""

from __future__ import annotations

import re
from enum import IntEnum

from ..acl.enums import AclError, AclnnStatus, EventFlag
from .prototypes import ENUM_TYPES, OPAQUE_TYPES, RUNTIME_HANDLES, Prototype

WIDTH = 116

_INCLUDES = {
    "acl/acl_base.h": ["<stdbool.h>", "<stddef.h>", "<stdint.h>"],
    "acl/acl_rt.h": ['"acl/acl_base.h"'],
    "acl/acl.h": ['"acl/acl_base.h"', '"acl/acl_rt.h"'],
    "aclnn/acl_meta.h": ['"acl/acl_base.h"', '"acl/acl_rt.h"'],
}
_OPERATOR_INCLUDES = ['"aclnn/aclnn_base.h"']

_FORWARDING = {
    "aclnn/aclnn_base.h": "acl_meta.h",
    "acl/acl_base_rt.h": "acl_base.h",
    "acl/error_codes/rt_error_codes.h": "../acl_base.h",
}
"""Names under which programs also look for a header."""

_BASE_ENUMS = ("aclDataType", "aclFormat")


def headers(prototypes: tuple[Prototype, ...]) -> dict[str, str]:
    """The text of every header."""
    files = {
        header: _header(header, [p for p in prototypes if p.header == header])
        for header in dict.fromkeys(prototype.header for prototype in prototypes)
    }
    forwarding = dict(_FORWARDING)
    for header in files:
        if header.startswith("aclnnop/"):
            forwarding[header.replace("aclnnop/", "aclnnop/level2/")] = header.replace("aclnnop/", "../")
    return files | {header: _guarded(header, f'#include "{target}"') for header, target in forwarding.items()}


def _header(header: str, declared: list[Prototype]) -> str:
    body = [
        "\n".join([f"#include {name}" for name in _INCLUDES.get(header, _OPERATOR_INCLUDES)]),
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        *_types(header),
        *[_declaration(prototype) for prototype in declared],
        "#ifdef __cplusplus\n}\n#endif",
    ]
    return _guarded(header, "\n\n".join(body))


def _types(header: str) -> list[str]:
    """The types and constants that a header defines before its functions."""
    if header == "acl/acl_base.h":
        return [
            "typedef int aclError;\ntypedef uint16_t aclFloat16;",
            *[_enum(name) for name in _BASE_ENUMS],
            _constants("int", AclError),
        ]
    if header == "acl/acl_rt.h":
        return [
            "\n".join([f"typedef void *{name};" for name in RUNTIME_HANDLES]),
            *[_enum(name) for name in ENUM_TYPES if name not in _BASE_ENUMS],
            "\n".join([f"#define {name} {member.value:#010x}U" for name, member in EventFlag.__members__.items()]),
        ]
    if header == "aclnn/acl_meta.h":
        opaque = "\n".join([f"typedef struct {name} {name};" for name in OPAQUE_TYPES])
        return [f"typedef int32_t aclnnStatus;\n{opaque}", _constants("aclnnStatus", AclnnStatus)]
    return []


def _guarded(header: str, body: str) -> str:
    macro = f"ACLGRAD_{re.sub(r'[^A-Z0-9]', '_', header.upper())}"
    return f"#ifndef {macro}\n#define {macro}\n\n{body}\n\n#endif\n"


def _enum(name: str) -> str:
    members = ",\n".join([f"    {item} = {member.value}" for item, member in ENUM_TYPES[name].__members__.items()])
    return f"typedef enum {{\n{members}\n}} {name};"


def _constants(c_type: str, enum: type[IntEnum]) -> str:
    return "\n".join([f"static const {c_type} {name} = {m.value};" for name, m in enum.__members__.items()])


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
