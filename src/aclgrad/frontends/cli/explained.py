"""What `explain` says of an operator with sizes: which kernel runs it, and why."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from ...core.backends import BACKENDS
from ...core.devices import description
from ...core.errors import InvalidArgument, NoBackend
from ...core.meta import dtype_name
from ...core.plan import Operator
from .sizes import Sizes, dtype_named, planning_device, without_memory


def explain_sizes(
    console: Console,
    operator: Operator,
    shapes: Sequence[str],
    options: Sequence[str],
    dtype: str | None,
    backend: str | None,
    device: str | None,
) -> None:
    """Print the plan of a call of these sizes, made for a device that need not be here."""
    if backend is not None and backend not in BACKENDS:
        raise typer.BadParameter(f"{backend!r} is no backend, expected {' or '.join(BACKENDS)}", param_hint="--backend")
    chosen, place = dtype_named(dtype, operator), planning_device(device)
    arguments = Sizes.of(operator).arguments(shapes, options, chosen)
    try:
        plan = operator.plan([without_memory(argument, place) for argument in arguments], backend=backend)
    except NoBackend as refusal:
        raise typer.BadParameter(refusal.reasons) from None
    except InvalidArgument as refusal:
        raise typer.BadParameter(str(refusal)) from None
    known = description(place)
    said = " ".join([*shapes, *options])
    console.print(f"[bold]{operator.spec.name}[/] {said} in {dtype_name(chosen)} on {known.name if known else place}:")
    console.print(plan.describe(), highlight=False, markup=False, soft_wrap=True)


def sizes_in_words(operator: Operator) -> str:
    """How the sizes and options of an operator are said."""
    sizes = Sizes.of(operator)
    shape = f"{sizes.shape}=32x64" if sizes.shape else ",".join(
        f"{name}=…" for name, default in sizes.sizes.items() if default is None
    )  # fmt: skip
    more = [name for name, default in sizes.sizes.items() if default is not None]
    options = ", ".join([*more, *(f"{name}={str(default).lower()}" for name, default in sizes.options.items())])
    return f"--shape {shape}" + (f" (also {options})" if options else "")
