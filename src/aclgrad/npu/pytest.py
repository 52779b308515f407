"""`pytest -p aclgrad.npu.pytest`: tests of code for Ascend."""

from ..frontends.npu.plugin import pytest_load_initial_conftests, pytest_report_header, pytest_unconfigure

__all__ = ["pytest_load_initial_conftests", "pytest_report_header", "pytest_unconfigure"]
