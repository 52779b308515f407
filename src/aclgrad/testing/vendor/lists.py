"""A case of a kit's list: its name and its arguments, described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...core.errors import InvalidArgument
from ...core.spec import OpSpec
from ..cases import Data
from ..data.calls import Call
from ..data.described import arguments, by_name, spelled


@dataclass(frozen=True)
class Listed:
    """A case. `told` describes the arguments by their names, `dtypes` are those that outputs are said to have."""

    name: str
    told: Mapping[str, Any]
    seed: int = 0
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)

    def call(self, spec: OpSpec, seed: int = 0) -> Call:
        """The call that it means; values are drawn from its seed and this one."""
        args = arguments(spec, self.told, Data(seed=self.seed + seed))
        return Call(self.name, {"list": self.name, "seed": self.seed + seed}, args)


def named(spec: OpSpec, words: Sequence[str | None], values: Sequence[Any]) -> dict[str, Any]:
    """Values by the parameters they are for: by their names where the list has the contract's, else by their order."""
    known = {spelled(word) for arg in spec.args for word in (arg.aclnn, arg.name)}
    if all(word and spelled(word) in known for word in words):
        return by_name(spec, {str(word): value for word, value in zip(words, values, strict=True)})
    if any(word and spelled(word) in known for word in words) or len(values) > len(spec.args):
        wrong = next(word for word in words if not word or spelled(word) not in known)
        names = ", ".join(arg.aclnn for arg in spec.args)
        raise InvalidArgument(f"the list names an argument {wrong!r}, {spec.aclnn} has {names}", str(wrong))
    return dict(zip((arg.name for arg in spec.args), values, strict=False))


def is_of(spec: OpSpec, name: str) -> bool:
    """Whether a list's name of an operator means this one: `aclnnX`, `X` or `x`."""
    own = {spelled(spec.aclnn), spelled(spec.aclnn.removeprefix("aclnn")), spelled(spec.name)}
    return spelled(name) in own
