"""The LSTM cell on the CPU: one pass from the products to the states.

The matrices are walked in strips of columns, a strip of every row before the next strip, and a thread takes its share
of those lines.
"""

from __future__ import annotations

from typing import Any

from ...cpu.compiler import jit
from ...cpu.lanes import apart
from ...cpu.pointers import moved
from ...cpu.threads import share
from ...cpu.vecmath import tanh
from .._shared.lstm_gates_cpu import next_state

HEAD = 3  # words of the table before the strides


@jit
def _line(line: Any, columns: int) -> None:
    """The cells of a line."""
    (
        x_i, x_f, x_g, x_o, h_i, h_f, h_g, h_o, cx, u_i, u_f, u_g, u_o, v_i, v_f, v_g, v_o,
        hy, cy, i, f, g, o,
    ) = line  # fmt: skip
    for j in range(columns):
        a_i, a_f = _sum(x_i, h_i, u_i, v_i, j), _sum(x_f, h_f, u_f, v_f, j)
        a_g, a_o = _sum(x_g, h_g, u_g, v_g, j), _sum(x_o, h_o, u_o, v_o, j)
        gate_i, gate_f, gate_g, gate_o, c = next_state(a_i, a_f, a_g, a_o, cx[j])
        i[j], f[j], g[j], o[j] = gate_i, gate_f, gate_g, gate_o
        cy[j], hy[j] = c, gate_o * tanh(c)


@jit
def _sum(x: Any, h: Any, u: Any, v: Any, j: int) -> Any:
    """A gate before its activation; its biases u and v may be None."""
    if u is None:
        return x[j] + h[j]
    return ((x[j] + h[j]) + u[j]) + v[j]


@jit
def _gates(pointer: Any, distance: int) -> Any:
    """The pointers to the four gates; None stays None."""
    if pointer is None:
        return pointer, pointer, pointer, pointer
    return pointer, pointer + distance, pointer + 2 * distance, pointer + 3 * distance


def forward(
    thread: int,
    threads: int,
    table: Any,
    input_gates: Any,
    hidden_gates: Any,
    cx: Any,
    input_bias: Any,
    hidden_bias: Any,
    hy: Any,
    cy: Any,
    storage: Any,
) -> None:
    """A thread's part of the whole.

    `table`: rows, cells of a row, cells of a strip; then the stride of every part of every operand from row to row.
    """
    rows, cells, strip = table[0], table[1], table[2]
    i, f, g, o = _gates(storage, cells)
    pointers = (
        *_gates(input_gates, cells), *_gates(hidden_gates, cells), cx,
        *_gates(input_bias, cells), *_gates(hidden_bias, cells),
        hy, cy, apart(i, 0), apart(f, 1), apart(g, 2), apart(o, 3),
    )  # fmt: skip
    down = table + HEAD
    strips = (cells + strip - 1) // strip
    first, last = share(rows * strips, 1, thread, threads)
    for item in range(first, last):
        left = item // rows * strip
        _line(moved(moved(pointers, down, item % rows), 1, left), min(strip, cells - left))
