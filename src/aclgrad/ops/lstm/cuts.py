"""An LSTM may be cut into parts of its batch, unless that is packed. The gradient of its weights is a sum over it."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.cuts import Cut
from ...core.spec import Call
from .dims import SAVED

TIME_MAJOR = ("hx", "hy", "cy", "dh", "dc", "dh_prev", "dc_prev", "reset", *SAVED)
"""Tensors whose second dimension is the batch, whatever `batch_first` says."""

SEQUENCES = ("input", "output", "dy", "dx")


def of_the_batch(call: Call) -> Sequence[Cut]:
    """Along the dimension of the batch."""
    if call["batch_sizes"] is not None:
        return []
    dims = {**dict.fromkeys(TIME_MAJOR, 1), **dict.fromkeys(SEQUENCES, 0 if call["batch_first"] else 1)}
    return [Cut(dims, sums=("dparams",))]


CUTS = dict.fromkeys(("lstm", "lstm_backward", "lstm_with_resets", "lstm_with_resets_backward"), of_the_batch)
