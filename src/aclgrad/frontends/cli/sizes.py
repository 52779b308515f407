"""Sizes and options of a command line as an operator's arguments, which exist as metadata only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import typer
from torch._subclasses import FakeTensorMode

from ...core.devices import GPUS, described
from ...core.meta import Meta, dtype_name, meta_of
from ...core.plan import Operator
from ...testing.cases import Data, sized, suite
from ...testing.cases import Sizes as BuilderSizes

SYNONYMS = (
    ("N", "B", "batch"),
    ("T", "steps"),
    ("BT", "tokens"),
    ("H", "hidden"),
    ("V", "rows", "vocabulary"),
    ("I", "input"),
)
"""Names that a size goes by; the first is the one of the families' pages."""

BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Sizes:
    """What a family makes an operator's arguments from: sizes by name, or one shape, and options.

    `sizes` and `options` hold defaults; a size without one is None and has to be given.
    """

    operator: Operator
    build: Any
    shape: str | None
    sizes: dict[str, int | None]
    options: dict[str, Any]

    @staticmethod
    def of(operator: Operator) -> Sizes:
        """By the parameters of the family's builder."""
        build = sized(operator.spec)
        if build is None:
            raise typer.BadParameter(
                f"{operator.spec.name} offers no sizes: its family's cases have no SIZED", param_hint="--shape"
            )
        known = BuilderSizes.of(build)
        shape = suite(operator.spec).main if known.is_shape else None
        return Sizes(operator, build, shape, known.sizes, known.options)

    def arguments(self, given: Sequence[str], options: Sequence[str], dtype: torch.dtype) -> list[Any]:
        """The arguments, without memory, for what was said by `--shape` and `--set`."""
        chosen = {name: self._option(name, text) for name, text in _pairs(options, "--set")}
        if self.shape is not None:
            make = self.build(*self._one_shape(given), **chosen)
        else:
            make = self.build(**self._named(given), **chosen)
        with FakeTensorMode():
            return list(make(Data(dtype)))

    def _one_shape(self, given: Sequence[str]) -> list[int]:
        if len(given) != 1:
            raise typer.BadParameter(f"expected one shape, such as {self.shape}=32x64", param_hint="--shape")
        name, _, text = given[0].rpartition("=")
        if name not in ("", self.shape):
            raise typer.BadParameter(f"{name!r} is no size here, expected {self.shape}=32x64", param_hint="--shape")
        return [_whole(size, text) for size in text.split("x")] if text else []

    def _named(self, given: Sequence[str]) -> dict[str, int]:
        expected = ",".join(f"{name}=…" for name in self.sizes)
        found = {}
        for said, text in _pairs([part for each in given for part in each.split(",")], "--shape"):
            name = next((names[0] for names in SYNONYMS if said in names), said)
            if name not in self.sizes:
                raise typer.BadParameter(f"{said!r} is no size here, expected {expected}", param_hint="--shape")
            found[name] = _whole(text, f"{said}={text}")
        missing = [name for name, default in self.sizes.items() if default is None and name not in found]
        if missing:
            raise typer.BadParameter(f"{', '.join(missing)} missing, expected {expected}", param_hint="--shape")
        return found

    def _option(self, name: str, text: str) -> Any:
        if name not in self.options:
            known = ", ".join(f"{option}={str(default).lower()}" for option, default in self.options.items())
            raise typer.BadParameter(f"{name!r} is no option here, expected {known or 'none'}", param_hint="--set")
        kind = type(self.options[name])
        try:
            return BOOLS[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            wanted = "true or false" if kind is bool else f"a number such as {self.options[name]}"
            raise typer.BadParameter(f"{name} is {text!r}, expected {wanted}", param_hint="--set") from None


def _pairs(texts: Sequence[str], hint: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{text!r} is no NAME=VALUE", param_hint=hint)
        pairs.append((name, value))
    return pairs


def _whole(text: str, said: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{said!r} holds {text!r}, expected a whole number", param_hint="--shape")
    return int(text)


def planning_device(name: str | None) -> torch.device:
    """The device to plan for: a CPU, a GPU that is here, or one of those that are described."""
    if name is not None and name.lower() in GPUS:
        if os.environ.get("TRITON_INTERPRET", "0") != "0":
            raise typer.BadParameter(
                f"{name} cannot be planned for while TRITON_INTERPRET is set, expected it unset", param_hint="--device"
            )
        return described(name.lower())
    here = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name is None:
        name = here[-1]
    if name not in here:
        raise typer.BadParameter(f"{name!r} is unknown, expected {' or '.join([*here, *GPUS])}", param_hint="--device")
    return torch.device("cpu") if name == "cpu" else torch.device("cuda", torch.cuda.current_device())


def dtype_named(name: str | None, operator: Operator) -> torch.dtype:
    """The dtype of that name among those of the operator's main argument; the first one without a name."""
    main: Any = operator.spec.params[suite(operator.spec).main]
    known: dict[str, torch.dtype] = {dtype_name(dtype): dtype for dtype in (*main.dtypes, *main.generous)}
    if name is None:
        return suite(operator.spec).cases[0].dtypes[0]
    if name not in known:
        raise typer.BadParameter(f"{name!r} is no dtype here, expected {' or '.join(known)}", param_hint="--dtype")
    return known[name]


def without_memory(value: Any, device: torch.device) -> Any:
    """A tensor, or a list of them, as metadata on a device; a plan looks at nothing else."""
    if isinstance(value, torch.Tensor):
        return SimpleNamespace(meta=Meta(*meta_of(value)[:3], device))
    return [without_memory(member, device) for member in value] if isinstance(value, list | tuple) else value
