"""The aclnn door: the documents' functions under their names and in their argument order.

    workspaceSize, executor, status = aclnnXxxGetWorkspaceSize(…)      # out-parameters first, the status last
    status = aclnnXxx(workspace, workspaceSize, executor, stream)

A tensor argument is a torch.Tensor (used in place), an aclTensor handle or None; a list argument a list of those or a
handle. A refused call returns its status, hands out no executor, writes nothing and leaves a message for
`aclgrad.acl.get_recent_err_msg()`.

>>> import torch
>>> from aclgrad import aclnn
>>> x, out = torch.tensor([-4.0, 0.0, 1.0]), torch.empty(3)
>>> size, executor, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(torch.full((3,), 6.0), x, out)
>>> aclnn.aclnnHardsigmoidBackward(None, size, executor, None), out
(0, tensor([0., 1., 1.]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ops as _ops  # noqa: F401  registers the operators
from .core.registry import operators as _operators
from .frontends.acl import enums as _enums
from .frontends.acl import meta as _meta
from .frontends.aclnn import rebinding as _rebinding
from .frontends.aclnn.pairs import make_pair as _make_pair


def _surface() -> dict[str, Any]:
    """Every public name of this module that is not written above."""
    names: dict[str, Any] = {}
    for operator in _operators():
        for function in _make_pair(operator):
            names[function.__name__] = function
    for module in (_meta, _rebinding):
        names |= {name: value for name, value in vars(module).items() if name.startswith("acl") and callable(value)}
    for enumeration in (_enums.AclDataType, _enums.AclFormat, _enums.AclnnStatus):
        names |= {item.name: item for item in enumeration}
    del names["aclnn_call"]
    return names


_names = _surface()
globals().update(_names)
__all__ = [*_names]


def __getattr__(name: str) -> Callable[..., Any]:
    raise AttributeError(f"module {__name__!r} has no function {name!r}")
