"""Signatures and headers against the Python functions, the enumerations and the documents."""

import ctypes
import inspect
import random
import re

import pytest
from capi_helpers import run

import aclgrad.acl
import aclgrad.aclnn  # noqa: F401  all functions are known
from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.acl.boundary import FUNCTIONS
from aclgrad.frontends.acl.enums import CONSTANTS, ENUMERATIONS
from aclgrad.frontends.capi import foreign
from aclgrad.frontends.capi import prototypes as module
from aclgrad.frontends.capi.build import c_compiler, cxx_compiler
from aclgrad.frontends.capi.guards import failure
from aclgrad.frontends.capi.headers import headers
from aclgrad.frontends.capi.prototypes import COUNTS, Role, fingerprint, pair, prototypes
from aclgrad.frontends.capi.special import SPECIAL
from test_documents import document

TABLE = prototypes()
BY_NAME = {prototype.name: (prototype,) for prototype in TABLE}
TEXTS = headers(TABLE)
OPERATORS = list(aclnn_operators())


def test_every_function_has_one_prototype_and_every_prototype_a_function():
    names = [prototype.name for prototype in TABLE]
    assert len(names) == len(set(names))
    assert set(names) == {name for name in FUNCTIONS if "." not in name}


def test_the_table_is_parsed_whole():
    text = module.DECLARATIONS.read_text()
    assert text.count(");") == text.count("/*") == len(TABLE) - 2 * len(OPERATORS)


def test_python_takes_what_c_gives(each_case):
    """As many arguments as the signature has inputs, as many results as it has outputs."""
    each_case(check_arguments, BY_NAME)


def check_arguments(prototype):
    given = [p for p in prototype.params if p.role in (Role.VALUE, Role.TEXT, Role.ARRAY)]
    expected = inspect.signature(SPECIAL.get(prototype.name, FUNCTIONS[prototype.name])).parameters
    assert len(given) == len(expected)
    for param in prototype.params:
        if param.role is Role.ARRAY:
            assert COUNTS[param.name] in [other.name for other in prototype.params]
            assert ctypes.sizeof(param.element) in (1, 4, 8)


def test_roles_follow_from_types():
    roles = {f"{prototype.name}.{param.name}": param.role for prototype in TABLE for param in prototype.params}
    assert roles["aclrtMalloc.devPtr"] is Role.OUT
    assert roles["aclrtFree.devPtr"] is Role.VALUE
    assert roles["aclrtMemcpy.src"] is Role.VALUE
    assert roles["aclInit.configPath"] is Role.TEXT
    assert roles["aclCreateTensorList.value"] is Role.ARRAY
    assert roles["aclCreateTensor.stride"] is Role.ARRAY
    assert roles["aclDestroyTensor.tensor"] is Role.VALUE
    assert roles["aclGetViewShape.viewDims"] is Role.OUT_ARRAY
    assert roles["aclrtCreateStream.stream"] is Role.OUT
    assert roles["aclrtSynchronizeStream.stream"] is Role.VALUE
    assert roles["aclnnHardsigmoidBackwardGetWorkspaceSize.executor"] is Role.OUT
    assert roles["aclnnHardsigmoidBackward.executor"] is Role.VALUE


def test_no_failure_looks_like_success(each_case):
    each_case(check_failure, BY_NAME)


def check_failure(prototype):
    if prototype.returns in ("aclError", "aclnnStatus"):
        assert failure(prototype) in ("NUMBER(500000)", "NUMBER(561000)")
    elif prototype.returns.endswith("*") and prototype.name != "aclGetRecentErrMsg":
        assert "NULL" in failure(prototype)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.name)
def test_operators_have_the_documents_prototypes(operator):
    text = document(operator)
    for prototype in pair(operator.spec):
        found = re.search(rf"aclnnStatus\s+{prototype.name}\s*\(([^)]*)\)", text).group(1)
        documented = [re.sub(r"\s+", "", part.replace("const aclrtStream", "aclrtStream")) for part in found.split(",")]
        ours = [re.sub(r"\s+", "", str(param)) for param in prototype.params]
        assert ours == documented


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.name)
def test_headers_have_the_names_that_the_documents_include(operator):
    included = re.findall(r'#include "([^"]+)"', document(operator))
    assert included and set(included) <= set(TEXTS)


def test_headers_declare_every_function_once():
    text = re.sub(r"\s+", " ", " ".join(TEXTS.values()))
    for prototype in TABLE:
        assert text.count(f" {prototype};") == 1, prototype.name


def test_a_changed_signature_changes_the_fingerprint(monkeypatch, tmp_path):
    before = fingerprint()
    changed = tmp_path / "declarations.txt"
    changed.write_text(module.DECLARATIONS.read_text().replace("uint64_t *refCount", "uint32_t *refCount"))
    monkeypatch.setattr(module, "DECLARATIONS", changed)
    module._table.cache_clear()
    assert fingerprint() != before
    monkeypatch.undo()
    module._table.cache_clear()
    assert fingerprint() == before


