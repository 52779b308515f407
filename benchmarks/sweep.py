"""Time against size for the operators that memory limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aclgrad.core.meta import dtype_name
from aclgrad.core.registry import lookup
from aclgrad.testing.cases import Data

from .contenders import regimes
from .device import Device
from .report import Point, Sweep
from .runner import cost_of, measure
from .timing import Effort

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
    """The operator and its peer at all sizes, with inputs from memory."""
    make, sizes = SWEEPS[operator]
    points, peer = [], ""
    for size in sizes:
        with torch.device(device.kind):
            args = make(Data(DTYPE), size * device.largest)
        cost = cost_of(lookup(operator), args)
        main, cold = regimes(args, cost, device)
        found = measure(operator, cold or main, cost, DTYPE, device, effort)
        peer = found.peer or ""
        points.append(Point(args[0].numel(), found.ours.median, found.peers[peer].median, found.bound or 0.0))
    return Sweep(operator, dtype_name(DTYPE), peer, points)
