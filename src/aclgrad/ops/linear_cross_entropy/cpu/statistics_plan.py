"""How the CPU kernel of the statistics cuts its work and its workspace, and where it keeps logits."""

from __future__ import annotations

from typing import NamedTuple

from aclgrad.core.spec import Call
from aclgrad.cpu.gemm import Gemm
from aclgrad.cpu.reductions import LANES

from .choose import Kept, part_columns
from .gradient_plan import places
from .options import RowOptions
from .targets import is_wide


class StatisticsPlan(NamedTuple):
    """Every number the kernel needs. Places are byte offsets into the workspace, strides count elements."""

    tokens: int
    features: int
    vocabulary: int
    start: int  # of the shard in the whole vocabulary
    stop: int

    height: int  # rows of a panel of tokens; a strip has two
    part: int  # columns of a task
    stride: int  # columns of a strip, some of which may not exist
    exact: int  # whether no logit is rounded, and that of the own target left out of the sums until the end
    wide_target: int  # see `targets.py`
    wants_others: int
    wants_mask: int  # and the targets in it

    # Places.
    tops: int  # of every part and token: the largest logit
    totals: int  # of every part and token: Σ exp(logit − largest)
    products: int  # of every part and token: Σ exp(logit − largest) · (logit − largest)
    weighed_parts: int  # of every part and token: Σ weight · (logit − largest)
    class_sums: int  # of every part: Σ weight
    x: int  # packed input
    chosen: int  # of every token: the logit of its own target
    shared: int  # where the memory of all ends, and that of the first thread begins

    # Places in the memory of a thread.
    lanes: int  # where a row is reduced
    w: int  # a packed part of weight
    strip: int  # logits of a strip
    each: int

    # Strides.
    x_row: int
    x_column: int
    w_row: int
    w_column: int
    target: int
    logits_max: int
    sum_exp: int
    predicted: int
    others: int
    mask: int
    masked_target: int

    # Of `Kept`.
    kept: int
    kept_row: int
    kept_column: int
    kept_block: int
    kept_pitch: int

    # Of `RowOptions`.
    on: int
    smooths: int
    finds: int
    softcap: float
    logit_scale: float


STATISTICS_VECTORS = {
    "target": "target",
    "logits_max": "logits_max",
    "sum_exp": "sum_exp_logits",
    "predicted": "predicted_logits",
    "others": "sum_exp_others",
    "mask": "target_mask",
    "masked_target": "masked_target",
}


def plan_statistics(call: Call, gemm: Gemm, kept: Kept, options: RowOptions | None) -> StatisticsPlan:
    """Tasks of one part of the columns each, and of all tokens unless that leaves threads idle."""
    tokens, features, vocabulary = call.dims[:3]
    height, part = gemm.panel_height(tokens), part_columns(gemm)
    strips, parts = -(-tokens // (2 * height)), -(-vocabulary // part)
    stride = -(-part // LANES) * LANES
    unit = gemm.operand.unit  # of a packed element, and of a sum
    on, smooths, finds, softcap, logit_scale = options or RowOptions()
    for_all = {
        "tops": parts * tokens * unit,
        "totals": parts * tokens * unit,
        "products": finds * parts * tokens * unit,
        "weighed_parts": smooths * parts * tokens * unit,
        "class_sums": smooths * parts * unit,
        "x": 2 * height * strips * gemm.units(features) * unit,
        "chosen": tokens * unit,
    }
    of_each = {
        "lanes": LANES * unit,
        "w": gemm.packed_b_bytes(part, features),
        "strip": 2 * height * stride * unit,
    }
    matrices = {
        f"{prefix}_{axis}": stride
        for prefix, name in (("x", "input"), ("w", "weight"))
        for axis, stride in zip(("row", "column"), call[name].strides, strict=True)
    }
    vectors = {
        field: call[name].strides[0] if call[name] is not None else 0 for field, name in STATISTICS_VECTORS.items()
    }
    return StatisticsPlan(
        tokens, features, vocabulary, call["vocab_start_index"], call["vocab_end_index"],
        height=height, part=part, stride=stride, exact=int(options is not None),
        wide_target=is_wide(call["target"]), wants_others=int(call["sum_exp_others"] is not None),
        wants_mask=int(call["target_mask"] is not None),
        **places(for_all, "shared"), **places(of_each, "each"), **matrices, **vectors,
        kept=kept.tokens, kept_row=kept.row, kept_column=kept.column, kept_block=kept.block, kept_pitch=kept.pitch,
        on=int(on), smooths=int(smooths), finds=int(finds), softcap=float(softcap), logit_scale=float(logit_scale),
    )  # fmt: skip
