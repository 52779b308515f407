"""The LSTM cell and its gradient on the CPU: one pass over the gates, the bias gradient gathered on the way.

`cpu_forward` has the loops of the cell itself. For its gradient rows are cut into blocks and columns into strips, by
shape alone. A thread walks whole pieces, a group of rows at a time: it makes their gradients, and sums those of the
gates, unrounded, while they are in a near cache. In the end the sums of the blocks are added in the order of their
rows. So the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Scratch
from ...core.meta import Meta
from ...core.spec import Call
from ...cpu.compiler import inlined, jit
from ...cpu.copies import Copies
from ...cpu.lanes import apart, cast
from ...cpu.pointers import moved
from ...cpu.tables import table
from ...cpu.threads import THREAD_GROUP, Kernel, barrier, share, thread_count, threads_in_words
from ...cpu.vecmath import tanh
from .._shared.lstm_gates_cpu import gate_gradients
from .cpu_forward import forward

GATES = 4
GRAIN = 4096  # elements worth a thread
GROUP = 8  # rows summed as they are, in pairs of pairs, before they are widened
LINE = 16  # elements; sums start on a cache line
MOST_BLOCKS, LEAST_ROWS = 32, 16
MOST_COLUMNS, LEAST_COLUMNS = 2048, 256  # of a strip: long runs stream well, and their sums must stay in a near cache
ENOUGH_PIECES = 8  # strips are no shorter than this many pieces need
STRIP = 2048  # cells of the forward pass
HEAD = 6
GATED = ("input_gates", "hidden_gates", "input_bias", "hidden_bias", "storage", "grad_gates")
FIRST_GRADIENT = 8  # of the gates, among the operands


@inlined
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
def _kept_gates(kept: Any, pitch: int) -> Any:
    """Where each gate is kept: for who writes and who reads, since pointers that are apart are promised not to meet."""
    return apart(kept, 4), apart(kept + pitch, 5), apart(kept + 2 * pitch, 6), apart(kept + 3 * pitch, 7)


@jit
def _row_kept(line: Any, columns: int, kept: Any, pitch: int) -> None:
    """The gradients of one row of a piece; those of the gates also unrounded, `pitch` elements from gate to gate."""
    kept_i, kept_f, kept_g, kept_o = _kept_gates(kept, pitch)
    for j in range(columns):
        kept_i[j], kept_f[j], kept_g[j], kept_o[j] = _cell(line, j)


@jit
def _tanh_or_nan(c: Any) -> Any:
    """The hyperbolic tangent hides an Inf, which must make NaN of everything that depends on it."""
    return tanh(c) + cast(0.0, c) * c


@jit
def _add(sums: Any, row: Any, pace: int, rows: int, columns: int) -> None:
    """Add rows, `pace` elements from one to the next, to the float64 `sums`."""
    if rows < GROUP:
        for r in range(rows):
            single = row + r * pace
            for j in range(columns):
                sums[j] = sums[j] + single[j]
        return
    a, b, c, d = row, row + pace, row + 2 * pace, row + 3 * pace
    e, f, g, h = row + 4 * pace, row + 5 * pace, row + 6 * pace, row + 7 * pace
    for j in range(columns):
        sums[j] = sums[j] + (((a[j] + b[j]) + (c[j] + d[j])) + ((e[j] + f[j]) + (g[j] + h[j])))


@jit
def _add_gates(sums: Any, pitch: int, gates: Any, pace: int, rows: int, columns: int) -> None:
    """Add a group of rows of each gate to that gate's sums."""
    i, f, g, o = gates
    _add(sums, i, pace, rows, columns)
    _add(sums + pitch, f, pace, rows, columns)
    _add(sums + 2 * pitch, g, pace, rows, columns)
    _add(sums + 3 * pitch, o, pace, rows, columns)


@jit
def _group(pointers: Any, down: Any, rows: int, columns: int, kept: Any, sums: Any, pitch: int) -> None:
    """The gradients of a group of rows of a piece, also added to the sums."""
    if kept is None:
        for r in range(rows):
            _row(moved(pointers, down, r), columns)
        _dh, _dc, _cx, _cy, _i, _f, _g, _o, di, df, dg, do, _dcx = pointers
        _add_gates(sums, pitch, (di, df, dg, do), down[FIRST_GRADIENT], rows, columns)
    else:
        pace = GATES * pitch
        for r in range(rows):
            _row_kept(moved(pointers, down, r), columns, kept + r * pace, pitch)
        _add_gates(sums, pitch, _kept_gates(kept + 0, pitch), pace, rows, columns)  # + 0: no longer optional


