"""What outputs are expected of a call: from its arguments by the formula, or from golden data and their manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import AclgradError, BadDump
from ...core.memory import tensors_in
from ...core.meta import Meta, contiguous_strides
from ...core.plan import Operator
from ...core.spec import REQUIRED
from ...frontends.dumps.files import DTYPES, Stored, checksum
from ..data.dumps import Dump, stored
from ..data.golden import GOLDEN, naive_statistics
from ..precision.statistics import Flat, Statistics, flat
from .arrays import require_values
from .truth import Truth


class Expected(NamedTuple):
    """One tensor that a call writes."""

    name: str  # in Python
    member: int | None  # of a list
    label: str  # in the document
    meta: Meta
    true: Callable[[], Flat]
    naive: Callable[[], Statistics]
    precision: torch.dtype
    naive_precision: torch.dtype
    optional: bool


@dataclass
class Expectation:
    """The arguments of a call in the contract's order, and what it writes."""

    operator: Operator
    args: Sequence[Any]
    outputs: Sequence[Expected]


def expectation(operator: Operator, source: Dump, dump: Dump | None) -> Expectation:
    """What a call with these arguments writes. Arguments that lie beside the outputs, too, must be the same."""
    args = [_value(operator, param, source) for param in operator.spec.args]
    for param, value in zip(operator.spec.args, args, strict=True):
        for tensor in tensors_in([value]):
            require_values(param.aclnn, tensor)
    if dump is not None:
        for param, mine in zip(operator.spec.args, args, strict=True):
            if param.name in dump.arguments and not _same(mine, _value(operator, param, dump)):
                raise BadDump(f"{param.aclnn} beside the outputs is not the one among the inputs", param.name)
    if source.golden is not None:
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # hashing takes longer than reading
            list(threads.map(partial(_unchanged, source.folder), _described(source.golden["arguments"])))
        outputs = [each for name in operator.spec.written_names for each in _of_manifest(operator, source, name)]
        return Expectation(operator, args, outputs)
    try:
        truth = Truth(operator, args, source.dtypes)
    except AclgradError as refusal:
        raise BadDump(f"the inputs are no legal call: {refusal}") from None
    return Expectation(operator, args, [each for name in truth.metas for each in _of_formula(truth, name)])


def _value(operator: Operator, param: Any, dump: Dump) -> Any:
    """An argument, loaded: a file that says neither dtype nor shape must be followed by one that does."""
    if param.name not in dump.arguments:
        if param.default is not REQUIRED or param.may_be_none:
            return None if param.default is REQUIRED else param.default
        where = (
            ""
            if dump.arguments or dump.folder == Path()
            else f": {dump.folder} holds none; inputs, or --inputs, names another folder"
        )
        raise BadDump(f"{param.aclnn} is missing among the inputs of {operator.spec.name}{where}", param.name)
    return _loaded(dump.arguments[param.name], param)


def _loaded(value: Any, param: Any) -> Any:
    if isinstance(value, Stored):
        only = {*getattr(param, "dtypes", ()), *getattr(param, "generous", ())}
        return value.load(torch.bfloat16 if torch.bfloat16 in only else None)
    return [_loaded(item, param) for item in value] if isinstance(value, list | tuple) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and torch.equal(_bits(one), _bits(other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _of_formula(truth: Truth, name: str) -> list[Expected]:
    in_list = not isinstance(truth.metas[name], Meta)
    label = truth.spec.params[name].aclnn
    return [
        Expected(
            name, k if in_list else None, f"{label}[{k}]" if in_list else label, meta,
            partial(truth.flat, name, k), partial(naive_statistics, truth, name, k, meta),
            truth.precision(name, meta.dtype), truth.naive_run(name, meta.dtype), truth.is_optional(name),
        )
        for k, (_, meta) in enumerate(truth.members(name))
    ]  # fmt: skip


def _of_manifest(operator: Operator, source: Dump, name: str) -> list[Expected]:
    assert source.golden is not None  # the caller
    param = operator.spec.params[name]
    try:
        told = source.golden["outputs"][param.aclnn]  # None where the call does not produce it
        in_list = isinstance(told, list)
        entries = told if isinstance(told, list) else [] if told is None else [told]
        return [
            _entry(
                source.folder, name, k if in_list else None, f"{param.aclnn}[{k}]" if in_list else param.aclnn, entry
            )
            for k, entry in enumerate(entries)
        ]
    except (KeyError, TypeError, ValueError) as fault:
        raise BadDump(f"the manifest of {source.folder} does not describe {param.aclnn}: {fault!r}") from None


def _unchanged(folder: Path, entry: Mapping[str, Any]) -> Stored:
    """The file that an entry of a manifest describes, if it is the one that was written."""
    file = stored(folder, entry)
    try:
        if checksum(file.path) == entry["sha256"]:
            return file
    except OSError as fault:
        raise BadDump(f"{file.path.name} cannot be read: {fault.strerror}") from None
    raise BadDump(f"{file.path.name} is not the file that was written: its checksum differs")


def _described(told: Any) -> Iterator[Mapping[str, Any]]:
    """The entries of the files among what a manifest tells."""
    if isinstance(told, dict) and "file" in told:
        yield told
    elif isinstance(told, dict | list):
        for item in told.values() if isinstance(told, dict) else told:
            yield from _described(item)


def _entry(folder: Path, name: str, member: int | None, label: str, entry: Mapping[str, Any]) -> Expected:
    shape, dtype, plain = tuple(map(int, entry["shape"])), DTYPES[entry["dtype"]], entry.get("naive")

    @cache
    def true() -> Flat:
        return flat(_unchanged(folder, entry[GOLDEN]).load())

    def naive() -> Statistics:
        return Statistics(dict(plain["values"]), dict(plain["kinds"])) if plain else Statistics()

    return Expected(
        name, member, label, Meta(shape, contiguous_strides(shape), dtype, torch.device("cpu")), true, naive,
        DTYPES[entry.get("precision", entry["dtype"])], DTYPES[plain["dtype"] if plain else entry["dtype"]],
        bool(entry.get("optional")),
    )  # fmt: skip
