"""GPU kernels of the family, one factory for each operator."""

from __future__ import annotations

from .triton.gradient import linear_cross_entropy_backward as linear_cross_entropy_backward
from .triton.gradient import token_gradients as token_gradients
from .triton.loss import cross_entropy_with_max_sum as cross_entropy_with_max_sum
from .triton.max_sum import linear_online_max_sum as linear_online_max_sum
from .triton.scale import scale_ as scale_
from .triton.shards import shard_gradients as shard_gradients
from .triton.shards import shard_statistics as shard_statistics
from .triton.training.losses import token_losses as token_losses
from .triton.training.together import loss_and_gradients as loss_and_gradients
