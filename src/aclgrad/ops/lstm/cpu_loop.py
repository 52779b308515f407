"""The recurrence: gate gradients step by step, last step of the chain first.

A step needs dh = dy + (gate gradients of the step before) @ w_hh for all hidden units of a block, then the gates of that block
alone. So a thread owns blocks of rows and hidden units for the whole recurrence: it multiplies, takes the gate gradients, packs them
for the next step, and meets the others once a step. Who owns what does not change a single bit.
"""

from __future__ import annotations

from typing import Any

from ...cpu.compiler import jit
from ...cpu.lanes import pointer_at
from ...cpu.threads import share
from .._shared.lstm_gates_cpu import gate_gradients
from .cpu_access import apart, at, bytes_of, multiply, pack
from .cpu_table import Field, Sizes, sizes_of, view

READ_PER_STEP = 7  # tensors a step reads: dy, i, f, j, o, tanhc, c


@jit
def time_of(sizes: Sizes, direction: int, step: int) -> int:
    """The time index that the backward pass of a direction visits at a step."""
    return sizes.steps - 1 - step if direction == 0 else step


@jit
def valid_rows(words: Any, sizes: Sizes, direction: int, step: int) -> int:
    """How many sequences reach the time of a step: they are the first ones of the batch."""
    batch_sizes = view(words, direction, Field.BATCH_SIZES)
    if batch_sizes.address == 0:
        return sizes.batch
    count = pointer_at(batch_sizes.address, words)[time_of(sizes, direction, step) * batch_sizes.t]
    return min(max(count, 0), sizes.batch)


@jit
def row_of(words: Any, direction: int, step: int) -> int:
    """Rows of gate gradients before a step."""
    return pointer_at(view(words, direction, Field.ROW_OF_STEP).address, words)[step]


