"""What follows from where rows begin and how many there are: what is copied to be multiplied, where sums lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32, Call
from aclgrad.gpu.devices import is_hopper, multiprocessors
from aclgrad.gpu.launch import ALIGNED
from aclgrad.gpu.products import TILE

from .layout import LEADING, ceil_div, in_order, round_up, row_major

MIB = 1 << 20

# Statistics of logits
STATISTICS_STRIP, SPARE_STATISTICS_STRIP = 64 * MIB, 16 * MIB
"""Bytes of logits that nobody keeps: where all pass through them, or only those at odd addresses."""

STRIP_COLUMNS = 8192

# Rows that do not begin at aligned addresses, of which products take six times as long in half types
FEW_TOKENS, FEW_OF_ODD = 128, 256
"""Up to here such rows of the weight are read and written as they lie: to copy them all takes as long, and longer where
they begin at odd numbers of elements, so that each is copied alone."""

PACKED, UNPACKED = 32 * MIB, 32 * MIB
"""Bytes of rows that are packed at a time; of a gradient's rows that are computed before they are brought there."""

# Products that make logits with their statistics
FEW_TILES, LONG_SUMS = 0.5, 1024
"""Such a product keeps a multiprocessor busy for each tile alone. Where it has tiles for less than this share of them,
and so many features, the library is faster, which cuts the sums as well."""

MOST_FEATURES = 1 << 16
"""Terms of a sum that a product of ours adds up in one accumulator. Of more, the library adds up parts, which errs
less: of 27 million terms in float16, one accumulator was off by 27 ulp where 5 are allowed."""

# Products of the library
LARGE = 0.9
"""Share of the multiprocessors that have a tile of a product to work on, if the library does not cut its sums."""


def on_hopper(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether half-precision products of our own can be had, beside the library's."""
    return dtype != F32 and is_hopper(device)


def reads_as_it_lies(meta: Meta, tokens: int) -> bool:
    """Whether products read, or write, rows that do not begin at aligned addresses where they lie."""
    most = FEW_OF_ODD if meta.strides[0] % 2 else FEW_TOKENS
    return tokens <= most and meta.dtype != F32 and in_order(meta) and not row_major(meta)


def packs(meta: Meta, tokens: int) -> bool:
    """Whether rows are copied to aligned addresses before products read them."""
    return not row_major(meta) and not reads_as_it_lies(meta, tokens)


def packed_columns(weight: Meta, tokens: int) -> int:
    """Columns of logits, which are rows of the weight, that the library makes at a time: those that are packed."""
    vocabulary = weight.shape[0]
    if packs(weight, tokens):
        rows = _tiled(PACKED // _packed_row(weight))
        return min(STRIP_COLUMNS, round_up(vocabulary, TILE[1]), rows)
    if fuses_logits(weight, tokens):
        return STRIP_COLUMNS
    return max(STRIP_COLUMNS, _tiled(STATISTICS_STRIP // (F32.itemsize * max(1, tokens))))


def packed_tokens(input: Meta) -> int:
    """Tokens whose rows are packed at a time; all where none are."""
    return input.shape[0] if row_major(input) else _tiled(PACKED // _packed_row(input))


def _packed_row(matrix: Meta) -> int:
    """Bytes that a row takes where it is packed; of no features a number to divide by."""
    return max(1, round_up(matrix.shape[1], LEADING) * matrix.itemsize)


def _tiled(columns: int) -> int:
    """As many of these columns as make whole tiles, or a tile."""
    return max(TILE[1], columns // TILE[1] * TILE[1])


def fuses_logits(weight: Meta, tokens: int) -> bool:
    """Whether a product of ours makes logits with their statistics, where addresses allow it."""
    vocabulary, features = weight.shape
    if not 0 < features <= MOST_FEATURES or not on_hopper(weight.dtype, weight.device):
        return False
    if reads_as_it_lies(weight, tokens):
        return False
    return features < LONG_SUMS or not is_small(tokens, vocabulary, weight.device, FEW_TILES)


def fuses_probabilities(call: Call) -> bool:
    """Whether a product of ours makes logits and turns them into p, where addresses allow it."""
    weight = call["weight"]
    possible = 0 < call.dims.H <= MOST_FEATURES and on_hopper(weight.dtype, call.device)
    return possible and not reads_as_it_lies(weight, call.dims.BT)


def sums_are_cut(dtype: torch.dtype, depth: int) -> bool:
    """Whether products with sums of this length, of gapless numbers, are faster if these are cut in two."""
    return dtype != F32 and depth * dtype.itemsize % ALIGNED != 0


def is_small(rows: int, columns: int, device: torch.device, share: float = 1.0) -> bool:
    """Whether a product has tiles for less than this share of the device: the library may then cut its sums."""
    return ceil_div(rows, TILE[0]) * ceil_div(columns, TILE[1]) < share * multiprocessors(device)


class Terms(NamedTuple):
    """How a gradient is added up from the chunks of p."""

    heights: Sequence[int]  # rows that are summed at a time
    additions: int  # how many terms each of them has
    most_bytes: int | None = None  # of float32 sums, if that is limited
    cuts: bool = False  # the sums of its products, that these are faster (`multiply_in_parts`)
    as_it_lies: bool = False  # the library writes to any addresses


class Sums(NamedTuple):
    """The memory for float32 sums of a gradient."""

    rows: int
    width: int  # elements from one row to the next
    whole: bool  # rows of a whole term; else so many rows at a time are computed and brought to the output


def writes_output(meta: Meta, rows: int, terms: Terms) -> bool:
    """Whether the library may write so many rows of a gradient itself, instead of float32 sums.

    It may if nothing is lost by several additions, because the output is float32, or there is but one, or sums would
    take too much. Small products are excepted: the library rounds the parts of their sums.
    """
    if not row_major(meta) and not (terms.as_it_lies and in_order(meta)):
        return False
    large = not is_small(rows, meta.shape[1], meta.device, LARGE)
    most = terms.most_bytes
    crowded = most is not None and rows * meta.shape[1] * F32.itemsize > most
    return bool(meta.dtype == F32 or (large and (crowded or (terms.additions == 1 and not terms.cuts))))


def sums_of(meta: Meta, terms: Terms) -> Sums | None:
    """Memory for what the library may not write itself; None if it writes all."""
    rows = max((rows for rows in terms.heights if not writes_output(meta, rows, terms)), default=0)
    if not rows:
        return None
    width = meta.shape[1] if row_major(meta) else round_up(meta.shape[1], LEADING)
    most = UNPACKED if terms.additions == 1 else terms.most_bytes
    if row_major(meta) or most is None or rows * width * F32.itemsize <= most:
        return Sums(rows, width, whole=True)
    return Sums(min(rows, _tiled(UNPACKED // (width * F32.itemsize))), width, whole=False)
