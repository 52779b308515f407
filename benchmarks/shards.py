"""Rows of one GPU about a vocabulary that is split: what one rank of eight computes, what the sum over ranks costs it.

The rank is alone. What it would wait for is left out, or in the row about the sum replaced by a copy of as many bytes
on another stream, which takes memory's bandwidth as a network's card does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from aclgrad.core.collectives import Collective, Pending, Simulated
from aclgrad.core.spec import BF16
from aclgrad.ops.linear_cross_entropy.arguments import checked
from aclgrad.ops.linear_cross_entropy.shards.head import of_shards
from aclgrad.testing import Data
from aclgrad.testing.peers import CUDA

from .device import Device
from .heads import head_inputs
from .report import OURS
from .rows import Step, Training

PLAIN: dict[str, Any] = {
    "linear_bias": None, "weight": None, "token_weight": None, "normalizer": None, "reduction": "mean",
    "ignore_index": None, "label_smoothing": 0.0, "softcap": None, "logit_scale": 1.0, "z_loss": 0.0,
    "return_stats": False,
}  # fmt: skip


class Copying(NamedTuple):
    """One rank, whose sums are copies on a second stream."""

    stream: Any
    size: int = 1

    @property
    def ranks(self) -> Sequence[int]:
        """The only one."""
        return (0,)

    def gather(self, what: str, parts: Sequence[Tensor]) -> Tensor:
        """Of one."""
        return Simulated(1).gather(what, parts)

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:  # noqa: ARG002
        """A copy of the part, as a network's card would read it and write the sum."""
        current, (part,) = torch.cuda.current_stream(), parts
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            total = part.clone()
        part.record_stream(self.stream)

        def wait() -> list[Tensor]:
            torch.cuda.current_stream().wait_stream(self.stream)
            total.record_stream(torch.cuda.current_stream())
            return [total]

        return wait

    def start_scatter(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """The same."""
        return self.start_sum(what, parts)


class Nothing(Copying):
    """One rank that has nobody to add up with."""

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:  # noqa: ARG002
        """The part itself."""
        return partial(list, parts)


def _step(args: Sequence[Tensor], collective: Collective) -> Step:
    x, weight, target = (args[k] for k in (0, 1, 3))
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]

    def run() -> Sequence[Tensor]:
        given = checked(leaves[0], leaves[1], target, **PLAIN)
        loss = of_shards(given, [given.input], [given.weight], [], collective, ((0, len(weight)),))
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    return run


def _eager(args: Sequence[Tensor]) -> Step:
    x, weight, target = (args[k] for k in (0, 1, 3))
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]

    def run() -> Sequence[Tensor]:
        z = linear(*leaves)
        loss = cross_entropy(z.to(torch.promote_types(z.dtype, torch.float32)), target)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    return run


def shard_steps(args: Sequence[Tensor], device: Device | None) -> dict[str, Step]:  # noqa: ARG001
    """A rank's statistics and gradients, beside eager torch on as many classes."""
    return {OURS: _step(args, Nothing(None)), "eager torch": _eager(args)}


def sum_steps(args: Sequence[Tensor], device: Device | None) -> dict[str, Step]:
    """With a sum of the input's gradient going on, and without."""
    if device is None:
        return shard_steps(args, device)
    stream = torch.cuda.Stream() if device.kind == "cuda" else None
    busy = Copying(stream) if stream is not None else Simulated(1)
    return {OURS: _step(args, busy), "without a sum": _step(args, Nothing(None))}


def _row(case: str, sizes: tuple[int, int, int], steps: Callable[..., dict[str, Step]]) -> Training:
    make: Callable[[Data], Sequence[Tensor]] = partial(head_inputs, sizes)
    tokens, features, rows = sizes
    return Training(
        "nn.VocabParallelLinearCrossEntropyLoss", f"{case}_{tokens}_{features}_{rows}", BF16, CUDA, make, steps,
        flops=8 * tokens * features * rows,
    )  # fmt: skip


ROWS = (
    _row("shard", (8192, 4096, 16032), shard_steps),
    _row("shard", (8192, 4096, 32064), shard_steps),
    _row("sum", (8192, 4096, 16032), sum_steps),
)
