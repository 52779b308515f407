"""Arguments of an operator from a description: shapes, dtypes and ranges by the parameters' names.

This is what a file of `--args` says in JSON, and what the vendor's lists of cases are turned into. A tensor is
described by its shape and dtype and by where its values come from: a range to draw them from, or the values themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InvalidArgument
from ...core.spec import REQUIRED, BoolArray, OpSpec, TensorList
from ...core.spec import Tensor as TensorParam
from ...frontends.dumps.files import DTYPES, Stored
from ..cases import Data

SPECIAL = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}
SHORT = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "float": "float32",
    "double": "float64", "half": "float16",
}  # fmt: skip
"""How the vendor's lists, and people, call dtypes."""

NONSENSE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)
"""What is raised where a description makes no sense, or asks for more memory than there is."""

_WORDS = ("shape", "dtype", "range", "normal", "values", "file")


@contextmanager
def understood(label: str) -> Iterator[None]:
    """Where a description is followed: what makes no sense in it is told with its name."""
    try:
        yield
    except NONSENSE as fault:
        if isinstance(fault, InvalidArgument):
            raise
        words = str(fault).partition("\n")[0]
        raise InvalidArgument(f"{label} cannot be understood: {type(fault).__name__}: {words}", label) from None


@dataclass(frozen=True)
class Drawn:
    """A tensor that is drawn: uniformly from [low, high], normally, or taken from values or from a file.

    `always` are values that occur whatever is drawn; a range of "nan" or "inf" is these values and no others.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float = -1.0
    high: float = 1.0
    normal: tuple[float, float] | None = None
    always: tuple[float, ...] = ()
    only: tuple[float, ...] = ()
    values: Any = None
    file: Path | None = None

    def draw(self, data: Data) -> Tensor:
        """The tensor, of this shape.

        >>> Drawn((2, 3), torch.int32, 4, 4).draw(Data())
        tensor([[4, 4, 4],
                [4, 4, 4]], dtype=torch.int32)
        """
        if self.file is not None:
            return Stored(self.file, self.dtype, self.shape).load()
        if self.values is not None:
            return torch.tensor(self.values, dtype=self.dtype).reshape(self.shape)
        if self.only:
            choice = data.integers(0, len(self.only), *self.shape)
            drawn = torch.tensor(self.only, dtype=torch.float64)[choice].to(self.dtype)
        elif self.dtype == torch.bool:
            drawn = data.flags(*self.shape)
        elif not self.dtype.is_floating_point:
            drawn = data.integers(int(self.low), int(self.high) + 1, *self.shape, dtype=self.dtype)
        elif self.normal is not None:
            drawn = (
                data.normal(*self.shape, scale=self.normal[1], dtype=torch.float64).add(self.normal[0]).to(self.dtype)
            )
        else:
            drawn = data.uniform(self.low, self.high, *self.shape, dtype=self.dtype)
        for k, value in enumerate(self.always[: drawn.numel()]):
            drawn.view(-1)[k * drawn.numel() // len(self.always)] = value
        return drawn


def dtype_named(name: str, label: str = "dtype") -> torch.dtype:
    """The dtype of a name, long or short.

    >>> dtype_named("fp16"), dtype_named("torch.bfloat16")
    (torch.float16, torch.bfloat16)
    """
    plain = name.lower().removeprefix("torch.")
    found = DTYPES.get(SHORT.get(plain, plain))
    if found is None:
        raise InvalidArgument(f"{label} is {name!r}, expected one of {', '.join(DTYPES)}", label)
    return found


def drawn_from(label: str, told: Mapping[str, Any], folder: Path = Path()) -> Drawn:
    """The tensor that a description in JSON means.

    >>> drawn_from("x", {"shape": [4], "dtype": "fp32", "range": [0, 2]}).high
    2.0
    """
    unknown = sorted(set(told) - set(_WORDS))
    if unknown or "dtype" not in told or not set(told) & {"shape", "values"}:
        wrong = f"has {unknown[0]!r}" if unknown else "lacks its dtype or its shape"
        raise InvalidArgument(f"{label} {wrong}, expected a tensor by {', '.join(_WORDS)}", label)
    dtype = dtype_named(str(told["dtype"]), label)
    values = told.get("values")
    shape = shape_of(label, told["shape"]) if "shape" in told else tuple(torch.tensor(values).shape)
    low, high, only = limits(label, told.get("range", (0, 1) if dtype == torch.bool else (-1, 1)))
    normal = told.get("normal")
    return Drawn(
        shape, dtype, low, high, None if normal is None else (float(normal[0]), float(normal[1])),
        only=only, values=values, file=folder / told["file"] if "file" in told else None,
    )  # fmt: skip


def shape_of(label: str, told: Any) -> tuple[int, ...]:
    """A shape as the lists and people write it.

    >>> shape_of("x", [2, 3])
    (2, 3)
    """
    if isinstance(told, list | tuple) and all(type(size) is int and size >= 0 for size in told):
        return tuple(told)
    raise InvalidArgument(f"the shape of {label} is {told!r}, expected sizes of 0 and more", label)


def limits(label: str, told: Any) -> tuple[float, float, tuple[float, ...]]:
    """(low, high, only these values) of a range as the lists write it: two numbers, one, or words as "nan"."""
    ends = list(told) if isinstance(told, list | tuple) else [told]
    words = [SPECIAL[str(end).lower()] for end in ends if str(end).lower() in SPECIAL]
    if words:
        return 0.0, 0.0, tuple(words)
    try:
        numbers = [float(end) for end in ends]
        return min(numbers), max(numbers), ()
    except (TypeError, ValueError):
        raise InvalidArgument(f"the range of {label} is {told!r}, expected two numbers", label) from None


def spelled(name: str) -> str:
    """A parameter's name without its spelling: `gradOut`, `grad_out` and `GradOut` are one."""
    return name.replace("_", "").lower()


