"""`nn.LinearCrossEntropyLoss`, and its functional form."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...core.binding import require_strided
from ...core.errors import InvalidArgument, Unsupported
from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import require_dtype, require_int, require_shape, require_tensor
from .training import IGNORE_INDEX, REDUCTIONS, reduced

__all__ = ["LinearCrossEntropyLoss", "linear_cross_entropy"]


def linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Tensor:
    """`cross_entropy(linear(input, weight), target)` without a matrix of all logits; differentiable.

    Shapes: `input` [..., H], `weight` [V, H], `target` [...] int64 or int32, class indices. The loss is a scalar, or
    [...] with `reduction="none"`, in float32 (float64 for float64). Tokens whose target is `ignore_index` (-100 if
    absent) count for nothing. Extra memory in training: at most 256 MiB on a GPU, an eighth of the logits on a CPU.

    >>> import torch, aclgrad.nn
    >>> x, w = torch.ones(3, 4), torch.zeros(8, 4)
    >>> aclgrad.nn.linear_cross_entropy(x, w, torch.tensor([1, 7, -100]))
    tensor(2.0794)
    """
    if reduction not in REDUCTIONS:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS)}", "reduction")
    require_shape("weight", weight, (None, None), "[V, H]")
    require_tensor("input", input)
    leading = input.shape[:-1]
    require_shape("input", input, (*leading, weight.shape[1]), "[..., H]")
    require_tensor("target", target)
    if target.is_floating_point():
        raise Unsupported("target holds probabilities, expected class indices", "target")
    require_shape("target", target, leading, "[...], a class index for every row of input")
    for name, tensor in (("input", input), ("weight", weight), ("target", target)):
        require_strided(name, tensor)
    if target.dtype == torch.uint8:  # as torch takes them
        target = target.long()
    ignored = IGNORE_INDEX if ignore_index is None else require_int("ignore_index", ignore_index)
    lower = autocast_dtype(input)
    if lower is None:
        require_dtype("input", input, weight.dtype, "weight")
    input, weight = lowered(lower, input, weight)  # noqa: A001
    rows, targets = input.reshape(math.prod(leading), weight.shape[1]), target.reshape(-1)
    if _together(reduction, rows, weight):
        loss, _, _ = torch.ops.aclgrad.loss_and_gradients(
            rows.contiguous(), weight.contiguous(), targets, ignored, reduction == "mean",
            rows.requires_grad, weight.requires_grad,
        )  # fmt: skip
        return loss  # type: ignore[no-any-return]
    losses, *_ = torch.ops.aclgrad.token_losses(rows, weight, targets, ignored)
    result = reduced(losses, targets, ignored, reduction)
    return result.view(target.shape) if reduction == "none" else result


def _together(reduction: str, input: Tensor, weight: Tensor) -> bool:
    """Whether the gradients are computed with the loss, by three products in all instead of four.

    They are linear in the gradient of a scalar loss. float16 is too narrow for gradients that are not scaled yet.
    """
    wanted = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
    return wanted and reduction != "none" and input.dtype != torch.float16


class LinearCrossEntropyLoss(nn.Module):
    """`torch.nn.LinearCrossEntropyLoss` by this package's kernels: same arguments, parameters and state_dict.

    A language model's head and its loss in one: `linear.weight` is [num_classes, in_features]. Shapes: `input`
    [..., in_features], `target` [...] of class indices; see `linear_cross_entropy`. Refused: bias, class weights, label
    smoothing, classes of several dimensions, probabilities for a target. `options` choose torch's own way of chunking;
    here nothing is chosen.

    >>> import torch, aclgrad.nn
    >>> head = aclgrad.nn.LinearCrossEntropyLoss(4, 10)
    >>> head(torch.randn(2, 5, 4), torch.randint(10, (2, 5))).shape
    torch.Size([])
    """

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
    ) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS)}", "reduction")
        self.register_buffer("weight", weight)
        self.linear = nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.num_classes, self.out_features, self.options = num_classes, out_features, options
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.require_supported(self)

    @staticmethod
    def require_supported(module: Any) -> None:
        """Raise if the operator lacks an option of the module."""
        refused = {
            "out_features": (tuple(module.out_features), ()),
            "bias": (module.linear.bias is not None, False),
            "weight": (None if module.weight is None else "a tensor", None),
            "label_smoothing": (module.label_smoothing, 0.0),
        }
        for name, (found, expected) in refused.items():
            if found != expected:
                raise Unsupported(f"{name} is {found}, expected {expected}: the operator has no such option", name)

    def extra_repr(self) -> str:
        """The options."""
        names = ("num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options")
        options = {name: getattr(self, name) for name in names if name != "bias"}
        options |= {"in_features": self.linear.in_features, "bias": self.linear.bias is not None}
        return ", ".join(f"{name}={options[name]}" for name in ("in_features", *names))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of the classes that `input` predicts."""
        self.require_supported(self)  # options can be set, and the layer replaced, at any time
        weight, sizes = self.linear.weight, (self.num_classes, self.linear.in_features)
        require_shape("linear.weight", weight, sizes, "[num_classes, linear.in_features]")
        return linear_cross_entropy(input, weight, target, reduction=self.reduction, ignore_index=self.ignore_index)
