"""The row sets of the gradient's groups, and what programs signal each other about them."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..barrier import COUNTER_WORDS
from .tile_ring import ROW_SETS

PUBLISHED, MULTIPLIED = gl.constexpr(0), gl.constexpr(1)  # gate gradients, products


@gluon.jit
def set_number(row_set):
    """Which of the row sets of all groups this one is."""
    return gl.program_id(1) * ROW_SETS + row_set


@gluon.jit
def rows_of_set(row_set, N, ROWS: gl.constexpr):
    """The first row of a row set, and how many it has."""
    n0 = set_number(row_set) * ROWS
    return n0, gl.minimum(N - n0, ROWS)


@gluon.jit
def counter_of_set(counters_ptr, row_set, EVENT: gl.constexpr):
    """Counts the programs of a row set that have signalled this event."""
    return counters_ptr + (set_number(row_set) * 2 + EVENT) * COUNTER_WORDS
