"""Ranks that differ, hang or die. Every function returns what a rank saw: the kind of an error, its words, seconds."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

import aclgrad.nn

TIMEOUT = 2
"""Seconds, of groups that are waited for in vain."""

GROUPS, WEIGHTS = {}, {}


def seen(call):
    """What a call ends in."""
    start = time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001  that is the question
        return type(error).__name__, str(error), time.monotonic() - start
    return "", "", time.monotonic() - start


def head(
    group, tokens=6, features=8, rows=3, dtype=torch.float32, target=None, x=None, trained=True, keeps=True, **options
):
    """A call of the head, by weights that are kept: the first call tells other ranks whose rows these are."""
    torch.manual_seed(0)
    x = torch.randn(tokens, features, dtype=dtype) if x is None else x
    weight = torch.randn(rows, features, dtype=dtype).requires_grad_()
    if keeps:
        weight = WEIGHTS.setdefault((rows, features, dtype), weight)
    target = torch.zeros(tokens, dtype=torch.int64) if target is None else target
    return aclgrad.nn.linear_cross_entropy(x.requires_grad_(trained), weight, target, group=group, **options)


def what_differs(rank, groups):
    """Of one rank, in each case another thing; then all agree again."""
    odd = rank == 2
    torch.manual_seed(0)
    x = torch.randn(6, 8)
    cases = {
        "tokens": {"tokens": 7 if odd else 6},
        "features": {"features": 9 if odd else 8, "keeps": False},
        "dtype": {"dtype": torch.bfloat16 if odd else torch.float32, "keeps": False},
        "a new weight": {"keeps": not odd},
        "label_smoothing": {"label_smoothing": 0.1 if odd else 0.2},
        "a gradient of input": {"trained": not odd},
        "vocab": {"vocab": (6, 10) if odd else (3 * rank, 3 * rank + 3), "rows": 4 if odd else 3},
        "target": {"target": torch.full((6,), 1 if odd else 0)},
        "target, checked": {"target": torch.full((6,), 1 if odd else 0), "check": True},
        "input, checked": {"x": x + 1 if odd else x.clone(), "check": True},
    }
    found = {name: seen(lambda options=options: head(groups[4], **options)) for name, options in cases.items()}
    norm = aclgrad.nn.SyncBatchNorm(5 if odd else 4, process_group=groups[4])
    found["num_features"] = seen(lambda: norm(torch.randn(3, norm.num_features)))
    checked = aclgrad.nn.SyncBatchNorm(4, eps=0.1 if odd else 0.2, process_group=groups[4], check=True)
    found["eps"] = seen(lambda: checked(torch.randn(3, 4)))
    found["nothing"] = seen(lambda: head(groups[4], check=True).backward())
    return found


def prepare(rank, groups):
    """Groups that will not survive, while all ranks are there; all have met once."""
    for name in ("hangs", "hangs at first", "hangs backward", "dies", "lies"):
        members = range(3) if name == "lies" else range(4)
        GROUPS[name] = dist.new_group(members, timeout=timedelta(seconds=TIMEOUT))
        if rank in members:
            for tokens in (6, 60) if name == "lies" else (6,):
                head(GROUPS[name], tokens).backward()


def hangs(rank, groups):
    """Rank 3 does not come: to a call that is known, to one that is not, and content with a loss to its gradients.

    All at the same time, each in a group of its own.
    """
    loss = head(GROUPS["hangs backward"])
    if rank == 3:
        time.sleep(TIMEOUT + 1)
        return None
    calls = (lambda: head(GROUPS["hangs"])), (lambda: head(GROUPS["hangs at first"], tokens=5)), loss.backward
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(seen, calls))


def dies(rank, groups):
    """Rank 3, in the middle of a step."""
    loss = head(GROUPS["dies"])
    if rank == 3:
        os._exit(1)
    return seen(loss.backward)


def who(rank, groups):
    return rank


def lies(rank, groups):
    """Rank 2 comes with another size than the others, which all have agreed on before."""
    return seen(lambda: head(GROUPS["lies"], tokens=60 if rank == 2 else 6))
