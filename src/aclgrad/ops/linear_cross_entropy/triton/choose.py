"""How the GPU kernels cut their work, and which of two ways they take: decided from metadata, once per call signature.

Every budget of memory, every size of a chunk, a block or a strip, and the model that ranks sizes (`steps`) stand here.
"""

from __future__ import annotations

from typing import NamedTuple

from aclgrad.core.spec import F32, Call
from aclgrad.core.words import counted
from aclgrad.gpu.devices import multiprocessors
from aclgrad.gpu.launch import ALIGNED
from aclgrad.gpu.products import TILE

from ..spec import LinearDims
from . import choose_rows
from .choose_rows import fuses_logits, fuses_probabilities, on_hopper, packed_columns, packs, sums_are_cut
from .layout import LEADING, ceil_div, round_up, row_major
from .options import LogitOptions

MIB = 1 << 20

LINE, BLOCK_TOKENS = 2048, 256
"""Columns of p or of logits that a program takes at a time; tokens, where it looks at vectors alone."""

SUM_ROWS, SUM_COLUMNS = 128, 64
"""Rows and columns of p that a program takes at a time to sum columns: a line of the cache of each row."""

# The gradient
WHOLE_P = 16 * MIB
"""Bytes of p that are not worth cutting."""

P_ALONE, P_BESIDE_LOGITS, P_OF_TWO = 208 * MIB, 128 * MIB, 120 * MIB
"""Bytes of p at a time: where nothing else is kept, beside float32 logits, and for each of two chunks."""

P_STEP = 8 * MIB
"""Bytes by which p gives way to what is kept beside it."""

LOGITS, SPARE_LOGITS = 96 * MIB, 32 * MIB
"""Bytes of float32 logits at a time: where all pass through them, or only those at odd addresses."""

OVERLAP_FEATURES = 3072
"""Up to here, making p of a softmax costs enough to be worth hiding behind a product."""

OVERHEAD = 200
"""Steps of a tile's main loop that its start and its end cost."""

# The loss with its gradients
BUDGET, OF_A_TOKEN = 256 * MIB, 40
"""Bytes of the workspace, and beside it of the numbers that are kept of every token."""

WEIGHT_GRAD_SUMS, INPUT_GRAD_SUMS = 32 * MIB, 96 * MIB
"""Of these, for float32 sums of weight_grad over chunks of tokens, and of input_grad over blocks of the vocabulary."""

CHUNK_IN_TOKENS, PASS_IN_TOKENS = 5000, 3000
"""What it costs to pack the weight and to bring its gradient to its place, for a chunk of tokens whose logits are kept,
and once where logits are made twice: in tokens whose logits are made."""

SLACK = 4096
"""Bytes lost between the pieces of a workspace."""

STRIP_SHARE, SPARE_STRIP_SHARE = 4, 512
"""The part of the budget, one in so many, that float32 logits take on their way to where they are kept."""


class Chunk(NamedTuple):
    """Tokens [t0, t1) against rows [v0, v1) of the weight."""

    t0: int
    t1: int
    v0: int
    v1: int

    @property
    def rows(self) -> int:
        """Tokens, rows of p."""
        return self.t1 - self.t0

    @property
    def columns(self) -> int:
        """Rows of the weight, columns of p."""
        return self.v1 - self.v0


class Cut(NamedTuple):
    """p as chunks along one of its sides; the other side is whole in each, or cut into groups of equal size."""

    chunks: tuple[Chunk, ...]
    along_vocabulary: bool
    groups: int = 1

    @property
    def rows(self) -> int:
        """Tokens of the largest chunk."""
        return max(chunk.rows for chunk in self.chunks)

    @property
    def columns(self) -> int:
        """Columns of the largest chunk."""
        return max(chunk.columns for chunk in self.chunks)


