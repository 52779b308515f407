"""What each rank of a row over several processes runs: ours, and what a person would write with plain torch.

These functions run in the processes of `ranks.py`, which name them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import linear

import aclgrad.nn
from aclgrad.core.memory import tensors_in
from aclgrad.ops.linear_cross_entropy.shards.ranges import even_ranges

from .device import Cpu
from .rows import Step

STEPS: dict[str, dict[str, Step]] = {}
"""Prepared steps by row and contender."""


def megatrons_loss(x: Tensor, weight: Tensor, target: Tensor, start: int, group: Any) -> Tensor:
    """The mean loss by the formulas of Megatron's `vocab_parallel_cross_entropy`, in eager torch.

    The logits of the rank are made, widened, and reduced by three collectives; the gradient of the input is summed
    behind its product, in its own dtype, as the layer before the loss does it.
    """
    logits = linear(_Copied.apply(x, group), weight)  # type: ignore[no-untyped-call]
    return _VocabParallel.apply(logits, target, start, group).mean()  # type: ignore[no-any-return, no-untyped-call]


class _Copied(torch.autograd.Function):
    """The input on every rank; its gradient is summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        total = grads[0].contiguous()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _VocabParallel(torch.autograd.Function):
    """Losses of tokens [BT] from the rank's logits [BT, V]."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, start: int, group: Any) -> Tensor:
        shifted = logits.float() if logits.dtype != torch.float64 else logits.clone()
        largest = shifted.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        shifted -= largest[:, None]
        elsewhere = (target < start) | (target >= start + logits.shape[1])
        row = torch.where(elsewhere, 0, target - start)
        predicted = torch.where(elsewhere, 0.0, shifted.gather(1, row[:, None])[:, 0])
        dist.all_reduce(predicted, group=group)
        exponentials = shifted.exp_()
        total = exponentials.sum(-1)
        dist.all_reduce(total, group=group)
        exponentials /= total[:, None]
        ctx.save_for_backward(exponentials, elsewhere, row)
        ctx.dtype = logits.dtype
        return total.log() - predicted

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        softmax, elsewhere, row = ctx.saved_tensors
        tokens = torch.arange(len(row))
        softmax[tokens, row] -= (~elsewhere).to(softmax.dtype)  # in place, as theirs
        softmax *= grads[0][:, None]
        return softmax.to(ctx.dtype), None, None, None


class PlainSyncBatchNorm(nn.BatchNorm2d):
    """Batch norm over ranks as it is written in plain torch where a CPU has none: differentiable sums, all-reduced."""

    group: Any = None

    def forward(self, input: Tensor) -> Tensor:
        """From the mean and the mean of squares, each rank's times its share of the batch."""
        sums = torch.stack([input.mean((0, 2, 3)), input.square().mean((0, 2, 3))])
        mean, square = _Summed.apply(sums, self.group) / self.group.size()  # type: ignore[no-untyped-call]
        var = square - mean.square()
        if self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum or 0.0)
                self.running_var.lerp_(var, self.momentum or 0.0)
        scale = self.weight * torch.rsqrt(var + self.eps)
        result: Tensor = input * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]
        return result


class _Summed(torch.autograd.Function):
    """A sum over the ranks, of whose parts every rank's gradient is the sum of all."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = part.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        total = grads[0].contiguous()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def prepare_head(rank: int, groups: dict[int, Any], key: str, x: Tensor, weight: Tensor, target: Tensor) -> None:
    """Both heads over all ranks, on this rank's rows."""
    group = groups[max(groups)]
    start, stop = even_ranges(len(weight), group.size())[rank]
    x, weight = x.requires_grad_(), weight[start:stop].clone().requires_grad_()

    def step(loss_of: Callable[[], Tensor]) -> Step:
        def run() -> Sequence[Tensor]:
            loss = loss_of()
            return [loss.detach(), *torch.autograd.grad(loss, [x, weight])]

        return run

    vocab = (start, stop)
    STEPS[key] = {
        "ours": step(lambda: aclgrad.nn.linear_cross_entropy(x, weight, target, group=group, vocab=vocab)),
        "theirs": step(lambda: megatrons_loss(x, weight, target, start, group)),
    }


def prepare_norm(rank: int, groups: dict[int, Any], key: str, x: Tensor, grad: Tensor, *vectors: Tensor) -> None:
    """Both batch norms over all ranks, on this rank's part of the batch; and ours alone on it, without others."""
    group = groups[max(groups)]
    each = len(x) // group.size()
    mine, upstream = (part[rank * each : (rank + 1) * each].clone() for part in (x, grad))
    mine.requires_grad_()

    def step(norm: nn.Module) -> Step:
        norm = norm.to(mine.dtype)
        with torch.no_grad():
            for parameter, vector in zip(norm.parameters(), vectors, strict=True):
                parameter.copy_(vector)

        def run() -> Sequence[Tensor]:
            y = norm(mine)
            return [y.detach(), *torch.autograd.grad(y, [mine, *norm.parameters()], upstream)]

        return run

    plain = PlainSyncBatchNorm(x.shape[1])
    plain.group = group
    norms = {"ours": aclgrad.nn.SyncBatchNorm(x.shape[1], process_group=group), "theirs": plain}
    norms["alone"] = aclgrad.nn.SyncBatchNorm(x.shape[1], process_group=groups[1] if rank == 0 else None)
    STEPS[key] = {name: step(norm) for name, norm in norms.items() if name != "alone" or rank == 0}


def run(rank: int, groups: dict[int, Any], key: str, name: str) -> None:  # noqa: ARG001
    """One step, for its time; by whoever has it."""
    if name in STEPS[key]:
        STEPS[key][name]()


def results(rank: int, groups: dict[int, Any], key: str, name: str) -> list[Tensor]:  # noqa: ARG001
    """One step, for what it computes."""
    return list(STEPS[key][name]())


def extra_memory(rank: int, groups: dict[int, Any], key: str, name: str) -> int:  # noqa: ARG001
    """The most bytes a step allocates beside what it returns."""
    if name not in STEPS[key]:
        return 0
    found: list[Any] = []
    step = STEPS[key][name]
    step()  # what is kept for good is there before
    peak = Cpu().peak(lambda: found.append(step()))
    outputs = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_in(found)}
    return max(0, peak - sum(outputs.values()))


def forget(rank: int, groups: dict[int, Any], key: str) -> None:  # noqa: ARG001
    """Free what was prepared."""
    del STEPS[key]
