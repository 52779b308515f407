# mypy: ignore-errors
# ruff: noqa: RUF005, SIM108
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""What a step of the gradient loads, computes and stores, whichever kernel runs it."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from aclgrad.ops._shared import lstm_gates_triton

from . import rows

place_of, with_data, starts_anew = (
    gluon.jit(function.fn) for function in (rows.place_of, rows.with_data, rows.starts_anew)
)
gate_gradients = gluon.jit(lstm_gates_triton.gate_gradients.fn)
STEPS_PER_SUM = gl.constexpr(64)
"""Steps whose gate gradients are summed before they are added to what was summed before."""


@gluon.jit
def load_step(
    i_ptr, f_ptr, g_ptr, o_ptr, tanhc_ptr, c_ptr, dy_ptr, t, t_prev, is_first, n, saved_offset, dy_offset, inside,
    saved_t_stride, dy_t_stride, batch_sizes_ptr, starts_ptr, c_init=0.0,
):  # fmt: skip
    """What step t reads of its saved activations and of dy; c_prev is that of step `t_prev`, if there is one.

    A packed row that has no step before has `c_init` for c_prev.
    """
    here = place_of(t, starts_ptr) * saved_t_stride
    prev = place_of(t_prev, starts_ptr) * saved_t_stride
    there = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
    dy = gl.zeros_like(inside.to(gl.float32))
    if dy_ptr is not None:
        dy = gl.load(dy_ptr + place_of(t, starts_ptr) * dy_t_stride + dy_offset, mask=there, other=0.0)
    i = gl.load(i_ptr + here + saved_offset, mask=there, other=0.0)
    f = gl.load(f_ptr + here + saved_offset, mask=there, other=0.0)
    g = gl.load(g_ptr + here + saved_offset, mask=there, other=0.0)
    o = gl.load(o_ptr + here + saved_offset, mask=there, other=0.0)
    tanhc = gl.load(tanhc_ptr + here + saved_offset, mask=there, other=0.0)
    if starts_ptr is None:
        c_prev = gl.load(c_ptr + prev + saved_offset, mask=inside & (is_first == 0), other=0.0)
    else:
        begun = with_data(inside, t_prev, n, starts_ptr, batch_sizes_ptr)
        c_prev = gl.load(c_ptr + prev + saved_offset, mask=begun, other=c_init)
    return i, f, g, o, tanhc, c_prev, dy


@gluon.jit
def load_state(ptr, strides, reverse, n, u, inside):
    """A gradient dh or dc as given, infinities as NaN; zeros if it is not given."""
    value = gl.zeros_like(inside.to(gl.float32))
    if ptr is not None:
        value = gl.load(ptr + reverse * strides[0] + n * strides[1] + u * strides[2], mask=inside, other=0.0).to(
            gl.float32
        )
    return value + 0.0 * value


@gluon.jit
def replaced(values, AT: gl.constexpr, value):
    """The tuple with another value at AT."""
    out = ()
    for k in gl.static_range(len(values)):
        if k == AT:
            out = out + (value,)
        else:
            out = out + (values[k],)
    return out


@gluon.jit
def mask_gradients(valid, di, df, dg, do, dc_new, dc):
    """The gradients where there is data; elsewhere none, and dc as it was."""
    return (
        gl.where(valid, di, 0.0),
        gl.where(valid, df, 0.0),
        gl.where(valid, dg, 0.0),
        gl.where(valid, do, 0.0),
        gl.where(valid, dc_new, dc),
    )


@gluon.jit
def store_state(ptr, strides, reverse, n, u, inside, value):
    """dh_prev or dc_prev, where it is wanted."""
    if ptr is not None:
        gl.store(
            ptr + reverse * strides[0] + n * strides[1] + u * strides[2], value.to(ptr.dtype.element_ty), mask=inside
        )


@gluon.jit
def store_gates(ptr, i, f, g, o, mask, GATE_STRIDE: gl.constexpr):
    """One value for each gate, GATE_STRIDE apart."""
    dtype: gl.constexpr = ptr.dtype.element_ty
    gl.store(ptr, i.to(dtype), mask=mask)
    gl.store(ptr + GATE_STRIDE, f.to(dtype), mask=mask)
    gl.store(ptr + 2 * GATE_STRIDE, g.to(dtype), mask=mask)
    gl.store(ptr + 3 * GATE_STRIDE, o.to(dtype), mask=mask)


@gluon.jit
def add_gates(ptr, i, f, g, o, mask, exists, GATE_STRIDE: gl.constexpr):
    """Add one value for each gate to what is there, if anything is."""
    old = mask & exists
    i += gl.load(ptr, mask=old, other=0.0)
    f += gl.load(ptr + GATE_STRIDE, mask=old, other=0.0)
    g += gl.load(ptr + 2 * GATE_STRIDE, mask=old, other=0.0)
    o += gl.load(ptr + 3 * GATE_STRIDE, mask=old, other=0.0)
    store_gates(ptr, i, f, g, o, mask, GATE_STRIDE)


@gluon.jit
def add_sums(ptr, i, f, g, o, mask, exists, GATE_STRIDE: gl.constexpr):
    """Add the sums of each gate over all rows; see `add_gates`."""
    add_gates(
        ptr, gl.sum(i, axis=1), gl.sum(f, axis=1), gl.sum(g, axis=1), gl.sum(o, axis=1), mask, exists, GATE_STRIDE
    )
