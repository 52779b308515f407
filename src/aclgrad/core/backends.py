"""Which backends exist and how one is chosen. Legality is the contract's business; here it is only capability."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .errors import InvalidArgument, NoBackend, Prevented, Unsupported
from .meta import Meta
from .spec import Call

if TYPE_CHECKING:
    from types import ModuleType


class Launch(Protocol):
    """Phase two of a kernel: decided in phase one, free of mutable state, callable any number of times."""

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory it needs."""

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute. `args` and `outs` stand in contract order; an output that is None is not wanted."""

    def describe(self) -> str:
        """What phase one chose and why, in a line (or one for each layer): grid, tiles, blocks, threads."""


BACKENDS: dict[str, Callable[[Call], Launch]] = {"reference": lambda call: ReferenceLaunch(call)}
"""Every backend, in order of preference: those with kernels as they were registered, then the reference."""


def register(name: str, make: Callable[[Call], Launch]) -> None:
    """Make a backend known; `make(call)` returns a launch, or raises `Unsupported` with the reason."""
    reference = BACKENDS.pop("reference")
    BACKENDS.update({name: make, "reference": reference})


def kernel(call: Call, backend: str) -> Launch:
    """The launch that a family's `kernel_<backend>` makes for the call; the module is imported when first used."""
    module = _module(f"{call.spec.package}.kernel_{backend}")
    factory: Callable[[Call], Launch] | None = getattr(module, call.spec.name, None)
    if factory is None:
        raise Unsupported(f"has no kernel for {call.spec.name}")
    return factory(call)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise Unsupported(f"cannot be loaded: {missing}") from missing


def choose(call: Call, name: str | None) -> tuple[str, Launch]:
    """The named backend, or the first that accepts the call. An explicit or `Prevented` one never falls back."""
    if name is not None and name not in BACKENDS:
        raise InvalidArgument(f"backend is {name!r}, expected one of {', '.join(BACKENDS)}", "backend")
    refusals = []
    for candidate in [name] if name is not None else BACKENDS:
        try:
            return candidate, BACKENDS[candidate](call)
        except Unsupported as reason:
            refusals.append(f"{candidate}: {reason}")
            if isinstance(reason, Prevented):
                break
    given = ", ".join(f"{label} {meta}" for label, meta in call.metas(*call.spec.params))
    refusal = NoBackend(f"no backend runs {call.spec.name}({given}): {'; '.join(refusals)}")
    refusal.reasons = "; ".join(refusals)
    raise refusal


class ReferenceLaunch:
    """Runs the family's textbook formula in float64 and rounds once into the outputs.

    It is there to be trusted, not to be fast: it allocates as torch pleases.
    """

    workspace = 0

    def __init__(self, call: Call) -> None:
        self.formula = getattr(_module(f"{call.spec.package}.reference"), call.spec.name)
        self.options = call.spec.reference_options(call)
        self.written = call.spec.written

    def describe(self) -> str:
        """In words."""
        return "textbook formula in float64"

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute in float64, round into the outputs."""
        results = self.formula(*[widen(value) for value in args], **self.options)
        found = results if isinstance(results, tuple) else (results,)
        for out, result in zip(self.written(args, outs), found, strict=True):
            if isinstance(out, torch.Tensor):
                out.copy_(result)
            elif out is not None:
                for member, part in zip(out, result, strict=True):
                    member.copy_(part)


class Skipped:
    """Phase two of a call for which the vendor's code writes nothing."""

    workspace = 0

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Write nothing."""

    def describe(self) -> str:
        """In words."""
        return "nothing is written, as in the vendor's code"


def widen(value: Any, dtype: torch.dtype = torch.float64) -> Any:
    """Floating-point tensors, also inside lists, in `dtype`; everything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(dtype) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return [widen(item, dtype) for item in value]
    return value


def total_bytes(metas: Sequence[Meta]) -> int:
    """Bytes of all these tensors' elements."""
    return sum(meta.numel * meta.itemsize for meta in metas)
