"""The LSTM and its gradient on the CPU: one compiled kernel a layer.

Phase one lays out the workspace and the table that a layer's kernel reads (`cpu/places.py`, `cpu/table.py`); phase two
fills in addresses and runs the layers. A kernel alternates between the recurrence over a chunk of steps and the large
products of that chunk. `cpu/README.md` is the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.backends import Launch
from ...core.spec import Call
from ...core.words import counted
from ...cpu import threads as cpu_threads
from ...cpu.threads import THREAD_GROUP, barrier
from .cpu.access import computed_dtype, product_for
from .cpu.ends_backward import finish, prepare
from .cpu.ends_forward import begin_forward, finish_forward, prepare_forward
from .cpu.params_backward import multiply_panels, write_params
from .cpu.places import rows_of
from .cpu.places_backward import plan_layers
from .cpu.places_forward import plan_forward_layers
from .cpu.products_backward import multiply_chunk, pack_chunk
from .cpu.products_forward import multiply_input, pack_input
from .cpu.recurrence_backward import advance
from .cpu.recurrence_forward import step_forward
from .cpu.runs import chunk_end, chunk_of, is_shared, owned, run_at
from .cpu.table import Layer, Sizes, Table, sizes_of

GRAIN = 100_000  # multiplications worth waking a second thread for


def lstm_forward_layer(thread: int, threads: int, group: Any, words: Any, element: Any, real: Any) -> None:
    """The forward pass of one layer, both directions side by side."""
    sizes = sizes_of(words)
    layer = Layer(thread, threads, words, sizes, element, real, real)
    (first, last), shared = owned(layer), is_shared(layer)
    prepare_forward(layer)
    barrier(group)
    item = first
    while item < last:
        run = run_at(layer, item, last)
        begin_forward(layer, run)
        item += run.b1 - run.b0
    end = 0
    while end < sizes.steps:
        start = end
        end = chunk_end(layer, start, True)
        for direction in range(sizes.directions):
            pack_input(layer, direction, start, end)
        barrier(group)
        for direction in range(sizes.directions):
            multiply_input(layer, direction, start, end)
        barrier(group)
        for step in range(start, end):
            item = first
            while item < last:
                run = run_at(layer, item, last)
                step_forward(layer, run, step, start, end)
                item += run.b1 - run.b0
            if shared:
                barrier(group)
        barrier(group)
    item = first
    while item < last:
        run = run_at(layer, item, last)
        finish_forward(layer, run)
        item += run.b1 - run.b0


def lstm_layer(thread: int, threads: int, group: Any, words: Any, element: Any, real: Any, wide: Any) -> None:
    """The gradient of one layer, both directions side by side."""
    sizes = sizes_of(words)
    layer = Layer(thread, threads, words, sizes, element, real, wide)
    (first, last), shared = owned(layer), is_shared(layer)
    prepare(layer)
    barrier(group)
    end = 0
    while True:  # once also without steps, for sums of nothing
        start = end
        end = chunk_end(layer, start, False)
        for step in range(start, end):
            item = first
            while item < last:
                run = run_at(layer, item, last)
                advance(layer, run, chunk_of(layer, run.direction, start, end), step)
                item += run.b1 - run.b0
            if shared:
                barrier(group)
        barrier(group)
        for direction in range(sizes.directions):
            chunk = chunk_of(layer, direction, start, end)
            pack_chunk(layer, chunk)
            barrier(group)
            multiply_chunk(layer, chunk)
            multiply_panels(layer, chunk)
            barrier(group)
        if end >= sizes.steps:
            break
    item = first
    while item < last:
        run = run_at(layer, item, last)
        finish(layer, run)
        item += run.b1 - run.b0
    for direction in range(sizes.directions):
        write_params(layer, direction)


def layer_kernel(function: Any, dtype: torch.dtype, *wide: torch.dtype) -> cpu_threads.Kernel:
    """A layer compiled for tensors of a dtype."""
    computed = computed_dtype(dtype)
    for linked in (dtype, computed):  # the products must exist before the code that calls them
        product_for(linked)
    return cpu_threads.compile(function, (THREAD_GROUP, torch.int64, dtype, computed, *wide))


@dataclass(frozen=True)
class LayersLaunch:
    """Phase two: all layers, one after another."""

    workspace: int
    work: int
    kernel: cpu_threads.Kernel
    tables: tuple[Table, ...]
    pointers: int  # arguments of the kernel that only stand for their types

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        operands = (*args, *outs, workspace)
        threads = cpu_threads.thread_count(self.work, GRAIN)
        for table in self.tables:
            words = table.fill(operands)
            self.kernel(threads, words.buffer_info()[0], *[0] * self.pointers)

    def describe(self) -> str:
        """In words."""
        if not self.tables:
            return "nothing to compute: no output is wanted"
        sizes = Sizes(*self.tables[0].words[: len(Sizes._fields)])
        layers = counted(len(self.tables), "layer")
        if sizes.packed:
            chunks = f"packed, large products of up to {counted(sizes.capacity, 'row')}"
        else:
            every = max(1, sizes.capacity // max(1, sizes.batch))
            chunks = f"large products every {every} of {sizes.steps} steps"
        units = f"{counted(sizes.blocks, 'block')} of {sizes.width} units"
        return f"{layers}, {chunks}, {units}, {cpu_threads.threads_in_words(self.work, GRAIN)}"


def lstm(call: Call) -> Launch:
    """Phase one of the forward pass; the dtypes are the contract's."""
    tables, size = plan_forward_layers(call)
    kernel = layer_kernel(lstm_forward_layer, call.tensor("input").dtype)
    return LayersLaunch(size, _work(call), kernel, tables, 2)


def lstm_backward(call: Call) -> Launch:
    """Phase one of the gradient; the dtypes are the contract's."""
    tables, size = plan_layers(call)
    kernel = layer_kernel(lstm_layer, call.tensor("input").dtype, torch.float64)
    return LayersLaunch(size, _work(call), kernel, tables, 3)


lstm_with_resets, lstm_with_resets_backward = lstm, lstm_backward
lstm_packed, lstm_packed_backward = lstm, lstm_backward
"""They find `reset` in the call, and how rows lie in its dims."""


def _work(call: Call) -> int:
    """Multiplications of a direction of the first layer."""
    dims = call.dims
    work: int = rows_of(dims) * 4 * dims.H * (dims.layer_input(0) + dims.H)
    return work
