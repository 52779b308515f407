"""torch_npu's functions on any machine: the same names, argument order, defaults and results.

Code written for Ascend runs here with `import aclgrad.torch_npu as torch_npu`, to be debugged or tested. The names of
earlier releases are there too. As on Ascend, `npu_lstm`, `npu_lstm_data` and `npu_lstm_cell` are differentiable and the
others are not: some of them are gradients of others. For training there is `aclgrad.nn`, too. `aclgrad.npu.install()`
puts the functions into a module that `import torch_npu` finds.

A vocabulary split over processes goes through the first three in order, with the caller's communication in between:
the largest of all `logits_max`; every process's `sum_exp_logits` times exp(its own maximum − the largest), and the same
difference added to `predicted_logits` where the process owns the target; then the sums of both over the processes.

What is here comes from the families' `torch_npu.py`; `torch_npu.pyi` names it for editors.
"""

from __future__ import annotations

from typing import Any

from .frontends.collected import collected as _collected

_functions = _collected("torch_npu")
__all__ = [*_functions]


def __getattr__(name: str) -> Any:
    try:
        return _functions[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
