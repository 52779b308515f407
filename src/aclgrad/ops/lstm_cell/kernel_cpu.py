"""The LSTM cell's gradient on the CPU: one pass over the gates, the bias gradient gathered on the way.

Rows are cut into blocks and columns into strips, by shape alone. A thread walks whole pieces. It sums the unrounded
gate gradients of a few rows as they are, adds these sums in float64, and in the end the sums of the blocks are added in
the order of their rows. So the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.meta import Meta
from ...core.spec import Call
from ...cpu.compiler import Step, jit
from ...cpu.lanes import apart, cast
from ...cpu.strided import moved, stepped
from ...cpu.threads import TEAM, Kernel, barrier, share, team_size
from ...cpu.vecmath import tanh
from .._shared.lstm_gates_cpu import gate_gradients

GATES = 4
GRAIN = 4096  # elements worth a thread
GROUP = 8  # rows summed, two by two, before they are widened: five roundings, as a pairwise sum of 32 rows has
LINE = 16  # elements; sums start on a cache line
MOST_BLOCKS, LEAST_ROWS = 32, 16
MOST_COLUMNS, LEAST_COLUMNS = 2048, 256  # of a strip: long runs stream well, and their sums must stay in a near cache
ENOUGH_PIECES = 8  # strips are no shorter than this many pieces need
HEAD = 8


@jit
def _cell(line: Any, j: int) -> Any:
    """The gradients of one element, stored; those of the gates are returned unrounded."""
    dh, dc, cx, cy, i, f, g, o, di, df, dg, do, dcx = line
    wrt_i, wrt_f, wrt_g, wrt_o, wrt_c = gate_gradients(dh[j], dc[j], i[j], f[j], g[j], o[j], _tanh_or_nan(cy[j]), cx[j])
    di[j], df[j], dg[j], do[j], dcx[j] = wrt_i, wrt_f, wrt_g, wrt_o, wrt_c
    return wrt_i, wrt_f, wrt_g, wrt_o


@jit
def _row(line: Any, columns: int) -> None:
    """The gradients of one row of a piece."""
    for j in range(columns):
        _cell(line, j)


@jit
def _row_and_sums(line: Any, columns: int, few: Any, pitch: int) -> None:
    """The gradients of one row of a piece, also added to the sums of a few rows, `pitch` elements from gate to gate."""
    sum_i, sum_f = apart(few, 4), apart(few + pitch, 5)
    sum_g, sum_o = apart(few + 2 * pitch, 6), apart(few + 3 * pitch, 7)
    for j in range(columns):
        wrt_i, wrt_f, wrt_g, wrt_o = _cell(line, j)
        sum_i[j] = sum_i[j] + wrt_i
        sum_f[j] = sum_f[j] + wrt_f
        sum_g[j] = sum_g[j] + wrt_g
        sum_o[j] = sum_o[j] + wrt_o


@jit
def _below(line: Any) -> Any:
    """The line, whose results never meet those of the line above it."""
    dh, dc, cx, cy, i, f, g, o, di, df, dg, do, dcx = line
    return (
        dh, dc, cx, cy, i, f, g, o,
        apart(di, 8), apart(df, 9), apart(dg, 10), apart(do, 11), apart(dcx, 12),
    )  # fmt: skip


@jit
def _two_rows_and_sums(line: Any, below: Any, columns: int, few: Any, pitch: int) -> None:
    """The gradients of two neighbouring rows: the sums are read and written half as often."""
    sum_i, sum_f = apart(few, 4), apart(few + pitch, 5)
    sum_g, sum_o = apart(few + 2 * pitch, 6), apart(few + 3 * pitch, 7)
    for j in range(columns):
        i0, f0, g0, o0 = _cell(line, j)
        i1, f1, g1, o1 = _cell(below, j)
        sum_i[j] = sum_i[j] + (i0 + i1)
        sum_f[j] = sum_f[j] + (f0 + f1)
        sum_g[j] = sum_g[j] + (g0 + g1)
        sum_o[j] = sum_o[j] + (o0 + o1)


@jit
def _tanh_or_nan(c: Any) -> Any:
    """The hyperbolic tangent hides an Inf, which must make NaN of everything that depends on it."""
    return tanh(c) + cast(0.0, c) * c


@jit
def _pieces(thread: int, threads: int, table: Any, pointers: Any, few: Any, sums: Any) -> None:
    """A thread's share of the pieces."""
    rows, columns, block, strip, pitch = table[0], table[1], table[2], table[3], table[4]
    along, down = table + HEAD, table + HEAD + len(pointers)
    strips = (columns + strip - 1) // strip
    blocks = (rows + block - 1) // block
    first, last = share(blocks * strips, 1, thread, threads)
    for piece in range(first, last):
        top, left = piece // strips * block, piece % strips * strip
        width = min(strip, columns - left)
        corner = moved(moved(pointers, along, left), down, top)
        height = min(block, rows - top)
        if few is None:
            for r in range(height):
                _row(stepped(moved(corner, down, r), along), width)
        else:
            few_here, sums_here = few + piece * GATES * pitch, sums + piece * GATES * pitch
            for k in range(GATES * pitch):
                few_here[k] = cast(0.0, few)
                sums_here[k] = 0.0
            r = 0
            while r < height:
                line = stepped(moved(corner, down, r), along)
                if r + 1 < height:
                    below = _below(stepped(moved(corner, down, r + 1), along))
                    _two_rows_and_sums(line, below, width, few_here, pitch)
                else:
                    _row_and_sums(line, width, few_here, pitch)
                r += 2
                if r % GROUP == 0 or r >= height:
                    _collect(few_here, sums_here, GATES * pitch)


