"""Rows over two processes of one thread each: a split vocabulary, a split batch; beside them one process with both.

The contenders over ranks are told to run by a pipe, which takes a tenth of a millisecond.
"""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import aclgrad.nn
from aclgrad.core.spec import BF16, F32
from aclgrad.testing import Data
from aclgrad.testing.peers import CPU
from aclgrad.testing.processes import Processes

from . import quiet, rank_steps
from .contenders import Contender
from .device import Device
from .heads import head_inputs
from .report import OURS
from .rows import Step, Training

RANKS = 2
ONE_PROCESS = "one process"
"""With as many threads as there are ranks."""


@cache
def processes() -> Processes:
    """The ranks, started when they are first needed; what they take is no other program's."""
    ranks = Processes(RANKS)
    ranks.start()
    quiet.HELPERS.update(ranks.pids)
    atexit.register(ranks.stop)
    return ranks


class OverRanks(Contender):
    """A step that all ranks take together, known to them by the row's key and a name."""

    def __init__(self, key: str, name: str) -> None:
        super().__init__([lambda: processes()(rank_steps.run, key, name)], 0, writes_out=False)
        self._words = key, name

    def extra_memory(self, device: Device) -> int:  # noqa: ARG002
        """Of the rank that needs most."""
        found: list[int] = processes()(rank_steps.extra_memory, *self._words)
        return max(found)


def head_steps(key: str, args: Sequence[Tensor], device: Device | None) -> dict[str, Step | Contender]:
    """Ours over ranks, Megatron's formulas over ranks, ours in one process."""
    x, weight, _, target, _ = args
    processes()(rank_steps.prepare_head, key, x, weight, target)
    if device is None:
        return {OURS: partial(_joined_head, key, "ours"), "theirs": partial(_joined_head, key, "theirs")}
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]

    def alone() -> Sequence[Tensor]:
        loss = aclgrad.nn.linear_cross_entropy(leaves[0], leaves[1], target)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    return {OURS: OverRanks(key, "ours"), "Megatron's formulas": OverRanks(key, "theirs"), ONE_PROCESS: alone}


def _joined_head(key: str, name: str) -> Sequence[Tensor]:
    """Loss, gradient of the input, gradients of the rows of all ranks."""
    found = processes()(rank_steps.results, key, name)
    (loss, input_grad, _), weight_grads = found[0], [weight_grad for *_, weight_grad in found]
    return [loss, input_grad, torch.cat(weight_grads)]


def norm_inputs(shape: tuple[int, ...], data: Data) -> Sequence[Tensor]:
    """A batch, the gradient of its result, weight and bias."""
    return [data.normal(*shape) + 1, data.normal(*shape), data.normal(shape[1]), data.normal(shape[1])]


def norm_steps(key: str, args: Sequence[Tensor], device: Device | None) -> dict[str, Step | Contender]:
    """Ours over ranks, plain torch over ranks, ours on one rank's part alone."""
    processes()(rank_steps.prepare_norm, key, *args)
    if device is None:
        return {OURS: partial(_joined_norm, key, "ours"), "theirs": partial(_joined_norm, key, "theirs")}
    names = {OURS: "ours", "plain torch": "theirs", "half of the batch": "alone"}
    return {name: OverRanks(key, word) for name, word in names.items()}


def _joined_norm(key: str, name: str) -> Sequence[Tensor]:
    """Results and gradients of the whole batch; those of weight and bias are sums over the ranks."""
    found = list(zip(*processes()(rank_steps.results, key, name), strict=True))
    return [torch.cat(found[0]), torch.cat(found[1]), *(torch.stack(each).sum(0) for each in found[2:])]


def _row(module: str, case: str, dtype: torch.dtype, make: Callable[[Data], Any], steps: Any, **cost: int) -> Training:
    return Training(module, case, dtype, CPU, make, partial(steps, f"{module}/{case}/{dtype}"), **cost)


SIZES = (1024, 1024, 32000)
BATCH = (16, 64, 56, 56)

ROWS = (
    *(
        _row(
            "nn.VocabParallelLinearCrossEntropyLoss", f"{RANKS}_ranks_{'_'.join(map(str, SIZES))}", dtype,
            partial(head_inputs, SIZES), head_steps, flops=6 * math.prod(SIZES),
        )
        for dtype in (BF16, F32)
    ),
    _row(
        "nn.SyncBatchNorm", f"{RANKS}_ranks_{'x'.join(map(str, BATCH))}", F32, partial(norm_inputs, BATCH), norm_steps,
        bytes=8 * 4 * math.prod(BATCH),  # the batch, the gradient and their results, some of them twice
    ),
)  # fmt: skip
