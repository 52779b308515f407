"""The functional form of the head, `nn.linear_cross_entropy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.dispatch import is_watched
from ...core.errors import InvalidArgument
from . import written_out
from .arguments import Arguments, checked
from .autograd import can_be_alone, differentiable_loss
from .prepared import known_loss, prepare
from .reduction import normalizer, reduced
from .shards.placement import ALONE, is_distributed, split_over_ranks


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    normalizer: float | Tensor | None = None,
    return_stats: bool = False,
    options: Any = None,  # noqa: ARG001
    group: Any = None,
    vocab: tuple[int, int] | None = None,
    reduce_input_grad: bool = True,
    sequence_parallel: bool = False,
    check: bool = False,
) -> Any:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` without a matrix of all logits.

    Shapes: `input` [..., H], `linear_weight` [C, H], `target` [...] int64 or int32, class indices. The loss is a
    scalar, or [...] with `reduction="none"`, in float32 (float64 for float64). Tokens whose target is `ignore_index`
    (-100 if absent) count for nothing. Extra memory in training: at most 256 MiB on a GPU, 16 MiB and an eighth of the
    logits on a CPU. The arguments up to `label_smoothing` mean what they mean to torch.

    linear_bias: [C], added to the logits.
    weight: [C], what each class counts; `reduction="mean"` divides by the sum of the targets' weights.
    label_smoothing: the part of the target that all classes share.
    logit_scale: multiplies logits and bias; an inverse temperature.
    softcap: logits are softcap · tanh(logit / softcap), after the scale.
    z_loss: adds z_loss · lse² to every token's loss; lse is log Σ exp(logit).
    token_weight: [...], multiplies the loss of each token; differentiable.
    normalizer: a number, or a tensor [], that "mean" divides by instead of the number of tokens.
    return_stats: returns (loss, TokenStats): log-probabilities of the targets, entropies and lse, each differentiable,
        and whether the target is the most likely class.
    options: torch's own way of chunking; here nothing is chosen.

    A vocabulary may be split: every rank of a group has some of its rows, and all get the same loss. Then
    `linear_weight` is [local rows, H] and `linear_bias` [local rows], while `weight` counts all classes. A weight that
    is a DTensor sharded along its rows says all this itself. docs/distributed.md has the details.

    group: the process group, or device mesh of one dimension, whose ranks share the vocabulary.
    vocab: (start, stop), this rank's rows of the vocabulary; else they follow those of the ranks before it.
    reduce_input_grad: whether the gradient of `input` is summed over the ranks; else each has its own part of it.
    sequence_parallel: `input` is this rank's part of the tokens along the first dimension, as DTensor splits them, and
        so is its gradient; `target` has all.
    check: compares sizes, dtypes and targets over the ranks first, and names the rank that differs; waits for a GPU.

    Probabilities for a target, and a weight of more than two dimensions, are left to torch's operations, with a
    warning.

    >>> import torch, aclgrad.nn
    >>> x, w = torch.ones(3, 4), torch.zeros(8, 4)
    >>> aclgrad.nn.linear_cross_entropy(x, w, torch.tensor([1, 7, -100]))
    tensor(2.0794)
    >>> loss, stats = aclgrad.nn.linear_cross_entropy(x, w, torch.tensor([0, 7, -100]), return_stats=True)
    >>> stats.entropy, stats.correct
    (tensor([2.0794, 2.0794, 2.0794]), tensor([ True, False, False]))
    """
    alone = group is None and vocab is None and not sequence_parallel
    values = (
        input, linear_weight, target, linear_bias, weight, token_weight, normalizer, reduction, ignore_index,
        label_smoothing, softcap, logit_scale, z_loss, return_stats,
    )  # fmt: skip
    if alone:
        loss = known_loss(values)
        if loss is not None:
            return loss
    arguments: dict[str, Any] = {
        "input": input, "linear_weight": linear_weight, "target": target, "linear_bias": linear_bias, "weight": weight,
        "reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing, "softcap": softcap,
        "logit_scale": logit_scale, "z_loss": z_loss, "token_weight": token_weight, "normalizer": normalizer,
        "return_stats": return_stats,
    }  # fmt: skip
    if group is not None or is_distributed(linear_weight) or is_distributed(input):
        how: dict[str, Any] = {
            "reduce_input_grad": reduce_input_grad,
            "sequence_parallel": sequence_parallel,
            "check": check,
        }
        found = split_over_ranks(arguments, group, vocab, **how)
        if found is not ALONE:
            return found
    elif vocab is not None or sequence_parallel:
        name = "sequence_parallel" if vocab is None else "vocab"
        raise InvalidArgument(f"{name} is given without a group, expected a process group beside it", "group")
    given = checked(**arguments)
    if given.reason:
        written_out.warn(given.reason)
        return _by_torch(given)
    if not _together(given):
        return _token_by_token(given)
    loss, called_with = _with_gradients(given)
    if alone and called_with is not None and not is_watched():
        prepare(values, given, called_with)
    return loss


def _together(given: Arguments) -> bool:
    """Whether the gradients, if any are wanted, are computed with the loss, by three products in all instead of four.

    They are linear in the gradient of a scalar loss. float16 is too narrow for gradients that are not scaled yet, which
    a graph may want that was recorded without.
    """
    if given.reduction == "none":
        return False
    if torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (given.input, given.weight, given.bias)
    ):
        return given.input.dtype != torch.float16
    if torch._C._are_functorch_transforms_active():  # a mapped tensor does not say what it requires
        return False
    return given.input.dtype != torch.float16 or not is_watched()


def _with_gradients(given: Arguments) -> tuple[Any, Sequence[Any] | None]:
    """The loss, and what the operator was called with if nobody else had to know of the call."""
    bias, mean, follows = given.bias, given.reduction == "mean", torch.is_grad_enabled()
    arguments = (
        given.input.contiguous(), given.weight.contiguous(), given.target, given.ignore_index, mean,
        follows and given.input.requires_grad, follows and given.weight.requires_grad, *given.options(),
        given.token_weight,
        normalizer(given) if mean and (given.classes is not None or given.normalizer is not None) else None,
        bias is not None and follows and bias.requires_grad, given.return_stats,
    )  # fmt: skip
    if not given.return_stats and can_be_alone(arguments):
        return differentiable_loss(arguments), arguments
    loss, *found = torch.ops.aclgrad.loss_and_gradients(*arguments)
    return given.with_stats(loss, found), None


def _token_by_token(given: Arguments) -> Any:
    losses, *found = torch.ops.aclgrad.token_losses(
        given.input, given.weight, given.target, given.ignore_index, *given.options(), given.return_stats
    )
    return given.with_stats(reduced(losses, given), found)


def _by_torch(given: Arguments) -> Any:
    """All logits at once."""
    bias, classes, smoothing, softcap, scale, z_loss = given.options()
    z = written_out.logits_of(given.input, given.weight, bias, softcap, scale)
    losses = written_out.losses_of(z, given.target, given.ignore_index, classes, smoothing, z_loss)
    return given.with_stats(reduced(losses, given), [])
