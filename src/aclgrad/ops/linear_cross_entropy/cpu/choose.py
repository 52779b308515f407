"""How the CPU kernels cut their work: decided from metadata, once per call signature."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from aclgrad.core.meta import contiguous_strides
from aclgrad.core.spec import F16, F32, Call
from aclgrad.cpu.gemm import Gemm

from ..spec import LinearDims

GRAIN = 1 << 20
"""Multiplications of one product that are worth a thread."""

PART_COLUMNS = 224
"""Of a strip, or so: with two panels of tokens, a strip of logits beside its operands in the level-2 cache."""

BLOCK_TOKENS, BLOCK_PARTS = 1024, 2
"""Tokens of a block of p at most; parts of so many columns."""

TASKS = 4
"""For every thread, if the columns alone do not give as many."""


def part_columns(gemm: Gemm) -> int:
    """Columns of a strip of logits."""
    whole_panels = math.lcm(gemm.rows, gemm.width)
    return whole_panels * max(1, PART_COLUMNS // whole_panels)


def block_of_p(dims: LinearDims, strip: int, part: int, parts: int) -> tuple[int, int]:
    """Tokens and columns of a block of p: tokens as equal as strips of so many allow, up to so many parts."""
    tokens, _, vocabulary = dims
    block_tokens = -(-tokens // (strip * -(-tokens // BLOCK_TOKENS))) * strip
    return block_tokens, part * min(parts, -(-min(tokens, vocabulary) // part))


class Kept(NamedTuple):
    """Where logits are kept for somebody: those of the first `tokens` tokens.

    A matrix of any strides if `block` is 0. Else blocks of so many columns, each beginning `pitch` elements a column
    further on, each with rows as long as it has columns; these hold logits less the largest of their part.
    """

    tokens: int
    row: int = 0
    column: int = 1
    block: int = 0
    pitch: int = 0


def kept_as(dtype: torch.dtype) -> torch.dtype:
    """What logits of matrices of a dtype are kept as in blocks: in the memory of an element of weight_grad."""
    return F16 if dtype.itemsize == F16.itemsize else dtype


KEPT_LOGITS = 16 << 20
"""Bytes of the workspace that logits may be kept in; a thread keeps more than that for its next call anyway."""


def training_parts(gemm: Gemm) -> int:
    """Parts of a block where logits are kept: wider elements, narrower blocks."""
    return BLOCK_PARTS if gemm.operand.unit == 2 * gemm.operand.depth else 1


def kept_tokens(dims: LinearDims, strip: int, itemsize: int, has_weight_grad: bool) -> tuple[int, bool]:
    """Tokens whose logits are kept, all or whole strips of them, and whether that is in the workspace.

    In weight_grad if its memory holds all of them, else where there is room for more.
    """
    tokens, features, vocabulary = dims
    inside = features if has_weight_grad else 0
    beside = KEPT_LOGITS // max(1, vocabulary * itemsize)
    room = inside if tokens <= inside else max(inside, beside)
    return tokens if tokens <= room else room // strip * strip, room > inside


def is_direct(call: Call) -> bool:
    """Whether input_grad has the type and the layout of its sums."""
    meta = call["input_grad"]
    return meta is not None and meta.itemsize >= F32.itemsize and meta.strides == contiguous_strides(meta.shape)


SUM_ROWS = 128
"""Rows of weight_grad, or so, whose sums are kept at a time where its logits were kept."""
