"""Differentiable operators past torch's dispatcher, which takes longer than a small kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .autograd import Gradient, past_transforms
from .dispatch import NAMESPACE
from .plan import Operator


def past_dispatcher(operator: Operator, gradient: Gradient) -> Callable[..., Any]:
    """`torch.ops.aclgrad.<operator>`, straight to its kernel where nobody but autograd has to know of the call.

    It is for operators without lists of tensors, whose members autograd would not see.
    """
    name = operator.spec.name

    def forward(ctx: Any, *given: Any) -> Any:
        *args, plan = given
        results = operator.launched(plan, args)
        gradient.setup(ctx, tuple(args), results)
        return results

    def backward(ctx: Any, *upstream: Any) -> Any:
        found = gradient.backward(ctx, *upstream)
        return (*found, None) if isinstance(found, tuple) else (found, None)

    node: Any = type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )
    follow = past_transforms(node)

    def call(*args: Any) -> Any:
        plan = None if torch._C._are_functorch_transforms_active() else operator.plan_past_dispatcher(args)
        if plan is None:
            return getattr(getattr(torch.ops, NAMESPACE), name)(*args)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return follow(*args, plan)
        return operator.launched(plan, args)

    return call
