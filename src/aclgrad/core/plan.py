"""Plan, then launch: bind → check → choose a backend → size the workspace gives a `Plan`; launching decides nothing.

A plan depends on metadata only, so identical calls share one. An aclnn executor is a plan with its tensors; a Python
call is plan + allocate + launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.autograd import profiler
from torch.utils._python_dispatch import _disable_current_modes

from . import memory
from .autograd import count_writes
from .backends import Launch, Skipped, choose, total_bytes
from .binding import take
from .dispatch import NotInMemory, all_in_memory, dispatched, is_watched, require_memory, wants_dispatch
from .errors import InvalidArgument
from .known import Known
from .meta import Meta, Value
from .rows import RowPlans
from .rules import one_device, outputs_are_as_derived, outputs_do_not_overlap_themselves
from .spec import Call, OpSpec, OutList, Param

T = TypeVar("T")

_DIRECT = (True, None, False, False, None, False)
"""What stands beside the arguments of a plan for `direct`; see `Operator.plan`."""


class Plan:
    """Everything phase two needs but the memory: the kernel, the outputs' metadata, the workspace size."""

    __slots__ = ("_spans", "backend", "call", "device", "launch", "nbytes", "outs", "remark")

    def __init__(self, call: Call, outs: tuple[Value, ...], backend: str, launch: Launch) -> None:
        self.call = call
        self.outs = outs
        self.backend = backend
        self.launch = launch
        self.device = call.device
        self.nbytes = total_bytes([meta for _, meta in call.metas(*call.spec.params)])  # of all tensors' elements
        self.remark = call.spec.remark(call)
        self._spans: tuple[memory.Spans, memory.Spans] | None = None  # of arguments and outputs, once asked for

    def describe(self) -> str:
        """What runs and why, in words: the backend, its workspace, and what the launch says of itself.

        >>> import torch, aclgrad
        >>> from aclgrad.ops.hardsigmoid.spec import hardsigmoid
        >>> hardsigmoid.plan([torch.zeros(8)], backend="reference").describe()
        'reference, no workspace: textbook formula in float64'
        """
        size = self.workspace_size
        return f"{self.backend}, {f'workspace of {size:,} bytes' if size else 'no workspace'}: {self.launch.describe()}"

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory that a launch needs now: it may depend on the number of threads."""
        return self.launch.workspace

    def allocate(self, given: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The outputs: the caller's where given, fresh memory otherwise, None where the output is not produced."""
        if given is None:
            return allocated(self.outs)
        return tuple(
            [
                None if meta is None else _empty(meta) if mine is None else mine
                for meta, mine in zip(self.outs, given, strict=True)
            ]
        )

    def refuse_aliases(
        self, args: Sequence[Any], outs: Sequence[Any], scratch: torch.Tensor | None = None, *, fresh: bool = False
    ) -> None:
        """Raise if an output shares memory with anything it must not; usually decided by address ranges alone.

        Outputs that are `fresh` share none.
        """
        if self._spans is None:
            spec = self.call.spec
            of_args, of_outs = ([self.call[param.name] for param in params] for params in (spec.args, spec.outs))
            self._spans = memory.Spans(of_args), memory.Spans(of_outs)
        touched = self._spans[0].ranges(args)
        if not fresh:
            touched += self._spans[1].ranges(outs)
        if scratch is not None:
            touched.append((scratch.data_ptr(), scratch.data_ptr() + scratch.numel()))
        memory.refuse_overlaps(touched, self.call, args, outs, scratch)

    def workspace(self) -> torch.Tensor | None:
        """Scratch memory for one launch."""
        return memory.workspace(self.workspace_size, self.device)


def allocated(metas: Sequence[Any]) -> tuple[Any, ...]:
    """Fresh memory for outputs of this metadata, None where one is not produced."""
    return tuple([memory.empty(meta) if type(meta) is Meta else _empty(meta) for meta in metas])


def _empty(meta: Any) -> Any:
    return None if meta is None else memory.empty(meta) if type(meta) is Meta else [_empty(member) for member in meta]


def _take(params: Sequence[Param], values: Sequence[Any], strict: bool) -> dict[str, Value]:
    return {
        param.name: take(param, param.aclnn if strict else param.name, value)
        for param, value in zip(params, values, strict=True)
    }


class Remembered(Generic[T]):
    """What is made of the metadata of a call's arguments, made once: a plan of something else than a launch."""

    def __init__(self, make: Callable[..., T], operator: Operator) -> None:
        self._make, self._operator = make, operator
        self._made: Known[T] = Known()

    def __call__(self, args: Sequence[Any], *beside: Any) -> T:
        """For these arguments of the operator, all of them, and what `make` takes beside."""
        found = self._made.find(args, *beside)
        if found is None:
            found = self._make(self._operator.judge(args)[0], *beside)
            self._made.keep(found, args, *beside)
        return found


