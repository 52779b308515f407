"""Forward and backward pass of the modules against torch's and other libraries': what a training step pays.

The gate judges the loss and every gradient: truth is torch's own module in float64, the naive run the same in the row's
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial

import torch
from torch import Tensor, nn

import aclgrad.nn
from aclgrad.core.meta import dtype_name
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.testing import Data, Verdict, judge
from aclgrad.testing.cases import Cost
from aclgrad.testing.peers import CPU, CUDA, loaded, no_tf32, without_tf32
from aclgrad.testing.tolerance import naive_dtype

from .contenders import Contender, same_inputs
from .device import Device
from .gate import Gate, verdict_of
from .heads import JOBS, HeadJob, head_inputs, head_steps
from .ranks import ROWS as OVER_RANKS
from .report import OURS, Row
from .rows import Step, Training
from .runner import timed_regime
from .shards import ROWS as OF_A_SHARD
from .timing import Effort


def lstm(
    case: str,
    dtype: torch.dtype,
    devices: tuple[str, ...],
    sizes: tuple[int, int, int],
    layers: int = 1,
    both: bool = False,
    inputs: int | None = None,
) -> Training:
    """T steps of B sequences of H units; as many inputs if not told."""
    steps, batch, hidden = sizes
    width, directions = inputs or hidden, 1 + both
    counts = [4 * hidden * ((width if layer == 0 else directions * hidden) + hidden) for layer in range(layers)]

    def make(data: Data) -> Sequence[Tensor]:
        torch.manual_seed(0)
        weights = nn.LSTM(width, hidden, layers, bidirectional=both).to(torch.float64)
        device = torch.get_default_device()
        return [
            data.normal(steps, batch, width), data.normal(steps, batch, directions * hidden),
            *[p.detach().to(device, data.dtype) for p in weights.parameters()],
        ]  # fmt: skip

    def contenders(args: Sequence[Tensor], device: Device | None) -> dict[str, Step]:  # noqa: ARG001
        x, grad, *params = args

        def step(kind: Callable[..., nn.Module]) -> Step:
            module = loaded(kind(width, hidden, layers, bidirectional=both), x, params)
            leaf = x.detach().requires_grad_()

            def run() -> Sequence[Tensor]:
                y, _ = module(leaf)
                return [y.detach(), *torch.autograd.grad(y, [leaf, *module.parameters()], grad)]

            return run

        theirs = {"nn.LSTM": step(nn.LSTM)}
        if x.is_cuda:
            theirs["nn.LSTM, no TF32"] = without_tf32(step)(nn.LSTM)
        return {OURS: step(aclgrad.nn.LSTM), **theirs}

    flops = 3 * 2 * steps * batch * directions * sum(counts)
    return Training("nn.LSTM", case, dtype, devices, make, contenders, flops)


def head(job: HeadJob, sizes: tuple[int, int, int], dtype: torch.dtype, devices: tuple[str, ...]) -> Training:
    """A language model's head: tokens, features, classes."""
    tokens, features, classes = sizes
    case = "_".join(map(str, (*sizes, job.name))) if job.name else "_".join(map(str, sizes))
    flops = 6 * tokens * features * classes
    make, steps = partial(head_inputs, sizes), partial(head_steps, job)
    return Training(job.module, case, dtype, devices, make, steps, flops)


TRAININGS = (
    lstm("T64_B16_128", F32, CPU, (64, 16, 128)),
    lstm("T128_B32_256", F32, CPU, (128, 32, 256)),
    lstm("T64_B64_512", F32, CPU, (64, 64, 512)),
    lstm("T64_B16_128_2x2", F32, CPU, (64, 16, 128), 2, both=True),
    *(
        lstm(case, dtype, CUDA, sizes, layers, both)
        for case, sizes, layers, both in (
            ("T128_B64_512", (128, 64, 512), 1, False),
            ("T256_B64_1024", (256, 64, 1024), 1, False),
            ("T512_B16_256_2x2", (512, 16, 256), 2, True),
        )
        for dtype in (F32, F16)
    ),
    *(head(job, (1024, 1024, 32000), dtype, CPU) for job in JOBS for dtype in (BF16, F32)),
    *(
        head(job, sizes, BF16, CUDA)
        for job in JOBS
        for sizes in ((8192, 4096, 128256), (8192, 4096, 16032), (4096, 2048, 32000))
    ),
    *OVER_RANKS,
    *OF_A_SHARD,
)


def trainings(kind: str, only: str = "*") -> Iterator[Training]:
    """Those for this kind of device whose key contains the pattern."""
    return (row for row in TRAININGS if kind in row.devices and fnmatch(row.key, f"*{only}*"))


def train(row: Training, device: Device, effort: Effort) -> Row:
    """One row; without speeds if its gate is red."""
    with torch.device(device.kind):
        args = row.make(Data(row.dtype))
        gate = gate_of(row, args)
    shown = Row(row.module, row.case, dtype_name(row.dtype), "modules", gate)
    if not gate.passed:
        return shown
    steps = row.steps(args, device)
    turns = {
        name: step if isinstance(step, Contender) else Contender([step], 0, writes_out=False)
        for name, step in steps.items()
    }
    cost = Cost(bytes=row.bytes, flops=row.flops)
    main = timed_regime(turns, same_inputs(args, warm=False), cost, row.dtype, device, effort)
    extra = {name: contender.extra_memory(device) for name, contender in turns.items()}
    return Row(shown.operator, shown.case, shown.dtype, shown.backend, gate, main, None, extra)


def gate_of(row: Training, args: Sequence[Tensor]) -> Gate:
    """Ours against torch's in float64, in the light of torch's in the row's dtype."""

    def judged() -> Mapping[str, Verdict]:
        ours, theirs = list(row.steps(args, None).values())[:2]
        with no_tf32():
            results, naive = ours(), theirs()
        wide = [t.double() if t.is_floating_point() else t for t in args]
        _, torch_wide = list(row.steps(wide, None).values())[:2]
        narrow = [t.to(naive_dtype(row.dtype)) for t in naive]
        return {
            f"result {k}": judge(result, true, base, row.dtype)
            for k, (result, true, base) in enumerate(zip(results, torch_wide(), narrow, strict=True))
        }

    return verdict_of(judged)
