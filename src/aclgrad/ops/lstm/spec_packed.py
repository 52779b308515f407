"""Contracts of the LSTM of packed sequences and of its gradient: no document knows them.

They are those of `lstm` and `lstm_backward` for rows that lie as in torch's `PackedSequence`: `batch_sizes[0]` rows of
time 0, then `batch_sizes[1]` of time 1, and so on, counts that never rise. What has a row for every position, the
input, the output, the saved activations and `reset`, has as many as the sequences are long together. `hx` has to be
given, since it tells how many sequences there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...core.errors import InvalidArgument
from ...core.plan import Operator
from ...core.registry import register
from ...core.rules import length, rank, required, shape, supported_dtypes
from ...core.spec import BOOL, REQUIRED, Argument, Call, OpSpec, Rule, Tensor
from . import spec
from .dims import SAVED, LstmDims, dims_of
from .packing import require_packed
from .spec_resets import undocumented

ROWS = ("input", "reset", "dy", "output", "dx", *SAVED)
"""What has a row for every position."""


def sizes_are_readable(call: Call) -> None:
    """The tensors the sizes are read from have the ranks to read them."""
    rank(2, 2, "input")(call)
    rank(1, 1, "batch_sizes")(call)
    rank(3, 3, "hx")(call)
    label, weight = call.metas("params")[0]
    if weight.rank != 2:
        raise InvalidArgument(f"{label} has rank {weight.rank} {list(weight.shape)}, expected rank 2", label)


def _dims(call: Call) -> LstmDims:
    steps, batch = call["batch_sizes"].shape[0], call["hx"][0].shape[1]
    return dims_of(call, steps, batch, call["params"][0].shape[0] // 4)._replace(total=call["input"].shape[0])


def _rule(rule: Rule) -> Rule:
    """The plain operator's, or what stands in its place."""
    return sizes_are_readable if rule in (spec.forward_sizes_are_readable, spec.sizes_are_readable) else rule


def _counts_fit(names: Sequence[str]) -> Callable[[Sequence[Any]], None]:
    """The counts are those of so many rows and sequences: kernels find rows by them."""
    rows, states, counts = (names.index(name) for name in ("input", "hx", "batch_sizes"))

    def check(args: Sequence[Any]) -> None:
        require_packed(args[counts], args[rows].shape[0], args[states][0].shape[1], "batch_sizes", "input")

    return check


def _packed(operator: Operator, summary: str) -> OpSpec:
    of = operator.spec
    args: list[Argument] = [undocumented(arg) for arg in of.args]
    names = [arg.name for arg in args]
    for name in ("hx", "batch_sizes"):
        args[names.index(name)] = replace(args[names.index(name)], default=REQUIRED)
    args.insert(names.index("batch_sizes") + 1, Tensor("reset", "reset", (BOOL,), default=None))
    outs: list[Any] = [undocumented(out) for out in of.outs]
    return replace(
        of, name=of.name.replace("lstm", "lstm_packed"), aclnn="", summary=summary, dims=_dims,
        args=tuple(args), outs=tuple(outs), rows=ROWS, differences=(), skipped=lambda _: False,
        value_rule=_counts_fit(names),
        rules=(
            required("hx", "batch_sizes"), length(lambda _: 2, "hx"), *(_rule(rule) for rule in of.rules),
            supported_dtypes("reset"), shape("reset", "rows"),
        ),
    )  # fmt: skip


lstm_packed = register(_packed(spec.lstm, "a whole LSTM of packed sequences"))
lstm_packed_backward = register(_packed(spec.lstm_backward, "gradient of an LSTM of packed sequences"))
