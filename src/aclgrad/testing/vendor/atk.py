"""ATK: lists of cases in JSON, and an executor that answers with the true result.

A list is an array of cases. A case has `id`, `aclnn_name` and `inputs`; an input has `name`, `type` (tensor, attr,
scalar, and their plurals, which are arrays), `dtype`, `shape` and `range_values`: two ends, a value, words as "nan", or
{"name": "nd", "mean": [a, b], "std": [c, d]}. As ATK's configuration has it (gitcode.com/Ascend/ATK, atk/configs) and
the lists in ops-nn's tests/st use it, read in November 2026.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import InvalidArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.spec import OpSpec
from ..data.calls import Call
from ..data.described import Drawn, dtype_named, limits, shape_of
from .lists import Listed, is_of, named, of_case

NOTHING = "null"
_LONG = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def read(operator: Operator, path: Path) -> list[Listed]:
    """The operator's cases in a list."""
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", "atk") from None
    if not isinstance(cases, list) or not all(
        isinstance(case, Mapping) and isinstance(case.get("inputs"), list) for case in cases
    ):
        raise InvalidArgument(f"{path} is no list of cases with inputs", "atk")
    own = [case for case in cases if is_of(operator.spec, str(case.get("aclnn_name") or case.get("name")))]
    if not own:
        others = ", ".join(sorted({str(case.get("aclnn_name")) for case in cases})) or "no operator at all"
        raise InvalidArgument(f"{path} has no case of {operator.spec.aclnn}, but of {others}", "atk")
    return [_listed(operator.spec, k, case) for k, case in enumerate(own)]


def _listed(spec: OpSpec, k: int, case: Mapping[str, Any]) -> Listed:
    number = case.get("id", k)
    with of_case(f"case {number}"):
        return _read(spec, k, number, case)


def _read(spec: OpSpec, k: int, number: Any, case: Mapping[str, Any]) -> Listed:
    dice = random.Random(f"{case.get('default_seed', 0)}/{number}")  # noqa: S311  of tests
    words, values = [], []
    for entry in case["inputs"]:
        first = entry[0] if isinstance(entry, list) and entry else entry
        if not isinstance(first, Mapping):
            raise InvalidArgument(f"an input is {entry!r}, expected an object", "atk")
        words.append(first.get("name"))
        values.append([_value(item, dice) for item in entry] if isinstance(entry, list) else _value(entry, dice))
    told = named(spec, words, values)
    return Listed(str(number), told, int(case.get("default_seed") or k))


def _value(entry: Mapping[str, Any], dice: random.Random) -> Any:
    """An input as a value, or as a tensor to be drawn."""
    label, told, shape = str(entry.get("name")), entry.get("range_values"), entry.get("shape")
    if told == NOTHING or told == [NOTHING] or (shape is None and told is None):
        return None
    if str(entry.get("type", "tensor")).startswith("tensor"):
        dtype = dtype_named(str(entry.get("dtype")), label)
        if shape is None:
            return None
        if isinstance(told, Mapping):
            mean, std = (dice.uniform(*told[word]) for word in ("mean", "std"))
            return Drawn(shape_of(label, shape), dtype, normal=(mean, std))
        low, high, only = limits(label, (-1, 1) if told is None else told)
        return Drawn(shape_of(label, shape), dtype, low, high, only=only)
    return _attribute(label, str(entry.get("dtype")), told, dice)


def _attribute(label: str, dtype: str, told: Any, dice: random.Random) -> Any:
    if isinstance(told, list) and len(told) == 1:
        return _attribute(label, dtype, told[0], dice)
    if "bool" in dtype:
        return bool(dice.choice(told) if isinstance(told, list) else told)
    if isinstance(told, str | bool) or told is None:
        return told
    low, high, _ = limits(label, told)
    if "int" in dtype:
        return dice.randint(int(low), int(high))
    return dice.uniform(low, high)


EXECUTOR = '''"""The true results of {aclnn} for ATK: in float64, rounded once.

Written by `aclgrad golden`; the list beside it names this executor as its `api_type`. Run, for instance,

    atk node --backend pyaclnn --devices 0 node --backend cpu \\
        task -c {cases} \\
        -p {file} --task accuracy
"""

from aclgrad.testing.vendor import for_kit
from atk.configs.dataset_config import InputDataset
from atk.tasks.api_execute import register
from atk.tasks.api_execute.base_api import BaseApi


@register("{api}")
class {name}(BaseApi):
    """Takes the arguments by the document's names; a tensor alone or a tuple of them is returned."""

    def __call__(self, input_data: InputDataset, with_output: bool = False):
        return for_kit("{aclnn}", input_data.kwargs)
'''


def write(operator: Operator, calls: Sequence[Call], folder: Path) -> list[Path]:
    """An executor for ATK, and a list of cases with the calls' shapes, dtypes and ranges; the paths of both."""
    spec = operator.spec
    if not spec.aclnn:
        raise InvalidArgument(f"{spec.name} has no aclnn name, which ATK wants", "operator")
    folder.mkdir(parents=True, exist_ok=True)
    plain = spec.aclnn.removeprefix("aclnn")
    executor, cases = folder / f"executor_{spec.aclnn}.py", folder / f"atk_{spec.aclnn}.json"
    words = {"aclnn": spec.aclnn, "api": f"aclgrad_{spec.aclnn}", "name": f"Aclgrad{plain}"}
    executor.write_text(EXECUTOR.format(**words, cases=cases.name, file=executor.name), encoding="utf-8")
    told = [
        {
            "id": k, "default_seed": k, "name": plain, "aclnn_name": plain, "api_type": words["api"],
            "standard": {"acc": "single_bm", "perf": "not_key"}, "backward": False, "expected_error_msg": None,
            "outputs": None,
            "inputs": [_told(param, value) for param, value in zip(spec.args, call.args, strict=True)],
        }
        for k, call in enumerate(calls)
    ]  # fmt: skip
    cases.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return [executor, cases]


def _told(param: Any, value: Any) -> Any:
    """An input of the list; a list of tensors is an array of them."""
    entry = {"name": param.aclnn, "required": not param.may_be_none, "backward": False}
    if isinstance(value, list | tuple):
        kind = "tensors" if any(isinstance(item, Tensor) for item in value) else "attrs"
        return [{**_told(param, item), "type": kind} for item in value]
    if isinstance(value, Tensor):
        return {**entry, "type": "tensor", **_described(value)}
    dtype = {bool: "bool", int: "int", float: "float"}.get(type(value))
    if dtype is None:
        return {**entry, "type": "tensor", "dtype": "fp32", "shape": None, "range_values": NOTHING}
    return {**entry, "type": "attr", "dtype": dtype, "shape": None, "range_values": value}


def _described(tensor: Tensor) -> dict[str, Any]:
    name = dtype_name(tensor.dtype)
    return {"dtype": _LONG.get(name, name), "shape": list(tensor.shape), "range_values": range_of(tensor)}


def range_of(tensor: Tensor) -> list[float]:
    """The ends of a tensor's finite values."""
    values = tensor.detach()
    if tensor.is_floating_point():
        values = values[values.isfinite()]
    if not values.numel():
        return [-1, 1]
    ends = values.min().item(), values.max().item()
    return [int(end) if isinstance(end, bool) else end for end in ends]
