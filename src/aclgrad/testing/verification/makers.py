"""The inputs that an element of an output was made of.

Of an argument that has the output's shape, it is the element at the same index. Of the others, those that the formula's
value there depends on most: with the largest |∂out/∂x · x|.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.backends import widen
from ...core.memory import tensors_in
from ..report.model import Maker
from ..verdicts import textbook
from .expected import Expectation, Expected

MOST = 1 << 23  # elements of all arguments, times the places that the formula is differentiated at
SHOWN = 3  # elements of arguments of other shapes


def makers(expected: Expectation, output: Expected, places: Sequence[int]) -> dict[int, list[Maker]]:
    """For each flat place of an output, elements of the arguments with their names."""
    found: dict[int, list[Maker]] = {place: [] for place in places}
    others = False
    for param, value in zip(expected.operator.spec.args, expected.args, strict=True):
        if isinstance(value, Tensor) and tuple(value.shape) == output.meta.shape:
            line = value.reshape(-1)
            for place in places:
                found[place].append(_maker(param.aclnn, value, place, float(line[place])))
        else:
            others = others or bool(tensors_in([value]))
    elements = sum(tensor.numel() for tensor in tensors_in(expected.args))
    worst = places[: MOST // max(elements, 1)] if others else ()
    if worst:
        for place, made in zip(worst, _by_gradient(expected, output, worst), strict=True):
            found[place] += made
    return found


def _by_gradient(expected: Expectation, output: Expected, places: Sequence[int]) -> list[list[Maker]]:
    spec = expected.operator.spec
    leaves = [_leaf(value) for value in widen(list(expected.args))]
    named = [
        (param.aclnn if leaf is value else f"{param.aclnn}[{k}]", leaf)
        for param, value in zip(spec.args, leaves, strict=True)
        for k, leaf in enumerate(tensors_in([value]))
        if leaf.requires_grad and tuple(leaf.shape) != output.meta.shape
    ]
    try:
        with torch.enable_grad():
            result = textbook(spec, leaves)[spec.written_names.index(output.name)]
            line = (result if output.member is None else result[output.member]).reshape(-1)
            return [_of_place(named, line[place]) for place in places]
    except RuntimeError:  # not every formula can be differentiated: some write in place
        return [[] for _ in places]


def _leaf(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_leaf(item) for item in value]
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_()
    return value


def _of_place(named: Sequence[tuple[str, Tensor]], value: Tensor) -> list[Maker]:
    """The elements that one element of the result depends on most."""
    if not value.requires_grad:
        return []
    slopes = torch.autograd.grad(value, [leaf for _, leaf in named], retain_graph=True, allow_unused=True)
    weighed = []
    for (name, leaf), slope in zip(named, slopes, strict=True):
        if slope is not None and leaf.numel():
            share = (slope * leaf.detach()).nan_to_num().abs().reshape(-1)
            largest = share.topk(min(SHOWN, len(share)))
            for amount, place in zip(*(part.tolist() for part in largest), strict=True):
                weighed.append((amount, _maker(name, leaf, place, float(leaf.detach().reshape(-1)[place]))))
    best = sorted(weighed, key=lambda pair: -pair[0])[:SHOWN]
    return [maker for amount, maker in best if amount]


def _maker(name: str, value: Tensor, place: int, number: float) -> Maker:
    index = []
    for size in reversed(value.shape):
        place, at = divmod(place, size)
        index.append(at)
    return Maker(f"{name}{list(reversed(index))}", number)
