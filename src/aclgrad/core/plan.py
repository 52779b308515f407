"""Plan, then launch: bind → check → choose a backend → size the workspace gives a `Plan`; launching decides nothing.

A plan depends on metadata only, so identical calls share one. An aclnn executor is a plan with its tensors; a Python
call is plan + allocate + launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import memory
from .backends import Launch, choose, total_bytes
from .binding import taker
from .errors import InvalidArgument
from .meta import Meta, Value
from .rules import one_device, outputs_do_not_overlap_themselves
from .spec import Call, OpSpec, OutList, Param

PLAN_CACHE_SIZE = 2048


class Plan:
    """Everything phase two needs but the memory: the kernel, the outputs' metadata, the workspace size."""

    __slots__ = ("backend", "call", "device", "launch", "nbytes", "outs", "workspace_size")

    def __init__(self, call: Call, outs: tuple[Value, ...], backend: str, launch: Launch) -> None:
        self.call = call
        self.outs = outs
        self.backend = backend
        self.launch = launch
        self.device = call.device
        self.workspace_size = launch.workspace
        self.nbytes = total_bytes([meta for _, meta in call.metas(*call.spec.params)])

    def allocate(self, given: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The outputs: the caller's where given, fresh memory otherwise, None where the output is not produced."""
        return tuple(
            None if meta is None else (_empty(meta) if given is None or given[k] is None else given[k])
            for k, meta in enumerate(self.outs)
        )

    def workspace(self) -> torch.Tensor | None:
        """Scratch memory for one launch."""
        return memory.workspace(self.workspace_size, self.device)


def _empty(meta: Any) -> Any:
    return memory.empty(meta) if isinstance(meta, Meta) else [memory.empty(member) for member in meta]


def _takers(params: Sequence[Param], strict: bool) -> list[Callable[[Any], Value]]:
    return [taker(param, param.aclnn if strict else param.name) for param in params]


class Operator:
    """A registered contract that can be called.

    `operator(*args, out=None, backend=None)` is the generous Python door; `operator.plan(…, strict=True)` is what the
    aclnn door builds its executors from.
    """

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name
        self._takers = {strict: _takers(spec.args, strict) for strict in (False, True)}
        self._out_takers = {strict: _takers(spec.outs, strict) for strict in (False, True)}
        self._plans: dict[Any, Plan] = {}

    def __repr__(self) -> str:
        return f"<operator {self.spec.name} = {self.spec.aclnn}>"

    def __call__(self, *args: Any, out: Any = None, backend: str | None = None) -> Any:
        if out is None:
            plan = self.plan(args, backend=backend)
            outs = plan.allocate()
        else:
            given = (out,) if len(self.spec.outs) == 1 else self._several(out)
            plan = self.plan(args, given, backend=backend)
            outs = plan.allocate(given)
            memory.refuse_aliases(plan.call, args, outs)
        plan.launch(args, outs, plan.workspace() if plan.workspace_size else None)
        return outs[0] if len(outs) == 1 else outs

    def plan(
        self,
        args: Sequence[Any],
        outs: Sequence[Any] | None = None,
        *,
        backend: str | None = None,
        strict: bool = False,
        soc: str | None = None,
    ) -> Plan:
        """The plan of this call; from the cache when a call with the same metadata was planned before."""
        values = tuple([take(value) for take, value in zip(self._takers[strict], args, strict=True)])
        out_values = None
        if outs is not None:
            out_values = tuple([take(value) for take, value in zip(self._out_takers[strict], outs, strict=True)])
        key = (values, out_values, backend, strict, soc)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._derive(values, out_values, backend, strict, soc)
            if len(self._plans) >= PLAN_CACHE_SIZE:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _derive(
        self,
        values: tuple[Value, ...],
        out_values: tuple[Value, ...] | None,
        backend: str | None,
        strict: bool,
        soc: str | None,
    ) -> Plan:
        spec = self.spec
        bound = dict(zip((param.name for param in spec.args), values, strict=True))
        given = dict(zip(spec.out_names, out_values or (None,) * len(spec.outs), strict=True))
        call = Call(spec, {**bound, **given}, strict, soc)
        for rule in (*spec.rules, one_device, outputs_do_not_overlap_themselves):
            rule(call)
        outs = tuple(
            (given[out.name] if given[out.name] is not None else out.meta(call)) if out.wanted(call) else None
            for out in spec.outs
        )
        complete = Call(spec, {**bound, **dict(zip(spec.out_names, outs, strict=True))}, strict, soc)
        name, launch = choose(complete, backend)
        return Plan(complete, outs, name, launch)

    def _several(self, out: Any) -> tuple[Any, ...]:
        names = ", ".join(self.spec.out_names)
        if not isinstance(out, list | tuple) or len(out) != len(self.spec.outs):
            raise InvalidArgument(f"out is {type(out).__name__}, expected a tuple of {len(self.spec.outs)}: {names}", "out")
        return tuple(
            list(item) if isinstance(item, list | tuple) and isinstance(param, OutList) else item
            for param, item in zip(self.spec.outs, out, strict=True)
        )