class GradientWay(NamedTuple):
    """How the gradient is computed: the chunks of p, and what makes them."""

    cut: Cut
    leading: int  # elements from one row of p, or of logits, to the next
    recomputes: bool  # the logits are made again; else the softmax is given
    fuses: bool  # p is made inside the product that makes the logits, where addresses allow it
    overlaps: bool  # p of a softmax is made beside the product for weight_grad, where addresses allow it
    strip_rows: int  # tokens of float32 logits at a time, where a pass makes p of them

    def describe(self) -> str:
        """In words."""
        chunks, side = len(self.cut.chunks), "columns" if self.cut.along_vocabulary else "tokens"
        cut = f"p in {counted(chunks, 'chunk')} of {side}, {self.cut.rows:,} × {self.cut.columns:,} at most"
        if self.cut.groups > 1:
            cut += f", in {self.cut.groups} groups of {'tokens' if self.cut.along_vocabulary else 'columns'}"
        if self.fuses:
            made = "p made in the Hopper product that makes the logits"
        elif self.recomputes:
            made = f"logits by the library in strips of {self.strip_rows:,} tokens, then p"
        else:
            made = "p of the softmax, beside the product for weight_grad" if self.overlaps else "p of the softmax"
        return f"{cut}; {made}"


def gradient_way(call: Call) -> GradientWay:
    """The way that the document's gradient takes."""
    dtype, recomputes = call["input"].dtype, call["softmax"] is None
    fuses = recomputes and fuses_probabilities(call)
    overlaps = overlaps_softmax(call)
    beside_logits = recomputes and dtype != F32 and not fuses
    p = cut(call, P_OF_TWO if overlaps else P_BESIDE_LOGITS if beside_logits else P_ALONE)
    leading = round_up(p.columns, LEADING)
    strip = strip_rows(p.rows, leading, SPARE_LOGITS if fuses else LOGITS)
    return GradientWay(p, leading, recomputes, fuses, overlaps and len(p.chunks) > 1, strip)


def overlaps_softmax(call: Call) -> bool:
    """Whether p of a given softmax is made beside the products, which wants aligned rows everywhere."""
    softmax, weight_grad = call["softmax"], call["weight_grad"]
    if softmax is None or weight_grad is None or not on_hopper(call["input"].dtype, call.device):
        return False
    aligned = row_major(softmax) and softmax.strides[0] % 16 == 0 and row_major(weight_grad)
    return aligned and call.dims.H <= OVERLAP_FEATURES and call.dims.BT <= call.dims.V


