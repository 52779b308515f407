"""A case of a kit's list: its name and its arguments, described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...core.errors import InvalidArgument
from ...core.spec import OpSpec
from ..cases import Data
from ..data.calls import Call
from ..data.described import arguments, by_name, spelled, understood
from .slots import prepared


@dataclass(frozen=True)
class Listed:
    """A case. `told` describes the arguments by their names, `dtypes` are those that outputs are said to have.

    `folder` has its inputs, where they were prepared; else they are drawn.
    """

    name: str
    told: Mapping[str, Any]
    seed: int = 0
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    folder: Path | None = None

    def call(self, spec: OpSpec, seed: int = 0) -> Call:
        """The call that it means; values are drawn from its seed and this one."""
        args = arguments(spec, self.told, Data(seed=self.seed + seed))
        if self.folder is not None:
            args = prepared(self.folder, spec, args)
        return Call(self.name, {"list": self.name, "seed": self.seed + seed}, args)


def named(spec: OpSpec, words: Sequence[str | None], values: Sequence[Any]) -> dict[str, Any]:
    """Values by the parameters they are for: by their names where the list has the contract's, else by their order."""
    known = {spelled(word): arg.name for arg in spec.args for word in (arg.aclnn, arg.name)}
    meant = [known.get(spelled(word or "")) for word in words]
    if all(meant):
        if twice := [word for word, name in zip(words, meant, strict=True) if meant.count(name) > 1]:
            raise InvalidArgument(f"the list names {twice[0]!r} twice", str(twice[0]))
        return by_name(spec, {str(word): value for word, value in zip(words, values, strict=True)})
    order = [arg.name for arg in spec.args]
    if len(words) > len(order) or any(name not in (None, order[k]) for k, name in enumerate(meant)):
        wrong = words[meant.index(None)]
        names = ", ".join(arg.aclnn for arg in spec.args)
        raise InvalidArgument(f"the list names an argument {wrong!r}, {spec.aclnn} has {names}", str(wrong))
    return dict(zip(order, values, strict=False))


@contextmanager
def of_case(case: str) -> Iterator[None]:
    """Where a case of a list is read: what makes no sense in it is told with its name."""
    try:
        with understood("it"):
            yield
    except InvalidArgument as fault:
        raise InvalidArgument(f"{case}: {fault}", fault.argument) from None


def is_of(spec: OpSpec, name: str) -> bool:
    """Whether a list's name of an operator means this one: `aclnnX`, `X` or `x`."""
    own = {spelled(spec.aclnn), spelled(spec.aclnn.removeprefix("aclnn")), spelled(spec.name)}
    return spelled(name) in own
