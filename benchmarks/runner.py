"""Cases × dtypes → rows: gate first, then ours and every peer by turns, then memory and the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any, NamedTuple

import torch

from aclgrad.core.meta import dtype_name
from aclgrad.core.plan import Operator
from aclgrad.core.registry import operators
from aclgrad.testing.cases import BENCH, BENCH_GPU, Case, Cost, suite

from .contenders import Inputs, contenders, regimes
from .device import Device
from .gate import check
from .report import OURS, Regime, Row
from .timing import Call, Effort, heated, interleaved


@dataclass(frozen=True)
class Job:
    """One row to be."""

    operator: Operator
    case: Case
    dtype: torch.dtype

    @property
    def key(self) -> str:
        return f"{self.operator.spec.name}/{self.case.name}/{dtype_name(self.dtype)}"


TAGS = {"cpu": BENCH, "cuda": BENCH_GPU}


def jobs(kind: str, only: str = "*") -> Iterator[Job]:
    """Every case for this kind of device, in every dtype it has, whose key contains the pattern `only`."""
    for operator in operators():
        for case in suite(operator.spec).cases:
            for dtype in case.dtypes if TAGS[kind] in case.tags else ():
                job = Job(operator, case, dtype)
                if fnmatch(job.key, f"*{only}*"):
                    yield job


def run(job: Job, device: Device, effort: Effort) -> Row:
    """One row; without speeds if its gate is red."""
    with torch.device(device.kind):
        args = job.case.build(job.dtype)
    gate = check(job.operator, args, job.dtype)
    backend = job.operator.plan(args).backend if gate.passed else ""
    row = Row(job.operator.spec.name, job.case.name, dtype_name(job.dtype), backend, gate)
    return _timed(row, job, args, device, effort) if gate.passed else row


def _timed(row: Row, job: Job, args: Sequence[Any], device: Device, effort: Effort) -> Row:
    cost = cost_of(job.operator, args)
    first, second = regimes(args, cost, device)
    main = measure(row.operator, first, cost, job.dtype, device, effort)
    cold = measure(row.operator, second, cost, job.dtype, device, effort) if second else None
    rivals = contenders(row.operator, [args], device)  # by now what is allocated once and kept is there
    extra = {name: rival.extra_memory(device) for name, rival in rivals.items()}
    return replace(row, main=main, cold=cold, extra_bytes=extra)


def measure(operator: str, inputs: Inputs, cost: Cost, dtype: torch.dtype, device: Device, effort: Effort) -> Regime:
    """Ours, the peers and the bound by turns."""
    return timed_regime(contenders(operator, inputs.sets, device), inputs, cost, dtype, device, effort)


def timed_regime(
    rivals: Mapping[str, Call], inputs: Inputs, cost: Cost, dtype: torch.dtype, device: Device, effort: Effort
) -> Regime:
    """The contenders, of which ours is one, and the bound by turns."""
    bound = bound_of(cost, dtype, inputs.warm, device)
    turns: dict[str, Call] = {**rivals, BOUND: bound.call}
    clock = heated(device.clock) if inputs.warm else device.clock
    timings, others = interleaved(turns, clock, effort)
    best = bound.times * timings.pop(BOUND).median
    ours = timings.pop(OURS)
    return Regime(inputs.words, ours, timings, best, bound.by, others)


def cost_of(operator: Operator, args: Sequence[Any]) -> Cost:
    """Bytes and operations of a call."""
    plan, flops = operator.plan(args), operator.spec.flops
    moved = suite(operator.spec).moved(args, plan.allocate())
    return Cost(bytes=moved, flops=0 if flops is None else flops(plan.call))


BOUND = "bound"


class Bound(NamedTuple):
    """What the machine can do at best: `times` the time of a call that takes its turn among the contenders."""

    call: Call
    times: float
    by: str


def bound_of(cost: Cost, dtype: torch.dtype, warm: bool, device: Device) -> Bound:
    """A copy of as many bytes, or products of as many operations at torch.mm's speed, whichever takes longer."""
    if cost.flops:
        wide = device.fastest_for(dtype)
        if cost.flops / device.matmul_rate(wide) > cost.bytes / device.copy_rate():
            return Bound(device.matmul(wide), cost.flops / device.matmul_flops, "products")
    return Bound(device.copy(cost.bytes, warm), 1.0, "caches" if warm else "memory")
