"""What two ranks of gloo check of tensors that are on one GPU; anywhere else the checks are the same."""

import torch
from head_checks import bits, require_right, results
from head_problem import LEVELS, Problem
from simulated import cuts
from torch import nn

import aclgrad.nn
from aclgrad.testing import judge

PLAIN = {name: values[0] for name, values in LEVELS.items()}
EVERY = dict(zip(LEVELS, (True, True, "mean", True, 0.1, 2.0, 0.6, 1e-2, True, "tensor", True), strict=True))
"""Rows of options: none of them, all of them."""


def heads(rank, groups, device, sizes):
    """Plain and with every option, tokens whole and split, an empty rank; the bits that both ranks shall have."""
    found = []
    classes = sizes[-1]
    for row, dtype in ((PLAIN, torch.bfloat16), (EVERY, torch.bfloat16), (PLAIN, torch.float32)):
        for split, ranges in ((False, cuts(classes, 2, 1)), (True, cuts(classes, 2, 1)), (False, cuts(classes, 2, 4))):
            problem = Problem(row, dtype, device, sizes=sizes)
            mine = results(problem, ranges, groups[2], split)
            require_right(problem, mine, ranges, rank, split, f"{row} {dtype} {split} {ranges}")
            assert all(value.device.type == device for value in mine.values())
            same = [value for name, value in mine.items() if name in ("loss", "logprob", "entropy", "lse")]
            found.append(bits([*same, *([] if split else [mine["x"]])]))
    return found


def norms(rank, groups, device):
    """Uneven batches and one that is empty, in two dtypes; the bits of the buffers."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for sizes in ((3, 5), (0, 4)):
            torch.manual_seed(0)
            x, grad = (torch.randn(sum(sizes), 6, 5, 7, device="cpu").to(device, dtype) for _ in range(2))
            mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
            ours, leaf = aclgrad.nn.SyncBatchNorm(6, device=device), x[mine].clone().requires_grad_()
            y = ours(leaf)
            y.backward(grad[mine])
            truth, naive = (_whole(x, grad, wide) for wide in (torch.float64, dtype))
            for label, part, exact, rough in zip(("y", "dx"), (y.detach(), leaf.grad), truth, naive, strict=True):
                whole = exact.to(dtype)
                whole[mine] = part
                verdict = judge(whole, exact, rough, dtype)
                assert verdict.ok, f"{label} {dtype} {sizes}: {verdict}"
            found.append(bits([ours.running_mean, ours.running_var]))
    return found


def _whole(x, grad, dtype):
    """Torch's result and gradient of the whole batch; of half types with statistics in float32, as it has them."""
    leaf = x.detach().to(dtype).requires_grad_()
    y = nn.functional.batch_norm(leaf, None, None, training=True)
    y.backward(grad.to(dtype))
    return y.detach(), leaf.grad


def together(rank, groups, device, sizes):
    """All of it, as one task."""
    return heads(rank, groups, device, sizes) + norms(rank, groups, device)
