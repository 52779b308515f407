"""Where the operands of the cell's forward pass lie, for every kernel."""

from __future__ import annotations

from ...core.spec import Call

GATED = ("input_gates", "hidden_gates", "input_bias", "hidden_bias", "storage")
"""The operands that hold four gates side by side."""


def operand_strides(call: Call) -> dict[str, tuple[int, int]]:
    """Of every operand in contract order, the strides from row to row and from unit to unit.

    A bias serves every row; one that is absent has no strides.
    """
    metas = {name: call[name] for name in call.spec.params}
    return {name: (0, 0) if meta is None else (0, *meta.strides)[-2:] for name, meta in metas.items()}


def gate_distances(call: Call) -> tuple[int, ...]:
    """Of every gated operand, the elements from one gate to the next."""
    strides = operand_strides(call)
    return tuple(call.dims.H * strides[name][1] for name in GATED)
