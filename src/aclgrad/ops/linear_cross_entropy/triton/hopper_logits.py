"""Logits of the products that a Hopper kernel has in its registers, piece by piece."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

from aclgrad.gpu import hopper
from aclgrad.gpu.hopper_product import EPILOGUE_COLUMNS


@hopper.jit()
def of_columns(pointer, first, piece, START: gl.constexpr):
    """A number for every column of a piece, whose tile begins at column `first`, [1, columns]."""
    column = START + gl.arange(0, EPILOGUE_COLUMNS, gl.SliceLayout(0, piece.type.layout))
    return gl.expand_dims(gl.load(pointer + first + column), 0)


@hopper.jit()
def falling(y):
    """1 / (1 + 2^y) as close as half types need it, 0 for an infinite y; tanh is 1 less twice that (`options.py`)."""
    return gl.inline_asm_elementwise(
        "{ .reg .f32 t; ex2.approx.ftz.f32 t, $1; add.f32 t, t, 0f3F800000; rcp.approx.ftz.f32 $0, t; }", "=f,f",
        [y], dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@hopper.jit()
def scaled(products, biases_ptr, first, factor, START: gl.constexpr):
    """Products times `factor`, plus biases that are already so: logits, or what their softcap is computed of."""
    if factor is not None:
        products = products * factor
    if biases_ptr is not None:
        products = products + of_columns(biases_ptr, first, products, START)
    return products


@hopper.jit()
def logits_of(products, biases_ptr, first, factor, cap, START: gl.constexpr):
    """Logits of products; see `maths.logits_of`."""
    logits = scaled(products, biases_ptr, first, factor, START)
    if cap is not None:
        logits = cap - 2.0 * cap * falling(logits)
    return logits
