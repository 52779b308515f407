"""`pytest -p aclgrad.npu.pytest`: the device and the modules are there before the first test file is imported."""

from __future__ import annotations

from . import memory
from .install import install, uninstall


def pytest_load_initial_conftests() -> None:
    """Before pytest reads anything of the project."""
    install()


def pytest_report_header() -> str:
    """A line of pytest's header."""
    return f"aclgrad.npu: torch_npu, acl and the device npu, over memory of {memory.behind}"


def pytest_unconfigure() -> None:
    """After the last test."""
    uninstall()