@jit
def splits(sizes: Sizes, threads: int) -> int:
    """Into how many parts to cut the rows, so that directions x parts x blocks of hidden units share out evenly."""
    panels = (sizes.batch + sizes.height - 1) // sizes.height
    items = sizes.directions * ((sizes.hidden + sizes.width - 1) // sizes.width)
    parts = 1
    while parts < panels and parts * items % threads != 0 and parts * items < 8 * threads:
        parts += 1
    return parts


@jit
def owned_run(item: int, last: int, sizes: Sizes, threads: int) -> tuple[int, int, int, int, int]:
    """The run of blocks that begins at an item: (direction, panels [p0, p1) of rows, blocks [b0, b1))."""
    panels = (sizes.batch + sizes.height - 1) // sizes.height
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    parts = splits(sizes, threads)
    p0, p1 = share(panels, 1, item // blocks % parts, parts)
    b0 = item % blocks
    return item // (parts * blocks), p0, p1, b0, min(blocks, b0 + last - item)


@jit
def owned_items(sizes: Sizes, thread: int, threads: int) -> tuple[int, int]:
    """The items (direction, part of the rows, block) that a thread owns."""
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    return share(sizes.directions * splits(sizes, threads) * blocks, 1, thread, threads)


@jit
def advance(
    step: int, direction: int, p0: int, p1: int, b0: int, b1: int, words: Any, element: Any, real: Any
) -> None:
    """Gate gradients of a step for some rows and hidden units, and their packing for the step after."""
    sizes = sizes_of(words)
    first_row = row_of(words, direction, step)
    rows = row_of(words, direction, step + 1) - first_row
    recur(step, direction, p0, p1, b0, b1, words, real)
    p1 = min(p1, (rows + sizes.height - 1) // sizes.height)
    chunk_start = step - step % sizes.chunk
    chunk_end = min(chunk_start + sizes.chunk, sizes.steps)
    chunk_rows = row_of(words, direction, chunk_end) - row_of(words, direction, chunk_start)
    row = first_row - row_of(words, direction, chunk_start)
    delta = view(words, direction, Field.DELTA).address + row * sizes.width * bytes_of(real)
    panel = chunk_rows * sizes.width * bytes_of(real)
    take_gates(step, direction, p0, p1, b0, b1, rows, delta, panel, words, element, real)
    packed = packed_step(words, direction, step)
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    for gate in range(4):
        for block in range(b0, b1):
            begin = gate * sizes.hidden + block * sizes.width
            end = min(begin + sizes.width, (gate + 1) * sizes.hidden)
            source = delta + (gate * blocks + block) * panel - begin * bytes_of(real)
            pack(real, packed, source, rows, sizes.width, 4 * sizes.hidden, 1, sizes.height, p0, p1, begin, end)


@jit
def packed_step(words: Any, direction: int, step: int) -> int:
    """Where a step leaves its gate gradients for the step after; the two before it are no longer needed."""
    packed = view(words, direction, Field.PACKED_STEP)
    return packed.address + (step % 2) * packed.t


@jit
def recur(step: int, direction: int, p0: int, p1: int, b0: int, b1: int, words: Any, real: Any) -> None:
    """dh of the rows that the step before computed: its gate gradients times w_hh. The other rows keep theirs."""
    if step == 0:
        return
    sizes = sizes_of(words)
    rows = row_of(words, direction, step) - row_of(words, direction, step - 1)
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    p1 = min(p1, (rows + sizes.height - 1) // sizes.height)
    multiply(
        real, view(words, direction, Field.STATE_DH).address, blocks * sizes.width, packed_step(words, direction, step - 1),
        view(words, direction, Field.PACKED_HH).address, rows, sizes.hidden, 4 * sizes.hidden, sizes.height,
        p0, p1, b0, b1, 0,
    )  # fmt: skip


@jit
def take_gates(
    step: int, direction: int, p0: int, p1: int, b0: int, b1: int, rows: int, delta: int, panel: int,
    words: Any, element: Any, real: Any,
) -> None:  # fmt: skip
    """Gate gradients of the panels [p0, p1) of rows and the blocks [b0, b1), into the panels of `delta`."""
    sizes = sizes_of(words)
    size, real_size = bytes_of(element), bytes_of(real)
    t = time_of(sizes, direction, step)
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    i, f, j = view(words, direction, Field.I), view(words, direction, Field.F), view(words, direction, Field.J)
    o, tanhc = view(words, direction, Field.O), view(words, direction, Field.TANHC)
    dy = view(words, direction, Field.DY)
    if step + 1 < sizes.steps:
        c_prev, before = view(words, direction, Field.C), time_of(sizes, direction, step + 1)
    else:
        c_prev, before = view(words, direction, Field.C0), 0
    dh, dc = view(words, direction, Field.STATE_DH).address, view(words, direction, Field.STATE_DC).address
    gathered = view(words, direction, Field.GATHERED).address + (
        ((direction * sizes.batch + p0 * sizes.height) // sizes.height) * blocks + b0
    ) * READ_PER_STEP * sizes.width * size
    for n in range(p0 * sizes.height, min(p1 * sizes.height, rows)):
        for block in range(b0, b1):
            k = block * sizes.width
            count = min(sizes.width, sizes.hidden - k)
            row = delta + block * panel + n * sizes.width * real_size
            state = (n * blocks * sizes.width + k) * real_size
            sources = (
                at(dy, t, n, k, size), at(i, t, n, k, size), at(f, t, n, k, size), at(j, t, n, k, size),
                at(o, t, n, k, size), at(tanhc, t, n, k, size), at(c_prev, before, n, k, size),
            )  # fmt: skip
            if sizes.unit_strides == 0:
                strides = (dy.k, i.k, f.k, j.k, o.k, tanhc.k, c_prev.k)
                sources = gather(sources, strides, count, gathered, sizes.width, element)
            gate_row(
                count, row, blocks * panel, dh + state, dc + state, sources, element, real
            )


@jit
def gather(sources: Any, strides: Any, count: int, target: int, width: int, element: Any) -> Any:
    """Copies of strided rows side by side; their addresses."""
    size = bytes_of(element)
    for index in range(READ_PER_STEP):
        source = pointer_at(sources[index], element)
        copy = pointer_at(target + index * width * size, element)
        for k in range(count):
            copy[k] = source[k * strides[index]]
    step = width * size
    return (
        target, target + step, target + 2 * step, target + 3 * step,
        target + 4 * step, target + 5 * step, target + 6 * step,
    )  # fmt: skip


@jit
def gate_row(
    count: int, row: int, gate_step: int, dh_address: int, dc_address: int, sources: Any, element: Any, real: Any
) -> None:
    """Gate gradients of one row of a block; dc becomes that of the step before in time."""
    dy, i, f = apart(sources[0], element, 10), apart(sources[1], element, 11), apart(sources[2], element, 12)
    j, o, tanhc = apart(sources[3], element, 13), apart(sources[4], element, 14), apart(sources[5], element, 15)
    c_prev, dh, dc = apart(sources[6], element, 16), apart(dh_address, real, 17), apart(dc_address, real, 18)
    di, df = apart(row, real, 19), apart(row + gate_step, real, 20)
    dg, do = apart(row + 2 * gate_step, real, 21), apart(row + 3 * gate_step, real, 22)
    for k in range(count):
        di[k], df[k], dg[k], do[k], dc[k] = gate_gradients(
            dy[k] + dh[k], dc[k], i[k], f[k], j[k], o[k], tanhc[k], c_prev[k]
        )
