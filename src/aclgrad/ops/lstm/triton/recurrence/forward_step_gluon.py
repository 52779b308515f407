# mypy: ignore-errors
# ruff: noqa: RUF005
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""What a step of the forward pass loads, computes and stores, for kernels in Gluon; see `forward_step`."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..fp16_split.scale_gluon import unscaled
from . import forward_step, rows

store, store_step, next_step, place_of, with_data, starts_anew = (
    gluon.jit(function.fn)
    for function in (
        forward_step.store, forward_step.store_step, forward_step.next_step, rows.place_of, rows.with_data,
        rows.starts_anew,
    )
)  # fmt: skip
H_SCALE = forward_step.H_SCALE


@gluon.jit
def inverse_scale(amax_ptr):
    """1 over the scale of a matrix with this amax; 1 for one that is not split."""
    scale = 1.0
    if amax_ptr is not None:
        scale = unscaled(1.0, gl.load(amax_ptr))
    return scale


@gluon.jit
def load_state(ptr, strides, reverse, n, u, inside):
    """A state as given, or zeros."""
    value = gl.zeros_like(inside.to(gl.float32))
    if ptr is not None:
        value = gl.load(ptr + reverse * strides[0] + n * strides[1] + u * strides[2], mask=inside, other=0.0).to(
            gl.float32
        )
    return value


@gluon.jit
def load_gates(gates_ptr, t, n, offset, batch_sizes_ptr, starts_ptr, inside, t_stride, H: gl.constexpr):
    """What the layer's input gave for step t, and how many rows it has."""
    here = gates_ptr + place_of(t, starts_ptr) * t_stride + offset
    inside = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
    batch_size = 0
    if batch_sizes_ptr is not None:
        batch_size = gl.load(batch_sizes_ptr + t)
    return (
        gl.load(here, mask=inside, other=0.0),
        gl.load(here + H, mask=inside, other=0.0),
        gl.load(here + 2 * H, mask=inside, other=0.0),
        gl.load(here + 3 * H, mask=inside, other=0.0),
        batch_size,
    )


@gluon.jit
def load_biases(bias_ptr, u, H: gl.constexpr):
    """Of the four gates of these units, or zeros."""
    biases = (0.0, 0.0, 0.0, 0.0)
    if bias_ptr is not None:
        biases = (
            gl.load(bias_ptr + u, mask=u < H, other=0.0),
            gl.load(bias_ptr + H + u, mask=u < H, other=0.0),
            gl.load(bias_ptr + 2 * H + u, mask=u < H, other=0.0),
            gl.load(bias_ptr + 3 * H + u, mask=u < H, other=0.0),
        )
    return biases


@gluon.jit
def add_h0_product(
    a_i, a_f, a_g, a_o, h0_product_ptr, s, begun, reverse, n, u, batch_sizes_ptr, inside, N, H: gl.constexpr
):
    """The gates with what an initial state gives them, in rows that start from it at step s."""
    if h0_product_ptr is not None:
        first = inside & (s == 0)
        if batch_sizes_ptr is not None:
            first = inside & (begun == 0)
        o_i, o_f, o_g, o_o, _ = load_gates(h0_product_ptr, reverse, n, n * (4 * H) + u, None, None, first, N * 4 * H, H)
        a_i += o_i
        a_f += o_f
        a_g += o_g
        a_o += o_o
    return a_i, a_f, a_g, a_o


@gluon.jit
def split_h(h, dtype: gl.constexpr, SCALED: gl.constexpr, SPLIT: gl.constexpr):
    """The parts of h as it is multiplied: rounded, or split into a high and, if SPLIT is 2, a low part."""
    if SCALED:
        scaled = h * H_SCALE
        high = scaled.to(gl.float16)
        parts = (high,)
        if SPLIT == 2:
            parts = parts + ((scaled - high.to(gl.float32)).to(gl.float16),)
    else:
        parts = (h.to(dtype),)
    return parts
