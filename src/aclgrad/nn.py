"""Modules for PyTorch: same names, arguments, parameters and state_dict as torch.nn's, this package's kernels.

aclgrad.nn.convert(model)        every module of a model that has a twin here becomes it, in place
aclgrad.nn.revert(model)         and back, for what knows torch's own classes alone
aclgrad.nn.decompositions()      for an exported program that is to run without this package
aclgrad.nn.LSTM(…)               or write the twin in the first place

What is here comes from the families' `module.py`; `nn.pyi` names it for editors.
"""

from __future__ import annotations

from typing import Any

from .frontends.torch_conversion import Report
from .frontends.torch_decompositions import decompositions
from .frontends.torch_modules import MODULES, TWINS, convert, revert

__all__ = ["TWINS", "Report", "convert", "decompositions", "revert"]
__all__ += MODULES


def __getattr__(name: str) -> Any:
    try:
        return MODULES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
