"""`torch.func.vmap` of an op: one call for every sample, stacked. Slow, and right for every contract.

Torch has two kinds of batched tensors, those of `torch.func` and older ones, which `is_grads_batched=True` and
`torch.autograd.functional` with `vectorize=True` make. Both end in the same loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..core.errors import InvalidArgument, Unsupported
from ..core.plan import Operator

is_old_batch = torch._C._functorch.is_legacy_batchedtensor


def register_vmap(operator: Operator, qualified_name: str, library: Any) -> None:
    """Make an op take batched tensors of both kinds."""
    namespace, name = qualified_name.split("::")
    op = getattr(getattr(torch.ops, namespace), name).default

    def rule(info: Any, in_dims: Any, *args: Any, **named: Any) -> tuple[Any, Any]:
        results = for_every_sample(operator, op, info.batch_size, in_dims, args, named)
        return results, pytree.tree_map(lambda _: 0, results)

    def old_rule(*args: Any, **named: Any) -> Any:
        level = torch._C._vmapmode_increment_nesting() - 1  # torch has no question that changes nothing
        torch._C._vmapmode_decrement_nesting()
        in_dims = pytree.tree_map(lambda value: 0 if _is_old(value) else None, args)
        bare = pytree.tree_map(
            lambda value: torch._remove_batch_dim(value, level, -1, 0) if _is_old(value) else value, args
        )
        size = next(value.shape[0] for value, dim in _pairs(bare, in_dims) if dim is not None)
        results = for_every_sample(operator, op, size, in_dims, bare, named)
        return pytree.tree_map_only(torch.Tensor, lambda result: torch._add_batch_dim(result, 0, level), results)

    torch.library.register_vmap(qualified_name, rule, lib=library)
    library.impl(name, old_rule, "Batched")


def for_every_sample(
    operator: Operator, op: Any, size: int, in_dims: Any, args: Sequence[Any], named: dict[str, Any]
) -> Any:
    """The op's results for each of `size` samples, stacked. `in_dims` has the dimension of each tensor's samples."""
    if size == 0:
        raise InvalidArgument(f"aclgrad.{operator.spec.name} is mapped over 0 samples, expected at least one")
    _require_own_memory(operator, in_dims, args)
    pairs, tree = _pairs(args, in_dims), pytree.tree_structure(args)
    results = []
    for k in range(size):
        sample = [value if dim is None else value.select(dim, k) for value, dim in pairs]
        results.append(op(*pytree.tree_unflatten(sample, tree), **named))
    return pytree.tree_map(lambda *parts: None if parts[0] is None else torch.stack(parts), *results)


def _require_own_memory(operator: Operator, in_dims: Sequence[Any], args: Sequence[Any]) -> None:
    """Raise if a tensor is to be updated that all samples share: their results would be written over each other."""
    for k in operator.spec.updated:
        if k < len(args) and args[k] is not None and in_dims[k] is None:
            name = operator.spec.args[k].name
            found = f"{name} is one tensor for all samples of a vmap"
            raise Unsupported(f"{found}, expected one for each sample, or none: it is updated in place", name)


def _pairs(args: Any, in_dims: Any) -> list[tuple[Any, int | None]]:
    return list(zip(pytree.tree_leaves(args), pytree.tree_leaves(in_dims), strict=True))


def _is_old(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_old_batch(value)
