"""Shapes of batches that all operators of the family are tried on: borders first, then what people run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, EDGE, PYTHON_ONLY, REAL, SMOKE, Case, Data
from ...testing.layouts import channels_last

DTYPES = (F32, F16, BF16, F64)
FAST = (F32, F16, BF16)


@dataclass(frozen=True)
class Batch:
    """A shape [N, C, …] with a name; `last` puts the channels innermost in memory."""

    name: str
    shape: tuple[int, ...]
    tags: frozenset[str] = frozenset({EDGE})
    last: bool = False
    dtypes: tuple[torch.dtype, ...] = DTYPES

    @property
    def channels(self) -> int:
        """Size of dimension 1."""
        return self.shape[1]

    @property
    def count(self) -> int:
        """Elements of a channel, or 1 if there are none: something to divide by."""
        return max(1, math.prod(self.shape) // self.channels)

    def laid_out(self, tensor: Tensor) -> Tensor:
        """The tensor in the batch's layout."""
        return channels_last(tensor) if self.last else tensor

    def x(self, data: Data) -> Tensor:
        """Values away from zero mean."""
        return self.laid_out(data.normal(*self.shape, scale=2.0) + 0.5)

    def grad(self, data: Data) -> Tensor:
        """A gradient of the batch's shape."""
        return self.laid_out(data.normal(*self.shape))


def of_shape(make: Callable[[Batch, Data], Sequence[Any]]) -> Callable[..., Callable[[Data], Sequence[Any]]]:
    """What makes the arguments for a batch of any shape."""

    def sized(*shape: int, channels_last: bool = False) -> Callable[[Data], Sequence[Any]]:
        return partial(make, Batch("sized", shape, last=channels_last))

    return sized


BATCHES = (
    Batch("NCHW", (3, 5, 4, 6), frozenset({SMOKE})),
    Batch("NC", (7, 5), frozenset({SMOKE})),
    Batch("channels_last", (2, 17, 5, 3), last=True),
    Batch("one_past_a_block", (2, 3, 1025)),
    Batch("several_threads", (4, 33, 31, 29), dtypes=(F32, BF16)),
    Batch("rank8", (2, 3, 1, 2, 1, 2, 1, 2)),
    Batch("rank9", (2, 3, 1, 2, 1, 2, 1, 2, 2), frozenset({EDGE, PYTHON_ONLY})),
    Batch("one_channel", (6, 1, 7)),
    Batch("empty_batch", (0, 3, 4)),
    Batch("resnet_NCHW", (32, 256, 14, 14), frozenset({REAL, BENCH}), dtypes=FAST),
    Batch("resnet_NHWC", (32, 256, 14, 14), frozenset({BENCH}), last=True, dtypes=FAST),
    Batch("early_NCHW", (8, 64, 56, 56), frozenset({BENCH}), dtypes=FAST),
    Batch("early_NHWC", (8, 64, 56, 56), frozenset({BENCH}), last=True, dtypes=FAST),
    Batch("4096x512", (4096, 512), frozenset({BENCH}), dtypes=FAST),
    *(
        Batch(f"{n}x{c}x{size}_{layout}", (n, c, size, size), frozenset({BENCH_GPU}), layout == "NHWC", FAST)
        for n, c, size in ((64, 256, 56), (32, 64, 224), (256, 2048, 7))
        for layout in ("NCHW", "NHWC")
    ),
    Batch("16384x2048", (16384, 2048), frozenset({BENCH_GPU}), dtypes=FAST),
)


def batch(name: str, *shape: int) -> Batch:
    """A border of one operator."""
    return Batch(name, shape)


def case(batch: Batch, make: Callable[[Batch, Data], Sequence[Any]]) -> Case:
    """The operator's arguments for a batch, by its dtypes and tags."""
    return Case(batch.name, lambda data: make(batch, data), batch.dtypes, batch.tags)


def cases(make: Callable[[Batch, Data], Sequence[Any]]) -> tuple[Case, ...]:
    """A case for every batch."""
    return tuple(case(each, make) for each in BATCHES)


def wide(data: Data) -> torch.dtype:
    """What the vectors of a case usually are: float32, or float64 with a float64 batch."""
    return F64 if data.dtype == F64 else F32
