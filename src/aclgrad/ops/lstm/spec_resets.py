"""Contracts of the LSTM whose states are reset inside a sequence, and of its gradient: no document knows them.

They are those of `lstm` and `lstm_backward` with one more tensor. Where `reset[t, n]` is set, row n starts time t from
zeros: neither state passes between t and the time before, in either direction. At time 0 it is the initial state of the
forward direction that is dropped. Past a sequence's end `reset` means nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from ...core.plan import Operator
from ...core.registry import register
from ...core.rules import required, shape, supported_dtypes
from ...core.spec import BOOL, Argument, OpSpec, Param, Tensor
from . import spec

_RESET = Tensor("reset", "reset", (BOOL,))
_AnyParam = TypeVar("_AnyParam", bound=Param)


def undocumented(param: _AnyParam) -> _AnyParam:
    """A parameter whose name is Python's, since no document has one."""
    return replace(param, aclnn=param.name)


def _with_resets(operator: Operator, summary: str, *, before: str) -> OpSpec:
    """The contract with `reset` before an argument."""
    of = operator.spec
    place = [arg.name for arg in of.args].index(before)
    args: list[Argument] = [undocumented(arg) for arg in of.args]
    outs: list[Any] = [undocumented(out) for out in of.outs]
    return replace(
        of, name=of.name.replace("lstm", "lstm_with_resets"), aclnn="", summary=summary,
        args=(*args[:place], _RESET, *args[place:]), outs=tuple(outs), differences=(), skipped=lambda _: False,
        rules=(required("reset"), *of.rules, supported_dtypes("reset"), shape("reset", "T", "N")),
    )  # fmt: skip


lstm_with_resets = register(_with_resets(spec.lstm, "a whole LSTM, reset inside its sequences", before="hx"))
lstm_with_resets_backward = register(
    _with_resets(spec.lstm_backward, "gradient of an LSTM that is reset inside its sequences", before="batch_sizes")
)
