"""Modules for PyTorch: same names, arguments, parameters and state_dict as torch.nn's, this package's kernels.

aclgrad.nn.convert(model)        every module of a model that has a twin here becomes it, in place
aclgrad.nn.LSTM(…)               or write the twin in the first place
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from .core.errors import AclgradError
from .ops.hardsigmoid.module import Hardsigmoid as Hardsigmoid
from .ops.linear_cross_entropy.module import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from .ops.linear_cross_entropy.module import linear_cross_entropy as linear_cross_entropy
from .ops.lstm.module import LSTM as LSTM
from .ops.lstm_cell.module import LSTMCell as LSTMCell
from .ops.sync_batch_norm.module import SyncBatchNorm as SyncBatchNorm

_MODULES = (Hardsigmoid, LSTM, LSTMCell, LinearCrossEntropyLoss, SyncBatchNorm)
TWINS: dict[Any, Any] = {
    getattr(nn, twin.__name__): twin for twin in _MODULES if hasattr(nn, twin.__name__)
}  # LinearCrossEntropyLoss is younger than the oldest torch this package runs with
"""Each of torch's modules and its twin here."""

Model = TypeVar("Model", bound=nn.Module)


def convert(model: Model) -> Model:
    """Replace every module of the model that has a twin here; returns the model, or its twin if it is one itself.

    Parameters, buffers and hooks are kept as they are, so an optimiser that knows them need not be told. A module with
    an option that its twin refuses (an LSTM with `proj_size`) stays torch's.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.convert(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Hardsigmoid()))[1].__module__
    'aclgrad.ops.hardsigmoid.module'
    """
    for module in model.modules():
        twin = TWINS.get(type(module))
        if twin is not None and _supports(twin, module):
            module.__class__ = twin
    return model


def _supports(twin: Any, module: nn.Module) -> bool:
    """Whether the twin has all options that the module was made with."""
    if hasattr(twin, "require_supported"):
        try:
            twin.require_supported(module)
        except AclgradError:
            return False
    return True
