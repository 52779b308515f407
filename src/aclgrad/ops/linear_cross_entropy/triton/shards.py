"""The operators for one shard of the vocabulary on GPUs, made of the kernels for a whole one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, NamedKernel, Operand, vectors
from aclgrad.gpu.products import TILE

from ..empty import Nothing, NothingFound, Zeros
from ..spec_shards import ELSEWHERE, SLOPES, found_by
from .choose import BLOCK_TOKENS
from .columns import Columns, ColumnVectors
from .gradient import Gradients
from .maths import exponential, product_or_zero
from .options import LogitOptions
from .statistics.compute import ExactStatistics
from .statistics.merge import merged
from .tokens import TokenVectors, views

ABSENT = tl.constexpr(ELSEWHERE)


def options_of(call: Call, smooths: bool, finds: bool) -> LogitOptions:
    """Those of a shard's call, as the kernels for a whole vocabulary have them."""
    smoothing = 1.0 if smooths else 0.0  # how much is the caller's business
    bias, classes = call["bias"] is not None, call["class_weight"] is not None
    return LogitOptions(bias, classes, smoothing, call["softcap"], call["logit_scale"], 0.0, finds)


@jit
def find_own(row_ptr, own_ptr, tokens, vocabulary, row_stride, BLOCK: tl.constexpr):
    """Every token's own row, -1 if the shard has none."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    row = tl.load(row_ptr + token * row_stride, inside, other=-1).to(tl.int64)
    tl.store(own_ptr + token, tl.where((row >= 0) & (row < vocabulary), row, -1), inside)


@jit
def merge_for_shard(
    own_ptr, totals_ptr, maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr, found_ptr,
    count, vocabulary, found_row, found_column, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What the shard found of a token (`spec_shards.Found`), from what its tiles found but of its own target."""
    token = tl.program_id(0).to(tl.int64)
    top, rest, tops, sums, powers = merged(maxima_ptr + token * count, sums_ptr + token * count, count, BLOCK)
    here = tl.load(own_ptr + token) >= 0
    chosen = tl.load(chosen_ptr + token, here, other=0.0)
    predicted = chosen - top
    at = found_ptr + token * found_column
    tl.store(at, top)
    tl.store(at + found_row, rest)
    tl.store(at + 2 * found_row, tl.where(here, predicted, ABSENT))
    tile = tl.arange(0, BLOCK)
    at += 3 * found_row
    if classed_ptr is not None:
        of_tiles = tl.maximum(tl.minimum(vocabulary - tile * WIDTH, WIDTH), 0).to(tl.float32)
        if totals_ptr is not None:
            of_tiles = tl.load(totals_ptr + tile, tile < count, other=0.0)
        classed = tl.load(classed_ptr + token * count + tile, tile < count, other=0.0)
        tl.store(at, tl.sum(tl.where(tile < count, classed + of_tiles * (tops - top), 0.0), 0))
        at += found_row
    if mixed_ptr is not None:
        mixed = tl.load(mixed_ptr + token * count + tile, tile < count, other=0.0)
        mixed = tl.sum(powers * mixed + sums * product_or_zero(powers, tops - top), 0)
        tl.store(at, tl.where(here, mixed + product_or_zero(exponential(predicted, True), predicted), mixed))
        ahead = tl.load(ahead_ptr + token, here, other=-1)
        before = tl.max(((tile < ahead) & (tops >= top)).to(tl.int32), 0)
        wins = here & (chosen == top) & (ahead >= 0) & (before == 0)
        tl.store(at + found_row, wins.to(tl.float32))


