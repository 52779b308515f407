"""Golden data: a call's inputs and its true outputs as files, for kernels that run elsewhere.

A folder holds a file for each argument under the document's name (`gradOut.npy`, `params.0.npy` of a list), the truth
in float64 (`golden.out.npy`) and `manifest.json`. Below `rounded/` are the same outputs rounded once to the type that
the operator writes: a dump that is right. The same arguments give the same bytes.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._version import __version__
from ...core.errors import InvalidArgument
from ...core.memory import tensors_in
from ...core.meta import Meta, dtype_name
from ...core.plan import Operator
from ...frontends.dumps import msprobe
from ...frontends.dumps.files import FORMATS, NPY, checksum, write
from ..precision.standards import all_measures
from ..precision.statistics import Statistics, measure
from ..verification.truth import Truth, rounded

MANIFEST, ROUNDED, GOLDEN = "manifest.json", "rounded", "golden"
MSPROBE = "msprobe"
VERSION = 1  # of the manifest

Tell = Callable[[int], None]
"""Told how many bytes were written since the last time."""


def write_golden(
    operator: Operator,
    args: Sequence[Any],
    folder: Path,
    data_format: str = NPY,
    *,
    origin: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
) -> Path:
    """Write a call's inputs, its true outputs and a manifest; the manifest's path.

    `args` stand in the contract's order, tensors of any shape and strides. `data_format` is npy, bin, pt or msprobe.
    `origin` is written into the manifest: which case this is, from which seed.

    >>> import tempfile, aclgrad
    >>> from aclgrad.core.registry import lookup
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = write_golden(lookup("hardsigmoid"), [torch.tensor([-4.0, 0.0])], place)
    >>> sorted(str(file.relative_to(place)) for file in place.rglob("*.*"))
    ['golden.out.npy', 'manifest.json', 'rounded/out.npy', 'self.npy']
    """
    if data_format not in (*FORMATS, MSPROBE):
        raise InvalidArgument(f"format is {data_format!r}, expected one of {', '.join((*FORMATS, MSPROBE))}", "format")
    return _Folder(operator, args, folder, data_format, tell or (lambda _: None)).write(origin or {})


def bytes_of(operator: Operator, args: Sequence[Any]) -> int:
    """How many bytes of tensors `write_golden` writes, for a progress bar."""
    truth = Truth(operator, args)
    outputs = [meta for name in truth.metas for _, meta in truth.members(name)]
    written = sum(
        meta.numel * (meta.itemsize + (8 if meta.dtype.is_floating_point else meta.itemsize)) for meta in outputs
    )
    return written + sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(args))


def naive_statistics(truth: Truth, name: str, member: int, meta: Meta) -> Statistics:
    """The metrics of the naive run for an output: what a plain computation in the same dtype is off by."""
    plain = truth.naive_run(name, meta.dtype)
    found, true = truth.flat(name, member, plain), truth.flat(name, member)
    return measure(found, true, meta.numel, meta.dtype, all_measures(meta.dtype))[0]


def _in_a_line(numbers: re.Match[str]) -> str:
    return f"[{' '.join(numbers[1].split())}]"


class _Folder:
    """A folder that is being written."""

    def __init__(self, operator: Operator, args: Sequence[Any], folder: Path, data_format: str, tell: Tell) -> None:
        self.spec, self.args, self.folder, self.tell = operator.spec, args, folder, tell
        self.as_dump = data_format == MSPROBE
        self.suffix = NPY if self.as_dump else data_format
        self.truth = Truth(operator, args)

    def write(self, origin: Mapping[str, Any]) -> Path:
        """Everything; the manifest's path."""
        manifest = {
            "format": f"aclgrad golden {VERSION}",
            "operator": self.spec.name,
            "aclnn": self.spec.aclnn,
            "origin": dict(origin),
            "versions": {
                "aclgrad": __version__, "torch": torch.__version__, "numpy": np.__version__,
                "python": platform.python_version(),
            },
            "arguments": self._dumped() if self.as_dump else {
                param.aclnn: self._argument(param.aclnn, value)
                for param, value in zip(self.spec.args, self.args, strict=True)
            },
            "outputs": {self.spec.params[name].aclnn: self._output(name) for name in self.spec.written_names},
        }  # fmt: skip
        path = self.folder / MANIFEST
        text = re.sub(r"\[\s+([-\d,\s]+?)\s+\]", _in_a_line, json.dumps(manifest, indent=1))
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def _argument(self, name: str, value: Any) -> Any:
        """An entry of the manifest; a tensor is written."""
        if isinstance(value, Tensor):
            return self._written(value, f"{name}.{self.suffix}")
        if isinstance(value, list | tuple):
            return [self._argument(f"{name}.{k}", item) for k, item in enumerate(value)]
        return value

    def _written(self, tensor: Tensor, file: str) -> dict[str, Any]:
        return self._entry(tensor, file, write(tensor, self.folder / file))

    def _entry(self, tensor: Tensor, file: str, digest: str) -> dict[str, Any]:
        self.tell(tensor.numel() * tensor.element_size())
        return {
            "file": file, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape),
            "strides": list(tensor.stride()), "sha256": digest,
        }  # fmt: skip

    def _output(self, name: str) -> Any:
        """What the manifest tells of an output; None if the call does not produce it."""
        entries = [self._member(name, k, meta) for k, (_, meta) in enumerate(self.truth.members(name))]
        return entries[0] if isinstance(self.truth.metas[name], Meta) else entries or None

    def _member(self, name: str, k: int, meta: Meta) -> dict[str, Any]:
        label = self.spec.params[name].aclnn + ("" if isinstance(self.truth.metas[name], Meta) else f".{k}")
        true = self.truth.whole(name)[k]
        told: dict[str, Any] = {
            "dtype": dtype_name(meta.dtype), "shape": list(meta.shape), "strides": list(meta.strides),
            "optional": self.truth.is_optional(name),
            GOLDEN: self._written(true, f"{GOLDEN}.{label}.{self.suffix}"),
        }  # fmt: skip
        if not self.as_dump:
            told[ROUNDED] = self._written(rounded(true, meta.dtype), f"{ROUNDED}/{label}.{self.suffix}")
        if meta.dtype.is_floating_point:
            told["precision"] = dtype_name(self.truth.precision(name, meta.dtype))
            statistics = naive_statistics(self.truth, name, k, meta)
            told["naive"] = {"dtype": dtype_name(self.truth.naive_run(name, meta.dtype)), **vars(statistics)}
        return told

    def _dumped(self) -> dict[str, Any]:
        """Entries of the arguments. The whole call is written as a dump of msprobe's, with the rounded outputs."""
        outs: list[Any] = []
        for name in self.spec.written_names:
            members = [meta for _, meta in self.truth.members(name)]
            values = (
                [rounded(t, m.dtype) for t, m in zip(self.truth.whole(name), members, strict=True)] if members else []
            )
            outs.append(values[0] if isinstance(self.truth.metas[name], Meta) else values or None)
        call = msprobe.write_call(self.folder, self.spec.aclnn or self.spec.name, self.args, outs)
        record = msprobe.read_calls(self.folder)[call]

        def entry(value: Any, stored: Any) -> Any:
            if isinstance(value, Tensor):
                return self._entry(value, str(stored.path.relative_to(self.folder)), checksum(stored.path))
            if isinstance(value, list | tuple):
                return [entry(*pair) for pair in zip(value, stored, strict=True)]
            return value

        named = zip(self.spec.args, self.args, record.arguments, strict=True)
        return {param.aclnn: entry(value, stored) for param, value, stored in named}
