"""Points of the plane: a family's sizes and options, log-uniform, and a dtype."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from aclgrad.core.meta import dtype_name
from aclgrad.core.spec import BF16, F16, F32

MOST = {"cpu": 2e10, "cuda": 2e13}
"""Operations of a step's products, and `ELEMENTS` of an element-wise call, at the most: a point takes seconds."""

ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 28}
BATCH_NORM = (
    "batch_norm_stats", "batch_norm_gather_stats_with_counts", "batch_norm_elemt", "batch_norm_reduce_backward",
    "batch_norm_elemt_backward",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A module or an operator at some sizes."""

    family: str
    name: str
    dtype: torch.dtype
    sizes: dict[str, int] = field(default_factory=dict)
    shape: tuple[int, ...] = ()  # of an element-wise call
    channels_last: bool = False

    def __str__(self) -> str:
        sizes = " ".join(f"{name}{size}" for name, size in self.sizes.items()) or "×".join(map(str, self.shape))
        return f"{self.name} {dtype_name(self.dtype)} {sizes}{' channels last' if self.channels_last else ''}"


class Chance(random.Random):
    """Random sizes."""

    def size(self, low: int, high: int, aligned: float = 0.5) -> int:
        """Log-uniform; a part of the sizes, `aligned`, is made a multiple of the largest power of two up to 64."""
        found = round(math.exp(self.uniform(math.log(low), math.log(high))))
        if self.random() < aligned:
            unit = min(64, 1 << max(0, found.bit_length() - 2))
            found = max(unit, found // unit * unit)
        return min(max(found, low), high)


def _lstm(chance: Chance, dtype: torch.dtype, kind: str) -> Point | None:
    hidden = chance.size(64, 4096)
    sizes = {
        "T": chance.size(16, 512), "B": chance.size(1, 1024, 0.3), "I": hidden, "H": hidden,
        "layers": chance.choice((1, 1, 2, 3)), "directions": chance.choice((1, 1, 2)),
    }  # fmt: skip
    if chance.random() < 0.4:
        sizes["I"] = chance.size(16, 2048)
    steps = sizes["T"] * sizes["B"] * sizes["directions"]
    depths = sizes["I"] + hidden + (sizes["layers"] - 1) * (1 + sizes["directions"]) * hidden
    return Point("lstm", "nn.LSTM", dtype, sizes) if 24 * steps * hidden * depths <= MOST[kind] else None


def _head(chance: Chance, dtype: torch.dtype, kind: str) -> Point | None:
    sizes = {"N": chance.size(32, 32768), "H": chance.size(256, 8192), "V": chance.size(1000, 262144)}
    fits = 6 * math.prod(sizes.values()) <= MOST[kind]
    return Point("head", "nn.LinearCrossEntropyLoss", dtype, sizes) if fits else None


def _cell(chance: Chance, dtype: torch.dtype, kind: str) -> Point | None:
    sizes = {"N": chance.size(1, 32768), "H": chance.size(16, 4096)}
    name = chance.choice((*(["nn.LSTMCell"] * (kind == "cpu")), "lstm_cell", "lstm_cell_backward"))
    return Point("cell", name, dtype, sizes) if 16 * math.prod(sizes.values()) <= ELEMENTS[kind] else None


def _shape(chance: Chance, kind: str) -> tuple[tuple[int, ...], bool]:
    """A shape of rank 2 to 5, and whether its channels lie last."""
    rank, left = chance.randint(2, 5), chance.size(1, ELEMENTS[kind], 0.0)
    shape = []
    for remaining in range(rank, 1, -1):
        size = chance.size(1, max(1, round(left ** (2 / remaining)))) if left > 1 else 1
        size = min(size, left)
        shape.append(size)
        left = max(1, left // size)
    shape.append(left)
    chance.shuffle(shape)
    return tuple(shape), rank in (4, 5) and chance.random() < 0.5


def _pointwise(chance: Chance, dtype: torch.dtype, kind: str) -> Point | None:
    shape, last = _shape(chance, kind)
    names = ["nn.Hardsigmoid"] if kind == "cpu" else ["hardsigmoid", "hardsigmoid_backward"]
    return Point("pointwise", chance.choice(names), dtype, {}, shape, last)


def _batch_norm(chance: Chance, dtype: torch.dtype, kind: str) -> Point | None:
    name = chance.choice((*(["nn.SyncBatchNorm"] * (kind == "cpu")), *BATCH_NORM))
    if name == "batch_norm_gather_stats_with_counts":
        return Point("batch_norm", name, dtype, {"processes": chance.size(1, 64), "channels": chance.size(1, 4096)})
    shape, last = _shape(chance, kind)
    return Point("batch_norm", name, dtype, {}, shape, last) if math.prod(shape) > shape[1] else None


FAMILIES: dict[str, Callable[[Chance, torch.dtype, str], Point | None]] = {
    "lstm": _lstm, "head": _head, "pointwise": _pointwise, "cell": _cell, "batch_norm": _batch_norm,
}  # fmt: skip

DTYPES: dict[str, dict[str, Sequence[torch.dtype]]] = {
    "cpu": {"lstm": (F32,), "head": (F32, BF16), "pointwise": (F32, F16, BF16), "cell": (F32,), "batch_norm": (F32,)},
    "cuda": {
        "lstm": (F32, F16, BF16), "head": (BF16,), "pointwise": (F32, F16, BF16), "cell": (F32, F16),
        "batch_norm": (F32, F16, BF16),
    },
}  # fmt: skip
"""What people train in, and what peers have."""


def drawn(family: str, seed: int, count: int, kind: str, dtypes: Sequence[torch.dtype] = ()) -> Iterator[Point]:
    """So many points of a family, the dtypes by turns; the same seed gives the same ones."""
    chance = Chance(f"{family} {seed}")
    known = dtypes or DTYPES[kind][family]
    for k in range(count):
        point = None
        while point is None:
            point = FAMILIES[family](chance, known[k % len(known)], kind)
        yield point


GRID_H = (96, 256, 384, 640, 768, 1024, 1280, 1600, 2048, 3072)
GRID_B = (1, 8, 32, 64, 100, 128, 256, 512, 1024)


def grid(kind: str, dtypes: Sequence[torch.dtype] = ()) -> Iterator[Point]:
    """One LSTM layer of 64 steps, as many inputs as units: the same sizes always."""
    for dtype in dtypes or DTYPES[kind]["lstm"]:
        for hidden in GRID_H:
            for batch in GRID_B:
                sizes = {"T": 64, "B": batch, "I": hidden, "H": hidden, "layers": 1, "directions": 1}
                if 48 * 64 * batch * hidden * hidden <= MOST[kind] and batch * hidden <= 1 << 20:
                    yield Point("lstm", "nn.LSTM", dtype, sizes)
