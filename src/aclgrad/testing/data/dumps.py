"""Folders of tensors as calls of an operator: golden data with its manifest, msprobe's dumps, plain files by name.

A plain file is named after its parameter, in the document's or in Python's spelling (`gradOut.npy`, `grad_out.bin`),
with the index of a list's member (`params.0.pt`), after its position (`input.0.npy`, `output_1.bin`), or as msprobe
does (`….forward.output.0.npy`). Nothing is read here but names and descriptions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...core.errors import BadDump
from ...core.plan import Operator
from ...core.spec import OpSpec, OutList, TensorList
from ...core.spec import Tensor as TensorParam
from ...frontends.dumps import msprobe
from ...frontends.dumps.files import DTYPES, FORMATS, Stored
from .described import spelled
from .golden import GOLDEN, MANIFEST, ROUNDED

DTYPE_TAIL = r"(?:_(?:bool|b?float\d+|u?int\d+|none))?"
"""How a kit's file may end: `input_0_float16`."""

_POSITION = re.compile(
    rf"(?:.*[._](?:forward|backward)[._])?(in|input|out|output)[._]?(\d+)(?:[._](\d+))?{DTYPE_TAIL}$", re.IGNORECASE
)
_ROLE = re.compile(r"(in|input|out|output)[._](.+)$|(.+)[._](out|output)$", re.IGNORECASE)


@dataclass
class Dump:
    """The tensors of one call. `arguments` and `outputs` are by Python names; a tensor is a `Stored`."""

    name: str
    folder: Path
    arguments: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    golden: Mapping[str, Any] | None = None  # the manifest of golden data
    problems: list[str] = field(default_factory=list)  # what is there and should not be
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)  # of outputs, where somebody chose them


def read_dumps(folder: Path, operator: Operator, call: str | None = None, *, results_only: bool = False) -> list[Dump]:
    """The calls of an operator in a folder, or in the folders of it.

    `results_only` says that the inputs lie elsewhere, so that a file named after what is updated in place is its new
    value. `call` chooses one of a msprobe dump by its name.
    """
    if not folder.exists():
        raise BadDump(f"{folder} does not exist, expected a folder of tensors")
    place = folder.parent if folder.name in (msprobe.JSON, MANIFEST) else folder
    if not place.is_dir():
        raise BadDump(f"{folder} is a file, expected a folder of tensors")
    if _is_dump(place):
        return list(_calls(place, operator, call, results_only, ""))
    inner = sorted(path.parent for path in place.rglob("*") if path.is_file() and _is_dump(path.parent))
    found = [
        dump
        for below in dict.fromkeys(inner)
        if below.name not in (msprobe.FOLDER, ROUNDED) or not _is_dump(below.parent)
        for dump in _calls(below, operator, call, results_only, str(below.relative_to(place)))
    ]
    if not found:
        raise BadDump(f"{folder} holds no tensors, expected {', '.join(f'*.{suffix}' for suffix in FORMATS)}")
    return found


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of golden data in a folder; None if there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if str(manifest["format"]).startswith("aclgrad golden"):
            return dict(manifest)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    raise BadDump(f"{path} is no manifest of golden data")


def stored(folder: Path, entry: Mapping[str, Any]) -> Stored:
    """The tensor that an entry of a manifest describes."""
    try:
        return Stored(folder / entry["file"], DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])))
    except (KeyError, TypeError, ValueError):
        raise BadDump(f"{folder / MANIFEST} describes a tensor as {dict(entry)}") from None


def _is_dump(folder: Path) -> bool:
    return (folder / msprobe.JSON).is_file() or (folder / MANIFEST).is_file() or any(_tensor_files(folder))


def _tensor_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix[1:] in FORMATS and path.is_file())


def _calls(folder: Path, operator: Operator, call: str | None, results_only: bool, name: str) -> Iterator[Dump]:
    manifest = read_manifest(folder)
    if (folder / msprobe.JSON).is_file():
        for dump in _of_msprobe(folder, operator, call, name):
            dump.golden = manifest
            yield dump
        return
    dump = Dump(name, folder, golden=manifest)
    known: set[str] = set()
    if manifest is not None:
        if manifest.get("operator") != operator.spec.name:
            raise BadDump(f"{folder / MANIFEST} is of {manifest.get('operator')}, expected {operator.spec.name}")
        dump.arguments = {
            param.name: _of_entry(folder, manifest["arguments"].get(param.aclnn), known) for param in operator.spec.args
        }
        results_only = False  # what is updated in place lies there before the call
    _by_names(dump, operator.spec, known, results_only)
    yield dump


