"""A point's gate, then ours and the peers by turns: on the device, and on the wall for an eager caller."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

import torch

from aclgrad.core.meta import dtype_name
from aclgrad.core.registry import lookup
from aclgrad.testing.cases import Case, sized

from ..contenders import contenders
from ..device import Device
from ..gate import Gate, check
from ..heads import JOBS
from ..report import OURS
from ..rows import Training
from ..timing import Call, Effort, interleaved
from ..training import gate_of, head, lstm
from .modules import MODULES, training
from .points import Point

TF32 = "nn.LSTM"
"""What cuDNN makes of float32 by default; beside it stands the same in float32."""

WALL_STEPS = 0.02  # seconds that steps are launched for, one after the other, in a sample of the wall's time


@dataclass(frozen=True)
class Result:
    """Seconds of every contender at a point; none where the gate is red."""

    point: Point
    gate: Gate
    device: dict[str, float] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)

    def ratio(self, wall: bool = False) -> float | None:
        """How many times faster than the best peer of equal precision ours is."""
        seconds = dict(self.wall if wall else self.device)
        ours = seconds.pop(OURS, None)
        if f"{TF32}, no TF32" in seconds:
            del seconds[TF32]
        return min(seconds.values()) / ours if ours and seconds else None

    def row(self) -> dict[str, Any]:
        """For a file; three digits are more than the noise allows."""
        point = {name: value for name, value in asdict(self.point).items() if value not in ({}, (), False)}
        times = {
            name: {who: float(f"{seconds:.3g}") for who, seconds in found.items()}
            for name, found in (("device", self.device), ("wall", self.wall))
        }
        gate = {"passed": self.gate.passed, "share_of_allowed": round(self.gate.share_of_allowed, 3)}
        return {**point, "dtype": dtype_name(self.point.dtype), "gate": gate, **times}


def training_of(point: Point) -> Training:
    """The module's row at these sizes."""
    sizes, device = point.sizes, ("cpu", "cuda")
    if point.name in MODULES:
        return training(point)
    if point.family == "lstm":
        shape, both = (sizes["T"], sizes["B"], sizes["H"]), sizes["directions"] == 2
        return lstm(str(point), point.dtype, device, shape, sizes["layers"], both, sizes["I"])
    return head(JOBS[0], (sizes["N"], sizes["H"], sizes["V"]), point.dtype, device)


def arguments_of(point: Point) -> Sequence[Any]:
    """The operator's arguments at these sizes, channels last where the point says so."""
    build = sized(lookup(point.name).spec)
    assert build is not None  # every operator of the plane has sizes
    args = Case("plane", build(*point.shape, **point.sizes), (point.dtype,)).build(point.dtype)
    if not point.channels_last:
        return args
    layout = torch.channels_last if len(point.shape) == 4 else torch.channels_last_3d
    return [
        arg.contiguous(memory_format=layout) if isinstance(arg, torch.Tensor) and arg.dim() == len(point.shape) else arg
        for arg in args
    ]


def inputs(point: Point, kind: str) -> tuple[Training | None, Sequence[Any]]:
    """The module's row, if it is one, and the arguments, in the memory of such a device."""
    row = training_of(point) if point.name.startswith("nn.") else None
    with torch.device(kind):
        return row, arguments_of(point) if row is None else row.make(_data(point.dtype))


def checked(point: Point, kind: str) -> Gate:
    """The point's gate. Its kernels are compiled and kept on the way."""
    row, args = inputs(point, kind)
    with torch.device(kind):
        return check(lookup(point.name), args, point.dtype) if row is None else gate_of(row, args)


def checked_aside(points: Sequence[Point], kind: str, processes: int) -> Iterator[tuple[int, Gate]]:
    """The gates of points as they come, by the points' numbers, from processes that compile kernels side by side.

    Together they may lack memory that one has: whoever sees a red gate here checks the point again alone.
    """
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        found = {pool.submit(checked, point, kind): k for k, point in enumerate(points)}
        for done in as_completed(found):
            yield found[done], done.result()


def measured(point: Point, device: Device, effort: Effort, gate: Gate | None = None) -> Result:
    """The point's result. What is timed runs outside the context that says where tensors are made: it costs time."""
    if gate is None or not gate.passed:
        gate = checked(point, device.kind)
    if not gate.passed:
        return Result(point, gate)
    row, args = inputs(point, device.kind)
    if row is None:
        calls: Mapping[str, Call] = contenders(point.name, [args], device)
    else:
        calls = {name: _ignoring_turns(step) for name, step in row.steps(args, device).items()}
    on_device = _medians(calls, device, effort)
    return Result(point, gate, on_device, on_device if device.kind == "cpu" else _on_the_wall(calls))


def _data(dtype: torch.dtype) -> Any:
    from aclgrad.testing import Data

    return Data(dtype)


def _ignoring_turns(step: Any) -> Call:
    return lambda _: step()


def _medians(calls: Mapping[str, Call], device: Device, effort: Effort) -> dict[str, float]:
    timings, _ = interleaved(calls, device.clock, effort)
    return {name: timing.median for name, timing in timings.items()}


def _on_the_wall(calls: Mapping[str, Call]) -> dict[str, float]:
    """Seconds a step takes whoever launches one after the other, by turns; the median of some samples."""

    def sample(call: Call, count: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for k in range(count):
            call(k)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    counts = {name: max(3, int(WALL_STEPS / sample(call, 3))) for name, call in calls.items()}
    samples = [{name: sample(call, counts[name]) for name, call in calls.items()} for _ in range(7)]
    return {name: sorted(each[name] for each in samples)[3] for name in calls}
