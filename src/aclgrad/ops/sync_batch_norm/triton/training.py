"""What the statistics of a batch become on a GPU when one process has all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from .choose import CHANNELS
from .gather_stats import _move, _store_float64


@jit
def finish_stats(
    centre_ptr, inverse_ptr, mean_ptr, invstd_ptr, running_mean_ptr, running_var_ptr, channels, strides, count,
    momentum, eps, COLUMNS: tl.constexpr,
):  # fmt: skip
    """From the mean and 1 / standard deviation of every channel: both with eps, and the running statistics."""
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    exists = channel < channels
    centre = tl.load(centre_ptr + channel, exists, 0.0).to(tl.float64)
    inverse = tl.load(inverse_ptr + channel, exists, 1.0).to(tl.float64)
    variance = 1.0 / (inverse * inverse)
    _store_float64(mean_ptr + channel * strides[0], centre, exists)
    _store_float64(invstd_ptr + channel * strides[1], 1.0 / tl.sqrt(variance + eps), exists)
    if running_mean_ptr is not None:
        n = tl.cast(count, tl.float64)
        _move(running_mean_ptr, channel * strides[2], exists, centre, momentum)
        _move(running_var_ptr, channel * strides[3], exists, variance * (n / (n - 1.0)), momentum)


class FinishStats:
    """From statistics without eps in the workspace to the results of `batch_norm`."""

    workspace = 0

    def __init__(self, call: Call, centre: Piece, inverse: Piece) -> None:
        batch, running = call.tensor("input"), ("running_mean", "running_var")
        updates = call["running_mean"] is not None and batch.numel > 0
        results, strides = vectors(call, "mean", "invstd")
        moved, moved_strides = vectors(call, *running, left_out=() if updates else running)
        all_strides = (*strides.values(), *(moved_strides if updates else strides).values())  # any, where none are read
        channels = batch.shape[1]
        self._kernel = CallKernel(
            call, finish_stats, (triton.cdiv(channels, CHANNELS),),
            [Operand.at("centre", centre), Operand.at("inverse", inverse), *results, *moved],
            {
                "channels": channels, "strides": all_strides, "count": batch.numel // channels,
                "momentum": call["momentum"], "eps": call["eps"],
            },
            {"COLUMNS": CHANNELS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()
