"""`nn.BatchNorm1d`, `2d` and `3d`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.modules.batchnorm import _BatchNorm

from ...core.binding import require_strided
from ...core.errors import InvalidArgument
from .._shared.modules import recorded, require_shape, require_tensor
from . import small, spec_training
from .autograd import evaluated, trained


class Vectors(NamedTuple):
    """A batch norm's parameters and buffers."""

    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor | None
    var: Tensor | None
    batches: Tensor | None  # how many there were

    @staticmethod
    def of(module: Any) -> Vectors:
        """As they are now."""
        own, kept = module._parameters, module._buffers
        try:
            return Vectors(
                own["weight"], own["bias"], kept["running_mean"], kept["running_var"], kept["num_batches_tracked"]
            )
        except KeyError:  # one is computed, as by a parametrisation
            return Vectors(
                module.weight, module.bias, module.running_mean, module.running_var, module.num_batches_tracked
            )


class _Twin(_BatchNorm):
    """What the three have in common."""

    ranks: tuple[int, ...]
    symbols: str

    def forward(self, input: Tensor) -> Tensor:
        """Normalised by the batch in training, by the running statistics otherwise."""
        if not isinstance(input, Tensor) or input.dim() not in self.ranks or input.shape[1] != self.num_features:
            if isinstance(input, Proxy):
                return recorded(self, input)
            self._refuse(input)
        vectors = Vectors.of(self)
        if self.training or (vectors.mean is None and vectors.var is None):
            return by_the_batch(self, input, vectors)
        return by_running_statistics(self, input, vectors)

    def _refuse(self, input: Any) -> None:
        require_tensor("input", input)
        require_strided("input", input)
        if input.dim() not in self.ranks:
            raise InvalidArgument(f"input has rank {input.dim()} {list(input.shape)}, expected {self.symbols}", "input")
        require_shape("input", input, [None, self.num_features, *[None] * (input.dim() - 2)], self.symbols)


class BatchNorm1d(_Twin, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` by this package's kernels: same arguments, parameters, buffers and state_dict.

    Shapes: `input` [N, C] or [N, C, L], any layout; the result has its shape, dtype and layout.

    >>> import torch, aclgrad.nn
    >>> norm = aclgrad.nn.BatchNorm1d(2, affine=False)
    >>> norm(torch.tensor([[1.0, 5.0], [3.0, 9.0]]))
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    >>> norm.running_mean
    tensor([0.2000, 0.7000])
    """

    ranks, symbols = (2, 3), "[N, num_features] or [N, num_features, L]"


class BatchNorm2d(_Twin, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` by this package's kernels: same arguments, parameters, buffers and state_dict.

    Shapes: `input` [N, C, H, W], any layout; the result has its shape, dtype and layout.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.BatchNorm2d(3)(torch.randn(8, 3, 5, 5)).mean().abs() < 1e-6
    tensor(True)
    """

    ranks, symbols = (4,), "[N, num_features, H, W]"


class BatchNorm3d(_Twin, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` by this package's kernels: same arguments, parameters, buffers and state_dict.

    Shapes: `input` [N, C, D, H, W], any layout; the result has its shape, dtype and layout.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.BatchNorm3d(3).eval()(torch.ones(1, 3, 1, 1, 2)).flatten().data
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 1.0000, 1.0000])
    """

    ranks, symbols = (5,), "[N, num_features, D, H, W]"


def by_the_batch(module: Any, input: Tensor, vectors: Vectors) -> Tensor:
    """A batch norm's forward pass where this process has the whole batch."""
    if input.numel() == module.num_features:
        raise InvalidArgument(
            f"input has shape {list(input.shape)}, expected more than one value per channel to normalise by", "input"
        )
    running = moved_statistics(module, vectors)
    weight, bias, momentum, batches = vectors.weight, vectors.bias, module.momentum, vectors.batches
    if momentum is None and running and batches is not None:  # the average of all batches so far
        new = [torch.zeros_like(buffer) for buffer in running]
        found = _normalised(input, weight, bias, *new, 1.0, module.eps)
        share = batches.to(new[0].dtype).reciprocal()
        with torch.no_grad():
            for buffer, value in zip(running if input.numel() else [], new, strict=False):
                buffer.lerp_(value, share)
        return trained(found, input, weight, bias, module.eps)
    arguments = (input, weight, bias, *(running or (None, None)), momentum or 0.0, module.eps)
    served = small.by_the_batch(*arguments)
    return served if served is not None else trained(_normalised(*arguments), input, weight, bias, module.eps)


def _normalised(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(output, mean, invstd), without a gradient; moves the running statistics."""
    found = spec_training.batch_norm.direct(arguments)
    if found is None:
        with torch.no_grad():
            found = torch.ops.aclgrad.batch_norm(*arguments)
    return found  # type: ignore[no-any-return]


def by_running_statistics(module: Any, input: Tensor, vectors: Vectors) -> Tensor:
    """A batch norm's forward pass in evaluation."""
    weight, bias, mean, var, _ = vectors
    if mean is None or var is None:
        raise _alone(mean)
    served = small.by_running_statistics(input, weight, bias, mean, var, module.eps)
    if served is not None:
        return served
    for name, buffer in (("running_mean", mean), ("running_var", var)):
        if buffer.shape != (module.num_features,):
            require_shape(name, buffer, [module.num_features], "[num_features]")
    invstd = (var.to(torch.promote_types(var.dtype, torch.float32)) + module.eps).rsqrt()
    return evaluated(input, weight, bias, mean, invstd, module.eps)  # type: ignore[no-any-return]


def moved_statistics(module: Any, vectors: Vectors) -> list[Tensor]:
    """The buffers to update in this call, mean and variance, if any; counts the batch."""
    if not module.training or not module.track_running_stats:
        return []
    _, _, mean, var, batches = vectors
    if (mean is None) != (var is None):
        raise _alone(mean)
    if batches is not None:
        batches.add_(1)
    return [] if mean is None or var is None else [mean, var]


def _alone(mean: Tensor | None) -> InvalidArgument:
    """Of the running statistics one is missing, this one or the variance."""
    name = "running_mean" if mean is None else "running_var"
    return InvalidArgument(f"{name} is None, expected a tensor beside the other running statistic", name)
