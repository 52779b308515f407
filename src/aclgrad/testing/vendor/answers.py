"""What a test kit is answered that asks for the golden result of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ...core.meta import Meta
from ...core.registry import find
from ..cases import Data
from ..data.described import arguments, by_name
from ..verification.truth import Truth, rounded


def golden_of(name: str, given: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """The true outputs of an operator, computed in float64 and rounded once; None for one that is not produced.

    `name` is the operator's in Python or in C. `given` are its arguments, tensors of the shapes its document gives, in
    the document's order or by their names. Nothing is written to them.

    >>> import torch
    >>> golden_of("aclnnHardsigmoid", {"self": torch.tensor([-4.0, 0.0, 9.0])})
    [tensor([0.0000, 0.5000, 1.0000])]
    """
    operator = find(name)
    spec = operator.spec
    if isinstance(given, Mapping):
        inputs = {word: value for word, value in by_name(spec, given).items() if word not in spec.out_names}
    else:
        inputs = dict(zip((arg.name for arg in spec.args), given, strict=False))
    truth = Truth(operator, arguments(spec, inputs, Data()))
    answers: list[Any] = []
    for word in spec.written_names:
        members = truth.members(word)
        values = (
            [rounded(true, meta.dtype) for true, (_, meta) in zip(truth.whole(word), members, strict=True)]
            if members
            else []
        )
        answers.append(values[0] if isinstance(truth.metas[word], Meta) else values or None)
    return answers


def for_kit(name: str, given: Mapping[str, Any] | Sequence[Any]) -> Any:
    """The same as ATK takes it: one tensor as itself, several as a flat tuple, since it knows no lists of results."""
    answers = golden_of(name, given)
    flat = [item for answer in answers for item in (answer if isinstance(answer, list) else [answer])]
    tensors = [item for item in flat if isinstance(item, Tensor)]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
