"""How the tensors of a call may be cut so that every part of them is a call of its own.

Whoever has a tensor's parts in several processes may then call the operator in each. A family says it for its operators
in `cuts.py`, as `CUTS`; of an element-wise one the contract says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .meta import Meta
from .registry import part
from .spec import Call, OpSpec


@dataclass(frozen=True)
class Cut:
    """A tensor named in `dims` is cut along that dimension, each member of a list too; all others are whole.

    Outputs in `sums` are the sums of what the parts give. Some contracts take no part of size 0.
    """

    dims: dict[str, int]
    sums: tuple[str, ...] = ()
    may_be_empty: bool = field(default=True, kw_only=True)


Cuts: TypeAlias = Callable[[Call], Sequence[Cut]]
"""All ways to cut a call that the rules have passed."""


def along(*names: str, dim: int = 0, sums: tuple[str, ...] = ()) -> Cuts:
    """These tensors, along one dimension."""
    return lambda _: [Cut(dict.fromkeys(names, dim), sums)]


def anywhere(call: Call) -> Sequence[Cut]:
    """All tensors along any dimension, where they have one shape."""
    metas = {name: call[name] for name in call.spec.params if isinstance(call[name], Meta)}
    shapes = {meta.shape for meta in metas.values()}
    return [Cut(dict.fromkeys(metas, dim)) for dim in range(len(shapes.pop()))] if len(shapes) == 1 else []


def cuts_of(spec: OpSpec) -> Cuts | None:
    """Those of an operator; None where nobody says any."""
    known: dict[str, Cuts] = getattr(part(spec.package, "cuts"), "CUTS", {})
    return known.get(spec.name, anywhere if spec.pointwise else None)
