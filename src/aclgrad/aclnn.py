"""The aclnn door: the documents' functions under their names and in their argument order.

    workspaceSize, executor, status = aclnnXxxGetWorkspaceSize(…)      # out-parameters first, the status last
    status = aclnnXxx(workspace, workspaceSize, executor, stream)

A tensor argument is a torch.Tensor (used in place), an aclTensor handle or None; a list argument a list of those or a
handle. A refused call returns its status, hands out no executor, writes nothing and leaves a message for
`aclgrad.acl.get_recent_err_msg()`.

`aclnn.pyi` names the functions for editors.

>>> import torch
>>> from aclgrad import aclnn
>>> x, out = torch.tensor([-4.0, 0.0, 1.0]), torch.empty(3)
>>> size, executor, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(torch.full((3,), 6.0), x, out)
>>> aclnn.aclnnHardsigmoidBackward(None, size, executor, None), out
(0, tensor([0., 1., 1.]))
"""

from __future__ import annotations

from typing import Any

from .frontends.aclnn.surface import pairs as _pairs
from .frontends.aclnn.surface import surface as _surface

_names = _surface()
__all__ = [*_names]


def __getattr__(name: str) -> Any:
    if name not in _names:  # an operator that was registered since
        _names.update(_pairs(_names))
    try:
        found = globals()[name] = _names[name]  # where it is found at once from now on
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no function {name!r}") from None
    return found


def __dir__() -> list[str]:
    return sorted(_names)
