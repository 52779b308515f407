"""TTK: lists of cases in CSV, a plugin that answers with the true result, and prepared data to replay.

A row has `testcase_name` and either `api_name`, `tensor_view_shapes` and `tensor_dtypes` of all tensors in the
document's order, outputs last, or `op_name`, `input_shapes` and `input_dtypes` of a kernel's. Cells are Python
literals; a dtype that stands alone is everyone's. `attributes` has values by parameter, small tensors' included;
`input_data_ranges` two ends for each tensor, or for all, and behind them values that must occur. A prepared case is a
folder `manual_data/<testcase_name>` with `input_<k>_<dtype>.bin` and `golden_<k>_<dtype>__shape_<AxB>.bin`. As TTK's
documents have it (github.com/hicann/ops-test-kit, docs, read in November 2026).
"""

from __future__ import annotations

import ast
import csv
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InvalidArgument
from ...core.meta import Meta, dtype_name
from ...core.plan import Operator
from ...core.spec import OpSpec, OutList, TensorList
from ...core.spec import Tensor as TensorParam
from ...frontends.dumps.files import write as write_file
from ..data.calls import Call
from ..data.described import Drawn, dtype_named, shape_of
from ..verification.truth import Truth, rounded
from .atk import range_of
from .lists import Listed, is_of, named, of_case
from .slots import plain_name

PREPARED = "manual_data"  # beside the list
DEFAULT_RANGE = (-2.0, 2.0)
COLUMNS = (
    "testcase_name", "api_name", "tensor_view_shapes", "tensor_dtypes", "tensor_formats", "attributes",
    "output_tensor_indexes", "input_data_ranges", "is_enabled",
)  # fmt: skip


