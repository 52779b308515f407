"""Batch norm may be cut into parts of its channels; where the statistics are given, also of its batch and positions."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.cuts import Cut, Cuts
from ...core.spec import Call
from .spec import SUMS, VECTORS

BATCHES = ("input", "output", "grad_out", "grad_input")
"""Tensors [N, C, …]."""

OF_PROCESSES = ("mean", "invstd")
"""Tensors [W, C], where they come from several processes."""

CHANNELS = (
    *VECTORS, *(name for name, _, _ in SUMS), "bias", "grad_bias", "running_mean", "running_var",
    "mean_all", "invstd_all",
)  # fmt: skip
"""Tensors [C]."""


def of_channels(_: Call) -> Sequence[Cut]:
    """Every channel is a call of its own. A call without channels is none."""
    return [Cut({**dict.fromkeys(CHANNELS, 0), **dict.fromkeys(BATCHES, 1)}, may_be_empty=False)]


def of_gathered_channels(call: Call) -> Sequence[Cut]:
    """The same of statistics that several processes have found."""
    (cut,) = of_channels(call)
    return [Cut({**cut.dims, **dict.fromkeys(OF_PROCESSES, 1)}, may_be_empty=False)]


def everywhere(*sums: str) -> Cuts:
    """Every element by itself; these vectors are sums over a channel's elements."""

    def cuts(call: Call) -> Sequence[Cut]:
        others = (dim for dim in range(call.tensor("input").rank) if dim != 1)
        return [*of_channels(call), *(Cut(dict.fromkeys(BATCHES, dim), sums) for dim in others)]

    return cuts


CUTS = {
    "batch_norm_stats": of_channels,
    "batch_norm_gather_stats_with_counts": of_gathered_channels,
    "batch_norm_elemt": everywhere(),
    "batch_norm_reduce_backward": everywhere(*(name for name, _, _ in SUMS)),
    "batch_norm_elemt_backward": everywhere(),
    "batch_norm": of_channels,
    "batch_norm_backward": of_channels,
}