def _of_entry(folder: Path, entry: Any, known: set[str]) -> Any:
    """The value of an argument from the manifest."""
    if isinstance(entry, list):
        return [_of_entry(folder, item, known) for item in entry]
    if isinstance(entry, dict):
        known.add(str(entry.get("file")))
        return stored(folder, entry)
    return entry


def _by_names(dump: Dump, spec: OpSpec, known: set[str], results_only: bool) -> None:
    """Sort the plain files of a folder into arguments and outputs."""
    files = [path for path in _tensor_files(dump.folder) if path.name not in known]
    for path in files:
        if path.stem.startswith(f"{GOLDEN}.") and dump.golden is not None:
            continue
        place = _place(spec, path.stem, results_only)
        if place is None:
            names = ", ".join(dict.fromkeys(param.aclnn for param in (*spec.args, *spec.outs)))
            dump.problems.append(
                f"{path.name} is no argument or output of {spec.name}, expected one of {names}, or output_0 and so on"
            )
            continue
        name, member, is_output = place
        into = dump.outputs if is_output else dump.arguments
        members = into.setdefault(name, {})
        if not isinstance(members, dict) or member in members or (members and None in (member, *members)):
            dump.problems.append(f"{path.name} is a second file for {spec.params[name].aclnn}")
        else:
            members[member] = Stored(path)
    for into in (dump.arguments, dump.outputs):
        for name, members in into.items():
            if isinstance(members, dict):
                into[name] = members[None] if None in members else [members.get(k) for k in range(max(members) + 1)]


def _place(spec: OpSpec, stem: str, results_only: bool) -> tuple[str, int | None, bool] | None:
    """(Python name, index in a list, whether it is an output) of what a file holds; None if its name says nothing."""
    if (position := _POSITION.match(stem)) and not _named(spec, stem):
        is_output, at = position[1].lower().startswith("out"), int(position[2])
        names = spec.written_names if is_output else [arg.name for arg in spec.args if isinstance(arg, TensorParam)]
        if at < len(names):
            return names[at], None if position[3] is None else int(position[3]), is_output
    if named := _named(spec, stem):
        name, member = named
        return name, member, name in spec.out_names or (results_only and name in spec.written_names)
    if stem.lower() in ("out", "output") and len(spec.written_names) == 1:
        return spec.written_names[0], None, True
    if role := _ROLE.match(stem):
        is_output = (role[1] or role[4]).lower().startswith("out")
        named = _named(spec, role[2] or role[3])
        if named and named[0] in (spec.written_names if is_output else [arg.name for arg in spec.args]):
            return *named, is_output
    return None


def _named(spec: OpSpec, stem: str) -> tuple[str, int | None] | None:
    """(Python name, index in a list) of a parameter's name in either spelling."""
    whole = {spelled(word): param for param in (*spec.args, *spec.outs) for word in (param.aclnn, param.name)}
    if (param := whole.get(spelled(stem))) is not None:
        return param.name, None
    head, _, tail = stem.rpartition(".")
    param = whole.get(spelled(head))
    return (param.name, int(tail)) if isinstance(param, TensorList | OutList) and tail.isdecimal() else None


def _of_msprobe(folder: Path, operator: Operator, call: str | None, name: str) -> Iterator[Dump]:
    """The calls of the operator in a dump of msprobe's: positional arguments stand in the contract's order."""
    spec, records = operator.spec, msprobe.read_calls(folder)
    if call is not None and call not in records:
        raise BadDump(f"{folder / msprobe.JSON} has no call {call!r}, expected one of {', '.join(records) or 'none'}")
    own = {spelled(word) for word in (spec.name, spec.aclnn, spec.aclnn.removeprefix("aclnn"))}
    chosen = [call] if call else [each for each in records if any(spelled(word) in own for word in each.split("."))]
    if not chosen:
        there = ", ".join(records) or "none at all"
        raise BadDump(
            f"{folder / msprobe.JSON} has no call of {spec.aclnn or spec.name}, but {there}: choose by --call"
        )
    for each in chosen:
        record = records[each]
        dump = Dump(f"{name}/{each}" if name else each, folder)
        for kind, given, names in (
            ("argument", record.arguments, [arg.name for arg in spec.args]),
            ("output", record.outputs, spec.written_names),
        ):
            into = dump.arguments if kind == "argument" else dump.outputs
            into.update(zip(names, given, strict=False))
            if len(given) > len(names):
                dump.problems.append(f"{each} has {len(given)} {kind}s, {spec.name} has {len(names)}")
        words = {spelled(word): arg.name for arg in spec.args for word in (arg.aclnn, arg.name)}
        for word, value in record.keywords.items():
            if spelled(word) in words:
                dump.arguments[words[spelled(word)]] = value
            else:
                dump.problems.append(f"{each} has an argument {word!r}, {spec.name} has none of this name")
        yield dump
