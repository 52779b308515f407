"""`nn.LinearCrossEntropyLoss`, and its functional form."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import Unsupported
from .._shared.modules import require_shape
from . import written_out
from .arguments import Arguments, TokenStats, checked, require_options
from .spec_training import counts

__all__ = ["LinearCrossEntropyLoss", "TokenStats", "linear_cross_entropy"]


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
) -> Any:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` without a matrix of all logits.

    Shapes: `input` [..., H], `linear_weight` [C, H], `target` [...] int64 or int32, class indices. The loss is a
    scalar, or [...] with `reduction="none"`, in float32 (float64 for float64). Tokens whose target is `ignore_index`
    (-100 if absent) count for nothing. Extra memory in training: at most 256 MiB on a GPU, an eighth of the logits on a
    CPU. The arguments up to `label_smoothing` mean what they mean to torch.

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
    given = checked(
        input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
        ignore_index=ignore_index, label_smoothing=label_smoothing, softcap=softcap, logit_scale=logit_scale,
        z_loss=z_loss, token_weight=token_weight, normalizer=normalizer, return_stats=return_stats,
    )  # fmt: skip
    if given.reason:
        written_out.warn(given.reason)
        return _by_torch(given)
    return _with_gradients(given) if _together(given) else _token_by_token(given)


def _together(given: Arguments) -> bool:
    """Whether the gradients are computed with the loss, by three products in all instead of four.

    They are linear in the gradient of a scalar loss. float16 is too narrow for gradients that are not scaled yet.
    """
    wanted = any(t is not None and t.requires_grad for t in (given.input, given.weight, given.bias))
    return torch.is_grad_enabled() and wanted and given.reduction != "none" and given.input.dtype != torch.float16


def _with_gradients(given: Arguments) -> Any:
    bias, mean = given.bias, given.reduction == "mean"
    loss, *found = torch.ops.aclgrad.loss_and_gradients(
        given.input.contiguous(), given.weight.contiguous(), given.target, given.ignore_index, mean,
        given.input.requires_grad, given.weight.requires_grad, *given.options, given.token_weight,
        _normalizer(given) if mean and (given.classes is not None or given.normalizer is not None) else None,
        bias is not None and bias.requires_grad, given.return_stats,
    )  # fmt: skip
    return given.with_stats(loss, found)


def _token_by_token(given: Arguments) -> Any:
    losses, *found = torch.ops.aclgrad.token_losses(
        given.input, given.weight, given.target, given.ignore_index, *given.options, given.return_stats
    )
    return given.with_stats(_reduced(losses, given), found)


def _by_torch(given: Arguments) -> Any:
    """All logits at once."""
    bias, classes, smoothing, softcap, scale, z_loss = given.options
    z = written_out.logits_of(given.input, given.weight, bias, softcap, scale)
    losses = written_out.losses_of(z, given.target, given.ignore_index, classes, smoothing, z_loss)
    return given.with_stats(_reduced(losses, given), [])


def _reduced(losses: Tensor, given: Arguments) -> Tensor:
    """Losses of all tokens as the reduction wants them."""
    if given.token_weight is not None:
        losses = losses * given.token_weight
    if given.reduction == "none":
        return losses
    return losses.sum() / _normalizer(given) if given.reduction == "mean" else losses.sum()


def _normalizer(given: Arguments) -> Tensor:
    """What the mean divides by: the number of tokens that count, or the sum of their targets' weights."""
    if given.normalizer is not None:
        return given.normalizer
    if given.target.is_floating_point():
        number = math.prod(given.target.shape[:-1])
        return torch.full((), number, dtype=given.wide, device=given.input.device)
    counted = counts(given.target, given.ignore_index)
    if given.classes is None:
        return counted.sum().to(given.wide)
    rows = given.target.long().clamp(0, given.classes.shape[0] - 1)
    return torch.where(counted, given.classes[rows], 0.0).sum()


class LinearCrossEntropyLoss(nn.Module):
    """`torch.nn.LinearCrossEntropyLoss` by this package's kernels: same arguments, parameters and state_dict.

    A language model's head and its loss in one: `linear.weight` is [num_classes, in_features]. Shapes: `input`
    [..., in_features], `target` [...] of class indices. `softcap`, `logit_scale`, `z_loss`, `return_stats`, and the
    `token_weight` and `normalizer` of a call are those of `linear_cross_entropy`, which has all options.

    >>> import torch, aclgrad.nn
    >>> head = aclgrad.nn.LinearCrossEntropyLoss(4, 10, bias=True, softcap=30.0)
    >>> head(torch.randn(2, 5, 4), torch.randint(10, (2, 5))).shape
    torch.Size([])
    """

    # What a module that was torch's does not have.
    softcap: float | None = None
    logit_scale: float = 1.0
    z_loss: float = 0.0
    return_stats: bool = False

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
        softcap: float | None = None,
        logit_scale: float = 1.0,
        z_loss: float = 0.0,
        return_stats: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        rows = math.prod(out_features, start=num_classes)
        self.linear = nn.Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.num_classes, self.out_features, self.options = num_classes, out_features, options
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.softcap, self.logit_scale, self.z_loss, self.return_stats = softcap, logit_scale, z_loss, return_stats
        require_options(num_classes, **self._options())

    def _options(self) -> dict[str, Any]:
        """Those that can be set, and the tensors replaced, at any time."""
        names = ("weight", "reduction", "ignore_index", "label_smoothing", "softcap", "logit_scale", "z_loss")
        return {name: getattr(self, name) for name in (*names, "return_stats")}

    def _beyond_torch(self) -> dict[str, Any]:
        """Options that torch's module does not have, where they differ from their defaults."""
        values = {name: getattr(self, name) for name in ("softcap", "logit_scale", "z_loss", "return_stats")}
        return {name: value for name, value in values.items() if value != getattr(LinearCrossEntropyLoss, name)}

    def require_torch(self) -> None:
        """Raise if torch's own module lacks an option that this one was made with."""
        for name, value in self._beyond_torch().items():
            raise Unsupported(f"{name} is {value}, which torch's module does not have", name)

    def extra_repr(self) -> str:
        """The options."""
        names = ("num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options")
        options = {name: getattr(self, name) for name in names if name != "bias"}
        options |= {"in_features": self.linear.in_features, "bias": self.linear.bias is not None}
        shown = {name: options[name] for name in ("in_features", *names)} | self._beyond_torch()
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        token_weight: Tensor | None = None,
        normalizer: float | Tensor | None = None,
    ) -> Any:
        """The loss of the classes that `input` predicts, and their `TokenStats` if the module returns those."""
        sizes, bias = (self.num_classes, *self.out_features), self.linear.bias
        rows = math.prod(sizes)
        symbols = f"[{'num_classes · out_features' if self.out_features else 'num_classes'}, linear.in_features]"
        require_shape("linear.weight", self.linear.weight, (rows, self.linear.in_features), symbols)
        return linear_cross_entropy(
            input, self.linear.weight.view(*sizes, -1) if self.out_features else self.linear.weight, target,
            linear_bias=bias if bias is None or not self.out_features else bias.view(sizes),
            token_weight=token_weight, normalizer=normalizer, **self._options(),
        )  # fmt: skip
