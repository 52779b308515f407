"""The arguments of `nn.linear_cross_entropy`: checked, in the dtypes and shapes that the operators take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.binding import require_strided
from ...core.errors import InvalidArgument, Unsupported, WrongType
from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import require_dtype, require_int, require_shape, require_tensor
from .spec_training import IGNORE_INDEX, REDUCTIONS

MOST, LEAST = torch.finfo(torch.float32).max, math.ulp(0.0)
"""The largest number that an option may be, and the smallest that is positive."""


class TokenStats(NamedTuple):
    """What the head knows of every token, in the shape of the targets; float32, or float64 for float64.

    Ignored tokens have a logprob of 0 and are not correct; their entropy and lse are as good as others'.
    """

    logprob: Tensor  # of the target
    entropy: Tensor  # of the softmax
    lse: Tensor  # log Σ exp(logit)
    correct: Tensor  # bool: the target is the most likely class, the first of several


class Arguments(NamedTuple):
    """One call, tokens in one dimension."""

    input: Tensor  # [BT, H]
    weight: Tensor  # [V, H], or [C, *D, H]
    target: Tensor  # [BT], or [BT, *D], or with a last dimension C of probabilities
    bias: Tensor | None
    classes: Tensor | None
    reduction: str
    ignore_index: int
    numbers: tuple[float, float, float, float]  # label_smoothing, softcap, logit_scale, z_loss
    token_weight: Tensor | None
    normalizer: Tensor | None
    return_stats: bool
    shape: tuple[int, ...]  # of the losses
    reason: str  # why the operators do not take it, if they do not

    @property
    def wide(self) -> torch.dtype:
        """The dtype of losses."""
        return torch.promote_types(self.input.dtype, torch.float32)

    def options(self) -> tuple[Any, ...]:
        """As the operators take them; no property, since the compiler of torch 2.10 does not unpack one."""
        return self.bias, self.classes, *self.numbers

    def with_stats(self, loss: Tensor, found: Sequence[Tensor]) -> Any:
        """The loss in the shape of the targets, and if they are returned the statistics, the last that an op found."""
        loss = loss.view(self.shape) if self.reduction == "none" else loss
        if not self.return_stats:
            return loss
        return loss, TokenStats(*(value.view(self.shape) for value in found[-len(TokenStats._fields) :]))


def _number(name: str, value: object, expected: str) -> float:
    """The value as a float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WrongType(f"{name} is {type(value).__name__}, expected {expected}", name)
    return float(value)


def _between(low: float, high: float, name: str, value: object, expected: str) -> float:
    """The value as a float from low to high."""
    number = _number(name, value, expected)
    if not low <= number <= high:
        raise InvalidArgument(f"{name} is {value}, expected {expected}", name)
    return number


def require_options(
    classes: int, *, weight: Any, reduction: object, ignore_index: object, label_smoothing: object, softcap: object,
    logit_scale: object, z_loss: object, return_stats: object,
) -> tuple[int, tuple[float, float, float, float]]:  # fmt: skip
    """(`ignore_index`, the options that are numbers), all of them checked."""
    if reduction not in REDUCTIONS:
        raise InvalidArgument(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS)}", "reduction")
    if weight is not None:
        require_shape("weight", weight, (classes,), "[C], what each class counts")
        _require_float("weight", weight)
        require_strided("weight", weight)
        if weight.requires_grad and torch.is_grad_enabled():
            raise Unsupported(
                "weight requires a gradient, expected none: class weights are not differentiated", "weight"
            )
    if not isinstance(return_stats, bool):
        raise WrongType(f"return_stats is {type(return_stats).__name__}, expected a bool", "return_stats")
    ignored = IGNORE_INDEX if ignore_index is None else require_int("ignore_index", ignore_index)
    smoothing = _between(0, 1, "label_smoothing", label_smoothing, "a number from 0 to 1")
    cap = 0.0 if softcap is None else _between(LEAST, MOST, "softcap", softcap, "a positive number, or None")
    scale = _between(-MOST, MOST, "logit_scale", logit_scale, "a finite number")
    return ignored, (smoothing, cap, scale, _between(-MOST, MOST, "z_loss", z_loss, "a finite number"))


def _require_float(name: str, value: Any) -> None:
    if not value.is_floating_point():
        raise InvalidArgument(f"{name} is {str(value.dtype).removeprefix('torch.')}, expected a float dtype", name)


