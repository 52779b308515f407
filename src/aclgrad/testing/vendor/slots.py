"""The tensors of a listed case in files, numbered as TTK does it: lists are flat, and what is absent has a number too.

One case's lie in a folder of its name, `input_0_float16.bin`, `output_0.npy`, or beside those of others under its name,
`case_output_0.npy`, `case_fail_output_0.npy`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import BadDump
from ...core.memory import tensors_in
from ...core.meta import Meta
from ...core.plan import Operator
from ...core.spec import OpSpec
from ...core.spec import Tensor as TensorParam
from ...frontends.dumps.files import FORMATS, Stored
from ..data.dumps import DTYPE_TAIL, Dump, read_dumps

INPUT, OUTPUT = "input", "output"
_SLOT = rf"(?P<kind>{INPUT}|{OUTPUT})_(?P<k>\d+)"
_IN_FOLDER = re.compile(_SLOT + DTYPE_TAIL)
Slots = dict[tuple[str, int], Path]


def plain_name(name: str) -> str:
    """A case's name as that of a folder, which TTK leaves as it is."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:120]


def read_case(folder: Path, name: str, operator: Operator, args: Sequence[Any], metas: dict[str, Any]) -> Dump:
    """The outputs of a case in a folder of many, and its inputs where they are there.

    `args` says what inputs there must be, `metas` what outputs are expected.
    """
    if not folder.is_dir():
        raise BadDump(f"{folder} does not exist, expected a folder of outputs")
    slots = _slots(folder / name, _IN_FOLDER) or _slots(folder, re.compile(rf"{re.escape(name)}_([a-z]+_)?{_SLOT}"))
    if any(kind == OUTPUT for kind, _ in slots):
        return _of_slots(slots, Dump(name, folder), operator.spec, args, metas)
    if not (folder / name).is_dir():
        raise BadDump(f"{folder} has neither a folder {name} nor a file {name}_output_0, expected this case's outputs")
    found, *others = read_dumps(folder / name, operator)
    if others:
        raise BadDump(f"{folder / name} holds {len(others) + 1} calls, expected one")
    if not set(found.arguments) - set(operator.spec.written_names):  # a plain name is the new value
        (found,) = read_dumps(folder / name, operator, results_only=True)
    for param, value in zip(operator.spec.args, args, strict=True):
        if found.arguments and param.name not in found.arguments:
            if tensors_in([value]):
                raise BadDump(f"{param.aclnn} is missing beside the other inputs", param.name)
            found.arguments[param.name] = value
    return found


def prepared(folder: Path, spec: OpSpec, args: Sequence[Any]) -> list[Any]:
    """The arguments with the tensors of a prepared case in their places."""
    return list(_replaced(_slots(folder, _IN_FOLDER), spec, args).values())


def _slots(folder: Path, pattern: re.Pattern[str]) -> Slots:
    found: Slots = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        slot = pattern.fullmatch(path.stem)
        if slot and path.suffix[1:] in FORMATS:
            found.setdefault((slot["kind"], int(slot["k"])), path)
    return found


def _of_slots(slots: Slots, dump: Dump, spec: OpSpec, args: Sequence[Any], metas: dict[str, Any]) -> Dump:
    at = 0
    for name, meta in metas.items():
        members = [meta] if isinstance(meta, Meta) or meta is None else list(meta)
        files = [slots.pop((OUTPUT, at + k), None) for k in range(len(members))]
        at += len(members)
        stored = [(file and file.stat().st_size and Stored(file)) or None for file in files]
        dump.outputs[name] = stored[0] if isinstance(meta, Meta) or meta is None else stored
    if any(kind == INPUT for kind, _ in slots):
        dump.arguments.update(_replaced(slots, spec, args))
    dump.problems += [f"{path.name} is no tensor of this call" for path in slots.values()]
    return dump


def _replaced(slots: Slots, spec: OpSpec, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments by name, their tensors from the slots, which are taken out."""
    found, at = {}, 0
    for param, value in zip(spec.args, args, strict=True):
        found[param.name] = value
        if isinstance(param, TensorParam):
            members = list(value) if isinstance(value, list | tuple) else [value]
            files = [slots.pop((INPUT, at + k), None) for k in range(len(members))]
            at += len(members)
            loaded = [_loaded(param.aclnn, like, file) for like, file in zip(members, files, strict=True)]
            found[param.name] = loaded if isinstance(value, list | tuple) else loaded[0]
    return found


def _loaded(label: str, like: Any, file: Path | None) -> Any:
    """An input as the list describes it."""
    if not isinstance(like, Tensor):
        return None
    if file is None:
        raise BadDump(f"{label} is missing beside the other inputs", label)
    return Stored(file, like.dtype, tuple(like.shape)).load()
