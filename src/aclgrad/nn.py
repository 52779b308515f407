"""Modules for PyTorch: same names, arguments, parameters and state_dict as torch.nn's, this package's kernels.

aclgrad.nn.convert(model)        every module of a model that has a twin here becomes it, in place
aclgrad.nn.revert(model)         and back, for what knows torch's own classes alone
aclgrad.nn.LSTM(…)               or write the twin in the first place
"""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeVar, overload

from torch import nn

from .conversion import Report as Report
from .conversion import exchange, stays
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
log = logging.getLogger(__name__)


@overload
def convert(model: Model, *, report: Literal[False] = False) -> Model: ...
@overload
def convert(model: Model, *, report: Literal[True]) -> tuple[Model, Report]: ...
def convert(model: Model, *, report: bool = False) -> Model | tuple[Model, Report]:
    """Replace every module of the model that has a twin here; returns the model, or its twin if it is one itself.

    Parameters, buffers and hooks are kept as they are, so an optimiser that knows them need not be told. A module with
    an option that its twin refuses (an LSTM with `proj_size`) stays torch's, and so does one of a class of your own.
    With `report=True` a `Report` of all these is returned as well; otherwise it is logged.

    >>> import torch, aclgrad.nn
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Hardsigmoid())
    >>> model, report = aclgrad.nn.convert(model, report=True)
    >>> print(report)
    module  was                   is                      why it stayed
    1       torch.nn.Hardsigmoid  aclgrad.nn.Hardsigmoid
    """
    return _exchanged("convert", model, TWINS, _MODULES, report)


@overload
def revert(model: Model, *, report: Literal[False] = False) -> Model: ...
@overload
def revert(model: Model, *, report: Literal[True]) -> tuple[Model, Report]: ...
def revert(model: Model, *, report: bool = False) -> Model | tuple[Model, Report]:
    """Make every module of this package torch's own again: for ONNX, TorchScript, quantisation and the like.

    The opposite of `convert`, also for modules that were made here. Parameters, buffers, hooks and options stay.

    >>> import torch, aclgrad.nn
    >>> scripted = torch.jit.script(aclgrad.nn.revert(aclgrad.nn.LSTM(2, 3)))
    >>> type(aclgrad.nn.revert(aclgrad.nn.LSTM(2, 3)))
    <class 'torch.nn.modules.rnn.LSTM'>
    """
    return _exchanged("revert", model, {twin: getattr(nn, twin.__name__, None) for twin in _MODULES}, (), report)


def _exchanged(
    action: str, model: Model, twins: dict[Any, Any], others: tuple[Any, ...], report: bool
) -> Model | tuple[Model, Report]:
    done = exchange(model, twins, _require_supported, others)
    if report:
        return model, done
    log.info("%s: %s", action, done.in_one_line())
    for entry in done.stayed:
        if entry.has_twin:
            log.warning("%s: %s", action, stays(entry))
    return model


def _require_supported(twin: Any, module: nn.Module) -> None:
    """Raise if the twin lacks an option that the module was made with."""
    if hasattr(twin, "require_supported"):
        twin.require_supported(module)
