"""The LSTM cell's gradient on a GPU: one pass over the gates, the bias gradient gathered on the way.

A program takes a strip of columns and a block of rows, a few rows at a time, and sums the gates' gradients, unrounded.
The rows of the blocks take turns, so that what all programs read at a time lies together. Where one block holds all
rows, its sum is the bias gradient; otherwise a second launch adds the sums of the blocks. Blocks depend on shape,
layout and device alone and sums are added in a fixed order, so the bits are the same at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ...core.backends import Launch
from ...core.memory import Scratch
from ...core.meta import Meta
from ...core.spec import Call
from ...gpu.devices import multiprocessors, overlaps
from ...gpu.launch import ALIGNED, jit
from ...gpu.maths import tanh, undefined_if_infinite
from ...gpu.operands import CallKernel, Operand
from ...gpu.strided import INT32
from .._shared.lstm_gates_triton import gate_gradients
from .triton_forward import LstmCell

GATES = 4
FEW_ROWS = 128  # are one block: a second launch would take longer than they do
FOLD_ROWS, FOLD_COLUMNS = 256, 16


class Blocks(NamedTuple):
    """How a matrix is cut: a program's columns, and how many rows it takes at a time by how many warps."""

    rows: int
    columns: int
    warps: int


NARROW = Blocks(rows=64, columns=16, warps=4)
CROSSED = Blocks(rows=32, columns=32, warps=8)  # layouts that disagree meet in square tiles
CROSSED_ROWS = 128  # of a block
WIDE = Blocks(rows=1, columns=256, warps=2)  # in as many blocks as can run at once
RESIDENT = 8  # WIDE programs of a multiprocessor
REGISTERS = 128  # of a thread: as many as that leaves, or the compiler would load a row no sooner than it is needed


@jit
def _load_rows(source_ptr, at, strides, bounds, FULL: tl.constexpr):
    """The elements of an operand at (first row, further rows, columns); a missing one is zero."""
    start, row, column = at
    if source_ptr is None:
        values = tl.zeros_like(row + column).to(tl.float32)
    else:
        source = source_ptr + start * strides[0] + (row * strides[0] + column * strides[1])
        values = tl.load(source) if FULL else tl.load(source, _inside(at, bounds))
    return values


@jit
def _store_rows(target_ptr, at, strides, bounds, values, FULL: tl.constexpr):
    start, row, column = at
    target = target_ptr + start * strides[0] + (row * strides[0] + column * strides[1])
    values = values.to(target_ptr.dtype.element_ty)
    if FULL:
        tl.store(target, values)
    else:
        tl.store(target, values, _inside(at, bounds))


@jit
def _inside(at, bounds):
    """Which elements exist; bounds are the ends of rows and columns."""
    start, row, column = at
    return (row < bounds[0] - start) & (column < bounds[1])


@jit
def _load_all(source_ptrs, at, strides, bounds, FULL: tl.constexpr):
    dh_ptr, dc_ptr, cx_ptr, cy_ptr, i_ptr, f_ptr, g_ptr, o_ptr = source_ptrs
    dh_strides, dc_strides, cx_strides, cy_strides, gates_strides = strides
    return (
        _load_rows(dh_ptr, at, dh_strides, bounds, FULL), _load_rows(dc_ptr, at, dc_strides, bounds, FULL),
        _load_rows(cx_ptr, at, cx_strides, bounds, FULL), _load_rows(cy_ptr, at, cy_strides, bounds, FULL),
        _load_rows(i_ptr, at, gates_strides, bounds, FULL), _load_rows(f_ptr, at, gates_strides, bounds, FULL),
        _load_rows(g_ptr, at, gates_strides, bounds, FULL), _load_rows(o_ptr, at, gates_strides, bounds, FULL),
    )  # fmt: skip


