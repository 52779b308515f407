"""`nn.SyncBatchNorm`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.modules.batchnorm import _BatchNorm

from ...core.agreement import agreement_of
from ...core.autograd import require_no_tangents
from ...core.collectives import Collective, Group, collective_of
from ...core.collectives import process_group as resolved
from ...core.dispatch import is_watched
from ...core.errors import InvalidArgument, Unsupported
from .._shared.modules import recorded, require_shape
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Vectors,
    by_running_statistics,
    by_the_batch,
    moved_statistics,
)
from .ranks import Statistics, gathered_statistics, normalised_over

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.SyncBatchNorm` by this package's kernels: same arguments, parameters, buffers and state_dict.

    Shapes: `input` [N, C, …] of rank 2 or more, any layout; the result has its shape, dtype and layout. In training the
    batch is that of all ranks of `process_group` (the default one if None), on CPUs too; ranks may have batches of
    different sizes, or empty ones. Without a group it is what this process has. With `check=True` the ranks compare
    what they are about to do in every call, and name the one that differs.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.SyncBatchNorm(3)(torch.randn(8, 3, 5)).mean().abs() < 1e-6
    tensor(True)
    """

    # What a module that was torch's does not have.
    check: bool = False

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        check: bool = False,
        **options: Any,  # of newer versions of torch
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype, **options
        )  # fmt: skip
        self.process_group, self.check = process_group, check

    def forward(self, input: Tensor) -> Tensor:
        """Normalised by the batch in training, by the running statistics otherwise."""
        if isinstance(input, Proxy):
            return recorded(self, input)
        if not isinstance(input, Tensor) or input.is_nested or input.dim() < 2 or input.shape[1] != self.num_features:
            rank = max(input.dim(), 2) if isinstance(input, Tensor) else 2
            require_shape("input", input, [None, self.num_features, *[None] * (rank - 2)], "[N, num_features, …]")
        vectors = Vectors.of(self)
        if not self.training and not (vectors.mean is None and vectors.var is None):
            return by_running_statistics(self, input, vectors)
        group = self._group() if self.training else None
        if group is None:
            self._require_buffers(vectors)
            return by_the_batch(self, input, vectors)
        require_no_tangents((input, self.weight, self.bias))
        return self._over(group, input)

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Any = None) -> nn.Module:
        """Every `BatchNorm*d` of a module as one of this class, as torch's method of that name makes one of its own."""
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)
        for child in converted.modules():
            if type(child) is nn.SyncBatchNorm:  # torch makes all of them anew
                made: Any = child
                made.__class__ = cls
        return converted

    def _group(self) -> Any:
        """The group whose ranks have the batch together; None where there is one rank."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return None
        group = resolved(self.process_group)
        return group if group.size() > 1 else None

    def _over(self, group: Any, input: Tensor) -> Tensor:
        """Normalised by the batch of all ranks."""
        if torch._C._are_functorch_transforms_active():
            raise Unsupported("process_group has several ranks, expected one where torch.func transforms the module")
        collective = collective_of(group)
        if isinstance(collective, Group):
            self._agree(group, input)
        of = self._statistics(collective, input)
        (result,) = normalised_over(collective, [input], self.weight, self.bias, of)
        return result

    def _agree(self, group: Any, input: Tensor) -> None:
        """Raise on all ranks unless they are about to do the same."""
        gradient = torch.is_grad_enabled() and input.requires_grad
        wide = torch.promote_types(input.dtype, torch.float32)
        words = {"num_features": self.num_features, "dtype of statistics": str(wide), "device": input.device.type}
        words |= {"a gradient of input": gradient}
        if self.check:
            options = {name: getattr(self, name) for name in ("eps", "momentum", "affine", "track_running_stats")}
            agreement_of(group).now({**words, **options})
        else:
            agreement_of(group).once(words)

    def _statistics(self, collective: Collective, input: Tensor) -> Statistics:
        """Of the batch of all ranks; updates the buffers.

        eps comes in last: the running variance is taken from invstd, and subtracting eps from 1 / invstd² would leave
        few digits of a variance that is small beside it.
        """
        with torch.no_grad():
            mean, invstd, counts = _gathered(collective, input)
            vectors = Vectors.of(self)
            self._require_buffers(vectors)
            running, empty = moved_statistics(self, vectors), input.numel() == 0
            cumulative = self.momentum is None
            before = [buffer.clone() for buffer in running] if empty else []
            updated = [torch.zeros_like(buffer) for buffer in running] if cumulative else running
            mean, invstd = torch.ops.aclgrad.batch_norm_gather_stats_with_counts(
                input, mean, invstd, *(updated or (None, None)), 1.0 if cumulative else self.momentum, 0.0, counts
            )
            if cumulative and self.num_batches_tracked is not None:
                for buffer, new in zip(running, updated, strict=True):
                    buffer.lerp_(new, self.num_batches_tracked.to(buffer.dtype).reciprocal())
            for buffer, old in zip(running, before, strict=False):  # others may have seen something, or nobody
                buffer.copy_(torch.where(counts.sum() > 0, buffer, old))
            return Statistics(mean, (invstd**-2 + self.eps).rsqrt(), counts)

    def _require_buffers(self, vectors: Vectors) -> None:
        """Raise if one is missing that this call would update."""
        _, _, mean, var, batches = vectors
        if self.training and self.track_running_stats and (batches is None or (mean is None) != (var is None)):
            name = "num_batches_tracked" if batches is None else "running_mean" if mean is None else "running_var"
            raise InvalidArgument(f"{name} is None, expected a tensor since track_running_stats is True", name)


def _gathered(collective: Collective, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(means [W, C], invstds [W, C], counts [W]) of the parts of all ranks.

    A GPU is not asked whether they have more than one value together.
    """
    mean, invstd, counts = gathered_statistics(collective, [input])
    if input.is_cpu and not is_watched() and counts.sum() == 1:
        raise InvalidArgument(
            f"input has shape {list(input.shape)} and is empty on other ranks, expected more than one value per "
            "channel to normalise by",
            "input",
        )
    return mean, invstd, counts
