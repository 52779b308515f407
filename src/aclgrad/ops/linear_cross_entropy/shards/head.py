"""`nn.linear_cross_entropy` over the ranks of a group."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....core.agreement import agreement_of
from ....core.autograd import require_no_tangents
from ....core.collectives import Collective, Group, collective_of
from ....core.dispatch import is_watched
from ....core.errors import Unsupported
from ..arguments import Arguments, checked
from ..reduction import reduced
from .autograd import Problem, over_shards
from .formulas import Options
from .ranges import Ranges
from .tokens import TokenSplit


def over_ranks(
    arguments: Mapping[str, Any], group: Any, ranges: Ranges, *, reduce_input_grad: bool, split_dim: int | None,
    check: bool,
) -> Any:  # fmt: skip
    """The loss of a vocabulary whose rows the ranks of a process group have.

    `arguments` are those of `linear_cross_entropy`; with a `split_dim` the input is this rank's part of the tokens
    along that dimension.
    """
    classes, gathered = ranges[-1][1], split_dim is not None
    given = checked(**arguments, classes=classes, gathered=gathered)
    split = None if split_dim is None else TokenSplit(given.shape, split_dim, len(ranges))
    collective = collective_of(group)
    (rank,) = collective.ranks
    if split is not None:
        split.require(rank, given.input)
    if isinstance(collective, Group) and not is_watched():
        _agree(given, group, split, reduce_input_grad, check)
    weights, biases = [given.weight], [] if given.bias is None else [given.bias]
    return of_shards(given, [given.input], weights, biases, collective, ranges, split, reduce_input_grad)


def of_shards(
    given: Arguments, inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], collective: Collective,
    ranges: Ranges, split: TokenSplit | None = None, reduce_input_grad: bool = True,
) -> Any:  # fmt: skip
    """The same for the shards of this process, one or all of them; `given` is the call of one of them."""
    if given.reason:
        raise Unsupported(f"{given.reason}, expected class indices and a matrix where a group shares the vocabulary")
    leaves = [*inputs, *weights, *biases]
    require_no_tangents(leaves)
    target = given.target
    if split is not None:
        target = split.in_order_of_ranks(target.view(split.shape), given.ignore_index)
    smoothing, softcap, logit_scale, z_loss = given.numbers
    problem = Problem(
        collective, ranges, target, given.classes, given.ignore_index,
        Options(smoothing, softcap, logit_scale, z_loss, ranges[-1][1]), given.return_stats, split, reduce_input_grad,
        records=torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves), biased=len(biases) > 0,
    )  # fmt: skip
    found = [each for each in over_shards(problem, inputs, weights, biases) if each is not None]
    if split is not None:
        found = [split.back(each).reshape(-1) for each in found]
    return given.with_stats(reduced(found[0], given), found)


def _agree(given: Arguments, group: Any, split: TokenSplit | None, reduce_input_grad: bool, check: bool) -> None:
    """Raise on all ranks unless they are about to do the same, and with `check` to the same tokens."""
    records = torch.is_grad_enabled()
    words = {
        "tokens": len(given.target), "features": given.weight.shape[1], "dtype": str(given.input.dtype),
        "device": given.input.device.type, "bias": given.bias is not None, "class weights": given.classes is not None,
        "label_smoothing": given.numbers[0], "softcap": given.numbers[1], "logit_scale": given.numbers[2],
        "z_loss": given.numbers[3], "ignore_index": given.ignore_index, "return_stats": given.return_stats,
        "sequence_parallel": split is not None, "reduce_input_grad": reduce_input_grad,
        "a gradient of input": records and given.input.requires_grad,
    }  # fmt: skip
    talk = agreement_of(group)
    if not check:
        talk.once(words)
        return
    alike = {"target": given.target, "weight of classes": given.classes}
    if split is None:
        alike["input"] = given.input
    talk.now({**words, **{name: digest(value) for name, value in alike.items()}})


def digest(tensor: Tensor | None) -> str:
    """What tells tensors of different bits apart."""
    if tensor is None:
        return ""
    values = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]
