"""`nn.SyncBatchNorm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from ...core.errors import InvalidArgument, Unsupported
from .._shared.modules import require_shape
from .autograd import normalised

__all__ = ["SyncBatchNorm"]

Reduce = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class SyncBatchNorm(nn.SyncBatchNorm):
    """`torch.nn.SyncBatchNorm` by this package's kernels: same arguments, parameters, buffers and state_dict.

    Shapes: `input` [N, C, …] of rank 2 or more, any layout; the result has its shape, dtype and layout. Runs on CPUs
    too, and in one process: the batch is what this process has.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.SyncBatchNorm(3)(torch.randn(8, 3, 5)).mean().abs() < 1e-6
    tensor(True)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalised by the batch in training, by the running statistics otherwise."""
        rank = max(input.dim(), 2) if isinstance(input, Tensor) else 2
        require_shape("input", input, [None, self.num_features, *[None] * (rank - 2)], "[N, num_features, …]")
        if not self.training and not (self.running_mean is None and self.running_var is None):
            return batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        if input.numel() == self.num_features:
            raise InvalidArgument(
                f"input has shape {list(input.shape)}, expected more than one value per channel to normalise by",
                "input",
            )
        if self.training:
            self.require_supported(self)
        mean, invstd, counts = self._statistics(input)
        return normalised(input, self.weight, self.bias, mean, invstd, counts, self.eps, self._reduce())

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Any = None) -> nn.Module:
        """Every `BatchNorm*d` of a module as one of this class, as torch's method of that name makes one of its own."""
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)  # type: ignore[no-untyped-call]
        for child in converted.modules():
            if type(child) is nn.SyncBatchNorm:  # torch makes all of them anew
                child.__class__ = cls
        return converted

    @staticmethod
    def require_supported(module: nn.SyncBatchNorm) -> None:
        """Raise if several processes would have to agree on the statistics."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            processes = torch.distributed.get_world_size(module.process_group)
            if processes > 1:
                raise Unsupported(
                    f"process_group has {processes} processes, expected 1: a batch is that of one process here"
                )

    def _statistics(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and invstd [C] of the whole batch, and how many values each process counted [W]; updates the buffers.

        eps comes in last: the running variance is taken from invstd, and subtracting eps from 1 / invstd² would leave
        few digits of a variance that is small beside it.
        """
        with torch.no_grad():
            mean, invstd = torch.ops.aclgrad.batch_norm_stats(input, 0.0)
            mean, invstd, counts = self._gathered(mean, invstd, input.numel() // input.shape[1])
            running = self._running()
            if input.numel() == 0:
                running = []  # nothing was seen that could be remembered
            cumulative = self.momentum is None
            updated = [torch.zeros_like(buffer) for buffer in running] if cumulative else running
            mean, invstd = torch.ops.aclgrad.batch_norm_gather_stats_with_counts(
                input, mean, invstd, *(updated or (None, None)), 1.0 if cumulative else self.momentum, 0.0, counts
            )
            if cumulative and self.num_batches_tracked is not None:
                for buffer, new in zip(running, updated, strict=True):
                    buffer.lerp_(new, self.num_batches_tracked.to(buffer.dtype).reciprocal())
            return mean, (invstd**-2 + self.eps).rsqrt(), counts

    def _running(self) -> list[Tensor]:
        """The buffers to update, mean and variance, if any."""
        if not self.training or not self.track_running_stats:
            return []
        mean, var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if batches is None or (mean is None) != (var is None):
            name = "num_batches_tracked" if batches is None else "running_mean" if mean is None else "running_var"
            raise InvalidArgument(f"{name} is None, expected a tensor since track_running_stats is True", name)
        batches.add_(1)
        return [buffer for buffer in (mean, var) if buffer is not None]

    def _gathered(self, mean: Tensor, invstd: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Every process's statistics, [W, C] and [W]."""
        return mean.unsqueeze(0), invstd.unsqueeze(0), mean.new_full((1,), count)

    def _reduce(self) -> Reduce | None:
        """How the sums of the backward pass are added over the processes."""
        return None
