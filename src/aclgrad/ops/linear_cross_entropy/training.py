"""Linear cross entropy for training: the loss of a whole vocabulary with its gradients.

`loss_and_gradients` computes them together, in three products, before anybody asks for the gradients. `token_losses`
and `token_gradients` compute them one after the other, in four: where every token has a loss of its own, or the
gradient that arrives from above must be known before p is rounded, as in float16.

Unlike the document's operators, these never round a logit, and they find p(target) − 1 by what the other classes add up
to. Of a confident token it is small, and the rounding error of a logit, or of a difference, would take its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...core.errors import InvalidArgument
from .spec_training import IGNORE_INDEX as IGNORE_INDEX
from .spec_training import OF_TOKENS as OF_TOKENS
from .spec_training import REDUCTIONS as REDUCTIONS
from .spec_training import STATISTICS as STATISTICS
from .spec_training import counts as counts
from .spec_training import gradients, losses, together


def loss_and_gradients(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = IGNORE_INDEX,
    reduction: str = "mean",
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(loss, input_grad, weight_grad) of `cross_entropy(input · weightᵀ, target)`; a gradient not wanted is None.

    Shapes: `input` [BT, H] and `weight` [V, H] of one dtype, `target` [BT] int32 or int64. The loss is the mean or the
    sum over all tokens whose target is not `ignore_index`, float32 (float64 for float64). Logits are float32; p is
    rounded to the dtype of `input`; so is weight_grad, once for every chunk of tokens on a GPU. Extra memory: see the
    README.

    >>> import torch
    >>> from aclgrad.ops.linear_cross_entropy import training
    >>> loss, dx, dw = training.loss_and_gradients(torch.eye(2, 4), torch.zeros(4, 4), torch.tensor([3, -100]))
    >>> loss, dw[:, 0]
    (tensor(1.3863), tensor([ 0.2500,  0.2500,  0.2500, -0.7500]))
    """
    if reduction not in REDUCTIONS[:2]:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS[:2])}", "reduction")
    arguments = (input.contiguous(), weight.contiguous(), target, ignore_index, reduction == "mean")
    loss, dx, dw, *_ = together(*arguments, wants_input_grad, wants_weight_grad, backend=backend)
    return loss, dx, dw


def token_losses(
    input: Tensor, weight: Tensor, target: Tensor, *, ignore_index: int = IGNORE_INDEX, backend: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of every token [BT], 0 where it is ignored, and the three statistics that `token_gradients` takes."""
    loss, top, total, others, *_ = losses(input, weight, target, ignore_index, backend=backend)
    return loss, top, total, others


def token_gradients(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    statistics: Sequence[Tensor],
    *,
    ignore_index: int = IGNORE_INDEX,
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    backend: str | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """(input_grad, weight_grad) for the gradient [BT] of the losses; one that is not wanted is None."""
    arguments = (grad, input, weight, target, ignore_index, *statistics, wants_input_grad, wants_weight_grad)
    dx, dw, _ = gradients(*arguments, backend=backend)
    return dx, dw


def reduced(losses: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """Losses of all tokens as a reduction wants them."""
    if reduction == "none":
        return losses
    return losses.sum() / counts(target, ignore_index).sum() if reduction == "mean" else losses.sum()
