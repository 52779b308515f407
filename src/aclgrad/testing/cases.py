"""Cases are data: named inputs, built from a seed in any dtype, shared by tests, demo, benchmarks and every door."""

from __future__ import annotations

import importlib
import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.errors import AclgradError
from ..core.memory import tensors_in
from ..core.rules import ND
from ..core.spec import OpSpec
from .layouts import apply

SMOKE, EDGE, REAL, DOCUMENT = "smoke", "edge", "real", "document"
BENCH, BENCH_GPU = "bench", "bench on a GPU"
PYTHON_ONLY = "python_only"

NCHW, NHWC, NC1HWC0, FRACTAL_NZ, NCDHW, NCL = 0, 1, 3, 29, 30, 47  # aclFormat
ANY_FORMAT = (ND, NCHW, NCL, NC1HWC0, FRACTAL_NZ)
"""A selection, the last two private to a device."""


class TooLarge(Exception):
    """A tensor would have more elements than were allowed."""


class Data:
    """Random tensors from a seed. Values are drawn in float64 and rounded, so every dtype sees the same numbers.

    They are made on torch's default device (`with torch.device("cuda"): …`), and have at most `most` elements.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, seed: int = 0, most: float = math.inf) -> None:
        self.dtype, self._most = dtype, most
        self.generator = torch.Generator(torch.get_default_device()).manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed."""
        drawn = torch.randn(self._allowed(shape), generator=self.generator, dtype=torch.float64) * scale
        return drawn.to(dtype or self.dtype)

    def uniform(self, low: float, high: float, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Uniformly distributed between two numbers."""
        drawn = torch.rand(self._allowed(shape), generator=self.generator, dtype=torch.float64) * (high - low) + low
        return drawn.to(dtype or self.dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Integers from low to high - 1."""
        return torch.randint(low, high, self._allowed(shape), generator=self.generator).to(dtype)

    def flags(self, *shape: int, share: float = 0.5) -> Tensor:
        """Bools of which about `share` are true."""
        return torch.rand(self._allowed(shape), generator=self.generator) < share

    def _allowed(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if math.prod(shape) > self._most:
            raise TooLarge(f"{list(shape)}, expected at most {self._most} elements")
        return shape


@dataclass(frozen=True)
class Case:
    """A named input of an operator: `make(data)` returns the arguments in contract order."""

    name: str
    make: Callable[[Data], Sequence[Any]]
    dtypes: tuple[torch.dtype, ...]
    tags: frozenset[str] = field(default_factory=frozenset)
    expected: Callable[[], Sequence[Any]] | None = None  # printed results of a document's example

    def build(self, dtype: torch.dtype | None = None, seed: int = 0) -> list[Any]:
        """The arguments in one dtype (default: the case's first), on torch's default device."""
        device = torch.get_default_device()
        made = self.make(Data(dtype or self.dtypes[0], seed))
        return [apply(lambda tensor: tensor.to(device), value) for value in made]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Invalid:
    """A call that must be refused: the operator's first case with some arguments replaced.

    `changes` maps parameter names to a value or to a function of the legal value. `raises` is the error class, whose
    status the aclnn door returns; `argument` the parameter the message must name. `doors` says who refuses: what only
    the aclnn door refuses, the generous Python door accepts.
    """

    name: str
    changes: Mapping[str, Any]
    raises: type[AclgradError]
    argument: str
    doors: tuple[str, ...] = ("python", "aclnn")
    environment: Mapping[str, str] = field(default_factory=dict)

    def apply(self, legal: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the changes applied."""
        changed = dict(legal)
        for name, change in self.changes.items():
            changed[name] = change(legal[name]) if callable(change) else change
        return changed

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Cost:
    """What a call must at least move and multiply: the bound a speed is measured against."""

    bytes: int
    flops: int


def bytes_moved(args: Sequence[Any], outs: Sequence[Any]) -> int:
    """Every input read once and every output written once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in([*args, *outs]))


@dataclass(frozen=True)
class Suite:
    """What is known about one operator's inputs.

    `main` names the parameter whose dtype a case's dtype is. The first case is the legal call that the invalid ones
    change. `moved` counts the bytes that a call must read and write. A handle given for `main` may have any of
    `formats`; the aclnn door refuses `refused_formats`.
    """

    cases: tuple[Case, ...]
    invalid: tuple[Invalid, ...]
    main: str = "input"
    moved: Callable[[Sequence[Any], Sequence[Any]], int] = bytes_moved
    formats: tuple[int, ...] = (ND,)
    refused_formats: tuple[int, ...] = ()


def suite(spec: OpSpec) -> Suite:
    """The suite of an operator, from `SUITES` of its family's `cases`."""
    suites: dict[str, Suite] = importlib.import_module(f"{spec.package}.cases").SUITES
    return suites[spec.name]


def sized(spec: OpSpec) -> Callable[..., Callable[[Data], Sequence[Any]]] | None:
    """What makes an operator's arguments from named sizes, from `SIZED` of its family's `cases`; None if there is none.

    Its positional parameters are sizes (or one `*shape`), its keyword-only ones options. What it returns is the `make`
    of a `Case`.
    """
    builders: dict[str, Any] = getattr(importlib.import_module(f"{spec.package}.cases"), "SIZED", {})
    return builders.get(spec.name)


LARGEST, LARGEST_IN_SHAPE, RANKS = 96, 16, (2, 5)  # of what is drawn; every operator takes these ranks


@dataclass(frozen=True)
class Sizes:
    """What such a builder takes: one shape or sizes by name, and options; a size that has to be given is None."""

    is_shape: bool
    sizes: dict[str, int | None]
    options: dict[str, Any]

    @staticmethod
    def of(build: Callable[..., Any]) -> Sizes:
        """By the builder's parameters; what is neither a number nor a bool cannot be chosen by name."""
        is_shape, sizes, options = False, {}, {}
        for name, parameter in inspect.signature(build).parameters.items():
            default = None if parameter.default is parameter.empty else parameter.default
            if parameter.kind is parameter.VAR_POSITIONAL:
                is_shape = True
            elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and type(default) in (int, type(None)):
                if default is not None or parameter.default is parameter.empty:
                    sizes[name] = default
            elif type(default) in (bool, int, float):
                options[name] = default
        return Sizes(is_shape, sizes, options)

    def draw(self, dice: random.Random, room: int | None = None) -> tuple[list[int], dict[str, Any]]:
        """Random sizes, as often small as large, and options: either way, or one or two of what is counted.

        With `room` they may be as large as their product allows, which is at most that.
        """

        def size(largest: int) -> int:
            return round(math.pow(largest, dice.random()))

        def sizes(count: int, largest: int) -> list[int]:
            if room is None:
                return [size(largest) for _ in range(count)]
            drawn, left = [], room
            for _ in range(count):
                drawn.append(size(left))
                left //= drawn[-1]
            return dice.sample(drawn, count)

        shape = sizes(dice.randint(*RANKS), LARGEST_IN_SHAPE) if self.is_shape else []
        options: dict[str, Any] = {}
        for name, default in self.options.items():
            if isinstance(default, bool):
                options[name] = dice.random() < 0.5
            elif isinstance(default, int):
                options[name] = dice.randint(1, 2)
        return shape or sizes(len(self.sizes), LARGEST), options


def is_documented(spec: OpSpec, case: Case, dtype: torch.dtype) -> bool:
    """Whether the aclnn door, if it has the operator, takes the case in this dtype too."""
    main = spec.params[suite(spec).main]
    return bool(spec.aclnn) and dtype in getattr(main, "dtypes", ()) and PYTHON_ONLY not in case.tags
