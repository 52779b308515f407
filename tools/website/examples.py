"""A call of an operator through the doors of torch, aclnn and C, written from its contract and one of its cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import torch

from aclgrad.core.plan import Operator
from aclgrad.core.registry import part
from aclgrad.core.spec import OpSpec, OutList, Param
from aclgrad.frontends.capi.prototypes import pair

from .sample import drawn, empty, in_c, is_list, named, number_in_c, sample

WIDTH = 96
FEW = 4  # results that get a name each
PROGRAM = Template(Path(__file__).with_name("program.c").read_text(encoding="utf-8"))


def torch_example(operator: Operator) -> str:
    """The op of torch's dispatcher, with a gradient where it has one."""
    spec, arguments = operator.spec, sample(operator).arguments
    source = _differentiable(spec, arguments)
    lines = ["import aclgrad, torch", "", *_made(spec.args, arguments, in_document=False)]
    if source:
        lines.append(f"{source}.requires_grad_()")
    results = spec.out_names or spec.written_names
    if len(results) > FEW:
        results = ("results",)
    lines += ["", *_call(f"{', '.join(results)} = torch.ops.aclgrad.{spec.name}", _given(spec, arguments))]
    if source:
        first = "results[0]" if len(spec.outs) > FEW else results[0]
        lines.append(f"{first}.sum().backward()  # fills {source}.grad")
    return "\n".join(lines)


def aclnn_example(operator: Operator) -> str:
    """Both phases in Python, on torch's tensors."""
    spec, (arguments, outs) = operator.spec, sample(operator)
    lines = ["import torch", "from aclgrad import acl, aclnn", "", *_made(spec.args, arguments, in_document=True)]
    lines += [line for out, value in zip(spec.outs, outs, strict=True) for line in _memory(out, value)]
    given = [*_values(spec.args, arguments), *(out.aclnn for out in spec.outs)]
    return "\n".join(
        [
            *lines,
            "",
            *_call(f"size, executor, status = aclnn.{spec.aclnn}GetWorkspaceSize", given),
            "assert status == 0, acl.get_recent_err_msg()",
            "workspace = torch.empty(size, dtype=torch.uint8)",
            f"status = aclnn.{spec.aclnn}(workspace, size, executor, None)",
            "assert status == 0, acl.get_recent_err_msg()",
        ]
    )


def c_example(operator: Operator) -> str:
    """A whole program, that leaves nothing behind."""
    spec, (arguments, outs) = operator.spec, sample(operator)
    made: list[str] = []
    destroyed: list[str] = []
    given: list[str] = []
    count = 1  # the workspace
    for param, value in zip((*spec.args, *spec.outs), (*arguments, *outs), strict=True):
        name = param.aclnn
        given.append(name if isinstance(value, torch.Tensor | list | tuple) else number_in_c(value))
        if isinstance(value, torch.Tensor):
            made.append(f"aclTensor *{name} = {in_c(value)};")
            destroyed.append(f"CHECK(aclDestroyTensor({name}));")
            count += 1
        elif is_list(value):
            made += [f"const aclTensor *{name}Members[] = {{", *(f"    {in_c(member)}," for member in value), "};"]
            made.append(f"aclTensorList *{name} = aclCreateTensorList({name}Members, {len(value)});")
            destroyed.append(f"CHECK(aclDestroyTensorList({name}));")
            count += len(value)
        elif isinstance(value, list | tuple):
            flags = ", ".join(map(number_in_c, value))
            made.append(f"aclBoolArray *{name} = aclCreateBoolArray((bool[]){{{flags}}}, {len(value)});")
            destroyed.append(f"CHECK(aclDestroyBoolArray({name}));")
    first = _call(f"CHECK({spec.aclnn}GetWorkspaceSize", [*given, "&size", "&executor"])
    return PROGRAM.substitute(
        header=pair(spec)[0].header, count=count, function=spec.aclnn, made=_indented(made),
        first=_indented([*first[:-1], f"{first[-1]});"]), destroyed=_indented(destroyed),
    ).rstrip()  # fmt: skip


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _differentiable(spec: OpSpec, arguments: Sequence[Any]) -> str | None:
    """The first tensor that a gradient may be wanted for; None of an operator that has none or writes over it."""
    family = part(spec.package, "autograd")
    if spec.name not in getattr(family, "GRADIENTS", {}) or not spec.outs:
        return None
    for arg, value in zip(spec.args, arguments, strict=True):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return arg.name
    return None


def _made(params: Sequence[Param], arguments: Sequence[Any], in_document: bool) -> list[str]:
    """Lines that make the tensors among the arguments."""
    lines: list[str] = []
    for param, value in zip(params, arguments, strict=True):
        name = named(param, in_document)
        if isinstance(value, torch.Tensor):
            lines.append(f"{name} = {drawn(value)}")
        elif is_list(value):
            lines += _listed(name, [drawn(member) for member in value])
    return lines


def _memory(out: Param, value: Any) -> list[str]:
    """Lines that make an output's memory."""
    if isinstance(out, OutList):
        return _listed(out.aclnn, [empty(member) for member in value])
    return [f"{out.aclnn} = {empty(value)}"]


def _listed(name: str, members: Sequence[str]) -> list[str]:
    joined = f"{name} = [{', '.join(members)}]"
    if len(joined) > WIDTH and len(set(members)) == 1:
        return [f"{name} = [{members[0]} for _ in range({len(members)})]"]
    return [joined] if len(joined) <= WIDTH else [f"{name} = [", *(f"    {member}," for member in members), "]"]


def _values(args: Sequence[Param], arguments: Sequence[Any]) -> list[str]:
    """What is passed for every argument: the name of a tensor or a list, else the value."""
    return [
        arg.aclnn if isinstance(value, torch.Tensor) or is_list(value) else repr(value)
        for arg, value in zip(args, arguments, strict=True)
    ]


def _given(spec: OpSpec, arguments: Sequence[Any]) -> list[str]:
    """The arguments of a Python call: those that have their default are left out, those behind them go by name."""
    given: list[str] = []
    by_name = False
    for arg, value in zip(spec.args, arguments, strict=True):
        is_tensor = isinstance(value, torch.Tensor) or is_list(value)
        if not is_tensor and value == arg.default:
            by_name = True
            continue
        by_name = by_name or isinstance(value, bool | int | float)
        said = arg.name if is_tensor else repr(value)
        given.append(f"{arg.name}={said}" if by_name else said)
    return given


def _call(function: str, given: Sequence[str]) -> list[str]:
    """A call in one line, or with lines for its arguments."""
    joined = f"{function}({', '.join(given)})"
    if len(joined) <= WIDTH:
        return [joined]
    lines = [""]
    for word in given:
        if len(lines[-1]) + len(word) + 6 > WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word},".lstrip()
    return [f"{function}(", *(f"    {line}" for line in lines[:-1]), f"    {lines[-1].rstrip(',')})"]
