"""The LSTM gradient on the CPU: one compiled kernel a layer, from the saved activations to all gradients.

Phase one lays out the workspace and the table that each layer is told by (`cpu_plan`, `cpu_table`); phase two fills in
addresses and runs the layers, the last one first. The kernel alternates between the recurrence over a chunk of steps
(`cpu_loop`) and the large products of that chunk (`cpu_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu import threads as teams
from ...cpu.threads import TEAM, barrier
from .cpu_access import computed_dtype, product_for
from .cpu_ends import finish, prepare, write_params
from .cpu_loop import advance, owned, run_at
from .cpu_plan import plan_layers
from .cpu_products import chunk_of, multiply_chunk, pack_chunk
from .cpu_table import Layer, Table, sizes_of

GRAIN = 100_000  # multiplications worth waking a second thread for


def lstm_layer(thread: int, threads: int, team: Any, words: Any, element: Any, real: Any, wide: Any) -> None:
    """The gradient of one layer, both directions side by side."""
    sizes = sizes_of(words)
    layer = Layer(thread, threads, words, sizes, element, real, wide)
    first, last = owned(layer)
    prepare(layer)
    barrier(team)
    for start in range(0, max(sizes.steps, 1), sizes.chunk):
        for step in range(start, min(start + sizes.chunk, sizes.steps)):
            item = first
            while item < last:
                run = run_at(layer, item, last)
                advance(layer, run, step)
                item += run.b1 - run.b0
            barrier(team)
        for direction in range(sizes.directions):
            chunk = chunk_of(layer, direction, start)
            pack_chunk(layer, chunk)
            barrier(team)
            multiply_chunk(layer, chunk)
            barrier(team)
    item = first
    while item < last:
        run = run_at(layer, item, last)
        finish(layer, run)
        item += run.b1 - run.b0
    for direction in range(sizes.directions):
        write_params(layer, direction)


def layer_kernel(dtype: torch.dtype) -> teams.Kernel:
    """The compiled layer for tensors of a dtype."""
    computed = computed_dtype(dtype)
    for linked in (dtype, computed):  # the products must exist before the code that calls them
        product_for(linked)
    return teams.compile(lstm_layer, (TEAM, torch.int64, dtype, computed, torch.float64))


@dataclass(frozen=True)
class LayersLaunch:
    """Phase two: all layers, the last one first."""

    workspace: int
    work: int
    kernel: teams.Kernel
    tables: tuple[Table, ...]

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        operands = (*args, *outs, workspace)
        threads = teams.team_size(self.work, GRAIN)
        for table in self.tables:
            words = table.fill(operands)
            self.kernel(threads, words.buffer_info()[0], 0, 0, 0)


def lstm_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    dims = call.dims
    tables, size = plan_layers(call)
    work = dims.T * dims.N * 4 * dims.H * (dims.layer_input(0) + dims.H)
    return LayersLaunch(size, work, layer_kernel(call.tensor("input").dtype), tables)
