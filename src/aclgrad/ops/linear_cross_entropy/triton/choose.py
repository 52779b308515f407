"""How the GPU kernel cuts p: decided from metadata, once per call signature."""

from __future__ import annotations

from typing import NamedTuple

import torch

from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32, Call
from aclgrad.gpu.launch import ALIGNED, is_hopper, multiprocessors

from ..spec import LinearDims

MIB = 1 << 20
WHOLE = 16 * MIB  # bytes of p that are not worth cutting
P_ALONE, P_BESIDE_LOGITS, P_OF_TWO = 208 * MIB, 128 * MIB, 120 * MIB  # bytes of p at a time
STRIP_AS_RESERVE, STRIP = 32 * MIB, 96 * MIB  # bytes of float32 logits at a time
TILE = (128, 256)  # of the products
OVERHEAD = 200  # steps of a tile's main loop that its start and its end cost
OVERLAP_FEATURES = 3072  # up to here, making p of a softmax costs enough to be worth hiding behind a product
LEADING = 64  # elements: where rows are laid out here, they begin at whole lines of the cache


class Chunk(NamedTuple):
    """Tokens [t0, t1) against rows [v0, v1) of the weight."""

    t0: int
    t1: int
    v0: int
    v1: int


class Cut(NamedTuple):
    """p as chunks along one of its sides; the other side is whole in each."""

    chunks: tuple[Chunk, ...]
    along_vocabulary: bool

    @property
    def rows(self) -> int:
        """Tokens of the largest chunk."""
        return max(chunk.t1 - chunk.t0 for chunk in self.chunks)

    @property
    def columns(self) -> int:
        """Columns of the largest chunk."""
        return max(chunk.v1 - chunk.v0 for chunk in self.chunks)


def cut(call: Call, budget: int) -> Cut:
    """Chunks of no more than `budget` bytes that take the least time.

    Cut along the vocabulary, input_grad is summed over the chunks, cut along the tokens, weight_grad: the smaller one.
    """
    tokens, _, vocabulary = call.dims
    along_vocabulary = vocabulary >= tokens
    side = max(tokens, vocabulary)
    row = min(tokens, vocabulary) * call["input"].itemsize
    sizes = [round_up(side, TILE[1])]
    if side * row > WHOLE:
        largest = min(budget // (TILE[1] * row), ceil_div(ceil_div(side, 2), TILE[1]) + 1)
        sizes = [TILE[1] * count for count in range(max(1, largest), max(0, largest // 3), -1)]
    workers = multiprocessors(call.device)
    size = min(sizes, key=lambda size: steps(call.dims, along_vocabulary, size, workers))
    spans = [(start, min(start + size, side)) for start in range(0, side, size)]
    chunks = [Chunk(0, tokens, *span) if along_vocabulary else Chunk(*span, 0, vocabulary) for span in spans]
    return Cut(tuple(chunks), along_vocabulary)


def steps(dims: LinearDims, along_vocabulary: bool, size: int, workers: int) -> int:
    """How long the three products take with chunks of this size, in steps of the main loop of a tile.

    The device takes as many tiles at a time as it has multiprocessors, so a few tiles too many cost a whole round.
    """
    tokens, features, vocabulary = dims
    side = vocabulary if along_vocabulary else tokens

    def product(m: int, n: int, k: int, overhead: int) -> int:
        return ceil_div(ceil_div(m, TILE[0]) * ceil_div(n, TILE[1]), workers) * (k + overhead)

    total = 0
    for length, count in {size: side // size, side % size: 1}.items():
        t, v = (tokens, length) if along_vocabulary else (length, vocabulary)
        summed = 2 * OVERHEAD  # float32 sums are read and written
        logits = product(t, v, features, OVERHEAD)
        input_grad = product(t, features, v, summed if along_vocabulary else OVERHEAD)
        weight_grad = product(v, features, t, OVERHEAD if along_vocabulary else summed)
        total += count * (logits + input_grad + weight_grad)
    return total


def strip_rows(rows: int, columns: int, budget: int) -> int:
    """Tokens of a strip of float32 logits of no more than `budget` bytes, if that is 64 tokens."""
    strips = ceil_div(rows * columns * 4, budget)
    return min(rows, round_up(ceil_div(rows, strips), LEADING))


def row_major(meta: Meta) -> bool:
    """Whether rows are gapless and lie one after the other, all at addresses as aligned as the first."""
    (_, columns), (row, column) = meta.shape, meta.strides
    return column == 1 and row >= columns and row * meta.itemsize % ALIGNED == 0


def aligned(*tensors: torch.Tensor) -> bool:
    """Whether the bulk copy engine takes these addresses."""
    return all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)


def on_hopper(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether half-precision products of our own can be had, beside the library's."""
    return dtype != F32 and is_hopper(device)


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def round_up(a: int, step: int) -> int:
    """The first multiple of `step` that is not below a."""
    return ceil_div(a, step) * step
