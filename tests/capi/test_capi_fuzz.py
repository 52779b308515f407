"""Random calls over the whole C interface, under AddressSanitizer: codes and messages, never a crash."""

import re

import pytest
from capi_helpers import PROGRAMS, environment, run

from aclgrad.frontends.acl.enums import AclError, AclnnStatus
from aclgrad.frontends.capi.build import cxx_compiler
from aclgrad.frontends.capi.prototypes import (
    CALLBACKS,
    ENUM_TYPES,
    NULLABLE_OUTS,
    OPAQUE_TYPES,
    RUNTIME_HANDLES,
    Role,
    prototypes,
)

BY_HAND = (
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMemcpy2d",
    "aclrtMemcpy2dAsync",
    "aclrtSubscribeReport",
    "aclrtLaunchCallback",
    "aclrtProcessReport",
    "aclrtUnSubscribeReport",
)
"""Functions whose arguments depend on each other, and those of which a wrong order waits for ever."""
OBJECTS = (*OPAQUE_TYPES, "aclDataBuffer", "aclTensorDesc")
OF_OTHERS = ("aclrtPeekAtLastError", "aclrtGetLastError")
"""Functions that return the codes of other calls."""
DRASTIC = (
    "aclFinalize",
    "aclFinalizeReference",
    "aclrtResetDevice",
    "aclrtResetDeviceForce",
    "aclrtDestroyContext",
)
"""Functions after which little else succeeds."""
ADDRESS_POOLS = {"devPtr": "device", "hostPtr": "host"}
COUNTS = ("viewDimsNum", "storageDimsNum", "numDims")
NUMBERS = {"bool": "flag()", "float": "real()", "double": "real()", "size_t": "size()", "uint64_t": "size()"}
SANITIZER = "detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0"
SUMMARY = r"(\d+) calls of (\d+) functions, (\d+) refused, (\d+) scenes completed, 0 faults\n"


def picked(param):
    """A C++ expression for an argument."""
    target = param.target.removesuffix("*").strip() if param.target.endswith("*") else param.target
    if param.role is Role.TEXT:
        return "z.text()"
    if param.role is Role.ARRAY:
        kind = param.type.removesuffix("*").rstrip().removesuffix("const").rstrip()
        element = kind if kind.endswith("*") else kind.removeprefix("const ")
        return f'z.array<{element}>("{element.removeprefix("const ").removesuffix(" *")}")'
    if param.role in (Role.OUT, Role.OUT_ARRAY):
        return f"z.out<{param.target}>({pool(param, target)}, {str(param.name in NULLABLE_OUTS).lower()})"
    kind = param.target or param.type
    if kind in CALLBACKS:
        return "z.callback()"
    if kind in (*OBJECTS, *RUNTIME_HANDLES):
        return f'z.handle("{kind}")'
    if param.is_pointer:
        return "z.readable()" if param.name == "value" else "z.address()"
    if param.type in ENUM_TYPES:
        return f"z.enumerator({{{', '.join(str(member.value) for member in ENUM_TYPES[param.type])}}})"
    return f"z.{'count()' if param.name in COUNTS else NUMBERS.get(param.type, 'number()')}"


def pool(param, target):
    """Where a result behind an out-parameter goes."""
    if param.role is Role.OUT_ARRAY:
        return '"array"'
    if param.name in ADDRESS_POOLS:
        return f'"{ADDRESS_POOLS[param.name]}"'
    return f'"{target}"' if target in (*OBJECTS, *RUNTIME_HANDLES) else "nullptr"


def judged(prototype, call):
    """A C++ statement that makes the call and looks at what it returns."""
    name, kind = prototype.name, prototype.returns.removesuffix("*").rstrip()
    if prototype.returns == "void":
        return f"({call}, z.fact(0.0))"
    if prototype.returns in ("aclError", "aclnnStatus") and name not in OF_OTHERS:
        return f'z.{"acl_code" if prototype.returns == "aclError" else "aclnn_status"}("{name}", {call})'
    return f'z.made("{name}", {call}, "{kind}")' if kind in OBJECTS else f"z.fact({call})"


def caller(prototype):
    """A C++ function that calls a C function with arguments of its own choice."""
    lines = [f"void call_{prototype.name}(Fuzzer &z)", "{", f'    z.begin("{prototype.name}");']
    for k, param in enumerate(prototype.params):
        lines.append(f"    auto a{k} = ({param.type}){picked(param)};")
    call = f"{prototype.name}({', '.join(f'a{k}' for k in range(len(prototype.params)))})"
    return "\n".join([*lines, f"    {judged(prototype, call)};", "}"])


def generated():
    """The text of fuzz_headers.h and of fuzz_calls.h."""
    table = prototypes()
    headers = "\n".join(f'#include "{header}"' for header in dict.fromkeys(p.header for p in table))
    chosen = [prototype for prototype in table if prototype.name not in BY_HAND]
    rows = [f"    {{call_{p.name}, {str(p.name in DRASTIC).lower()}}}," for p in chosen]
    calls = [
        f"const int ACL_CODES[] = {{{', '.join(str(code.value) for code in AclError)}}};",
        f"const int ACLNN_STATUSES[] = {{{', '.join(str(code.value) for code in AclnnStatus)}}};",
        *map(caller, chosen),
        "struct Caller {\n    void (*call)(Fuzzer &);\n    bool drastic;\n};",
        "const Caller CALLERS[] = {\n" + "\n".join(rows) + "\n};",
    ]
    return headers, "\n\n".join(calls)


@pytest.fixture(scope="module")
def fuzz(installation, tmp_path_factory):
    """The fuzzer, compiled with AddressSanitizer."""
    folder = tmp_path_factory.mktemp("fuzz")
    headers, calls = generated()
    (folder / "fuzz_headers.h").write_text(headers)
    (folder / "fuzz_calls.h").write_text(calls)
    program = folder / "fuzz"
    options = ["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-pthread", "-fsanitize=address"]
    places = [f"-I{folder}", *installation.compile_flags, *installation.link_flags]
    compiled = run([*cxx_compiler(), *options, PROGRAMS / "fuzz.cpp", "-o", program, *places])
    if compiled.returncode and "asan" in compiled.stderr:
        pytest.skip("the compiler has no AddressSanitizer")
    assert compiled.returncode == 0, compiled.stderr[-4000:]
    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "threads", "strict"),
    [(3000, 1, None), (3000, 1, "1"), (600, 8, None)],
    ids=["alone", "strict", "threads"],
)
def test_random_calls_get_codes(fuzz, steps, threads, strict):
    done = run([fuzz, 1, steps, threads], env=environment(ASAN_OPTIONS=SANITIZER, ACLGRAD_STRICT=strict))
    found = re.fullmatch(SUMMARY, done.stdout)
    assert done.returncode == 0 and found, done.stdout[-3000:] + done.stderr[-3000:]
    assert "unexpectedly" not in done.stderr and "work on a stream failed" not in done.stderr, done.stderr[-3000:]
    calls, functions, refused, completed = map(int, found.groups())
    assert functions == len(prototypes())
    assert calls / 4 < refused < calls
    assert completed > 40
