"""How much memory calls take whose results are kept: every operator and every module, by a meter of one's choice.

As a program it prints what it found on a CPU: the heap of a process that has done other things would hide it.
"""

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matrix import OPERATORS, cases
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import aclgrad.nn
from aclgrad.core.memory import tensors_in
from aclgrad.testing.cases import EDGE, REAL, SMOKE, Data

CALLS, PERIOD = 200, 7  # calls in all, and sizes in rotation
SMALL_OUTPUTS, MOST_KEPT = 1 << 20, 48 << 20  # bytes of one call and of all, to be done in a moment
MODES = ("trained", "inferred", "differentiated", "changing", "autocast")


class Growth(NamedTuple):
    """Bytes: `kept` is counted, in so many tensors; `held` and `left` are measured, with the results and without."""

    kept: int
    tensors: int
    held: int
    left: int


class Meter(NamedTuple):
    """`used` reads how much memory is taken, `trim` gives back what nobody uses."""

    used: Callable[[], int]
    trim: Callable[[], object]


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


CPU = Meter(resident, lambda: getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0))


def growth(meter, call, kept, calls):
    """Of this many calls; `kept(k)` says what the k-th one keeps: places and their bytes."""
    each = [kept(k) for k in range(PERIOD)]  # which also compiles and plans
    for k in range(2 * PERIOD):
        call(k)
    gc.collect()
    meter.trim()
    before = meter.used()
    results = [call(k) for k in range(calls)]
    held = meter.used() - before
    del results
    gc.collect()
    meter.trim()
    counted = [each[k % PERIOD] for k in range(calls)]
    return Growth(sum(sum(c.values()) for c in counted), sum(map(len, counted)), held, meter.used() - before)


def places(tensors):
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def of_operator(meter, operator, backend, changing):
    """Of the case with the most workspace among those with small outputs; `changing`: of several such in turn."""
    found = []
    for case in cases(operator, SMOKE, EDGE, REAL):
        args = case.build()
        plan = operator.plan(args, backend=backend)
        outputs = sum(tensor.nbytes for tensor in tensors_in(plan.allocate()))
        if outputs <= SMALL_OUTPUTS:
            found.append((plan.workspace_size, outputs, case.name, args))
    chosen = sorted(found)[-PERIOD if changing else -1 :]
    mean = sum(outputs for _, outputs, *_ in chosen) // len(chosen)

    def call(k):
        *_, args = chosen[k % PERIOD % len(chosen)]
        return operator(*args, backend=backend)

    return growth(meter, call, lambda k: places(tensors_in([call(k)])), min(CALLS, MOST_KEPT // max(mean, 1)))


def of_module(meter, name, mode, library=aclgrad.nn):
    """What is kept: outputs with their graphs, outputs alone, gradients; the first with changing sizes, in autocast."""
    torch.manual_seed(0)
    make, arguments = MODULES[name]
    module, data = make(library), Data()
    inputs = [arguments(data, 1 + rows) for rows in range(PERIOD)]
    leaves = [*module.parameters(), *(t for t in tensors_in(inputs[3]) if t.requires_grad)]
    shapes = {parameter.shape for parameter in module.parameters()}
    owned = places([*module.parameters(), *module.buffers(), *tensors_in(inputs)])

    def call(k):
        with torch.set_grad_enabled(mode != "inferred"):
            outputs = module(*inputs[k % PERIOD if mode == "changing" else 3])
        if mode != "differentiated":
            return outputs
        return torch.autograd.grad(sum(out.sum() for out in tensors_in([outputs])), leaves)

    def kept(k):
        seen = []
        with saved_tensors_hooks(lambda t: seen.append(t) or t.detach(), lambda t: t):
            results = tensors_in([call(k)])
        if mode == "differentiated":  # its graph is gone
            seen.clear()
        if mode == "autocast":  # a copy of a parameter serves all calls
            seen = [tensor for tensor in seen if tensor.shape not in shapes]
        for result in results:  # the head computes its gradients with the loss
            seen += tensors_in([result, *(getattr(result.grad_fn, "gradients", None) or ())])
        return {place: size for place, size in places(seen).items() if place not in owned}

    with torch.autocast(torch.get_default_device().type, torch.bfloat16, enabled=mode == "autocast"):
        return growth(meter, call, kept, CALLS)


def _with_states(data, features, *shape):
    return data.normal(*shape, features), (data.normal(*shape, features), data.normal(*shape, features))


def _with_targets(data, rows):
    return data.normal(rows, 16), data.integers(0, 1000, rows)


MODULES: dict[str, Any] = {
    "LSTM": (lambda library: library.LSTM(256, 256), lambda data, n: _with_states(data, 256, 1, n)),
    "LSTM with dropout": (
        lambda library: library.LSTM(64, 64, num_layers=2, dropout=0.5, bidirectional=True),
        lambda data, n: (data.normal(3, n, 64),),
    ),
    "LSTMCell": (lambda library: library.LSTMCell(128, 128), lambda data, n: _with_states(data, 128, n)),
    "Hardsigmoid": (lambda library: library.Hardsigmoid(), lambda data, n: (data.normal(n, 5000).requires_grad_(),)),
    "SyncBatchNorm": (
        lambda library: library.SyncBatchNorm(100),
        lambda data, n: (data.normal(1 + n, 100, 30).requires_grad_(),),
    ),
    "LinearCrossEntropyLoss": (
        lambda library: library.LinearCrossEntropyLoss(16, 1000),
        lambda data, n: _with_targets(data, 9 * n),
    ),
    "LinearCrossEntropyLoss of tokens": (
        lambda library: library.LinearCrossEntropyLoss(16, 1000, reduction="none"),
        lambda data, n: _with_targets(data, 9 * n),
    ),
}
"""How each is made, and its arguments for a number of rows."""

COMPARED = ("LSTM", "LSTM with dropout", "LSTMCell", "Hardsigmoid")
"""Those whose twins every version of torch runs on every device."""


MEASURES: dict[str, Callable[[Meter, str], Growth]] = {
    f"{operator.spec.name} {mode}": lambda meter, backend, o=operator, m=mode: of_operator(
        meter, o, backend, m == "changing"
    )
    for operator in OPERATORS
    for mode in ("same", "changing")
} | {
    f"{name} {mode}": lambda meter, backend, n=name, m=mode: of_module(meter, n, m)
    for name in MODULES
    for mode in MODES
}
"""Of every operator and every module, by name."""

TWINS: dict[str, Callable[[Meter, str], Growth]] = {
    f"{name} {mode} by torch": lambda meter, backend, n=name, m=mode: of_module(meter, n, m, nn)
    for name in COMPARED
    for mode in MODES
}
"""Of torch's twins."""

KEYS = list(MEASURES)
"""Of all measures."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages: they would be counted in megabytes
    gc.collect()
    gc.freeze()  # so that the many collections to come are quick
    everything = MEASURES | TWINS
    print(json.dumps({key: everything[key](CPU, "cpu") for key in sys.argv[1:]}))
