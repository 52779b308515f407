"""What p of a column is beside its share of the exponentials, as a Triton function."""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit

from ..maths import cap_slope


@jit
def column_slopes(x, logits, token, column, inside, delta_ptr, classes_ptr, cap):
    """(x − delta · class weight) · ∂logit/∂(logit without softcap), as far as there is each; see `tokens.slopes`."""
    if delta_ptr is not None:
        delta = tl.load(delta_ptr + token)
        x -= delta * tl.load(classes_ptr + column, inside, other=0.0) if classes_ptr is not None else delta
    if cap is not None:
        x *= cap_slope(logits, cap)
    return x
