"""The layout of msprobe's dumps: `dump.json`, and a file for each tensor in `dump_tensor_data`.

`data` of dump.json has a record for each call, under `<type>.<api>.<count>.<forward or backward>`. A call's positional
arguments are the list `input_args`, those by keyword `input_kwargs`, its results the list `output`; lists nest. A
tensor is a dictionary with `type`, `dtype`, `shape`, statistics and `data_name`, the name of its file, which says where
in the record it stands: `Torch.mul.0.forward.input.1.pt`. Other values have `type` and `value`; None is null.

Names and layout are those of msprobe's writer (github.com/Ascend/msprobe, python/msprobe/core/dump, August 2026).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import BadDump
from ...core.meta import dtype_name
from .files import DTYPES, PT, Stored, write

JSON, FOLDER = "dump.json", "dump_tensor_data"
FORWARD = "forward"
TENSORS = ("torch.Tensor", "mindspore.Tensor", "mindtorch.Tensor", "torch.nn.parameter.Parameter", "numpy.ndarray")
_OF_MINDSPORE = {f"{name[0].upper()}{name[1:]}": dtype for name, dtype in DTYPES.items()} | {"BFloat16": torch.bfloat16}

_EMPTY: dict[str, Any] = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": FOLDER}


@dataclass(frozen=True)
class Record:
    """One call of a dump. A tensor is a `Stored`; lists are lists, values values, and None is None."""

    name: str
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[Any] = ()


def write_call(
    folder: Path,
    api: str,
    arguments: Sequence[Any],
    outputs: Sequence[Any],
    *,
    keywords: Mapping[str, Any] | None = None,
    kind: str = "Aclnn",
    data_format: str = PT,
) -> str:
    """Add one call's tensors and values to the dump in a folder, which is made if there is none.

    Returns the call's name. `arguments`, `keywords` and `outputs` hold tensors of any shape and strides, lists of them,
    numbers, bools, strings and None. The name counts the calls of this api: `Aclnn.aclnnHardsigmoid.0.forward`. A
    dump's files are npy or pt. Several threads may write into one folder under a lock of their own only.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> write_call(place, "aclnnHardsigmoid", [torch.zeros(2)], [torch.full((2,), 0.5)])
    'Aclnn.aclnnHardsigmoid.0.forward'
    >>> sorted(file.name for file in (place / "dump_tensor_data").iterdir())
    ['Aclnn.aclnnHardsigmoid.0.forward.input.0.pt', 'Aclnn.aclnnHardsigmoid.0.forward.output.0.pt']
    """
    written = _content(folder) if (folder / JSON).is_file() else {**_EMPTY, "data": {}}
    data = written["data"]
    count = 0
    while (name := f"{kind}.{api}.{count}.{FORWARD}") in data:
        count += 1

    def told(place: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            return _described(value, folder / FOLDER / f"{name}.{place}.{data_format}")
        if isinstance(value, list | tuple):
            return [told(f"{place}.{k}", item) for k, item in enumerate(value)]
        return None if value is None else {"type": type(value).__name__, "value": value}

    data[name] = {
        "input_args": [told(f"input.{k}", value) for k, value in enumerate(arguments)],
        "input_kwargs": {key: told(f"kwargs.{key}", value) for key, value in (keywords or {}).items()},
        "output": [told(f"output.{k}", value) for k, value in enumerate(outputs)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{JSON}.part"
    unfinished.write_text(json.dumps(written, indent=1), encoding="utf-8")
    unfinished.replace(folder / JSON)  # whoever reads it meanwhile finds it whole
    return name


def read_calls(folder: Path) -> dict[str, Record]:
    """The calls of a dump by their names, in order. Nothing of the tensors is read.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> name = write_call(place, "aclnnBatchNormStats", [torch.ones(4, 3), 1e-5], [torch.ones(3), torch.ones(3)])
    >>> read_calls(place)[name].arguments[1]
    1e-05
    """
    content = _content(folder)
    said = Path(str(content.get("dump_data_dir") or FOLDER))
    place = folder / FOLDER if (folder / FOLDER).is_dir() or not said.is_dir() else said
    calls = {}
    for name, record in content["data"].items():
        if not isinstance(record, dict):
            raise BadDump(f"{JSON} tells nothing of {name}, expected its arguments and its output")
        arguments = record.get("input_args", record.get("input"))
        calls[name] = Record(
            name,
            [_found(place, value) for value in arguments or ()],
            {key: _found(place, value) for key, value in (record.get("input_kwargs") or {}).items()},
            [_found(place, value) for value in record.get("output") or ()],
        )
    return calls


def _content(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / JSON).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadDump(f"{folder / JSON} cannot be read: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
        raise BadDump(f"{folder / JSON} has no calls: expected a dictionary `data`")
    return content


def _described(tensor: Tensor, path: Path) -> dict[str, Any]:
    write(tensor, path)
    told: dict[str, Any] = {
        "type": TENSORS[0], "dtype": str(tensor.dtype), "shape": list(tensor.shape),
        "Max": None, "Min": None, "Mean": None, "Norm": None, "requires_grad": tensor.requires_grad,
    }  # fmt: skip
    if tensor.numel():
        told["Max"], told["Min"] = tensor.max().item(), tensor.min().item()
        if tensor.is_floating_point():
            told["Mean"], told["Norm"] = tensor.mean().item(), torch.linalg.vector_norm(tensor).item()
    return {**told, "data_name": path.name}


def _found(place: Path, told: Any) -> Any:
    """What a value in dump.json stands for."""
    if isinstance(told, list):
        return [_found(place, item) for item in told]
    if not isinstance(told, dict):
        return None
    if told.get("type") in TENSORS:
        if not told.get("data_name"):
            raise BadDump(f"{JSON} names no file for a {told['type']}: dump with task `tensor`, not `statistics`")
        dtype, shape = str(told.get("dtype")), told.get("shape")
        known = DTYPES.get(dtype.removeprefix("torch."), _OF_MINDSPORE.get(dtype))
        if known is None:
            raise BadDump(
                f"{told['data_name']} is {dtype}, expected one of {', '.join(map(dtype_name, DTYPES.values()))}"
            )
        return Stored(place / told["data_name"], known, None if shape is None else tuple(shape))
    return told.get("value")
