"""Dumps of what operators get and give, as the `dump` section of aclInit's configuration asks for them.

    {"dump": {"dump_path": "out", "dump_op_switch": "on", "dump_mode": "all"}}

dump_path       a folder that exists; each life of the runtime writes into one of its own in it, named by the time
dump_op_switch  on: every aclnn call; off (the default): what aclDumpOpTensors is asked for
dump_mode       input, output (the default) or all

The files are laid out as msprobe lays out its own, so `aclgrad verify` reads them. Tensors are copied when the stream
comes to the call, inputs before it and outputs after it. What else a device's runtime knows (models, exceptions,
statistics instead of tensors) is named in the log and has no effect.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...core.errors import BadDump
from ..dumps import msprobe
from .boundary import AclRuntimeError, logger
from .enums import AclError

SECTION, PATH = "dump", "dump_path"
CHOICES = {"dump_mode": ("output", "input", "all"), "dump_op_switch": ("off", "on"), "dump_data": ("tensor", "stats")}
"""What the section may say, the default first."""
WITHOUT_MEANING = frozenset({"dump_list"})  # of models, empty where operators are meant

_lock = threading.Lock()


class Settings(NamedTuple):
    """What is dumped, and where to."""

    folder: Path
    inputs: bool
    outputs: bool
    every_call: bool


current: Settings | None = None
"""What the present life of the runtime dumps; None if nothing."""


def configure(configuration: Any) -> None:
    """Take the settings from aclInit's configuration, as JSON has it, or None."""
    global current
    current = None
    section = configuration.get(SECTION) if isinstance(configuration, dict) else None
    if section is None:
        return
    if not isinstance(section, dict):
        raise _refused(f"{SECTION} is {section!r}, expected an object")
    chosen = {}
    for name, choices in CHOICES.items():
        chosen[name] = section.get(name, choices[0])
        if chosen[name] not in choices:
            raise _refused(f"{name} is {chosen[name]!r}, expected {' or '.join(choices)}")
    unknown = [name for name in section if name not in (PATH, *CHOICES, *WITHOUT_MEANING)]
    unknown += ["dump_data"] * (chosen["dump_data"] == "stats")
    if unknown:
        logger.warning("aclInit: %s of the %s section has no effect here", ", ".join(unknown), SECTION)
    if PATH not in section:
        if chosen["dump_op_switch"] == "on":
            raise _refused(f"dump_op_switch is 'on' without a {PATH}, expected the folder to dump into")
        return
    place = section[PATH]
    if not isinstance(place, str) or not Path(place).is_dir() or not os.access(place, os.W_OK):
        raise _refused(f"{PATH} is {place!r}, expected a folder that exists and can be written")
    mode = chosen["dump_mode"]
    folder = Path(place).absolute() / f"{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}"
    current = Settings(folder, mode != "output", mode != "input", chosen["dump_op_switch"] == "on")


def around(work: Callable[[], None], name: str, arguments: Sequence[Any], written: Sequence[Any]) -> Callable[[], None]:
    """`work` of an aclnn function, and a dump of its arguments before it and of what it has written after it."""
    settings = current
    if settings is None or not settings.every_call:
        return work

    def task() -> None:
        before = _copied(arguments) if settings.inputs else []
        work()
        _write(settings, "Aclnn", name, before, _copied(written) if settings.outputs else [])

    return task


def tensors(kind: str, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None] | None:
    """A task that dumps these tensors as they are when it runs; None if nothing is dumped."""
    settings = current
    if settings is None:
        return None

    def task() -> None:
        before = _copied(inputs) if settings.inputs else []
        _write(settings, kind, name, before, _copied(outputs) if settings.outputs else [])

    return task


def _copied(values: Sequence[Any]) -> list[Any]:
    return [
        value.detach().to("cpu", copy=True)
        if isinstance(value, torch.Tensor)
        else _copied(value)
        if isinstance(value, list | tuple)
        else value
        for value in values
    ]


def _write(settings: Settings, kind: str, name: str, arguments: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Add a call to the dump. The work is done all the same if that fails."""
    words = [word.replace(".", "_").replace("/", "_") for word in (kind, name)]
    try:
        with _lock:
            msprobe.write_call(settings.folder, words[1], arguments, outputs, kind=words[0])
    except (OSError, BadDump) as fault:
        logger.warning("a call of %s could not be dumped into %s: %s", name, settings.folder, fault)


def _refused(message: str) -> AclRuntimeError:
    return AclRuntimeError(AclError.ACL_ERROR_INVALID_PARAM, f"the configuration's {message}")
