"""One vocabulary on several ranks, by the three operators that CANN documents for it, and by the head that does it all.

    torchrun --standalone --nproc-per-node 4 examples/ranks/chain.py

Every rank has some rows of the weight. The operators leave what ranks have to tell each other to the caller: here it is
done as code for Ascend does it, by three reductions forward and one backward. `aclgrad.nn.linear_cross_entropy` with a
group takes one collective forward and one backward, and never rounds a logit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import aclgrad.nn
from aclgrad import acl, aclnn, torch_npu

TOKENS, FEATURES, CLASSES = 48, 64, 2000


class Step(NamedTuple):
    """What a rank ends up with."""

    loss: Tensor  # [BT], the same on all ranks
    input_grad: Tensor  # [BT, H], summed over the ranks
    weight_grad: Tensor  # [local rows, H]


def by_torch_npu(x: Tensor, weight: Tensor, target: Tensor, start: int, grad: Tensor) -> Step:
    """Under torch_npu's names."""
    stop = start + len(weight)
    top, total, predicted, mask, row, _ = torch_npu.npu_fused_linear_online_max_sum(x, weight, target, start, stop)
    top, total, predicted = united(top, total, predicted, (target >= start) & (target < stop))
    loss, _ = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(top, total, predicted)
    input_grad, weight_grad = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
        grad, x, weight, mask, row, logits_max=top, sum_exp_logits=total
    )
    return Step(loss, summed(input_grad), weight_grad)


def by_aclnn(x: Tensor, weight: Tensor, target: Tensor, start: int, grad: Tensor) -> Step:
    """By aclnn's pairs of functions, on tensors of the program's own."""
    tokens, stop = len(x), start + len(weight)
    top, total, predicted, loss = (torch.empty(tokens) for _ in range(4))
    mask, row = torch.empty(-(-tokens // 8), dtype=torch.uint8), torch.empty_like(target)
    run(aclnn.aclnnFusedLinearOnlineMaxSumGetWorkspaceSize, aclnn.aclnnFusedLinearOnlineMaxSum,
        x, weight, target, start, stop, top, total, predicted, mask, row, None)  # fmt: skip
    top, total, predicted = united(top, total, predicted, (target >= start) & (target < stop))
    run(aclnn.aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize, aclnn.aclnnFusedCrossEntropyLossWithMaxSum,
        top, total, predicted, 0.0, None, None, None, loss, None)  # fmt: skip
    input_grad, weight_grad = torch.empty_like(x), torch.empty_like(weight)
    run(aclnn.aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize, aclnn.aclnnFusedLinearCrossEntropyLossGrad,
        grad, x, weight, mask, row, 0.0, top, total, None, input_grad, weight_grad)  # fmt: skip
    return Step(loss, summed(input_grad), weight_grad)


def by_the_head(x: Tensor, weight: Tensor, target: Tensor, start: int, grad: Tensor) -> Step:
    """The same in one call."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = aclgrad.nn.linear_cross_entropy(
        x, weight, target, reduction="none", group=dist.group.WORLD, vocab=(start, start + len(weight))
    )
    return Step(loss.detach(), *torch.autograd.grad(loss, (x, weight), grad))


def united(top: Tensor, total: Tensor, predicted: Tensor, here: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Statistics of the whole vocabulary from those of every rank's rows."""
    largest = top.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    total, predicted = total * (top - largest).exp(), torch.where(here, predicted + top - largest, 0.0)
    dist.all_reduce(total)
    dist.all_reduce(predicted)
    return largest, total, predicted


def summed(input_grad: Tensor) -> Tensor:
    """The ranks' parts of the input's gradient, in the dtype in which the operator returns them."""
    dist.all_reduce(input_grad)
    return input_grad


def run(prepare: Callable, launch: Callable, *arguments: object) -> None:
    """Both phases of an operator."""
    size, executor, status = prepare(*arguments)
    workspace = torch.empty(size, dtype=torch.uint8) if status == 0 else None
    if status or launch(workspace, size, executor, None):
        raise RuntimeError(acl.get_recent_err_msg())


WAYS = {"torch_npu": by_torch_npu, "aclnn": by_aclnn, "nn.linear_cross_entropy": by_the_head}


def compare(dtype: torch.dtype = torch.bfloat16) -> dict[str, list[float]]:
    """How far every way's loss and gradients are from one process in float64, relative to these."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, whole = torch.randn(TOKENS, FEATURES).to(dtype), (torch.randn(CLASSES, FEATURES) / 8).to(dtype)
    target, grad = torch.randint(CLASSES, (TOKENS,)), torch.randn(TOKENS)
    each = -(-CLASSES // ranks)
    start, stop = min(rank * each, CLASSES), min((rank + 1) * each, CLASSES)
    leaves = [x.double().requires_grad_(), whole.double().requires_grad_()]
    loss = torch.nn.functional.cross_entropy(leaves[0] @ leaves[1].t(), target, reduction="none")
    input_grad, weight_grad = torch.autograd.grad(loss, leaves, grad.double())
    truth = Step(loss.detach(), input_grad, weight_grad[start:stop])
    found = {}
    for name, way in WAYS.items():
        step = way(x, whole[start:stop], target, start, grad)
        found[name] = [float((a.double() - b).norm() / b.norm()) for a, b in zip(step, truth, strict=True)]
    return found


def main() -> None:
    """Run by torchrun."""
    from rich.console import Console
    from rich.table import Table

    dist.init_process_group("gloo")
    found = compare()
    if dist.get_rank() == 0:
        table = Table("by", *Step._fields, title=f"relative error, bfloat16, {dist.get_world_size()} ranks")
        for name, errors in found.items():
            table.add_row(name, *(f"{error:.1e}" for error in errors))
        Console().print(table)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
