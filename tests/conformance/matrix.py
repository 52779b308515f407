"""What the conformance suite runs over: registry × cases × dtypes × backends."""

import importlib
from types import ModuleType

import pytest
import torch

import aclgrad  # noqa: F401  registers the operators
from aclgrad.core.backends import widen
from aclgrad.core.plan import Operator
from aclgrad.core.registry import operators
from aclgrad.testing.cases import DOCUMENT, EDGE, SMOKE, Case
from aclgrad.testing.tolerance import naive_dtype

OPERATORS = list(operators())

GPU = torch.cuda.is_available()
KERNELS = ["cpu", pytest.param("triton", marks=pytest.mark.gpu)]
"""The backends with kernels of their own. `-m gpu` selects the Triton kernels, which are interpreted without a GPU."""


def device_of(backend: str) -> torch.device:
    """Where a backend's tensors live."""
    return torch.device("cuda" if backend == "triton" and GPU else "cpu")


def family(operator: Operator, module: str) -> ModuleType:
    return importlib.import_module(f"{operator.spec.package}.{module}")


def cases(operator: Operator, *tags: str) -> list[Case]:
    return [case for case in family(operator, "cases").CASES if case.tags & set(tags)]


def matrix(*tags: str, doors: str = "python"):
    """pytest parameters (operator, case, dtype) of all cases with one of the tags."""
    return [
        pytest.param(operator, case, dtype, id=f"{operator.spec.name}-{case.name}-{str(dtype)[6:]}")
        for operator in OPERATORS
        for case in cases(operator, *(tags or (SMOKE, EDGE, DOCUMENT)))
        for dtype in case.dtypes
        if doors == "python" or is_documented(operator, case, dtype)
    ]


def is_documented(operator: Operator, case: Case, dtype: torch.dtype) -> bool:
    """Whether the aclnn door takes it too."""
    by_name = {arg.name: arg for arg in operator.spec.args}
    main = by_name.get("input") or by_name.get("x") or by_name["cx"]
    return dtype in main.dtypes and "python_only" not in case.tags


def reference(operator: Operator, args, dtype=torch.float64, **options):
    """The family's formula on arguments widened (or narrowed) to a dtype; always a flat list of tensors."""
    formula = getattr(family(operator, "reference"), operator.spec.name)
    return flat(formula(*[widen(arg, dtype) for arg in args], **options))


def truth(operator: Operator, args):
    return reference(operator, args, torch.float64)


def naive(operator: Operator, args, dtype):
    return [None if t is None else t.to(naive_dtype(dtype)) for t in reference(operator, args, naive_dtype(dtype))]


def flat(results):
    """Tensors of a result in order, lists opened, None kept."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [item for result in results for item in (flat(result) if isinstance(result, (list, tuple)) else [result])]
