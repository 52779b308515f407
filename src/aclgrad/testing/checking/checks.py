"""What is looked at in each call of somebody's kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...core.memory import tensors_in
from ...core.meta import Meta
from ...core.plan import Operator
from ..cases import sized
from ..data.dumps import Dump
from ..guards import Guarded
from ..layouts import LAYOUTS, apply
from ..poison import fill
from ..precision.standards import Asked
from ..report.model import CallReport
from ..verification.expected import Expectation, expectation
from ..verification.judging import judge_outputs
from .subjects import Misfit, Subject

NUMBERS, BORDERS, RANDOM = "numbers", "borders", "random calls"
TIMES, PATIENCE = 50, 0.1  # calls that must give the same bits, unless they take longer: seconds
Found = Iterator[CallReport]


@dataclass
class Trial:
    """A call that somebody's kernel is tried with. What is not about numbers is looked at where it is `thorough`."""

    operator: Operator
    subject: Subject
    name: str
    kind: str  # which of the checks its numbers belong to
    args: list[Any]
    asked: Asked
    thorough: bool

    @cached_property
    def expected(self) -> Expectation:
        """What the call should write."""
        names = [arg.name for arg in self.operator.spec.args]
        on_host = [apply(Tensor.cpu, value) for value in self.args]
        return expectation(self.operator, Dump(self.name, Path(), dict(zip(names, on_host, strict=True))), None)

    @cached_property
    def first(self) -> tuple[list[Any] | None, str | None, list[str]]:
        """(what the call wrote, why it did not, what happened to its inputs)."""
        mine = deepcopy(self.args)
        written, fault = self.attempt(mine)
        same = _same(tensors_in(self._read(self.args)), tensors_in(self._read(mine)))
        places = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(self._read(mine)) if tensor.numel()}
        results = tensors_in((written or [])[: len(self.operator.spec.outs)])
        shared = any(tensor.untyped_storage().data_ptr() in places for tensor in results if tensor.numel())
        faults = ["an input is not what it was before the call"] * (not same)
        return written, fault, faults + ["a result lies in the memory of an input"] * shared

    def attempt(self, args: Sequence[Any], outs: Sequence[Any] | None = None) -> tuple[list[Any] | None, str | None]:
        """(what a call wrote, why it did not)."""
        try:
            return self.subject(args, outs), None
        except Misfit as fault:
            return None, str(fault)
        except Exception as raised:  # noqa: BLE001  whatever somebody's kernel raises is what is found out
            return None, f"raised {type(raised).__name__}: {raised}".strip().rstrip(":")

    def judged(self, check: str, how: str, written: Sequence[Any] | None, fault: str | None = None) -> CallReport:
        """What somebody's kernel wrote, beside what is expected."""
        report = self.found(check, how, fault)
        if written is not None:
            outputs = dict(zip(self.operator.spec.written_names, written, strict=True))
            judge_outputs(report, self.expected, Dump(self.name, Path(), outputs=outputs), None, self.asked)
        return report

    def found(self, check: str, how: str, *faults: str | None) -> CallReport:
        """A report without numbers."""
        name = f"{self.name}, {how}" if how else self.name
        return CallReport(name, check=check, faults=[fault for fault in faults if fault])

    def outs(self, memory: Callable[[Meta], Tensor]) -> list[Any]:
        """Memory for every output."""
        return [
            None if meta is None else memory(meta) if isinstance(meta, Meta) else [memory(member) for member in meta]
            for meta in (self.metas[name] for name in self.operator.spec.out_names)
        ]

    @cached_property
    def metas(self) -> dict[str, Any]:
        """Of the outputs."""
        _, produced = self.operator.judge(self.args, asked=True)
        return dict(zip(self.operator.spec.out_names, produced, strict=True))

    def _read(self, args: Sequence[Any]) -> list[Any]:
        return [arg for k, arg in enumerate(args) if k not in self.operator.spec.updated]


def numbers(trial: Trial) -> Found:
    """Results beside the truth."""
    written, fault, _ = trial.first
    yield trial.judged(trial.kind, "", written, fault)


def inputs(trial: Trial) -> Found:
    """What is only read stays as it is, and no result lies in its memory."""
    written, _, faults = trial.first
    if written is not None:
        yield trial.found("inputs", "", *faults)


