"""What a call costs before it computes anything, and whether two users of the cores disturb each other."""

from __future__ import annotations

from dataclasses import replace

import torch

import aclgrad
from aclgrad import aclnn
from aclgrad.testing.cases import Data

from .device import Device
from .quiet import quietly
from .report import Alternation, Overhead
from .timing import Call, Effort, Timing, interleaved, no_garbage_collection

TINY = (4, 2)
WORK = 1 << 20  # elements of the alternating kernel: enough for all threads, a tenth of a millisecond or two
MATRIX = 256
MANY = 4000  # samples: the tail is what matters


def overhead(device: Device, effort: Effort) -> list[Overhead]:
    """The cost of hardsigmoid on a tiny tensor through every door, and through aten."""
    data = Data(torch.float32)
    grad, x = (device.place(data.normal(*TINY)) for _ in range(2))
    out = torch.empty_like(x)

    def aclnn_pair(_: int) -> None:
        size, executor, _ = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, out)
        aclnn.aclnnHardsigmoidBackward(None, size, executor, None)

    doors: dict[str, Call] = {
        "python door": lambda _: aclgrad.hardsigmoid_backward(grad, x),
        "aclnn pair": aclnn_pair,
        "aten alone": lambda _: torch.ops.aten.hardsigmoid_backward(grad, x),
    }
    timings, others = quietly(lambda: interleaved(doors, device.clock, effort), effort.quiet)
    return [Overhead(name, timing, others) for name, timing in timings.items()]


def alternation(device: Device, effort: Effort) -> list[Alternation]:
    """Our kernel after a torch.mm, then aten's after a torch.mm, and so on: the tail of both distributions."""
    data = Data(torch.float32)
    grad, x, a, b = (
        device.place(data.normal(*shape)) for shape in ((WORK,), (WORK,), (MATRIX, MATRIX), (MATRIX, MATRIX))
    )
    out, product = torch.empty_like(x), torch.empty_like(a)
    kernels: dict[str, Call] = {
        "ours": lambda _: aclgrad.hardsigmoid_backward(grad, x, out=out),
        "aten": lambda _: torch.ops.aten.hardsigmoid_backward.grad_input(grad, x, grad_input=out),
    }
    for kernel in kernels.values():
        kernel(0)

    def take_turns() -> list[Timing]:
        samples: dict[str, list[float]] = {name: [] for name in kernels}
        spent, turns = 0.0, 0
        with no_garbage_collection():
            while not replace(effort, most=MANY).is_spent(spent, turns):
                for name, kernel in kernels.items():
                    spent += device.clock(lambda _: torch.mm(a, b, out=product), 0, 1)
                    samples[name].append(device.clock(kernel, 0, 1))
                    spent += samples[name][-1]
                turns += 1
        return [Timing.of(seconds) for seconds in samples.values()]

    (ours, aten), others = quietly(take_turns, effort.quiet)
    return [Alternation("hardsigmoid_backward and torch.mm", ours, "aten and torch.mm", aten, others)]
