"""aclgrad cc | config | check | capi build: for C and C++ programs."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..capi import build
from .check import check

_NOT_LINKING = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}
_CXX_SUFFIXES = {".cc", ".cpp", ".cxx", ".c++", ".C", ".cp"}

capi = typer.Typer(no_args_is_help=True, help="The C interface as files.")


@capi.callback()
def _group() -> None:
    """The C interface as files."""


@capi.command("build")
def build_files(
    out: Annotated[Path, typer.Option(help="The folder to write include/, lib64/, set_env.sh and the rest into.")],
) -> None:
    """Write headers and libraries into a folder like that of CANN, where samples build; set_env.sh is to be sourced."""
    with _reported():
        try:
            made = build.write_installation(out.absolute())
        except build.Unwritable as error:
            raise typer.BadParameter(str(error), param_hint="--out") from None
    typer.echo(f"{made.root}: source set_env.sh, or use include/ and lib64/ as they are")


def cc(
    context: typer.Context,
    arguments: Annotated[list[str], typer.Argument(help="What the compiler gets: sources, -o program, any options.")],
) -> None:
    """Compile and link a program against aclgrad, ready to run: g++ (cc for .c files) with the paths it needs."""
    if arguments == ["-h"]:  # as an option it would also be found in -shared
        typer.echo(context.get_help())
        raise typer.Exit
    suffixes = {Path(argument).suffix for argument in arguments if not argument.startswith("-")}
    with _reported():
        is_c = ".c" in suffixes and not suffixes & _CXX_SUFFIXES
        compiler = build.c_compiler() if is_c else build.cxx_compiler()
        made = build.installation()
        links = [] if _NOT_LINKING & set(arguments) else made.link_flags
        try:
            status = subprocess.call([*compiler, *arguments, *made.compile_flags, *links])  # noqa: S603
        except OSError as error:
            raise build.BuildError(f"the compiler {compiler[0]} cannot be run: {error}") from None
    raise typer.Exit(status)


def config(
    cflags: Annotated[bool, typer.Option("--cflags", help="Options for the compiler.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Options for the linker.")] = False,
    cmake_dir: Annotated[bool, typer.Option("--cmake-dir", help="The folder for aclgrad_DIR of CMake.")] = False,
    home: Annotated[bool, typer.Option("--home", help="The folder that is like CANN's, for ASCEND_HOME_PATH.")] = False,
) -> None:
    """What a build of one's own needs: compiler and linker options, or the folders that it looks for."""
    if not (cflags or libs or cmake_dir or home):
        raise typer.BadParameter("expected at least one of --cflags, --libs, --cmake-dir and --home")
    with _reported():
        made = build.installation()
    words = [*(made.compile_flags if cflags else []), *(made.link_flags if libs else [])]
    typer.echo(shlex.join([*words, *([str(made.cmake)] if cmake_dir else []), *([str(made.root)] if home else [])]))


def add_commands(app: typer.Typer) -> None:
    """Give the command line what concerns C programs."""
    to_the_compiler = {
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    }
    app.command(context_settings=to_the_compiler)(cc)
    app.command()(config)
    app.command(context_settings={"allow_interspersed_args": False})(check)
    app.add_typer(capi, name="capi")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except (build.BuildError, OSError) as error:
        typer.echo(f"aclgrad: {error}", err=True)
        raise typer.Exit(1) from None
