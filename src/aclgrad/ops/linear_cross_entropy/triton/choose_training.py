"""How `token_gradients` cuts its work: within `choose.BUDGET`, whatever it keeps beside p."""

from __future__ import annotations

import torch

from aclgrad.core.spec import F32, Call
from aclgrad.gpu.products import TILE

from ..spec import LinearDims
from . import choose
from .choose import Chunk, Cut, GradientWay
from .choose_rows import (
    Terms,
    fuses_probabilities,
    on_hopper,
    packs,
    reads_as_it_lies,
    sums_are_cut,
    sums_of,
)  # fmt: skip
from .layout import LEADING, ceil_div, round_up, row_major


def training_way(call: Call, taken: int) -> GradientWay:
    """The way that the gradient takes in training; some bytes of the budget are `taken`."""
    dtype = call["input"].dtype
    fuses = fuses_probabilities(call)
    most_logits = 0 if dtype == F32 else choose.SPARE_LOGITS if fuses else choose.LOGITS
    budget = choose.P_ALONE if fuses or dtype == F32 else choose.P_BESIDE_LOGITS
    groups = summed_groups(call)
    while True:
        p = choose.cut(call, budget, groups)
        leading = round_up(p.columns, LEADING)
        row = leading * F32.itemsize
        left = choose.BUDGET - taken - choose.SLACK - p.rows * leading * dtype.itemsize - _beside_p(call, p)
        if left >= min(most_logits, choose.SPARE_LOGITS, p.rows * row) or budget <= choose.WHOLE_P:
            break
        budget -= choose.P_STEP
    strip = p.rows  # float32 logits are where p will be
    if most_logits and left < p.rows * row:
        strip = choose.strip_rows(p.rows, leading, max(1, min(most_logits, left) - LEADING * row))  # it rounds up
    elif most_logits:
        strip = choose.strip_rows(p.rows, leading, most_logits)
    return GradientWay(p, leading, True, fuses, False, strip)


def chunk_tokens(dims: LinearDims, dtype: torch.dtype, device: torch.device) -> int:
    """Tokens of a chunk whose input_grad is summed over the ranks while the next things are computed.

    p of a chunk waits with all columns of a shard, of which no rank has more than `dims` say, and float32 rows of
    input_grad of two chunks: within the budget.
    """
    tokens, features, vocabulary = dims
    row = round_up(vocabulary, LEADING) * dtype.itemsize + 2 * features * F32.itemsize
    most = max(1, (choose.BUDGET - choose.WEIGHT_GRAD_SUMS - _shard_logits(features, dtype, device)) // row)
    if most >= tokens:
        return tokens
    most = max(TILE[0], most // TILE[0] * TILE[0])
    return round_up(ceil_div(tokens, ceil_div(tokens, most)), TILE[0])


def _shard_logits(features: int, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes of float32 logits on their way to p."""
    fuses = features > 0 and on_hopper(dtype, device)
    return 0 if dtype == F32 else choose.SPARE_LOGITS if fuses else choose.LOGITS


def shard_way(call: Call, rows: int) -> GradientWay:
    """That of a shard in chunks of so many tokens."""
    tokens, features, vocabulary = call.dims
    dtype, leading = call["input"].dtype, round_up(vocabulary, LEADING)
    logits = _shard_logits(features, dtype, call.device)
    chunks = tuple(Chunk(t, min(t + rows, tokens), 0, vocabulary) for t in range(0, tokens, rows))
    strip = choose.strip_rows(rows, leading, logits) if logits else rows
    fuses = fuses_probabilities(call)
    return GradientWay(Cut(chunks, along_vocabulary=False), leading, True, fuses, False, strip)


def summed_groups(call: Call) -> int:
    """Groups of p's shorter side, so that float32 sums of its gradient take half of the budget at most.

    The other gradient is then added up over the groups in its own dtype.
    """
    tokens, features, vocabulary = call.dims
    summed = call["input_grad" if vocabulary >= tokens else "weight_grad"]
    if summed is None or (summed.dtype == F32 and row_major(summed)):
        return 1
    return max(1, ceil_div(min(tokens, vocabulary) * features * F32.itemsize, choose.BUDGET // 2))


def gradient_terms(call: Call, p: Cut) -> dict[str, Terms]:
    """Of each gradient that is wanted.

    Along the vocabulary, weight_grad is finished chunk by chunk, input_grad summed over all; else reversed. Where there
    are groups, the one that would be finished has one term of each.
    """
    sides = {
        "input_grad": ([chunk.rows for chunk in p.chunks], call.dims.BT, p.along_vocabulary),
        "weight_grad": ([chunk.columns for chunk in p.chunks], call.dims.V, not p.along_vocabulary),
    }
    lies = reads_as_it_lies(call["weight"], call.dims.BT)
    found = {}
    for name, (heights, whole, summed) in sides.items():
        cuts = name == "input_grad" and any(sums_are_cut(call["input"].dtype, chunk.columns) for chunk in p.chunks)
        terms = Terms(heights, len(p.chunks) // p.groups if summed else 1, None, cuts, lies)
        if not summed and p.groups > 1:
            terms = Terms([whole], p.groups, 0, as_it_lies=lies)
        if call[name] is not None:
            found[name] = terms
    return found


def _beside_p(call: Call, p: Cut) -> int:
    """Bytes of float32 sums, and of rows of the weight that are packed."""
    features = call.dims.H
    packed = p.columns if packs(call["weight"], call.dims.BT) else 0
    packed += 0 if row_major(call["input"]) else p.rows
    size = packed * round_up(features, LEADING) * call["input"].itemsize
    for name, terms in gradient_terms(call, p).items():
        sums = sums_of(call[name], terms)
        size += sums.rows * sums.width * F32.itemsize if sums else 0
    return int(size)