C_STANDARDS = ["c11", "c17"]
CXX_STANDARDS = ["c++11", "c++14", "c++17", "c++20"]


@pytest.mark.parametrize("standard", C_STANDARDS + CXX_STANDARDS)
def test_headers_compile_without_warnings(installation, tmp_path, standard):
    """Each one first in its file and all together; every constant has its number."""
    is_cxx = standard in CXX_STANDARDS
    source = tmp_path / f"all.{'cpp' if is_cxx else 'c'}"
    text = "".join([f'#include "{name}"\n' for name in reversed(TEXTS) if is_cxx or "/opdev/" not in name])
    assertion = 'static_assert({name} == {value}, "");' if is_cxx else "int check_{name}[{name} == {value} ? 1 : -1];"
    for enum in ENUMERATIONS:
        if is_cxx or enum.__name__ not in ("AclError", "AclnnStatus"):  # C has no constant variables
            for name, member in enum.__members__.items():
                text += assertion.format(name=name, value=member.value) + "\n"
    source.write_text(text)
    options = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    done = run([*(cxx_compiler() if is_cxx else c_compiler()), *options, *installation.compile_flags, source])
    assert done.returncode == 0, done.stderr[:2000]


def test_each_header_stands_alone(installation, tmp_path):
    sources = []
    ours = {"acl", "aclnn"} | {prototype.header.rpartition("/")[2] for prototype in TABLE}
    chosen = [name for name in TEXTS if ours & set(name.split("/")) and "/opdev/" not in name]
    declared = [name for name in TEXTS if name not in chosen and "/opdev/" not in name]
    assert len(declared) > 900
    for number, name in enumerate([*chosen, *random.Random(0).sample(declared, 5), "aclnnop/aclnn_all.h"]):
        sources.append(tmp_path / f"alone{number}.c")
        sources[-1].write_text(f'#include "{name}"\nint used{number};\n')
    flags = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", *installation.compile_flags]
    done = run([*c_compiler(), *flags, *sources])
    assert done.returncode == 0, done.stderr[:2000]


def test_samples_find_types_and_constants_of_what_is_only_declared(installation, tmp_path):
    """Sizes, flags, attributes and structures of the public headers, as C and as C++ take them."""
    source = tmp_path / "declared.c"
    source.write_text(DECLARED)
    for family in (c_compiler(), cxx_compiler()):
        language = ["-x", "c++", "-std=c++11"] if family == cxx_compiler() else ["-std=c11"]
        flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", *installation.compile_flags]
        done = run([*family, *language, *flags, source])
        assert done.returncode == 0, done.stderr[:2000]


DECLARED = """
#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"

aclError declared(aclrtStream stream, aclrtEvent event, void *memory, int code)
{
    char version[ACL_PKG_VERSION_MAX_SIZE], name[] = "runtime";
    uint32_t matched = ACL_RT_MEM_TYPE_DEV, flag = ACL_EVENT_RECORD_EXTERNAL;
    int64_t value = ACL_DEVICE_FORM_FACTOR_POD;
    aclrtStreamConfigHandle *config = aclrtCreateStreamConfigHandle();
    aclrtMemManagedLocation location;
    aclrtErrorInfo info;
    aclrtRandomNumTaskInfo task;
    aclmdlRITaskParams params;
    aclrtMemPoolProps pool;
    switch (code) {
        case ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
        case ACL_ERROR_RT_SYMBOL_NOT_FOUND:
            return ACL_RT_SUCCESS;
        default:
            break;
    }
    location.type = ACL_MEM_LOCATIONTYPE_HOST_NUMA;
    info.detail.uceInfo.arraySize = ACL_RT_MEM_UCE_INFO_MAX_NUM;
    task.randomNumFuncParaInfo.paramInfo.uniformDisInfo.min.isAddr = 0;
    params.kernelTaskParams.numBlocks = ACL_MAJOR_VERSION;
    pool.maxSize = 0;
    aclsysGetVersionStr(name, version);
    aclrtCheckMemType(&memory, 1, ACL_RT_MEM_TYPE_DEV, &matched, 0);
    aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, &flag, sizeof flag);
    aclrtRecordEventWithFlag(event, stream, flag);
    (void)info, (void)task, (void)params, (void)pool;
    aclrtMemManagedAdvise(memory, 1, ACL_MEM_ADVISE_SET_READ_MOSTLY, location);
    return aclrtGetDeviceInfo(0, ACL_DEV_ATTR_DEVICE_FORM_FACTOR, &value);
}
"""


def test_headers_have_every_constant():
    text = " ".join(TEXTS.values())
    for name in CONSTANTS:
        assert re.search(rf"\b{name}\b", text), name
    assert len(CONSTANTS) > 150


def test_the_library_has_exactly_these_functions(installation):
    done = run(["nm", "-D", "--defined-only", installation.lib / "libaclgrad_capi.so"])
    if done.returncode:
        pytest.skip("nm is not here")
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    declared = {function.name for function in foreign.every_function()}
    assert len(declared) > 2400
    assert exported == {prototype.name for prototype in TABLE} | declared | {"aclAppLog"}
