"""What a call costs before it computes anything, and whether two users of the cores disturb each other."""

from __future__ import annotations

from dataclasses import replace

import torch

import aclgrad
from aclgrad import aclnn
from aclgrad.testing.cases import Data

from .capi import c_abi
from .device import Device
from .report import Alternation, Overhead
from .timing import Call, Effort, interleaved

TINY = (4, 2)
WORK = 1 << 20  # elements of the alternating kernel: enough for all threads, a tenth of a millisecond or two
MATRIX = 256
MANY = 4000  # samples: the tail is what matters


def overhead(device: Device, effort: Effort) -> list[Overhead]:
    """The cost of hardsigmoid on a tiny tensor through every door, and through aten."""
    with torch.device(device.kind):
        data = Data(torch.float32)
        grad, x = (data.normal(*TINY) for _ in range(2))
    out = torch.empty_like(x)

    def aclnn_pair(_: int) -> None:
        size, executor, _ = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, out)
        aclnn.aclnnHardsigmoidBackward(None, size, executor, None)

    doors: dict[str, Call] = {
        "python door": lambda _: aclgrad.hardsigmoid_backward(grad, x),
        "aclnn pair": aclnn_pair,
        "aten alone": lambda _: torch.ops.aten.hardsigmoid_backward(grad, x),
    }
    if device.kind != "cpu":
        del doors["aclnn pair"]  # its handles are of host memory unless the process was started with ACLGRAD_DEVICE
    timings, others = interleaved(doors, device.host_clock, effort)
    return [*[Overhead(name, timing, others) for name, timing in timings.items()], *c_abi(device, effort, TINY)]


def alternation(device: Device, effort: Effort) -> list[Alternation]:
    """Our kernel after a torch.mm, then aten's after a torch.mm, and so on: the tail of both distributions."""
    data = Data(torch.float32)
    shapes = ((WORK,), (WORK,), (MATRIX, MATRIX), (MATRIX, MATRIX))
    grad, x, a, b = (data.normal(*shape) for shape in shapes)
    out, product = torch.empty_like(x), torch.empty_like(a)
    turns: dict[str, Call] = {
        "mm before ours": lambda _: torch.mm(a, b, out=product),
        "ours": lambda _: aclgrad.hardsigmoid_backward(grad, x, out=out),
        "mm before aten": lambda _: torch.mm(a, b, out=product),
        "aten": lambda _: torch.ops.aten.hardsigmoid_backward.grad_input(grad, x, grad_input=out),
    }
    timings, others = interleaved(turns, device.clock, replace(effort, most=MANY), one_by_one=True)
    ours, aten = timings["ours"], timings["aten"]
    return [Alternation("hardsigmoid_backward and torch.mm", ours, "aten and torch.mm", aten, others)]
