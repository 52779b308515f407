"""The LSTM cell on a GPU: one pass from the products to the states, over tiles of any layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from ...core.loops import Loops
from ...core.spec import Call
from ...gpu.launch import Number, jit
from ...gpu.maths import tanh
from ...gpu.operands import CallKernel, Operand, is_small
from ...gpu.strided import INT32, Tiles, offsets, place
from .._shared.lstm_gates_triton import next_state
from .layout import gate_distances, operand_strides
from .spec import BIASES

BYTES = 8  # of an operand that a thread takes: the fastest of 4, 8 and 16, see README.md
LANES = 32  # threads of a program, one warp; where layouts cross it takes a larger tile with more
CROSSED_WARPS = 8
MOST = 16  # elements of a grain; no access is wider
NAMES = {
    "input_gates": "x", "hidden_gates": "h", "cx": "cx", "input_bias": "u", "hidden_bias": "v", "hy": "hy", "cy": "cy",
    "storage": "storage",
}  # fmt: skip
"""What the kernel calls the operands of the contract, in its order."""


@jit
def _load(source_ptr, at, inside):
    return tl.load(source_ptr + at, inside).to(tl.float32)


@jit
def _store(target_ptr, at, values, inside):
    tl.store(target_ptr + at, values.to(target_ptr.dtype.element_ty), inside)


@jit
def _gate(gates_ptr, distance, GATE: tl.constexpr):
    """The pointer to a gate. Added up step by step: a multiple of the distance may exceed the distance's type."""
    for _ in tl.static_range(GATE):
        gates_ptr += distance
    return gates_ptr


@jit
def _sum(source_ptrs, distances, at, bias_at, inside, bias_inside, GRAIN: tl.constexpr, GATE: tl.constexpr):
    """A gate before its activation; the biases may be None."""
    x_ptr, h_ptr, u_ptr, v_ptr = source_ptrs
    total = _load(_gate(x_ptr, distances[0] * GRAIN, GATE), at[0], inside)
    total += _load(_gate(h_ptr, distances[1] * GRAIN, GATE), at[1], inside)
    if u_ptr is not None:
        total += _load(_gate(u_ptr, distances[2] * GRAIN, GATE), bias_at[0], bias_inside)
        total += _load(_gate(v_ptr, distances[3] * GRAIN, GATE), bias_at[1], bias_inside)
    return total


@jit
def cell_forward(
    x_ptr, h_ptr, cx_ptr, u_ptr, v_ptr, hy_ptr, cy_ptr, storage_ptr,
    sizes, x_strides, h_strides, cx_strides, u_strides, v_strides, hy_strides, cy_strides, storage_strides,
    distances, down,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, ALONG: tl.constexpr, GRAIN: tl.constexpr,
):  # fmt: skip
    """A tile of cells. Where units lie `ALONG` its columns, so do the biases; otherwise they go with its rows.

    `distances` lie between the gates of x, h, u, v and storage. They, the number of columns and the distances between
    rows are counted in grains of so many elements: accesses can be as wide as what is known to divide all of these.
    """
    rows, columns, inside = place(down, (sizes[0] * GRAIN, sizes[1]), ROWS, COLUMNS, WIDE)
    if ALONG:
        bias_at, bias_inside = (columns * u_strides[0], columns * v_strides[0]), columns < sizes[0] * GRAIN
    else:
        bias_at, bias_inside = (rows * u_strides[1], rows * v_strides[1]), rows < down
    rows *= GRAIN
    at = (offsets(rows, columns, sizes, x_strides), offsets(rows, columns, sizes, h_strides))
    source_ptrs = (x_ptr, h_ptr, u_ptr, v_ptr)
    i, f, g, o, c = next_state(
        _sum(source_ptrs, distances, at, bias_at, inside, bias_inside, GRAIN, 0),
        _sum(source_ptrs, distances, at, bias_at, inside, bias_inside, GRAIN, 1),
        _sum(source_ptrs, distances, at, bias_at, inside, bias_inside, GRAIN, 2),
        _sum(source_ptrs, distances, at, bias_at, inside, bias_inside, GRAIN, 3),
        _load(cx_ptr, offsets(rows, columns, sizes, cx_strides), inside),
    )
    storage_at = offsets(rows, columns, sizes, storage_strides)
    _store(_gate(storage_ptr, distances[4] * GRAIN, 0), storage_at, i, inside)
    _store(_gate(storage_ptr, distances[4] * GRAIN, 1), storage_at, f, inside)
    _store(_gate(storage_ptr, distances[4] * GRAIN, 2), storage_at, g, inside)
    _store(_gate(storage_ptr, distances[4] * GRAIN, 3), storage_at, o, inside)
    _store(cy_ptr, offsets(rows, columns, sizes, cy_strides), c, inside)
    _store(hy_ptr, offsets(rows, columns, sizes, hy_strides), o * tanh(c), inside)


class LstmCell:
    """Phase two of `lstm_cell`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        metas = [call[name] for name in call.spec.params]
        strides = operand_strides(call)
        loops = Loops.over(call["cx"].shape, *strides.values())
        tiles = Tiles.of(loops, LANES * BYTES // call["cx"].itemsize)
        far = any(meta is not None and meta.span // meta.itemsize >= INT32 for meta in metas)
        steps = dict(zip(strides, tiles.strides, strict=True))  # innermost first
        distances = gate_distances(call)
        between_rows = [down for name, (_, down) in steps.items() if name not in BIASES]
        grain = 1 if far else math.gcd(MOST, tiles.sizes[0], *distances, *between_rows)
        wide = grain == MOST and all(along == 1 for name, (along, _) in steps.items() if name not in BIASES)
        if is_small(call) and not wide:
            grain = 1
        numbers: dict[str, Number] = {
            "sizes": (tiles.sizes[0] // grain, tiles.sizes[1]),
            **{
                f"{NAMES[name]}_strides": step if name in BIASES else (step[0], step[1] // grain)
                for name, step in steps.items()
            },
            "distances": tuple(distance // grain for distance in distances),
            "down": tiles.down,
        }
        self._kernel = CallKernel(
            call,
            cell_forward,
            (tiles.count,),
            [Operand.of(call, name, argument) for argument, name in NAMES.items()],
            numbers,
            {**tiles.constants, "WIDE": far, "ALONG": steps["input_bias"][0] != 0, "GRAIN": grain},
            known=[name for name in numbers if name.endswith("_strides")] if wide else (),
            num_warps=CROSSED_WARPS if tiles.square else 1,
        )

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()