def cut(call: Call, budget: int, groups: int = 1) -> Cut:
    """Chunks of no more than `budget` bytes that take the least time.

    Cut along the vocabulary, input_grad is summed over the chunks, cut along the tokens, weight_grad: the smaller one.
    """
    tokens, features, vocabulary = call.dims
    along_vocabulary = vocabulary >= tokens
    side, other = max(tokens, vocabulary), min(tokens, vocabulary)
    height = other if groups == 1 else round_up(ceil_div(other, groups), TILE[1])
    dims = LinearDims(height, features, side) if along_vocabulary else LinearDims(side, features, height)
    row = height * call["input"].itemsize
    sizes = [round_up(side, TILE[1])]
    is_packed = packs(call["weight" if along_vocabulary else "input"], tokens)
    packed = is_packed * side * features * call["input"].itemsize
    if side * row > WHOLE_P or packed > choose_rows.PACKED:
        largest = min(budget // (TILE[1] * row), ceil_div(ceil_div(side, 2), TILE[1]) + 1)
        if packed:
            largest = min(largest, side * choose_rows.PACKED // packed // TILE[1])
        sizes = [TILE[1] * count for count in range(max(1, largest), max(0, largest // 3), -1)]
    workers = multiprocessors(call.device)
    size = min(sizes, key=lambda size: steps(dims, along_vocabulary, size, workers))
    spans = [(start, min(start + size, side)) for start in range(0, side, size)]
    parts = [(start, min(start + height, other)) for start in range(0, other, height)]
    chunks = [Chunk(*part, *span) if along_vocabulary else Chunk(*span, *part) for part in parts for span in spans]
    return Cut(tuple(chunks), along_vocabulary, len(parts))


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


def strip_bytes(call: Call, budget: int) -> int:
    """Bytes of float32 logits on their way to where they are kept; float32 ones are there already."""
    dtype = call["input"].dtype
    spare = fuses_logits(call["weight"], call.dims.BT)
    return 0 if dtype == F32 else budget // (SPARE_STRIP_SHARE if spare else STRIP_SHARE)


def tokens_in_weight_grad(call: Call, budget: int, *, borrows: bool = False) -> int:
    """How many tokens keep their logits in the memory of weight_grad; 0 where that is impossible or not worth it."""
    tokens, features, vocabulary = call.dims
    weight_grad, itemsize = call["weight_grad"], call["input"].itemsize
    in_order = all(meta is not None and row_major(meta) for meta in (call["input"], call["weight"], weight_grad))
    if not features or not in_order or weight_grad.strides[0] != features or vocabulary * itemsize % ALIGNED:
        return 0
    rows = chunk_rows(call, budget, borrows=borrows)
    most = min(tokens, features, INPUT_GRAD_SUMS // (features * F32.itemsize))
    if most < tokens:
        most = most // TILE[0] * TILE[0]
    summed = vocabulary * features * F32.itemsize <= WEIGHT_GRAD_SUMS
    return 0 if rows >= tokens or most <= rows or summed else int(most)


def block_columns(call: Call, tokens: int, budget: int) -> int:
    """Columns of a block of these tokens' logits in weight_grad: what takes the least time within the budget."""
    _, features, vocabulary = call.dims
    budget -= strip_bytes(call, budget) + tokens * _statistics_bytes(call) + SLACK
    if call["input_grad"] is not None:
        budget -= tokens * features * F32.itemsize
    most = min(budget // (tokens * call["input"].itemsize * TILE[1]), ceil_div(vocabulary, TILE[1]))
    sizes = [TILE[1] * count for count in range(max(1, most), max(0, most // 2), -1)]
    dims, workers = LinearDims(tokens, features, vocabulary), multiprocessors(call.device)
    return min(sizes, key=lambda size: steps(dims, True, size, workers))


def borrows(call: Call, budget: int) -> bool:
    """Whether the sums that options want of tiles lie in the memory of input_grad, which is free until p is made.

    Where logits are kept in the workspace, that is, and where there are fewer chunks of them for it.
    """
    (tokens, features, vocabulary), input_grad = call.dims, call["input_grad"]
    sums = len(LogitOptions.of(call).tile_sums) * ceil_div(vocabulary, TILE[1]) * F32.itemsize
    if not sums or input_grad is None or input_grad.strides != (features, 1):
        return False
    if sums > features * input_grad.itemsize or features * input_grad.itemsize % ALIGNED:
        return False
    alone, borrowing = (ceil_div(tokens, chunk_rows(call, budget, borrows=lent)) for lent in (False, True))
    return borrowing < alone


def chunk_rows(call: Call, budget: int, *, borrows: bool = False) -> int:
    """Tokens of a chunk whose logits are kept in the workspace: as few chunks as the budget allows, of equal size."""
    tokens, features, vocabulary = call.dims
    itemsize = call["input"].itemsize
    budget -= strip_bytes(call, budget)
    sums = vocabulary * features * F32.itemsize
    if call["weight_grad"] is not None and sums <= WEIGHT_GRAD_SUMS:
        budget -= sums
    width = round_up(features, LEADING)
    row = round_up(vocabulary, LEADING) * itemsize + _statistics_bytes(call, borrows=borrows)
    if not row_major(call["input"]):
        row += width * itemsize
    if packs(call["weight"], tokens):
        budget -= packed_columns(call["weight"], tokens) * width * itemsize
    if packs(call["weight"], tokens) or sums_are_cut(call["input"].dtype, vocabulary):
        row += width * F32.itemsize  # of input_grad
    if call["weight_grad"] is not None and not row_major(call["weight_grad"]):
        budget -= choose_rows.UNPACKED
    most = max(1, (budget - SLACK) // row)
    chunks = ceil_div(tokens, max(1, most // TILE[0] * TILE[0]))
    return int(min(most, round_up(ceil_div(tokens, chunks), TILE[0])))


def makes_logits_twice(call: Call) -> bool:
    """Whether the logits of `loss_and_gradients` are not kept, because they are in too many chunks of tokens for that.

    For each chunk the weight is packed twice, and sums of weight_grad are brought to and fro.
    """
    if call["input"].dtype == F32 or not packs(call["weight"], call.dims.BT):
        return False
    chunks = ceil_div(call.dims.BT, chunk_rows(call, BUDGET))
    return chunks > 1 and chunks * CHUNK_IN_TOKENS > call.dims.BT + PASS_IN_TOKENS


def _statistics_bytes(call: Call, *, borrows: bool = False) -> int:
    """Bytes of a token's statistics in the workspace, tile by tile, where its logits are kept."""
    of_tiles = 2 + (0 if borrows else len(LogitOptions.of(call).tile_sums))
    return (of_tiles * ceil_div(call.dims.V, TILE[1]) + 1) * F32.itemsize
