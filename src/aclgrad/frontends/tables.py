"""Tables for terminals of any width: columns where they fit, else a paragraph for each row."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table

LOG_WIDTH = 140


def wide_console() -> Console:
    """The terminal; a log file has no width to fit into and gets a comfortable one."""
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def show(
    console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print a table; the columns named in `right` are flush right. Nothing is cut off, however narrow the terminal."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    wanted = Measurement.get(console, console.options.update(max_width=10 * LOG_WIDTH), table).maximum
    if wanted <= console.width:
        console.print(table)
        return
    console.print(f"[italic]{title}[/]\n")
    for first, *others in rows:
        cells = zip(headings[1:], others, strict=True)
        told = "; ".join(f"{heading}: {cell}" if heading else cell for heading, cell in cells if cell)
        console.print(f"[bold]{first}[/]", highlight=False)
        console.print(Padding(told, (0, 0, 0, 2)))
    console.print()
