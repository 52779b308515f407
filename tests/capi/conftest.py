"""The library is built once for all tests; without a compiler or a shared Python they are skipped, and say so."""

import sys
from pathlib import Path

import pytest

from aclgrad.frontends.acl import findings
from aclgrad.frontends.capi import build

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tools")]  # the helpers, test_documents, website


@pytest.fixture(scope="session")
def installation(tmp_path_factory):
    try:
        build.cxx_compiler()
        return build.write_installation(tmp_path_factory.mktemp("installation"))
    except build.Unavailable as missing:
        pytest.skip(f"the C interface cannot be built here: {missing}")


@pytest.fixture(scope="session")
def compiler(installation, tmp_path_factory):
    from capi_helpers import Compiler

    return Compiler(installation, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def loaded(installation):
    """The library in this very process, where Python runs and torch is imported."""
    from capi_helpers import CDoor

    place = findings.place
    yield CDoor(installation.lib / build.LIBRARY)
    findings.place = place


@pytest.fixture
def c(loaded, monkeypatch):
    """The C functions, initialised, with device 0 current."""
    monkeypatch.delenv("ACLGRAD_STRICT", raising=False)
    assert loaded.aclInit(None) == 0
    assert loaded.aclrtSetDevice(0) == 0
    loaded.aclGetRecentErrMsg()
    yield loaded
    loaded.aclrtResetDeviceForce(0)
    loaded.aclFinalize()
    loaded.aclGetRecentErrMsg()
