"""Time against size for the operators that memory limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aclgrad.core.meta import dtype_name
from aclgrad.core.registry import lookup
from aclgrad.testing.cases import Data

from .contenders import OURS, contenders, rotation
from .device import Device
from .report import Point, Sweep
from .runner import BOUND, bound_of, cost_of
from .timing import Call, Effort, interleaved

CHANNELS, HEIGHT, WIDTH = 64, 28, 28


def _hardsigmoid(data: Data, size: int) -> Sequence[Any]:
    return data.normal(size), data.normal(size, scale=3.0)


def _batch_norm(data: Data, batch: int) -> Sequence[Any]:
    shape = (batch, CHANNELS, HEIGHT, WIDTH)
    mean, invstd, weight, sum_dy, sum_dy_xmu = (data.uniform(0.3, 2, CHANNELS, dtype=torch.float32) for _ in range(5))
    counter = torch.tensor([batch * HEIGHT * WIDTH], dtype=torch.int32)
    return data.normal(*shape), data.normal(*shape), mean, invstd, weight, sum_dy, sum_dy_xmu, counter


SWEEPS: dict[str, tuple[Callable[[Data, int], Sequence[Any]], Sequence[int]]] = {
    "hardsigmoid_backward": (_hardsigmoid, [1 << k for k in range(10, 26, 2)]),
    "batch_norm_elemt_backward": (_batch_norm, [1 << k for k in range(9)]),
}
DTYPE = torch.float32


def sweep(operator: str, device: Device, effort: Effort) -> Sweep:
    """The operator and its peer at all sizes."""
    make, sizes = SWEEPS[operator]
    points, peer = [], ""
    for size in sizes:
        args = [device.place(value) for value in make(Data(DTYPE), size)]
        cost = cost_of(lookup(operator), args)
        rivals = contenders(operator, rotation(args, cost, device)[0], device)
        peer = next(name for name in rivals if name != OURS)
        bound = bound_of(cost, DTYPE, device)
        turns: dict[str, Call] = {**rivals, BOUND: bound.call}
        timings, _ = interleaved(turns, device.clock, effort)
        ours, theirs, best = (timings[name].median for name in (OURS, peer, BOUND))
        points.append(Point(args[0].numel(), ours, theirs, bound.times * best))
    return Sweep(operator, dtype_name(DTYPE), peer, points)
