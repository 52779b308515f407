"""Every number that the kernel of the gradient takes: sizes, places in the workspace, strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aclgrad.core.spec import U8, Call
from aclgrad.cpu.gemm import ALIGNMENT, Gemm

from .choose import BLOCK_PARTS, Kept, block_of_p, is_direct, part_columns
from .options import RowOptions
from .targets import is_wide


class GradientPlan(NamedTuple):
    """Every number the kernel needs. Places are byte offsets into the workspace, strides count elements."""

    tokens: int
    features: int
    vocabulary: int

    # How p is cut. A strip has two panels of tokens, hence an even number of rows, as packed pairs need.
    height: int  # rows of a panel of tokens
    block_tokens: int  # whole strips
    part: int  # columns of a strip: whole panels, both as columns of the logits and as rows of pᵀ
    block_columns: int

    # Places.
    input_sums: int  # all of input_grad, unless it is direct
    weight_sums: int  # a block of weight_grad
    x_a: int  # packed input, for the logits
    x_b: int  # packed input, for weight_grad, by blocks of tokens
    w_t: int  # a packed block of weight, for the logits
    w_b: int  # a packed block of weight, for input_grad
    p_a: int  # a packed block of p, for input_grad
    p_t: int  # a packed block of pᵀ, for weight_grad
    bias_sums: int  # of every strip of tokens: a block of bias_grad
    shared: int  # where the memory of all ends, and that of the first thread begins: logits and p of one strip
    each: int  # bytes of a thread

    # What the call has and wants.
    has_mask: int
    mask_bits: int  # tokens in a byte of the mask, as a power of two
    wide_target: int  # see `targets.py`
    has_softmax: int
    recomputes: int  # whether any token's logits are neither kept nor, as a softmax, given
    wide_softmax: int  # whether its elements have the type of the sums
    wants_input_grad: int
    wants_weight_grad: int
    wide_input_grad: int  # whether its elements have the type of the sums
    kept: int  # tokens whose logits are known: whole strips, or all
    kept_pitch: int  # of `Kept`
    direct: int  # whether input_grad is its own sums

    # Strides.
    grad: int
    mask: int
    target: int
    logits_max: int
    sum_exp: int
    x_row: int
    x_column: int
    w_row: int
    w_column: int
    softmax_row: int
    softmax_column: int
    dx_row: int
    dx_column: int
    dw_row: int
    dw_column: int
    bias_grad: int

    # Training.
    has_own_slopes: int
    wants_bias_grad: int
    on: int  # of `RowOptions`
    softcap: float
    logit_scale: float


GRADIENT_VECTORS = {
    "grad": "grad",
    "mask": "target_mask",
    "target": "masked_target",
    "logits_max": "logits_max",
    "sum_exp": "sum_exp_logits",
    "bias_grad": "bias_grad",
}
MATRICES = {"x": "input", "w": "weight", "softmax": "softmax", "dx": "input_grad", "dw": "weight_grad"}


def plan_gradient(
    call: Call, gemm: Gemm, kept: Kept | None = None, parts: int = BLOCK_PARTS, options: RowOptions | None = None
) -> GradientPlan:
    """Blocks of p within the limits above, of `parts` of the columns, and of tokens as equal as strips allow."""
    tokens, features, vocabulary = call.dims
    strip, part = 2 * gemm.panel_height(tokens), part_columns(gemm)
    block_tokens, block_columns = block_of_p(call.dims, strip, part, parts)
    given, kept = options or RowOptions(), kept or Kept(0)
    mask, softmax, input_grad = call["target_mask"], call["softmax"], call["input_grad"]
    return GradientPlan(
        tokens=tokens,
        features=features,
        vocabulary=vocabulary,
        height=strip // 2,
        block_tokens=block_tokens,
        part=part,
        block_columns=block_columns,
        has_mask=int(mask is not None),
        mask_bits=3 if mask is not None and mask.dtype == U8 else 0,
        wide_target=is_wide(call["masked_target"]),
        has_softmax=int(softmax is not None),
        recomputes=int(softmax is None and kept.tokens < tokens),
        wide_softmax=int(softmax is not None and softmax.itemsize == gemm.operand.unit),
        wants_input_grad=int(input_grad is not None),
        wants_weight_grad=int(call["weight_grad"] is not None),
        wide_input_grad=int(input_grad is not None and input_grad.itemsize == gemm.operand.unit),
        kept=kept.tokens,
        kept_pitch=kept.pitch,
        direct=int(is_direct(call)),
        has_own_slopes=int(options is not None),
        wants_bias_grad=int(call["bias_grad"] is not None),
        on=int(given.on),
        softcap=float(given.softcap),
        logit_scale=float(given.logit_scale),
        each=_whole(strip * part * (gemm.operand.unit + gemm.operand.itemsize)),
        **_places(call, gemm, strip, block_tokens, block_columns, kept.tokens),
        **_strides(call),
    )


def _places(call: Call, gemm: Gemm, strip: int, block_tokens: int, block_columns: int, kept: int) -> dict[str, int]:
    """Where each region of the workspace begins; those that this call does not use are empty."""
    tokens, features, _ = call.dims
    unit, blocks = gemm.operand.unit, -(-tokens // block_tokens)
    recomputed = call["softmax"] is None and kept < tokens
    dx, dw = call["input_grad"] is not None, call["weight_grad"] is not None
    sizes = {
        "input_sums": (dx and not is_direct(call)) * tokens * features * unit,
        "weight_sums": dw * block_columns * features * unit,
        "x_a": recomputed * blocks * block_tokens * gemm.units(features) * unit,
        "x_b": dw * blocks * gemm.packed_b_bytes(features, block_tokens),
        "w_t": recomputed * gemm.packed_b_bytes(block_columns, features),
        "w_b": dx * gemm.packed_b_bytes(features, block_columns),
        "p_a": dx * block_tokens * gemm.units(block_columns) * unit,
        "p_t": dw * block_columns * gemm.units(block_tokens) * unit,
        "bias_sums": (call["bias_grad"] is not None) * -(-tokens // strip) * block_columns * unit,
    }
    return places(sizes, "shared")


def places(sizes: Mapping[str, int], end: str) -> dict[str, int]:
    """Where pieces of these sizes begin, one behind the other, and under the name of `end` where they end."""
    found, offset = {}, 0
    for name, size in sizes.items():
        found[name] = offset
        offset += _whole(size)
    return {**found, end: offset}


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _strides(call: Call) -> dict[str, int]:
    """Strides of every tensor; zeros for one that is absent, or not read and therefore of any shape."""
    strides = {}
    for field, name in GRADIENT_VECTORS.items():
        meta = call[name]
        strides[field] = meta.strides[0] if meta is not None and meta.rank == 1 else 0
    for prefix, name in MATRICES.items():
        meta = call[name]
        row, column = meta.strides if meta is not None else (0, 0)
        strides.update({f"{prefix}_row": row, f"{prefix}_column": column})
    return strides