class ShardStatistics:
    """Phase two of `shard_statistics`."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary = call.dims
        scratch, places = Scratch(), found_by(call)
        options = options_of(call, places.weighed is not None, places.mixed is not None)
        self._own = scratch.tensor((tokens,), I64)
        (row,), strides = vectors(call, "row")
        self._find = CallKernel(
            call, find_own, (triton.cdiv(tokens, BLOCK_TOKENS),), [row, Operand.at("own", self._own)],
            {"tokens": tokens, "vocabulary": vocabulary, **strides}, {"BLOCK": BLOCK_TOKENS},
        )  # fmt: skip
        self._statistics = ExactStatistics(call, options, scratch)
        tiles = self._statistics.tiles
        of_tiles = ("maxima", "sums", "chosen", "classed", "mixed", "ahead")
        down, across = call["found"].strides
        self._merge = NamedKernel(
            merge_for_shard, (tokens,), call.device,
            (
                Operand("own", I64), Operand("totals", F32 if options.weighs_classes else None),
                *(Operand(name, tiles.dtype(name)) for name in of_tiles), Operand("found", F32),
            ),
            {"count": tiles.count, "vocabulary": vocabulary, "found_row": down, "found_column": across},
            {"BLOCK": tiles.block, "WIDTH": TILE[1]},
        )  # fmt: skip
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        own = self._own.view(workspace)
        self._find(args, outs, workspace)
        given, known = self._statistics(args, outs, own, workspace)
        self._merge({**known, "own": own, "found": given["found"]})

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


@jit
def gather_slopes(
    row_ptr, top_given_ptr, total_given_ptr, alpha_ptr, beta_given_ptr, delta_given_ptr, own_slope_ptr,
    own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr,
    tokens, vocabulary, logit_scale, row_stride, top_stride, total_stride, alpha_stride, beta_stride, delta_stride,
    own_slope_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """What p needs to know of every token (`tokens.py`), without gaps; the scale of the logits is a factor of p."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    row = tl.load(row_ptr + token * row_stride, inside, other=-1).to(tl.int64)
    tl.store(own_ptr + token, tl.where((row >= 0) & (row < vocabulary), row, -1), inside)
    tl.store(top_ptr + token, tl.load(top_given_ptr + token * top_stride, inside, other=0.0), inside)
    tl.store(total_ptr + token, tl.load(total_given_ptr + token * total_stride, inside, other=1.0), inside)
    tl.store(own_p_ptr + token, tl.load(own_slope_ptr + token * own_slope_stride, inside, other=0.0), inside)
    tl.store(scale_ptr + token, tl.load(alpha_ptr + token * alpha_stride, inside, other=0.0) * logit_scale, inside)
    if beta_ptr is not None:
        beta = tl.load(beta_given_ptr + token * beta_stride, inside, other=0.0)
        tl.store(beta_ptr + token, beta * logit_scale, inside)
    if delta_ptr is not None:
        delta = tl.load(delta_given_ptr + token * delta_stride, inside, other=0.0)
        tl.store(delta_ptr + token, delta * logit_scale, inside)


class ShardTokens:
    """The vectors of `shard_gradients`."""

    __slots__ = ("_columns", "_gather", "_pieces")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        self._columns = Columns(call, LogitOptions.of(call), scratch)
        needed = dict.fromkeys(("scale", "top", "total", "own_p"), F32)
        needed |= {name: F32 for name in ("beta", "delta") if call[name] is not None}
        self._pieces = {name: scratch.tensor((tokens,), dtype) for name, dtype in {"own": I64, **needed}.items()}
        (row, *_), strides = vectors(call, "row", "top", "total", *SLOPES[:3], "own_slope")
        renamed = {"top_given": "top", "total_given": "total", "alpha": "alpha"}
        renamed |= {"beta_given": "beta", "delta_given": "delta", "own_slope": "own_slope"}
        made = ("own", "scale", "top", "total", "own_p", "beta", "delta")
        self._gather = CallKernel(
            call, gather_slopes, (triton.cdiv(tokens, BLOCK_TOKENS),),
            [
                row, *(Operand.of(call, name, argument) for name, argument in renamed.items()),
                *(Operand.at(name, self._pieces.get(name)) for name in made),
            ],
            {"tokens": tokens, "vocabulary": vocabulary, "logit_scale": call["logit_scale"], **strides},
            {"BLOCK": BLOCK_TOKENS},
        )  # fmt: skip

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[TokenVectors, ColumnVectors]:
        """Own targets, slopes, maxima and sums; what there is of columns."""
        columns = self._columns(args, outs, workspace)
        self._gather(args, outs, workspace)
        return views(self._pieces, workspace), columns


def as_of_a_whole(call: Call) -> Call:
    """The call of `shard_gradients` with what the gradient of a whole vocabulary has beside."""
    options = options_of(call, call["delta"] is not None, finds=False)
    beside = {
        "softmax": None, "entropy_grad": call["beta"], "label_smoothing": options.smoothing, "z_loss": 0.0,
        "wants_statistics": False,
    }  # fmt: skip
    return Call(call.spec, {**call.values, **beside}, call.strict, call.soc)


def shard_statistics(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    if not call.dims.BT:
        return Nothing()
    return ShardStatistics(call) if call.dims.V else NothingFound(found_by(call))


def shard_gradients(call: Call) -> Launch:
    """Phase one: the same. Without features there is still a bias."""
    tokens, features, vocabulary = call.dims
    empty = not tokens or not vocabulary or (not features and call["bias_grad"] is None)
    return Zeros() if empty else Gradients(as_of_a_whole(call), ShardTokens)