def read(operator: Operator, path: Path) -> list[Listed]:
    """The operator's cases in a list; rows that are switched off are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.DictReader(file) if any(row.values())]
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", "ttk") from None
    kernel = bool(rows) and "api_name" not in rows[0]
    if not rows or (kernel and "input_shapes" not in rows[0]):
        raise InvalidArgument(f"{path} is no list of cases: it has neither api_name nor input_shapes", "ttk")
    own = [row for row in rows if kernel or is_of(operator.spec, row["api_name"] or "")]
    if not own:
        others = ", ".join(sorted({str(row["api_name"]) for row in rows}))
        raise InvalidArgument(f"{path} has no case of {operator.spec.aclnn}, but of {others}", "ttk")
    found = [_listed(operator.spec, k, row, kernel) for k, row in enumerate(own) if _cell(row, "is_enabled", True)]
    places = [path.parent / PREPARED / case.name for case in found]
    return [replace(case, folder=place if place.is_dir() else None) for case, place in zip(found, places, strict=True)]


def _listed(spec: OpSpec, k: int, row: Mapping[str, str], kernel: bool) -> Listed:
    name = row.get("testcase_name") or f"auto_testcase_name_{k}"
    with of_case(f"case {name}"):
        shapes = _for_each(_cell(row, "input_shapes" if kernel else "tensor_view_shapes", ()))
        dtypes = _spread(_cell(row, "input_dtypes" if kernel else "tensor_dtypes", ()), shapes)
        ranges = _for_each(_cell(row, "input_data_ranges", ()) or ())
        attributes = dict(_cell(row, "attributes", None) or {})
        params = [arg for arg in spec.args if isinstance(arg, TensorParam)]
        told = named(spec, list(attributes), list(attributes.values()))
        if len(shapes) < len(params):
            raise InvalidArgument(f"{len(shapes)} tensors, {spec.aclnn} has {len(params)} inputs", "tensor_view_shapes")
        for place, (param, shape, dtype) in enumerate(zip(params, shapes, dtypes, strict=False)):
            limits = ranges[place] if place < len(ranges) else ranges[0] if len(ranges) == 1 else None
            told[param.name] = _tensor(param, shape, dtype, limits, told.get(param.name))
        outs = dict(zip(spec.out_names, dtypes[len(params) :], strict=False))
        return Listed(name, told, k, {word: _first_dtype(dtype) for word, dtype in outs.items() if dtype is not None})


def _for_each(told: Sequence[Any]) -> Sequence[Any]:
    """What is told of each tensor; numbers alone are told of one, or of all: `((2, 3))`, `(-1, 1, nan)`."""
    return [told] if told and all(isinstance(item, int | float) for item in told) else told


class _Named(ast.NodeTransformer):
    """Numbers that Python's literals have no word for."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name, as in `(nan, -inf)`."""
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _cell(row: Mapping[str, str], name: str, otherwise: Any) -> Any:
    """What a cell holds; it is a Python literal."""
    text = (row.get(name) or "").strip()
    if not text:
        return otherwise
    try:
        return ast.literal_eval(_Named().visit(ast.parse(text, mode="eval")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InvalidArgument(f"{name} is {text!r}, expected a Python literal", name) from None


def _spread(dtypes: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    listed = list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes]
    return listed * len(shapes) if len(listed) == 1 else listed


def _first_dtype(dtype: Any) -> torch.dtype:
    return dtype_named(str(dtype[0] if isinstance(dtype, list | tuple) else dtype))


def _tensor(param: TensorParam, shape: Any, dtype: Any, limits: Any, values: Any) -> Any:
    """A tensor of the list, or a list of them."""
    if shape is None:
        return None
    if isinstance(param, TensorList) and all(isinstance(item, list | tuple) or item is None for item in shape):
        kinds = _spread(dtype, shape)
        inner = limits if limits and isinstance(limits[0], list | tuple) else [limits] * len(shape)
        return [_tensor(_single(param), item, kinds[k], inner[k], None) for k, item in enumerate(shape)]
    kind = _first_dtype(dtype)
    sizes = shape_of(param.aclnn, shape)
    if values is not None:
        return Drawn(sizes, kind, values=values)
    low, high, *always = limits or DEFAULT_RANGE
    low, high = (DEFAULT_RANGE[k] if end is None else float(end) for k, end in enumerate((low, high)))
    only = () if isfinite(low) and isfinite(high) else (low, high)  # (nan, nan): nothing else
    return Drawn(sizes, kind, low, high, always=tuple(map(float, always)), only=only)


def _single(param: TensorParam) -> TensorParam:
    return TensorParam(param.name, param.aclnn, param.dtypes, param.generous)


PLUGIN = '''"""The true results of {aclnn} for TTK: in float64, rounded once.

Written by `aclgrad golden`. Run, for instance,

    python3 -m ttk aclnn -i {cases} \\
        --plugin {file} --manual-data-dirs manual_data

With the prepared data, TTK takes inputs and results from there; without them it draws inputs and asks this plugin.
"""

from aclgrad.testing.vendor import golden_of

__spec__ = {{"{aclnn}": "{name}"}}


class {name}:
    """Parameters follow {aclnn}GetWorkspaceSize; outputs come last and may be left out."""

    def golden(
        {parameters},
        **kwargs,
    ):
        given = (
            {inputs},
        )
        answers = golden_of("{aclnn}", given)
        return [item for answer in answers for item in (answer if isinstance(answer, list) else [answer])]
'''


def write(operator: Operator, calls: Sequence[Call], folder: Path) -> list[Path]:
    """A plugin for TTK, a list of cases, and the calls' inputs and true outputs for it to replay; all their paths."""
    spec = operator.spec
    if not spec.aclnn:
        raise InvalidArgument(f"{spec.name} has no aclnn name, which TTK wants", "operator")
    folder.mkdir(parents=True, exist_ok=True)
    plugin, cases = folder / f"golden_{spec.aclnn}.py", folder / f"ttk_{spec.aclnn}.csv"
    words = [f"{param.aclnn}T" if param.aclnn == "self" else param.aclnn for param in (*spec.args, *spec.outs)]
    inputs, outs = words[: len(spec.args)], words[len(spec.args) :]
    text = PLUGIN.format(
        aclnn=spec.aclnn, name=f"{spec.aclnn[0].upper()}{spec.aclnn[1:]}TestSpec", cases=cases.name, file=plugin.name,
        parameters=_wrapped([*inputs, *(f"{word}=None" for word in outs)], 8), inputs=_wrapped(inputs, 12),
    )  # fmt: skip
    plugin.write_text(text, encoding="utf-8")
    with cases.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        for call in calls:
            truth = Truth(operator, call.args)
            rows.writerow(_row(truth, call))
            _prepare(truth, call, folder / PREPARED / plain_name(call.name))
    return [plugin, cases, folder / PREPARED]


def _wrapped(words: Sequence[str], indent: int) -> str:
    return textwrap.fill(", ".join(words), 100 - indent).replace("\n", "\n" + " " * indent)


def _row(truth: Truth, call: Call) -> dict[str, str]:
    spec = truth.spec
    tensors = [
        (param, value) for param, value in zip(spec.args, call.args, strict=True) if isinstance(param, TensorParam)
    ]
    outs = [[meta for _, meta in truth.members(param.name)] for param in spec.outs]
    results = [
        metas if isinstance(param, OutList) else metas[0] if metas else None
        for param, metas in zip(spec.outs, outs, strict=True)
    ]
    attributes = {
        param.aclnn: list(value) if isinstance(value, tuple) else value
        for param, value in zip(spec.args, call.args, strict=True)
        if not isinstance(param, TensorParam) and value is not None
    }
    everything = [value for _, value in tensors] + results
    updated = [k for k, (param, _) in enumerate(tensors) if param.name in spec.written_names]
    told = {
        "testcase_name": plain_name(call.name), "api_name": spec.aclnn,
        "tensor_view_shapes": tuple(_each(value, lambda item: tuple(item.shape)) for value in everything),
        "tensor_dtypes": tuple(_each(value, lambda item: dtype_name(item.dtype)) for value in everything),
        "tensor_formats": ("ND",), "attributes": attributes,
        "output_tensor_indexes": (*range(len(tensors), len(everything)), *updated),
        "input_data_ranges": tuple(_each(value, lambda item: tuple(range_of(item))) for _, value in tensors),
        "is_enabled": True,
    }  # fmt: skip
    return {name: value if isinstance(value, str) else repr(value) for name, value in told.items()}


def _each(value: Any, of: Any) -> Any:
    """A function of a tensor or of each of a list; None stays None."""
    if isinstance(value, list | tuple) and not isinstance(value, Meta):
        return tuple(_each(item, of) for item in value)
    return None if value is None else of(value)


def _prepare(truth: Truth, call: Call, folder: Path) -> None:
    """A prepared case: flat inputs and true outputs, with an empty file where there is none."""
    inputs: list[Any] = []
    for param, value in zip(truth.spec.args, call.args, strict=True):
        if isinstance(param, TensorParam):
            inputs += value if isinstance(value, list | tuple) else [value]
    golden: list[Any] = []
    for name in truth.spec.written_names:
        metas = [meta for _, meta in truth.members(name)]
        values: list[Any] = list(truth.whole(name)) if metas else [None]
        golden += [None if value is None else rounded(value, metas[k].dtype) for k, value in enumerate(values)]
    folder.mkdir(parents=True, exist_ok=True)
    for kind, tensors in (("input", inputs), ("golden", golden)):
        for k, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                (folder / f"{kind}_{k}_none.bin").write_bytes(b"")
                continue
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            tail = f"__shape_{shape}" if kind == "golden" else ""
            write_file(tensor, folder / f"{kind}_{k}_{dtype_name(tensor.dtype)}{tail}.bin")