@jit
def _pieces(thread: int, threads: int, table: Any, pointers: Any, kept: Any, sums: Any) -> None:
    """A thread's share of the pieces."""
    rows, columns, block, strip, pitch = table[0], table[1], table[2], table[3], table[4]
    down = table + HEAD
    strips = (columns + strip - 1) // strip
    blocks = (rows + block - 1) // block
    first, last = share(blocks * strips, 1, thread, threads)
    near = _skip(kept, first * GROUP * GATES * pitch)  # one place for all pieces of a thread stays in its cache
    for piece in range(first, last):
        top, left = piece // strips * block, piece % strips * strip
        width = min(strip, columns - left)
        corner = moved(moved(pointers, 1, left), down, top)
        height = min(block, rows - top)
        if sums is None:
            for r in range(height):
                _row(moved(corner, down, r), width)
        else:
            sums_here = sums + piece * GATES * pitch
            for k in range(GATES * pitch):
                sums_here[k] = 0.0
            for r in range(0, height, GROUP):
                _group(moved(corner, down, r), down, min(GROUP, height - r), width, near, sums_here, pitch)


@jit
def _skip(pointer: Any, count: int) -> Any:
    """The pointer moved on; None stays None."""
    return None if pointer is None else pointer + count


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
        total = apart(sums + item * pitch, 4)
        for b in range(1, blocks):
            other = apart(sums + (b * strips * GATES + item) * pitch, 5)
            for j in range(width):
                total[j] = total[j] + other[j]
        target = bias + (item % GATES * columns + left) * stride
        for j in range(width):
            target[j * stride] = total[j] if blocks > 0 else 0.0


def _kernel(
    thread: int, threads: int, group: Any, table: Any,
    dh: Any, dc: Any, cx: Any, cy: Any, gates: Any, grad_gates: Any, dcx: Any, kept: Any, sums: Any, bias: Any,
) -> None:  # fmt: skip
    """A thread's part of the whole.

    `table`: rows, columns, rows of a block, columns of a strip, distance between the sums of gates, the bias gradient's
    stride; then the stride of every part of every operand from row to row.
    """
    cells = table[1]
    i, f, g, o = gates, gates + cells, gates + 2 * cells, gates + 3 * cells
    di, df = apart(grad_gates, 0), apart(grad_gates + cells, 1)
    dg, do = apart(grad_gates + 2 * cells, 2), apart(grad_gates + 3 * cells, 3)
    pointers = (dh, dc, cx, cy, i, f, g, o, di, df, dg, do, dcx)
    _pieces(thread, threads, table, pointers, kept, sums)
    if bias is not None:
        barrier(group)
        _fold(thread, threads, table, sums, bias)


def _of_parts(names: Sequence[str], strides: Sequence[tuple[int, ...]]) -> list[int]:
    """The stride of every gate of every operand from row to row; a bias serves all rows."""
    repeats = [GATES if name in GATED else 1 for name in names]
    return [
        (0, *steps)[-2] if steps else 0 for steps, count in zip(strides, repeats, strict=True) for _ in range(count)
    ]


class LstmCell:
    """Phase two of `lstm_cell`."""

    def __init__(self, call: Call) -> None:
        names = tuple(call.spec.params)
        metas = [call[name] for name in names]
        rows, cells = call["cx"].shape
        scratch = Scratch()
        self._copies = Copies(metas, len(call.spec.outs), scratch)
        self.workspace = scratch.size
        self._table = table([rows, cells, STRIP, *_of_parts(names, self._copies.strides)])
        self._table_address = self._table.data_ptr()
        self._count = rows * cells
        self._has_bias = call["input_bias"] is not None
        biases = (names.index("input_bias"), names.index("hidden_bias"))
        self._given = [k for k in range(len(names)) if self._has_bias or k not in biases]
        self._kernel = Kernel(forward, (torch.int64, *(None if meta is None else meta.dtype for meta in metas)))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        operands = (*args, *outs)
        addresses = self._copies.bring(operands, workspace)
        self._kernel(thread_count(self._count, GRAIN), self._table_address, *[addresses[k] for k in self._given])
        self._copies.bring_back(operands, workspace)

    def describe(self) -> str:
        """In words."""
        rows, cells, strip = self._table[:3].tolist()
        return f"{rows:,} rows of {cells:,} cells in strips of {strip}, {threads_in_words(self._count, GRAIN)}"