@jit
def cell_gradient(
    dh_ptr, dc_ptr, cx_ptr, cy_ptr, storage_ptr, gates_ptr, dcx_ptr, sums_ptr,
    rows, columns, dh_strides, dc_strides, cx_strides, cy_strides, storage_strides, gates_strides, dcx_strides,
    sums_strides,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FULL: tl.constexpr, LONG: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A strip of columns of a block of rows, which are asked for one step ahead.

    `sums`, if wanted, has strides from block to block and from column to column. Where all strips are `FULL` and rows
    are taken one by one there is nothing to mask; the row ahead of the last is then the last again.
    """
    strips = tl.cdiv(columns, COLUMNS)
    block = tl.program_id(0) // strips
    strip = tl.program_id(0) % strips * COLUMNS + tl.arange(0, COLUMNS)
    column, row = strip[None, :], tl.arange(0, ROWS)[:, None]
    start, turn = block * ROWS, tl.num_programs(0) // strips * ROWS
    if LONG:
        column, row, start = column.to(tl.int64), row.to(tl.int64), start.to(tl.int64)
    bounds = (rows, columns)
    next_gate, next_grad = columns * storage_strides[1], columns * gates_strides[1]
    i_ptr, f_ptr, g_ptr, o_ptr = (
        storage_ptr, storage_ptr + next_gate, storage_ptr + 2 * next_gate, storage_ptr + 3 * next_gate,
    )  # fmt: skip
    source_ptrs = (dh_ptr, dc_ptr, cx_ptr, cy_ptr, i_ptr, f_ptr, g_ptr, o_ptr)
    strides = (dh_strides, dc_strides, cx_strides, cy_strides, storage_strides)
    sum_i = tl.zeros([ROWS, COLUMNS], tl.float32)
    sum_f = tl.zeros([ROWS, COLUMNS], tl.float32)
    sum_g = tl.zeros([ROWS, COLUMNS], tl.float32)
    sum_o = tl.zeros([ROWS, COLUMNS], tl.float32)
    here = _load_all(source_ptrs, (start, row, column), strides, bounds, FULL)
    while start < rows:
        ahead = tl.minimum(start + turn, rows - 1) if FULL else start + turn
        there = _load_all(source_ptrs, (ahead, row, column), strides, bounds, FULL)
        grad_h, grad_c, before, after, i, f, g, o = here
        di, df, dg, do, dc_prev = gate_gradients(
            grad_h.to(tl.float32), grad_c.to(tl.float32), i.to(tl.float32), f.to(tl.float32), g.to(tl.float32),
            o.to(tl.float32), tanh(undefined_if_infinite(after.to(tl.float32))), before.to(tl.float32),
        )  # fmt: skip
        at = (start, row, column)
        _store_rows(gates_ptr, at, gates_strides, bounds, di, FULL)
        _store_rows(gates_ptr + next_grad, at, gates_strides, bounds, df, FULL)
        _store_rows(gates_ptr + 2 * next_grad, at, gates_strides, bounds, dg, FULL)
        _store_rows(gates_ptr + 3 * next_grad, at, gates_strides, bounds, do, FULL)
        _store_rows(dcx_ptr, at, dcx_strides, bounds, dc_prev, FULL)
        if sums_ptr is not None:
            sum_i += di if FULL else tl.where(_inside(at, bounds), di, 0.0)
            sum_f += df if FULL else tl.where(_inside(at, bounds), df, 0.0)
            sum_g += dg if FULL else tl.where(_inside(at, bounds), dg, 0.0)
            sum_o += do if FULL else tl.where(_inside(at, bounds), do, 0.0)
        start, here = start + turn, there
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    if sums_ptr is not None:
        target = sums_ptr + block * sums_strides[0] + strip * sums_strides[1]
        step, exists = columns * sums_strides[1], strip < columns
        tl.store(target, tl.sum(sum_i, 0).to(sums_ptr.dtype.element_ty), exists)
        tl.store(target + step, tl.sum(sum_f, 0).to(sums_ptr.dtype.element_ty), exists)
        tl.store(target + 2 * step, tl.sum(sum_g, 0).to(sums_ptr.dtype.element_ty), exists)
        tl.store(target + 3 * step, tl.sum(sum_o, 0).to(sums_ptr.dtype.element_ty), exists)


@jit
def fold_bias(
    sums_ptr, bias_ptr, blocks, width, bias_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OVERLAP: tl.constexpr
):
    """The bias gradient: the sums of the blocks, added up."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    start = 0
    while start < blocks:
        inside = (start + row < blocks) & (column < width)[None, :]
        total += tl.load(sums_ptr + (start + row) * width + column[None, :], inside, 0.0)
        start += ROWS
    tl.store(bias_ptr + column * bias_stride, tl.sum(total, 0).to(bias_ptr.dtype.element_ty), column < width)


class LstmCellBackward:
    """Phase two of `lstm_cell_backward`."""

    def __init__(self, call: Call) -> None:
        rows, columns = call["cx"].shape
        names = {
            "dh": "grad_hy", "dc": "grad_c", "cx": "cx", "cy": "cy", "storage": "storage", "gates": "grad_gates",
            "dcx": "grad_cx",
        }  # fmt: skip
        metas = {name: call[argument] for name, argument in names.items()}
        strides = {f"{name}_strides": (0, 0) if meta is None else meta.strides for name, meta in metas.items()}
        along = all(step in (0, 1) for _, step in strides.values())
        wide = along and all(down % ALIGNED == 0 for down in (columns, *(down for down, _ in strides.values())))
        cut, blocks = _blocks(rows, columns, list(strides.values()), call.device)
        bias: Meta | None = call["grad_bias"]
        folding = bias is not None and blocks > 1
        overlap = folding and overlaps(call.device)

        scratch = Scratch()
        self._fold: CallKernel | None = None
        sums, sums_strides = Operand.of(call, "sums", "grad_bias"), (0, 0 if bias is None else bias.strides[0])
        if bias is not None and folding:
            sums = Operand.at("sums", scratch.tensor((blocks, GATES * columns), torch.float32))
            sums_strides = (GATES * columns, 1)
            self._fold = CallKernel(
                call, fold_bias, (triton.cdiv(GATES * columns, FOLD_COLUMNS),),
                [sums, Operand.of(call, "bias", "grad_bias")],
                {"blocks": blocks, "width": GATES * columns, "bias_stride": bias.strides[0]},
                {"ROWS": FOLD_ROWS, "COLUMNS": FOLD_COLUMNS, "OVERLAP": overlap}, launch_pdl=overlap,
            )  # fmt: skip
        self.workspace = scratch.size
        self._cell = CallKernel(
            call,
            cell_gradient,
            (blocks * triton.cdiv(columns, cut.columns),),
            [*(Operand.of(call, name, argument) for name, argument in names.items()), sums],
            {"rows": rows, "columns": columns, **strides, "sums_strides": sums_strides},
            {
                "ROWS": cut.rows,
                "COLUMNS": cut.columns,
                "FULL": cut.rows == 1 and columns % cut.columns == 0,
                "LONG": any(meta is not None and meta.span // meta.itemsize >= INT32 for meta in metas.values()),
                "OVERLAP": overlap,
            },
            known=strides if wide else (),
            num_warps=cut.warps,
            maxnreg=REGISTERS if cut.rows == 1 else None,
        )

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._cell(args, outs, workspace)
        if self._fold is not None:
            self._fold(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return "; ".join(kernel.describe() for kernel in (self._cell, self._fold) if kernel is not None)


def _blocks(rows: int, columns: int, strides: Sequence[tuple[int, ...]], device: torch.device) -> tuple[Blocks, int]:
    """The cut and the number of blocks, by the shape, the layout and the size of the device."""
    if any(down < along for down, along in strides):
        return CROSSED, max(1, triton.cdiv(rows, CROSSED_ROWS))  # without rows there still is a bias gradient, of zeros
    if rows <= FEW_ROWS:
        return NARROW, 1
    strips = triton.cdiv(columns, WIDE.columns)
    return WIDE, min(FOLD_ROWS, rows, max(1, RESIDENT * multiprocessors(device) // max(1, strips)))


def lstm_cell(call: Call) -> Launch:
    """Any of the float dtypes but float64, any strides."""
    return LstmCell(call)


def lstm_cell_backward(call: Call) -> Launch:
    """Any of the float dtypes but float64, any strides."""
    return LstmCellBackward(call)