def _normalizer(value: object, reduction: str, wide: torch.dtype, device: torch.device) -> Tensor | None:
    if value is None:
        return None
    if reduction != "mean":
        raise InvalidArgument(
            f'normalizer is given beside reduction {reduction!r}, expected it beside "mean"', "normalizer"
        )
    if isinstance(value, Tensor):
        require_shape("normalizer", value, (), "[], or a number")
        return value.to(wide)
    number = _number("normalizer", value, "a number or a tensor")
    return torch.full((), number, dtype=wide, device=device)


def checked(
    input: Any, linear_weight: Any, target: Any, *, linear_bias: Any, weight: Any, token_weight: Any, normalizer: Any,
    classes: int | None = None, gathered: bool = False, **options: Any,
) -> Arguments:  # fmt: skip
    """Raise unless the arguments of `linear_cross_entropy` fit; the call that they make.

    `classes` are those of a vocabulary of which `linear_weight` has a part. An input that is to be `gathered` is a part
    of the tokens, whose targets are all there; it is left as it is.
    """
    require_tensor("linear_weight", linear_weight)
    sizes = tuple(linear_weight.shape[:-1])
    if not sizes:
        require_shape("linear_weight", linear_weight, (None, None), "[C, H]")
    require_tensor("input", input)
    leading = tuple(input.shape[:-1])
    require_shape("input", input, (*leading, linear_weight.shape[-1]), "[..., H]")
    if gathered:
        require_tensor("target", target)
        leading = tuple(target.shape)
    several = len(sizes) > 1
    if several and len(leading) != 1:
        require_shape("input", input, (None, linear_weight.shape[-1]), "[N, H], beside a linear_weight of [C, ..., H]")
    ignored, numbers = require_options(sizes[0] if classes is None else classes, weight=weight, **options)
    shape = (*leading, *sizes[1:])
    target, probable = _target(target, shape, leading, sizes, options["ignore_index"])
    if linear_bias is not None:
        require_shape("linear_bias", linear_bias, sizes, "[C, ...], as linear_weight has it")
        _require_float("linear_bias", linear_bias)
    if token_weight is not None:
        require_shape("token_weight", token_weight, shape, "[...], a weight for every target")
        _require_float("token_weight", token_weight)
    tensors = {"input": input, "linear_weight": linear_weight, "target": target}
    for name, tensor in (*tensors.items(), ("linear_bias", linear_bias), ("token_weight", token_weight)):
        if tensor is not None:
            require_strided(name, tensor)
    lower = autocast_dtype(input)
    if lower is None:
        require_dtype("input", input, linear_weight.dtype, "linear_weight")
    input, linear_weight = lowered(lower, input, linear_weight)  # noqa: A001
    wide = torch.promote_types(input.dtype, torch.float32)
    reason = (
        "target holds probabilities" if probable else "linear_weight has more than two dimensions" if several else ""
    )
    if reason and options["return_stats"]:
        raise Unsupported(f"return_stats is True, expected False where {reason}", "return_stats")
    if not several:
        if not gathered and input.dim() != 2:  # a view would be one node more
            input = input.reshape(math.prod(leading), linear_weight.shape[-1])  # noqa: A001
        target = target.reshape(-1, sizes[0]) if probable else target.reshape(-1)
        token_weight = None if token_weight is None else token_weight.reshape(-1)
    return Arguments(
        input, linear_weight, target,
        None if linear_bias is None else linear_bias.to(wide), None if weight is None else weight.to(wide),
        options["reduction"], ignored, numbers,
        None if token_weight is None else token_weight.to(wide),
        _normalizer(normalizer, options["reduction"], wide, input.device), options["return_stats"], shape, reason,
    )  # fmt: skip


def _target(
    target: Any, shape: tuple[int, ...], leading: tuple[int, ...], sizes: tuple[int, ...], ignore_index: object
) -> tuple[Tensor, bool]:
    """The targets, a class index for every row of logits or probabilities [..., C], and which of the two they are."""
    require_tensor("target", target)
    if not target.is_floating_point():
        require_shape("target", target, shape, "[...], a class index for every row of input")
        return (target.long() if target.dtype == torch.uint8 else target), False  # as torch takes them
    require_shape("target", target, (*leading, *sizes), "[..., C], a probability for every class")
    if ignore_index is not None:
        raise InvalidArgument(
            f"ignore_index is {ignore_index}, expected None beside probabilities for a target", "ignore_index"
        )  # fmt: skip
    return target.movedim(len(leading), -1), True
