"""What the conformance suite runs over: registry × cases × dtypes × backends."""

import importlib
from collections.abc import Container
from types import ModuleType

import pytest
import torch

import aclgrad  # noqa: F401  registers the operators
from aclgrad.core.backends import widen
from aclgrad.core.plan import Operator
from aclgrad.core.registry import aclnn_operators, operators
from aclgrad.testing import assert_within_baseline, poisoned_memory
from aclgrad.testing.cases import DOCUMENT, EDGE, SMOKE, Case, is_documented, suite

OPERATORS = list(operators())
ACLNN = list(aclnn_operators())
"""Those that the aclnn door has."""

DOCUMENTED = [operator for operator in OPERATORS if any(DOCUMENT in case.tags for case in suite(operator.spec).cases)]
"""Those whose document has an example."""

GPU = torch.cuda.is_available()
KERNELS = ["cpu", pytest.param("triton", marks=pytest.mark.gpu)]
"""The backends with kernels of their own. `-m gpu` selects the Triton kernels, which are interpreted without a GPU."""


LARGE = ("many_rows", "several_threads")
"""Cases that several threads share. Triton's interpreter would take minutes; smaller ones go the same ways there."""


def device_of(backend: str) -> torch.device:
    """Where a backend's tensors live."""
    return torch.device("cuda" if backend == "triton" and GPU else "cpu")


def family(operator: Operator, module: str) -> ModuleType:
    return importlib.import_module(f"{operator.spec.package}.{module}")


def cases(operator: Operator, *tags: str) -> list[Case]:
    return [case for case in suite(operator.spec).cases if case.tags & set(tags)]


def matrix(*tags: str, doors: str = "python", names: Container[str] | None = None):
    """pytest parameters (operator, case, dtype) of all cases with one of the tags, and one of the names if given."""
    return [
        pytest.param(operator, case, dtype, id=f"{operator.spec.name}-{case.name}-{str(dtype)[6:]}")
        for operator in OPERATORS
        for case in cases(operator, *(tags or (SMOKE, EDGE, DOCUMENT)))
        for dtype in case.dtypes
        if names is None or case.name in names
        if doors == "python" or is_documented(operator.spec, case, dtype)
    ]


def same(results, expected, label=""):
    """Bit for bit, wherever something is expected; `label` begins the message of a difference."""
    for k, (result, want) in enumerate(zip(flat(list(results)), flat(list(expected)), strict=True)):
        if want is not None:
            torch.testing.assert_close(
                result, want, rtol=0, atol=0, equal_nan=True, msg=lambda why, k=k: f"{label} [{k}]: {why}"
            )


def flat(results):
    """Tensors of a result in order, lists opened, None kept."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [item for result in results for item in (flat(result) if isinstance(result, (list, tuple)) else [result])]


def right_twice(operator, args):
    """The Triton kernels' results keep to the rule, on poisoned memory, and are the same bits the next time."""
    formula = getattr(importlib.import_module(f"{operator.spec.package}.reference"), operator.spec.name)
    with poisoned_memory():
        results, again = (flat(operator(*args, backend="triton")) for _ in range(2))
    truth, naive = flat(formula(*map(widen, args))), flat(formula(*args))
    for index, (result, repeated, true, base) in enumerate(zip(results, again, truth, naive, strict=True)):
        if true is not None:
            assert torch.equal(result, repeated)
            assert_within_baseline(result, true, base, f"output {index}")