def by_name(spec: OpSpec, told: Mapping[str, Any]) -> dict[str, Any]:
    """What was told about parameters, under their Python names; names may be the document's or Python's."""
    known = {spelled(word): param.name for param in (*spec.args, *spec.outs) for word in (param.aclnn, param.name)}
    found = {}
    for name, value in told.items():
        python = known.get(spelled(name))
        if python is None:
            near = get_close_matches(spelled(name), known, n=1)
            names = ", ".join(param.aclnn for param in spec.args)
            hint = f"did you mean {known[near[0]]}?" if near else f"expected one of {names}"
            raise InvalidArgument(f"{spec.name} has no parameter {name!r}, {hint}", name)
        found[python] = value
    return found


def arguments(spec: OpSpec, told: Mapping[str, Any], data: Data) -> list[Any]:
    """The arguments in the contract's order; `Drawn` are drawn, and what was not told has its default, or is None."""
    named = by_name(spec, told)
    values = []
    for param in spec.args:
        given = param.name in named
        value = named[param.name] if given else None if param.default is REQUIRED else param.default
        if not given and param.default is REQUIRED and not param.may_be_none:
            raise InvalidArgument(f"{param.aclnn} is missing, {spec.name} has no default for it", param.name)
        if isinstance(value, list | tuple) and not isinstance(param, BoolArray | TensorList):
            raise InvalidArgument(f"{param.aclnn} is a list, expected {_kind(param)}", param.name)
        if isinstance(param, TensorList) and isinstance(value, Drawn):
            value = [value]
        with understood(param.aclnn):
            values.append(_drawn(value, data))
    return values


def _drawn(value: Any, data: Data) -> Any:
    if isinstance(value, list | tuple):
        return [_drawn(item, data) for item in value]
    return value.draw(data) if isinstance(value, Drawn) else value


def _kind(param: Any) -> str:
    return "a tensor" if isinstance(param, TensorParam) else "a number"


def read_arguments(path: Path) -> dict[str, Any]:
    """A file of arguments: a JSON object of parameters, tensors as objects.

    {"gradOut": {"shape": [8, 3], "dtype": "float16", "range": [-1, 1]}, "eps": 1e-5, "weight": null}
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", "args") from None
    if not isinstance(told, dict):
        raise InvalidArgument(f"{path} holds a {type(told).__name__}, expected an object of parameters", "args")
    return {name: _told(name, value, path.parent) for name, value in told.items()}


def _told(label: str, value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        with understood(label):
            return drawn_from(label, value, folder)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_told(f"{label}[{k}]", item, folder) for k, item in enumerate(value)]
    return value