class Operator:
    """A registered contract that can be called.

    `operator(*args, out=None, backend=None)` is the generous Python door; `operator.plan(…, strict=True)` is what the
    aclnn door builds its executors from.
    """

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name
        self._arity = len(spec.args)
        self._updates = bool(spec.updated)
        self._plans: Known[Plan] = RowPlans(spec) if spec.rows else Known()

    def __repr__(self) -> str:
        return f"<operator {self.spec.name}{f' = {self.spec.aclnn}' if self.spec.aclnn else ''}>"

    def __call__(self, *args: Any, out: Any = None, backend: str | None = None, asked: bool = False) -> Any:
        """The output or the tuple of outputs; those with `asked_by` only if they are `asked` for or given in `out`.

        Straight to a kernel, or through torch's dispatcher where that has to know of the call (`core.dispatch`).
        """
        if len(args) < self._arity:
            args = tuple(self.spec.completed(args))
        watched = is_watched()
        if out is None and backend is None and not asked and not watched:
            known = self._plans.recognise(args, *_DIRECT)
            if known is not None and not (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
                return self.launched(known, args)
        if watched or wants_dispatch(args) or (out is not None and wants_dispatch((out,))):
            return dispatched(self, args, out, backend, asked)
        try:
            return self.run(args, out, backend, asked)
        except NotInMemory:
            return dispatched(self, args, out, backend, asked)

    def direct(self, args: Sequence[Any]) -> Any:
        """What `run` returns, gradients aside, or None where torch's dispatcher has to know of the call."""
        plan = self.plan_past_dispatcher(args)
        return None if plan is None else self.launched(plan, args)

    def plan_past_dispatcher(self, args: Sequence[Any]) -> Plan | None:
        """The plan of a call that torch's dispatcher need not know of, gradients aside: of values in memory, untraced.

        A call that is recognised is one of such values.
        """
        if is_watched():
            return None
        return self._plans.recognise(args, *_DIRECT) or (self.plan(args) if all_in_memory(args) else None)

    def run(self, args: Sequence[Any], out: Any = None, backend: str | None = None, asked: bool = False) -> Any:
        """Plan, allocate what is not given in `out`, launch."""
        given = None if out is None else self.given(out)
        return self.launched(self.plan(args, given, backend=backend, asked=asked), args, given)

    def launched(self, plan: Plan, args: Sequence[Any], given: Sequence[Any] | None = None) -> Any:
        """What `run` returns, by the plan of these arguments and of the outputs that are `given`."""
        outs = plan.allocate(given)
        if self._updates or given is not None:
            plan.refuse_aliases(args, outs, fresh=given is None)
        judge, betrays = self.spec.value_rule, None
        if judge is not None and plan.device == memory.CPU:
            betrays = self.spec.betrays if given is None else None
            if betrays is None:
                judge(args)
        size = plan.launch.workspace
        scratch = memory.workspace(size, plan.device) if size else None
        if profiler._is_profiler_enabled:
            with profiler.record_function(f"aclgrad.{self.spec.name} on {plan.backend}"):
                plan.launch(args, outs, scratch)
        else:
            plan.launch(args, outs, scratch)
        if scratch is not None:
            memory.give_back(scratch)
        if judge is not None and betrays is not None and betrays(outs):
            judge(args)
        if self._updates or given is not None:
            count_writes(memory.tensors_in(self.spec.written(args, () if given is None else outs)))
        return outs[0] if len(outs) == 1 else outs

    def plan(
        self,
        args: Sequence[Any],
        outs: Sequence[Any] | None = None,
        *,
        backend: str | None = None,
        asked: bool = False,
        strict: bool = False,
        soc: str | None = None,
        binary: bool = False,
    ) -> Plan:
        """The plan of this call; from the cache when a call with the same metadata was planned before."""
        if len(args) < self._arity:
            args = self.spec.completed(args)
        given = args if outs is None else (*args, *outs)
        beside = (outs is None, backend, asked, strict, soc, binary)
        plan = self._plans.find(given, *beside)
        if plan is None:
            call, produced = self.judge(args, outs, asked, strict, soc, binary)
            self._require_memory(args, outs, strict)
            with _disable_current_modes():  # what a plan allocates is real, whoever replaces tensors around it
                skipped = binary and self.spec.skipped(call)
                plan = Plan(call, produced, *(("none", Skipped()) if skipped else choose(call, backend)))
            self._plans.keep(plan, given, *beside)
        return plan

    def _require_memory(self, args: Sequence[Any], outs: Sequence[Any] | None, strict: bool) -> None:
        """Raise if a kernel could not find a tensor by its address."""
        for param, value in zip((*self.spec.args, *self.spec.outs), (*args, *(outs or ())), strict=False):
            for tensor in memory.tensors_in((value,)):
                require_memory(param.aclnn if strict else param.name, tensor)

    def judge(
        self,
        args: Sequence[Any],
        outs: Sequence[Any] | None = None,
        asked: bool = False,
        strict: bool = False,
        soc: str | None = None,
        binary: bool = False,
    ) -> tuple[Call, tuple[Value, ...]]:
        """The call, judged by the contract, and the metadata of what it produces (None: not produced)."""
        spec = self.spec
        given = _take(spec.outs, (None,) * len(spec.outs) if outs is None else outs, strict)
        values = {**_take(spec.args, args, strict), **given}
        call = Call(spec, values, strict, soc, binary)
        for rule in (*spec.rules, outputs_are_as_derived, one_device, outputs_do_not_overlap_themselves):
            rule(call)
        produced = tuple(
            (given[out.name] or out.meta(call)) if out.is_produced(call, asked) else None for out in spec.outs
        )
        values.update(zip(spec.out_names, produced, strict=True))
        return call, produced

    def given(self, out: Any) -> tuple[Any, ...]:
        """What the caller gave for each output; None where nothing."""
        if len(self.spec.outs) == 1:
            return (out,)
        names = ", ".join(self.spec.out_names)
        if not isinstance(out, list | tuple) or len(out) != len(self.spec.outs):
            raise InvalidArgument(
                f"out is {type(out).__name__}, expected a tuple of {len(self.spec.outs)}: {names}", "out"
            )
        return tuple(
            list(item) if isinstance(item, list | tuple) and isinstance(param, OutList) else item
            for param, item in zip(self.spec.outs, out, strict=True)
        )
