"""`aclgrad.nn`: the families' modules, and a model's modules exchanged for them and back."""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeVar, overload

from torch import nn

from .collected import collected
from .torch_conversion import Report, exchange, stays

MODULES: dict[str, Any] = collected("module")
"""Every name that a family's `module` exports: classes, and functions that go with them."""

_CLASSES = tuple(found for found in MODULES.values() if isinstance(found, type))
TWINS: dict[Any, Any] = {
    getattr(nn, twin.__name__): twin for twin in _CLASSES if hasattr(nn, twin.__name__)
}  # LinearCrossEntropyLoss is younger than the oldest torch this package runs with
"""Each of torch's modules and its twin here."""

Model = TypeVar("Model", bound=nn.Module)
log = logging.getLogger("aclgrad.nn")


@overload
def convert(model: Model, *, report: Literal[False] = False) -> Model: ...
@overload
def convert(model: Model, *, report: Literal[True]) -> tuple[Model, Report]: ...
def convert(model: Model, *, report: bool = False) -> Model | tuple[Model, Report]:
    """Replace every module of the model that has a twin here; returns the model, or its twin if it is one itself.

    Parameters, buffers and hooks are kept as they are, so an optimiser that knows them need not be told. A module
    whose twin refuses its options (those of an LSTM may be others than its weights were made for) stays torch's, and so
    does one of a class of your own.
    With `report=True` a `Report` of all these is returned as well; otherwise it is logged.

    >>> import torch, aclgrad.nn
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Hardsigmoid())
    >>> model, report = aclgrad.nn.convert(model, report=True)
    >>> print(report)
    module  was                   is                      why it stayed
    1       torch.nn.Hardsigmoid  aclgrad.nn.Hardsigmoid
    """
    return _exchanged("convert", model, TWINS, _CLASSES, report)


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
    return _exchanged("revert", model, {twin: getattr(nn, twin.__name__, None) for twin in _CLASSES}, (), report)


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
    """Raise if the twin, ours or torch's, lacks an option that the module was made with."""
    if hasattr(twin, "require_supported"):
        twin.require_supported(module)
    own: Any = module
    if hasattr(own, "require_torch"):
        own.require_torch()