class LstmCellBackward:
    """Phase two of `lstm_cell_backward`."""

    def __init__(self, call: Call) -> None:
        cx, bias = call["cx"], call["grad_bias"]
        rows, columns = cx.shape
        absent = Meta(cx.shape, (0, 1), cx.dtype, cx.device)  # a row of zeros that serves all: no kernel of its own
        dh, dc = (absent if call[name] is None else call[name] for name in ("grad_hy", "grad_c"))
        names = ("dh", "dc", "cx", "cy", "storage", "grad_gates", "dcx")
        metas = [dh, dc, *(call[name] for name in ("cx", "cy", "storage", "grad_gates", "grad_cx"))]
        scratch = Scratch()
        block = max(LEAST_ROWS, -(-rows // MOST_BLOCKS))
        blocks = -(-rows // block)
        strip = min(MOST_COLUMNS, max(LEAST_COLUMNS, columns * blocks // ENOUGH_PIECES))
        pitch = -(-min(columns, strip) // LINE) * LINE + LINE  # a power of two would make cache sets collide
        self._copies = Copies(metas, 2, scratch)
        head = (rows, columns, block, strip, pitch, 0 if bias is None else bias.strides[0])
        self._table = table([*head, *_of_parts(names, self._copies.strides)])
        self._table_address = self._table.data_ptr()
        self._zeros = torch.zeros(columns if absent in (dh, dc) else 0, dtype=cx.dtype, device="cpu")
        self._zeros_address = self._zeros.data_ptr()
        self._count = rows * columns
        self._has_bias = bias is not None
        sums = blocks * -(-columns // strip) * GATES * pitch if self._has_bias else 0
        wide = torch.float64 if cx.dtype == torch.float64 else torch.float32
        self._unrounded = cx.dtype == wide
        self._sums = scratch.reserve(sums * torch.float64.itemsize)
        self._kept = scratch.reserve(0 if self._unrounded else sums * GROUP * wide.itemsize)
        self.workspace = scratch.size
        kept = None if self._unrounded else wide
        gathering = (kept, torch.float64, cx.dtype) if self._has_bias else (None, None, None)
        self._kernel = Kernel(_kernel, (THREAD_GROUP, torch.int64, *[cx.dtype] * len(metas), *gathering))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        dh, dc, cx, cy, storage, _ = args
        grad_gates, grad_cx, grad_bias = outs
        operands = (dh, dc, cx, cy, storage, grad_gates, grad_cx)
        addresses = self._copies.bring(operands, workspace)
        for k in (0, 1):
            addresses[k] = addresses[k] or self._zeros_address
        threads = thread_count(self._count, GRAIN)
        if self._has_bias:
            scratch = 0 if workspace is None else workspace.data_ptr()
            kept = () if self._unrounded else (scratch + self._kept,)
            self._kernel(threads, self._table_address, *addresses, *kept, scratch + self._sums, grad_bias.data_ptr())
        else:
            self._kernel(threads, self._table_address, *addresses)
        self._copies.bring_back(operands, workspace)

    def describe(self) -> str:
        """In words."""
        rows, columns, block, strip = self._table[:4].tolist()
        cut = f"blocks of {block} of {rows:,} rows × {min(strip, columns)} of {columns:,} columns"
        sums = ", sums for the bias" if self._has_bias else ""
        return f"{cut}{sums}, {threads_in_words(self._count, GRAIN)}"


def lstm_cell(call: Call) -> Launch:
    """Any of the float dtypes, any strides."""
    return LstmCell(call)


def lstm_cell_backward(call: Call) -> Launch:
    """Any of the float dtypes, any strides."""
    return LstmCellBackward(call)