def determinism(trial: Trial) -> Found:
    """The same bits when it is called again, as often as patience allows, with one thread too."""
    written, _, _ = trial.first
    if written is None:
        return
    threads = torch.get_num_threads()
    try:
        for count in (threads, 1):
            torch.set_num_threads(count)
            until, other = monotonic() + PATIENCE, None
            for _ in range(TIMES):
                again, fault = trial.attempt(deepcopy(trial.args))
                other = fault or (None if _same(tensors_in(written), tensors_in(again or [])) else "gave other bits")
                if other or monotonic() > until:
                    break
            yield trial.found("determinism", "again" if count == threads else "with one thread", other)
    finally:
        torch.set_num_threads(threads)


def layouts(trial: Trial) -> Found:
    """The same values elsewhere in memory."""
    for name, layout in LAYOUTS.items():
        yield trial.judged("layouts", name, *trial.attempt([apply(layout, arg) for arg in deepcopy(trial.args)]))


def outputs(trial: Trial) -> Found:
    """Given memory is written in full, and nothing between or beside the elements."""
    for gaps in (False, True) if trial.subject.takes_strides else (False,):
        guards: list[Guarded] = []

        def memory(meta: Meta, gaps: bool = gaps, guards: list[Guarded] = guards) -> Tensor:
            guards.append(Guarded(meta.shape, meta.dtype, gaps=gaps))
            return guards[-1].tensor

        outs = trial.outs(memory)
        written, fault = trial.attempt(deepcopy(trial.args), outs)
        report = trial.judged("outputs", "with gaps" if gaps else "given", _of_memory(trial, written, outs), fault)
        if not all(guard.intact for guard in guards):
            report.faults.append("bytes beside the elements of an output were written")
        yield report


def bounds(trial: Trial) -> Found:
    """Inputs amid NaN, which must not be read or written."""
    guards: list[Guarded] = []

    def guarded(tensor: Tensor) -> Tensor:
        guards.append(Guarded.around(tensor))
        return guards[-1].tensor

    report = trial.judged("bounds", "", *trial.attempt([apply(guarded, arg) for arg in trial.args]))
    if not all(guard.intact for guard in guards):
        report.faults.append("bytes beside the elements of an input were written")
    yield report


def aliasing(trial: Trial) -> Found:
    """An output over an input of its kind: either refused, with the input left as it is, or right."""
    spec = trial.operator.spec
    for at, name in enumerate(spec.out_names):
        meta = trial.metas[name]
        for k, (param, arg) in enumerate(zip(spec.args, trial.args, strict=True)):
            if not isinstance(meta, Meta) or not isinstance(arg, Tensor) or not arg.numel() or k in spec.updated:
                continue
            if tuple(arg.shape) != meta.shape or arg.dtype != meta.dtype:
                continue
            mine = deepcopy(trial.args)
            outs = trial.outs(lambda meta: fill(torch.empty(meta.shape, dtype=meta.dtype)))
            outs[at] = mine[k]
            written, _ = trial.attempt(mine, outs)
            how = f"{spec.params[name].aclnn} over {param.aclnn}"
            if written is None:
                kept = _same([arg], [mine[k]])
                yield trial.found("aliasing", how, None if kept else "the input is no longer the same")
            else:
                yield trial.judged("aliasing", how, _of_memory(trial, written, outs))


CHECKS: dict[str, Callable[[Trial], Found]] = {
    "inputs": inputs, "determinism": determinism, "layouts": layouts, "outputs": outputs, "bounds": bounds,
    "aliasing": aliasing,
}  # fmt: skip
"""Besides those of numbers."""


def unable(name: str, operator: Operator, subject: Subject) -> str | None:
    """Why a check makes no sense for a function; None if it does."""
    if name == RANDOM and sized(operator.spec) is None:
        return "the operator's sizes have no names to draw by"
    if name == "layouts" and not subject.takes_strides:
        return "a C function gets contiguous tensors"
    if name == "aliasing" and not subject.may_refuse:
        return "a C function has no way to refuse"
    if name in ("outputs", "aliasing") and not subject.takes_out:
        return "the function has no keyword out" if operator.spec.outs else "the operator works in place"
    return None


def scattered(args: Sequence[Any], dice: random.Random) -> list[Any]:
    """The arguments, each in a layout of its own."""
    return [apply(dice.choice([Tensor.clone, *LAYOUTS.values()]), arg) for arg in args]


def _of_memory(trial: Trial, written: Sequence[Any] | None, outs: Sequence[Any]) -> list[Any] | None:
    """What lies in the memory that was given, and what was updated."""
    return None if written is None else [*outs, *written[len(trial.operator.spec.outs) :]]


def _same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(*(tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in pair))
        for pair in zip(one, other, strict=True)
    )
