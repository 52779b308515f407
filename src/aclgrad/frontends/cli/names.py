"""The words of a command line and what they stand for; a word that stands for nothing is a mistake with exit code 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import typer

from ...core import registry
from ...core.backends import BACKENDS
from ...core.errors import InvalidArgument, NoBackend
from ...core.plan import Operator
from ...core.registry import aclnn_operators
from ...testing.cases import suite


def find(name: str, among: Callable[[], Iterable[Operator]] = aclnn_operators) -> Operator:
    """The operator of a name, in Python or in C, of either phase; upper and lower case are the same."""
    try:
        return registry.find(name, among())
    except InvalidArgument as unknown:
        raise typer.BadParameter(str(unknown)) from None


def device(wanted: str | None) -> str:
    """The device to run on: the one asked for if it is here, else the best."""
    present = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    if wanted is not None and wanted not in present:
        raise typer.BadParameter(
            f"{wanted!r} is not to be had here, expected {' or '.join(present)}", param_hint="--device"
        )
    return wanted or present[0]


def require_backend(backend: str, chosen: Sequence[Operator], place: str) -> None:
    """Refuse a backend that does not exist or cannot run these operators here, before anything is run."""
    if backend not in BACKENDS:
        raise typer.BadParameter(f"{backend!r} is no backend, expected {' or '.join(BACKENDS)}", param_hint="--backend")
    for operator in chosen:
        with torch.device(place):
            args = suite(operator.spec).cases[0].build()
        try:
            operator.plan(args, backend=backend)
        except NoBackend as refusal:
            raise typer.BadParameter(f"{operator.spec.name}: {refusal.reasons}", param_hint="--backend") from None