@jit
def _collect(few: Any, sums: Any, count: int) -> None:
    """Add the sums of a few rows to those of the block and start them anew."""
    for k in range(count):
        sums[k] = sums[k] + few[k]
        few[k] = cast(0.0, few)


@jit
def _fold(thread: int, threads: int, table: Any, sums: Any, bias: Any) -> None:
    """The bias gradient: the sums of the blocks, added block after block to those of the first."""
    rows, columns, block, strip, pitch, stride = table[0], table[1], table[2], table[3], table[4], table[5]
    strips = (columns + strip - 1) // strip
    blocks = (rows + block - 1) // block
    first, last = share(strips * GATES, 1, thread, threads)
    for item in range(first, last):
        left = item // GATES * strip
        width = min(strip, columns - left)
        total = sums + item * pitch
        for b in range(1, blocks):
            other = total + b * strips * GATES * pitch
            for j in range(width):
                total[j] = total[j] + other[j]
        target = bias + (item % GATES * columns + left) * stride
        for j in range(width):
            target[j * stride] = total[j] if blocks > 0 else 0.0


def _kernel(
    thread: int, threads: int, team: Any, table: Any,
    dh: Any, dc: Any, cx: Any, cy: Any, gates: Any, grad_gates: Any, dcx: Any, few: Any, sums: Any, bias: Any,
) -> None:  # fmt: skip
    """A thread's part of the whole.

    `table`: rows, columns, rows of a block, columns of a strip, distance between the sums of gates, the bias gradient's
    stride, distances between gates and between their gradients; then every operand's stride along a row, and every
    one's down a column.
    """
    next_gate, next_grad = table[6], table[7]
    i, f, g, o = gates, gates + next_gate, gates + 2 * next_gate, gates + 3 * next_gate
    di, df = apart(grad_gates, 0), apart(grad_gates + next_grad, 1)
    dg, do = apart(grad_gates + 2 * next_grad, 2), apart(grad_gates + 3 * next_grad, 3)
    pointers = (dh, dc, cx, cy, i, f, g, o, di, df, dg, do, dcx)
    _pieces(thread, threads, table, pointers, few, sums)
    if bias is not None:
        barrier(team)
        _fold(thread, threads, table, sums, bias)


class LstmCellBackward:
    """Phase two of `lstm_cell_backward`."""

    def __init__(self, call: Call) -> None:
        cx, storage, gates, bias = (call[name] for name in ("cx", "storage", "grad_gates", "grad_bias"))
        rows, columns = cx.shape
        absent = Meta(cx.shape, (0, 0), cx.dtype, cx.device)
        dh, dc = (absent if call[name] is None else call[name] for name in ("grad_hy", "grad_c"))
        metas = (dh, dc, cx, call["cy"], *[storage] * GATES, *[gates] * GATES, call["grad_cx"])
        along, down = [meta.strides[1] for meta in metas], [meta.strides[0] for meta in metas]
        plain = all(step in (0, 1) for step in along)  # one odd operand slows the loop down; a mix is not worth code
        steps = [step if plain else None for step in along]
        arguments = [Step(cx.dtype, steps[k]) for k in (*range(5), 8, 12)]

        block = max(LEAST_ROWS, -(-rows // MOST_BLOCKS))
        blocks = -(-rows // block)
        strip = min(MOST_COLUMNS, max(LEAST_COLUMNS, columns * blocks // ENOUGH_PIECES))
        pitch = -(-min(columns, strip) // LINE) * LINE + LINE  # a power of two would make cache sets collide
        distances = (columns * storage.strides[1], columns * gates.strides[1])
        head = (rows, columns, block, strip, pitch, 0 if bias is None else bias.strides[0], *distances)
        self._table = torch.tensor([*head, *along, *down], dtype=torch.int64)
        self._table_address = self._table.data_ptr()
        self._zero = torch.zeros(1, dtype=cx.dtype)  # stands for a missing gradient, with strides of 0
        self._zero_address = self._zero.data_ptr()
        self._count = rows * columns
        self._has_bias = bias is not None
        sums = blocks * -(-columns // strip) * GATES * pitch if self._has_bias else 0
        wide = torch.float64 if cx.dtype == torch.float64 else torch.float32
        self._few_offset = sums * torch.float64.itemsize
        self.workspace = sums * (torch.float64.itemsize + wide.itemsize)
        gathering = (wide, torch.float64, cx.dtype) if self._has_bias else (None, None, None)
        self._kernel = Kernel(_kernel, (TEAM, torch.int64, *arguments, *gathering))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        dh, dc, cx, cy, storage, _ = args
        grad_gates, grad_cx, grad_bias = outs
        operands = (
            self._table_address,
            self._zero_address if dh is None else dh.data_ptr(),
            self._zero_address if dc is None else dc.data_ptr(),
            cx.data_ptr(), cy.data_ptr(), storage.data_ptr(), grad_gates.data_ptr(), grad_cx.data_ptr(),
        )  # fmt: skip
        threads = team_size(self._count, GRAIN)
        if self._has_bias:
            scratch = 0 if workspace is None else workspace.data_ptr()
            self._kernel(threads, *operands, scratch + self._few_offset, scratch, grad_bias.data_ptr())
        else:
            self._kernel(threads, *operands)


def lstm_cell_backward(call: Call) -> Launch:
    """Any of the float dtypes, any strides."""
    return LstmCellBackward(call)
