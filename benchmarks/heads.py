"""What heads are compared at: the plain loss, a loss with options, and a policy gradient; ours and every peer's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import aclgrad.nn
from aclgrad.testing import Data

from .device import Device
from .report import OURS

SMOOTHING, SOFTCAP, Z_LOSS = 0.1, 30.0, 1e-4
BONUS = 0.01
"""What the entropy counts beside the log-probabilities in a policy gradient."""

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""Takes input [BT, H], weight [V, H], bias [V], targets [BT] and advantages [BT], needed or not."""


def plain(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """The mean loss of all tokens."""
    return aclgrad.nn.linear_cross_entropy(x, weight, target)  # type: ignore[no-any-return]


def eager_plain(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """All logits at once, the loss in float32."""
    return cross_entropy(_wide(linear(x, weight)), target)


def with_options(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """Bias, smoothing, softcap, z-loss, and statistics of every token."""
    loss, _ = aclgrad.nn.linear_cross_entropy(
        x, weight, target, linear_bias=bias, label_smoothing=SMOOTHING, softcap=SOFTCAP, z_loss=Z_LOSS,
        return_stats=True,
    )  # fmt: skip
    return loss  # type: ignore[no-any-return]


def eager_with_options(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """The same on all logits at once, but for the statistics."""
    z = SOFTCAP * torch.tanh(_wide(linear(x, weight, bias)) / SOFTCAP)
    return cross_entropy(z, target, label_smoothing=SMOOTHING) + Z_LOSS * z.logsumexp(1).square().mean()


def policy(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """A policy gradient with an entropy bonus."""
    _, stats = aclgrad.nn.linear_cross_entropy(x, weight, target, reduction="none", return_stats=True)
    return (stats.logprob * advantage + BONUS * stats.entropy).sum()  # type: ignore[no-any-return]


def eager_policy(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """The formula of reinforcement-learning libraries, on all logits at once, products in the row's dtype."""
    return _policy(_wide(linear(x, weight)), target, advantage)


def verls_policy(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
    """The same with products in float32, as the reference in verl's own tests (`run_torch_entropy`) has them."""
    return _policy(linear(_wide(x), _wide(weight)), target, advantage)


def _policy(z: Tensor, target: Tensor, advantage: Tensor) -> Tensor:
    logprob = -cross_entropy(z, target, reduction="none")
    entropy = z.logsumexp(1) - (z.softmax(1) * z).sum(1)
    return (logprob * advantage + BONUS * entropy).sum()


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.promote_types(t.dtype, torch.float32))


def liger_with(*options: Any) -> Callable[[], Loss | None]:
    """Liger's head, with the options behind its bias; None where it is not installed."""

    def find() -> Loss | None:
        liger = _installed("liger_kernel.ops.fused_linear_cross_entropy")
        if liger is None:
            return None
        function = liger.LigerFusedLinearCrossEntropyFunction

        def loss(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, advantage: Tensor) -> Tensor:  # noqa: ARG001
            found = function.apply(x, weight, target, *((bias, *options) if options else ()))
            return found[0] if isinstance(found, tuple) else found  # type: ignore[no-any-return]

        return loss

    return find


def cce() -> Loss | None:
    """Apple's head; None where it is not installed."""
    module = _installed("cut_cross_entropy")
    if module is None:
        return None
    return lambda x, weight, bias, target, advantage: module.linear_cross_entropy(x, weight, target)  # noqa: ARG005


def _installed(name: str) -> Any:
    """A library of GPU kernels, if it can be used."""
    if not torch.cuda.is_available():
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@dataclass(frozen=True)
class HeadJob:
    """One thing to compute, by ours, by eager torch and by peers that can be had."""

    name: str
    ours: Loss
    eager: Loss
    biased: bool = False  # the bias has a gradient
    others: tuple[tuple[str, Callable[[], Loss | None]], ...] = ()
    eager_name: str = "eager torch"
    module: str = "nn.LinearCrossEntropyLoss"


JOBS = (
    HeadJob("", plain, eager_plain, others=(("Liger", liger_with()), ("CCE", cce))),
    HeadJob(
        "options", with_options, eager_with_options, biased=True,
        others=(("Liger", liger_with(None, -100, Z_LOSS, SMOOTHING, "mean", SOFTCAP)),),
    ),
    HeadJob(
        "policy", policy, verls_policy, others=(("eager torch", lambda: eager_policy),), eager_name="verl's formula",
        module="nn.linear_cross_entropy",
    ),
)  # fmt: skip


def head_inputs(sizes: tuple[int, int, int], data: Data) -> Sequence[Tensor]:
    """Input, weight, bias, targets, advantages."""
    tokens, features, classes = sizes
    x, weight = data.normal(tokens, features), data.normal(classes, features, scale=features**-0.5)
    target, bias = data.integers(0, classes, tokens), data.normal(classes)
    return [x, weight, bias, target, data.normal(tokens, dtype=torch.promote_types(data.dtype, torch.float32))]


def head_steps(
    job: HeadJob, args: Sequence[Tensor], device: Device | None
) -> dict[str, Callable[[], Sequence[Tensor]]]:
    """Every contender's forward and backward pass: the loss, then the gradients."""
    x, weight, bias = (t.detach().requires_grad_() for t in args[:3])
    leaves = [x, weight, bias] if job.biased else [x, weight]

    def step(loss_of: Loss) -> Callable[[], Sequence[Tensor]]:
        def run() -> Sequence[Tensor]:
            loss = loss_of(x, weight, bias if job.biased else bias.detach(), *args[3:])
            return [loss.detach(), *torch.autograd.grad(loss, leaves)]

        return run

    losses: dict[str, Loss] = {OURS: job.ours, job.eager_name: job.eager}
    if device is not None:
        if device.kind == "cuda" and device.compiling:
            losses["torch.compile"] = torch.compile(job.eager, dynamic=False)
        losses |= {name: loss for name, find in job.others if (loss := find()) is not None}
    return {name: step(loss_of) for name, loss_of in losses.items()}
