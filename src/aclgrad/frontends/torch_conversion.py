"""Modules of a model exchanged for their twins, in place, with a report of what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils import parametrize

from ..core.errors import AclgradError

Kind = type[nn.Module]
THE_MODEL = "(the model)"  # the name of the model itself, which torch calls ""


class Entry(NamedTuple):
    """What became of one module."""

    name: str  # where it is in the model; a shared one has several places, with commas between them
    was: Kind
    now: Kind
    reason: str = ""  # why it stayed
    has_twin: bool = True  # false for what only resembles a module that has one


@dataclass(frozen=True)
class Report:
    """What became of the modules that have a twin, or resemble one that has; printed, it is a table.

    >>> import torch, aclgrad.nn
    >>> model = torch.nn.ModuleDict({"gate": torch.nn.Hardsigmoid(), "norm": torch.nn.SyncBatchNorm(4)})
    >>> print(aclgrad.nn.convert(model, report=True)[1])
    module  was                     is                        why it stayed
    gate    torch.nn.Hardsigmoid    aclgrad.nn.Hardsigmoid
    norm    torch.nn.SyncBatchNorm  aclgrad.nn.SyncBatchNorm
    """

    entries: tuple[Entry, ...]

    @property
    def changed(self) -> tuple[Entry, ...]:
        """The modules that are of another class now."""
        return tuple(entry for entry in self.entries if not entry.reason)

    @property
    def stayed(self) -> tuple[Entry, ...]:
        """The modules that are not, each with its reason."""
        return tuple(entry for entry in self.entries if entry.reason)

    def __str__(self) -> str:
        rows = [("module", "was", "is", "why it stayed")]
        rows += [(entry.name, shown(entry.was), shown(entry.now), entry.reason) for entry in self.entries]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def in_one_line(self) -> str:
        """The same as a sentence."""
        changed = ", ".join(f"{entry.name} is {shown(entry.now)}" for entry in self.changed) or "nothing changed"
        return "; ".join([changed, *(stays(entry) for entry in self.stayed)])


def stays(entry: Entry) -> str:
    """Which module was left as it is, and why."""
    return f"{entry.name} stays {shown(entry.now)}: {entry.reason}"


def shown(kind: type) -> str:
    """A class by the name that users know."""
    ours = kind.__module__.startswith("aclgrad.")
    place = "torch.nn" if getattr(nn, kind.__name__, None) is kind else "aclgrad.nn" if ours else kind.__module__
    return f"{place}.{kind.__qualname__}"


def exchange(
    model: nn.Module,
    twins: Mapping[Kind, Kind | None],
    require_supported: Callable[[Any, nn.Module], None],
    others: tuple[Kind, ...] = (),
) -> Report:
    """Give every module whose class is among `twins` the class of its twin; None is a twin that is not there.

    `require_supported(twin, module)` raises if the twin lacks an option of the module. Instances of `others` are passed
    over.
    """
    places: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name or THE_MODEL)
    entries = []
    for module, names in places.items():
        was, place = type(module), ", ".join(names)
        if isinstance(module, others):
            continue
        plain = _plain_class(module)
        if plain in twins:
            twin = twins[plain]
            reason = _refusal(twin, module, require_supported)
            if twin is not None and not reason:
                module.__class__ = twin if plain is was else _with_base(was, twin)
            entries.append(Entry(place, was, type(module), reason))
        elif reason := _resemblance(module, twins):
            entries.append(Entry(place, was, was, reason, has_twin=False))
    return Report(tuple(entries))


def _plain_class(module: nn.Module) -> Kind:
    """The class that the module was made with: a parametrisation puts one of its own over it."""
    return type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)


def _with_base(parametrised: Kind, base: Kind) -> Kind:
    """The class of a parametrisation over another base."""
    own = {name: value for name, value in vars(parametrised).items() if name not in ("__dict__", "__weakref__")}
    return type(f"Parametrized{base.__name__}", (base,), own)


def _refusal(twin: Kind | None, module: nn.Module, require_supported: Callable[[Any, nn.Module], None]) -> str:
    """Why the twin cannot stand for the module, if it cannot."""
    if twin is None:
        return f"torch {torch.__version__} has no such module"
    try:
        require_supported(twin, module)
    except AclgradError as error:
        return str(error)
    return ""


def _resemblance(module: nn.Module, twins: Mapping[Kind, Kind | None]) -> str:
    """Why a module has no twin that looks as if it had one."""
    for kind in twins:
        if isinstance(module, kind):
            return f"it is a subclass of {shown(kind)} and may compute something else"
        if isinstance(module, torch.jit.ScriptModule) and module.original_name == kind.__name__:
            return "TorchScript has compiled it"
    return ""
