"""A forward and a backward pass of the small modules, ours and torch's, at any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import aclgrad.nn
from aclgrad.testing import Data
from aclgrad.testing.peers import loaded

from ..device import Device
from ..report import OURS
from ..rows import Step, Training
from .points import Point

Kinds = tuple[dict[str, Callable[[], nn.Module]], list[tuple[int, ...]]]
"""What makes each contender, and the shapes of its outputs."""

BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def _hardsigmoid(point: Point) -> Kinds:
    return {OURS: aclgrad.nn.Hardsigmoid, "nn.Hardsigmoid": nn.Hardsigmoid}, [point.shape]


def _cell(point: Point) -> Kinds:
    rows, hidden = point.sizes["N"], point.sizes["H"]
    return {
        OURS: lambda: aclgrad.nn.LSTMCell(hidden, hidden),
        "nn.LSTMCell": lambda: nn.LSTMCell(hidden, hidden),
    }, [(rows, hidden)] * 2


def _batch_norm(point: Point) -> Kinds:
    torchs = BATCH_NORMS[len(point.shape)]
    channels = point.shape[1]
    return {
        OURS: lambda: aclgrad.nn.SyncBatchNorm(channels),
        f"nn.{torchs.__name__}": lambda: torchs(channels),
    }, [point.shape]


MODULES: dict[str, Callable[[Point], Kinds]] = {
    "nn.Hardsigmoid": _hardsigmoid, "nn.LSTMCell": _cell, "nn.SyncBatchNorm": _batch_norm,
}  # fmt: skip


def training(point: Point) -> Training:
    """The row of a small module."""
    kinds, outputs = MODULES[point.name](point)
    shape = point.shape or outputs[0]

    def make(data: Data) -> Sequence[Tensor]:
        torch.manual_seed(0)
        weights = next(iter(kinds.values()))().to(torch.float64)
        x, *grads = (_laid_out(data.normal(*size), point) for size in (shape, *outputs))
        return [x, *grads, *(p.detach().to(data.dtype) for p in weights.parameters())]

    def steps(args: Sequence[Tensor], device: Device | None) -> dict[str, Step]:  # noqa: ARG001
        x, grads, params = args[0], args[1 : 1 + len(outputs)], args[1 + len(outputs) :]

        def step(kind: Callable[[], Any]) -> Step:
            module = loaded(kind(), x, params)
            leaf = x.detach().requires_grad_()
            leaves = [leaf, *module.parameters()]

            def run() -> Sequence[Tensor]:
                found = module(leaf)
                outs = list(found) if isinstance(found, tuple) else [found]
                return [*(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, grads)]

            return run

        return {name: step(kind) for name, kind in kinds.items()}

    return Training(point.name, str(point), point.dtype, ("cpu", "cuda"), make, steps, flops=0)


def _laid_out(tensor: Tensor, point: Point) -> Tensor:
    if not point.channels_last:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
