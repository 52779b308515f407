"""The LSTM gradient on the CPU: one compiled kernel a layer, from the saved activations to all gradients.

Phase one lays out the workspace and the table each layer is told by (`cpu_table`); phase two fills in addresses and runs the
layers from the last to the first. The kernel alternates between the recurrence over a chunk of steps (`cpu_loop`) and the
large products of that chunk (`cpu_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.spec import Call
from ...cpu.threads import TEAM, Kernel, barrier, compile, team_size
from .cpu_access import computed_dtype, product_for
from .cpu_loop import advance, owned_items, owned_run
from .cpu_plan import plan_layers
from .cpu_products import finish, multiply_chunk, pack_chunk, prepare, write_params
from .cpu_table import Table, sizes_of

GRAIN = 100_000  # multiplications worth waking a second thread for


def lstm_layer(thread: int, threads: int, team: Any, words: Any, element: Any, real: Any, wide: Any) -> None:
    """The gradient of one layer, both directions side by side.

    `element`, `real` and `wide` are there for their types: what tensors hold, what is computed in, what biases are summed in.
    """
    sizes = sizes_of(words)
    prepare(thread, threads, words, element, real)
    barrier(team)
    for start in range(0, max(sizes.steps, 1), sizes.chunk):
        end = min(start + sizes.chunk, sizes.steps)
        for step in range(start, end):
            item, last = owned_items(sizes, thread, threads)
            while item < last:
                direction, p0, p1, b0, b1 = owned_run(item, last, sizes, threads)
                advance(step, direction, p0, p1, b0, b1, words, element, real)
                item += b1 - b0
            barrier(team)
        for direction in range(sizes.directions):
            pack_chunk(thread, threads, words, direction, start, end, element, real, wide)
            barrier(team)
            multiply_chunk(thread, threads, words, direction, start, end, element, real)
            barrier(team)
    item, last = owned_items(sizes, thread, threads)
    while item < last:
        direction, p0, p1, b0, b1 = owned_run(item, last, sizes, threads)
        finish(direction, p0, p1, b0, b1, words, element, real)
        item += b1 - b0
    for direction in range(sizes.directions):
        write_params(thread, threads, words, direction, element, real, wide)


@dataclass(frozen=True)
class LayerLaunch:
    """All layers, last one first."""

    workspace: int
    work: int
    kernel: Kernel
    tables: tuple[Table, ...]

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        operands = (*args, *outs, workspace)
        threads = team_size(self.work, GRAIN)
        for table in self.tables:
            words = table.fill(operands)
            self.kernel(threads, words.buffer_info()[0], 0, 0, 0)


def lstm_backward(call: Call) -> LayerLaunch:
    """Phase one of `lstm_backward`."""
    dims = call.dims
    tables, size = plan_layers(call)
    work = dims.T * dims.N * 4 * dims.H * (dims.layer_input(0) + dims.H)
    return LayerLaunch(size, work, layer_kernel(call.tensor("input").dtype), tables)


def layer_kernel(dtype: torch.dtype) -> Kernel:
    """The compiled layer for tensors of a dtype."""
    computed = computed_dtype(dtype)
    for linked in (dtype, computed):  # the products must exist before the code that calls them
        product_for(linked)
    return compile(lstm_layer, (TEAM, torch.int64, dtype, computed, torch.float64))
