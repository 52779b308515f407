"""Where the tensors of a call are: in one process, on the ranks of a group, or by the placements of DTensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....core.collectives import process_group
from ....core.errors import InvalidArgument
from ..arguments import TokenStats
from .head import over_ranks
from .ranges import Ranges, even_ranges, ranges_of, require_range

ALIKE = ("target", "weight", "token_weight", "normalizer")
"""Arguments that are the same on all ranks."""

ALONE = "one rank has the whole vocabulary"


def is_distributed(value: object) -> bool:
    """Whether it is a DTensor; asks nobody to import torch's module of that name."""
    return type(value) not in (Tensor, nn.Parameter) and isinstance(value, Tensor) and hasattr(value, "device_mesh")


def local_part(value: Any) -> Tensor:
    """The tensor of this rank."""
    local: Tensor = value.to_local() if is_distributed(value) else value
    return local


def as_rows(local: Tensor, mesh: Any, rows: int) -> Any:
    """The local rows of a tensor that is sharded along them as a DTensor; as they are without a mesh."""
    if mesh is None:
        return local
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((rows, *local.shape[1:]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def split_over_ranks(
    arguments: Mapping[str, Any], group: Any, vocab: object, *, reduce_input_grad: bool, sequence_parallel: bool,
    check: bool, ranges: Ranges | None = None,
) -> Any:  # fmt: skip
    """The loss of a vocabulary that ranks share; `ALONE` where there is one rank, which has all of it."""
    weight = arguments["linear_weight"]
    how: dict[str, Any] = {"reduce_input_grad": reduce_input_grad, "check": check}
    if is_distributed(weight):
        if group is not None or vocab is not None:
            name = "vocab" if group is None else "group"
            raise InvalidArgument(f"{name} is given beside a DTensor, expected None: its placement says it", name)
        return _Placed.of(weight).loss(arguments, sequence_parallel, how)
    if is_distributed(arguments["input"]):
        raise InvalidArgument(
            "input is a DTensor and linear_weight is not, expected linear_weight to be sharded on the same mesh",
            "linear_weight",
        )
    group, mine = process_group(group), require_range(vocab)
    if group.size() == 1 and not mine:
        return ALONE
    known = ranges or ranges_of(group, weight, mine)
    dim = 0 if sequence_parallel else None
    return over_ranks(arguments, group, known, split_dim=dim, **how)


class _Placed(NamedTuple):
    """A weight that is sharded along its rows."""

    mesh: Any
    dim: int  # of the mesh, over which the rows are sharded
    rows: int  # of the whole vocabulary

    @classmethod
    def of(cls, weight: Any) -> _Placed:
        """Raise unless a mesh dimension shards the rows, and the others replicate them."""
        sharded = [k for k, placement in enumerate(weight.placements) if placement.is_shard(0)]
        others = [placement for placement in weight.placements if not placement.is_shard(0)]
        strided = any(type(placement).__name__ != "Shard" for k in sharded for placement in [weight.placements[k]])
        if len(sharded) != 1 or strided or not all(placement.is_replicate() for placement in others):
            raise InvalidArgument(
                f"linear_weight has placements {_shown(weight)}, expected Shard(dim=0) on one dimension of the "
                "mesh and Replicate() on the others",
                "linear_weight",
            )
        return cls(weight.device_mesh, sharded[0], weight.shape[0])

    def loss(self, arguments: Mapping[str, Any], sequence_parallel: bool, how: dict[str, Any]) -> Any:
        """The loss of local tensors; replicated if the input was a DTensor, else as local as that."""
        local = dict(arguments)
        x, weight, bias = (arguments[name] for name in ("input", "linear_weight", "linear_bias"))
        local["linear_weight"] = weight.to_local()
        if bias is not None:
            local["linear_bias"] = self._bias(bias, weight.placements)
        for name in ALIKE:
            if is_distributed(arguments[name]):
                local[name] = self._replicated(name, arguments[name])
        dim = 0 if sequence_parallel else None
        if is_distributed(x):
            local["input"], dim = self._input(x, how["reduce_input_grad"])
        group = self.mesh.get_group(self.dim)
        ranges = even_ranges(self.rows, group.size())
        start, stop = ranges[group.rank()]
        if local["linear_weight"].shape[0] != stop - start:
            raise InvalidArgument(
                f"linear_weight has {local['linear_weight'].shape[0]} local rows, expected {stop - start} of the "
                f"{self.rows}, as DTensor splits them",
                "linear_weight",
            )
        found = over_ranks(local, group, ranges, split_dim=dim, **how)
        return self._as_replicated(found) if is_distributed(x) else found

    def _bias(self, bias: Any, placements: Any) -> Tensor:
        if not is_distributed(bias) or bias.placements != placements or bias.device_mesh != self.mesh:
            raise InvalidArgument(
                f"linear_bias has placements {_shown(bias)}, expected those of linear_weight", "linear_bias"
            )
        return bias.to_local()  # type: ignore[no-any-return]

    def _replicated(self, name: str, value: Any) -> Tensor:
        if value.device_mesh != self.mesh or not all(placement.is_replicate() for placement in value.placements):
            raise InvalidArgument(
                f"{name} has placements {_shown(value)}, expected Replicate() on the mesh of linear_weight", name
            )
        return value.to_local()  # type: ignore[no-any-return]

    def _input(self, input: Any, reduces: bool) -> tuple[Tensor, int | None]:
        """The local part, and along which dimension it is one."""
        mine = input.placements[self.dim] if input.device_mesh == self.mesh else None
        others = [placement for k, placement in enumerate(input.placements) if k != self.dim]
        tokens = range(input.dim() - 1)
        split = next((dim for dim in tokens if mine is not None and mine.is_shard(dim)), None)
        fits = mine is not None and (mine.is_replicate() or split is not None)
        if not fits or not all(placement.is_replicate() for placement in others):
            raise InvalidArgument(
                f"input has placements {_shown(input)}, expected Replicate(), or Shard of a dimension of tokens where "
                "linear_weight has Shard(dim=0), on the same mesh",
                "input",
            )
        from torch.distributed.tensor import Partial

        placements = list(input.placements)
        if split is None and not reduces:
            placements[self.dim] = Partial()
        return input.to_local(grad_placements=placements), split

    def _as_replicated(self, found: Any) -> Any:
        from torch.distributed.tensor import DTensor, Replicate

        def replicated(value: Tensor) -> Any:
            return DTensor.from_local(value, self.mesh, [Replicate()] * self.mesh.ndim, run_check=False)

        if isinstance(found, tuple):
            loss, stats = found
            return replicated(loss), TokenStats(*(replicated(value) for value in stats))
        return replicated(found)


def _shown(value: object) -> str:
    """Placements, and of which mesh, in words."""
    if not is_distributed(value):
        return f"none, it is a {type(value).__name__}"
    tensor: Any = value
    names = tensor.device_mesh.mesh_dim_names
    placements = ", ".join(repr(placement) for placement in tensor.placements)
    return f"({placements}) on a mesh of shape {list(tensor.device_mesh.shape)}" + (f" {names}" if names else "")
