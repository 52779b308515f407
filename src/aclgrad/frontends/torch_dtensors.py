"""Ops that take tensors whose parts are in several processes: `torch.distributed.tensor.DTensor`.

Where an operator's contract or its family says how a call may be cut (`core.cuts`), every rank calls it with its own
parts, and the results are parts of the whole results. What no cut fits is gathered first, so that every rank has the
whole of it. Torch has a registration of sharding rules, too; it does not take ops that return nothing or lists, nor
does it see flags that change what is returned. So this is torch's registration of what a class of tensors does with an
op.

Importing DTensor takes long. So nothing is imported for it: the rules wait until somebody does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, cast

import torch

from ..core.autograd import count_writes
from ..core.cuts import Cut, Cuts, cuts_of
from ..core.errors import InvalidArgument
from ..core.memory import tensors_in
from ..core.plan import Operator
from ..core.spec import OpSpec
from .late import when_imported

DTENSOR = "torch.distributed.tensor"


def register_dtensors(operator: Operator, qualified_name: str, library: Any) -> None:
    """Make an op take DTensors, if it is known how to cut it."""
    cuts = cuts_of(operator.spec)
    if cuts is None:
        return

    def tell(tensor: ModuleType) -> None:
        rule = _Rule(operator, cuts, tensor)
        torch.library.register_torch_dispatch(qualified_name, tensor.DTensor, rule, lib=library)

    when_imported(DTENSOR, tell)


class _Rule:
    """What an op does with DTensors."""

    def __init__(self, operator: Operator, cuts: Cuts, tensor: ModuleType) -> None:
        self.operator, self.cuts, self.torch = operator, cuts, tensor

    def __call__(self, kind: type, op: Any, types: Any, args: Sequence[Any], flags: dict[str, bool]) -> Any:  # noqa: ARG002
        spec = self.operator.spec
        flags = flags or {}
        args = spec.completed(args)
        mesh = self._mesh(args)
        call, produced = self.operator.judge(args, asked=any(flags.values()))
        cuts = self._chosen(self.cuts(call), args, mesh)
        with torch.no_grad():
            parts = [self._part(param.name, value, cuts) for param, value in zip(spec.args, args, strict=True)]
            found = op(*parts, **flags)
            count_writes(tensors_in([args[k] for k in spec.updated]))
            results = found if isinstance(found, tuple) else (found,) * len(spec.outs)
            triples = zip(spec.out_names, results, produced, strict=True)
            whole = [self._whole(result, meta, mesh, self._placements(name, cuts)) for name, result, meta in triples]
        return whole[0] if len(whole) == 1 else tuple(whole) or None

    def _mesh(self, args: Sequence[Any]) -> Any:
        """The one mesh of all tensors."""
        named = list(_named(self.operator.spec, args))
        first, mesh = next((name, t.device_mesh) for name, t in named if isinstance(t, self.torch.DTensor))
        for name, tensor in named:
            if not isinstance(tensor, self.torch.DTensor):
                raise InvalidArgument(f"{name} is a {type(tensor).__name__}, expected a DTensor as {first} is", name)
            if tensor.device_mesh != mesh:
                found = f"{name} is on {tensor.device_mesh}"
                raise InvalidArgument(f"{found}, expected {mesh} as {first} is", name)
        return mesh

    def _chosen(self, cuts: Sequence[Cut], args: Sequence[Any], mesh: Any) -> list[Cut | None]:
        """For every dimension of the mesh: how the call is cut along it, or None, where all ranks have the whole.

        It is the first way in which a tensor is cut already.
        """
        spec = self.operator.spec
        tensors = list(_named(spec, args))
        chosen: list[Cut | None] = []
        for axis in range(mesh.ndim):
            there = [
                cut
                for name, tensor in tensors
                for cut in cuts
                if self._is_shard(tensor, axis, cut.dims.get(name)) and self._fits(cut, tensors, mesh)
            ]
            chosen.append(there[0] if there else None)
        for k in spec.updated:
            name, wanted = spec.args[k].name, self._placements(spec.args[k].name, chosen)
            if args[k] is not None and args[k].placements != wanted:
                found = f"{name} has placements {_shown(args[k].placements)}"
                raise InvalidArgument(f"{found}, expected {_shown(wanted)}: it is updated where it lies", name)
        return chosen

    def _fits(self, cut: Cut, tensors: Sequence[tuple[str, Any]], mesh: Any) -> bool:
        """Whether the contract takes the part of every rank."""
        sizes = [tensor.shape[cut.dims[name]] for name, tensor in tensors if name in cut.dims]
        return cut.may_be_empty or all(size % mesh.size() == 0 for size in sizes)

    def _is_shard(self, tensor: Any, axis: int, dim: int | None) -> bool:
        placement = tensor.placements[axis]
        return dim is not None and type(placement) is self.torch.Shard and placement.dim == dim

    def _placements(self, name: str, cuts: Sequence[Cut | None]) -> tuple[Any, ...]:
        """Where a tensor of this name is, on every dimension of the mesh."""
        return tuple(
            self.torch.Replicate() if cut is None or (name not in cut.dims and name not in cut.sums)
            else self.torch.Partial() if name in cut.sums
            else self.torch.Shard(cut.dims[name])
            for cut in cuts
        )  # fmt: skip

    def _part(self, name: str, value: Any, cuts: Sequence[Cut | None]) -> Any:
        """What this rank has of an argument, or gets of it from the others."""
        if isinstance(value, list | tuple):
            return [self._part(name, member, cuts) for member in value]
        if not isinstance(value, torch.Tensor):
            return value
        there, wanted = cast(Any, value), self._placements(name, cuts)
        if there.placements != wanted:
            there = there.detach().redistribute(placements=wanted)  # autograd has been here; up to 2.10 torch asks it
        return there.to_local()

    def _whole(self, result: Any, meta: Any, mesh: Any, placements: Any) -> Any:
        """What this rank has found as a part of the whole; what is not produced is an empty tensor, or no member."""
        if isinstance(result, list):
            metas = meta or [None] * len(result)
            return [self._whole(*pair, mesh, placements) for pair in zip(result, metas, strict=True)]
        if meta is None:
            placements, shape, stride = [self.torch.Replicate()] * mesh.ndim, result.shape, result.stride()
        else:
            shape, stride = torch.Size(meta.shape), meta.strides
        from_local = self.torch.DTensor.from_local
        return from_local(result, mesh, placements, run_check=False, shape=shape, stride=stride)


def _named(spec: OpSpec, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The tensors among the arguments, also those in lists, with the names of their parameters."""
    for param, value in zip(spec.args, args, strict=True):
        for tensor in tensors_in([value]):
            yield param.name, tensor


def _shown(placements: Sequence[Any]) -> str:
    return f"({', '.join(map(repr, placements))})"
