"""CPU kernels of the family, one factory for each operator."""

from __future__ import annotations

from .cpu.backward import linear_cross_entropy_backward as linear_cross_entropy_backward
from .cpu.loss import cross_entropy_with_max_sum as cross_entropy_with_max_sum
from .cpu.max_sum import linear_online_max_sum as linear_online_max_sum
from .cpu.scale import scale_ as scale_
from .cpu.shards import shard_gradients as shard_gradients
from .cpu.shards import shard_statistics as shard_statistics
from .cpu.training import loss_and_gradients as loss_and_gradients
from .cpu.training import token_gradients as token_gradients
from .cpu.training import token_losses as token_losses
