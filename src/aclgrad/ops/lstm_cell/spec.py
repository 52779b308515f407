"""Contracts of aclnnThnnFusedLstmCell and aclnnThnnFusedLstmCellBackward."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.meta import Meta
from ...core.profile import coded
from ...core.registry import register
from ...core.rules import dtype_of, nd_format, rank, required, same_dtype, shape, strictly, supported_dtypes
from ...core.spec import BF16, F16, F32, F64, Call, Difference, Flag, OpSpec, Out, Tensor

FLOATS = (F32, F16)
GENEROUS = (BF16, F64)
FORWARD_MATRICES = ("input_gates", "hidden_gates", "cx", "hy", "cy", "storage")
BIASES = ("input_bias", "hidden_bias")
STATES = ("grad_hy", "grad_c", "cx", "cy")
OUTPUTS = ("grad_gates", "grad_cx", "grad_bias")
TENSORS = (*STATES, "storage", *OUTPUTS)


class CellDims(NamedTuple):
    """N rows of the batch, H hidden units."""

    N: int
    H: int


def both_biases_or_none(call: Call) -> None:
    """A cell has two biases or none."""
    missing = [call.label(name) for name in BIASES if call[name] is None]
    if len(missing) == 1:
        raise NullArgument(f"{missing[0]} is null, expected both biases or none", missing[0])


lstm_cell = register(
    OpSpec(
        name="lstm_cell",
        aclnn="aclnnThnnFusedLstmCell",
        summary="the LSTM cell after its two matrix products",
        package=__package__,
        args=(
            Tensor("input_gates", "inputGates", FLOATS, generous=GENEROUS),
            Tensor("hidden_gates", "hiddenGates", FLOATS, generous=GENEROUS),
            Tensor("cx", "cx", FLOATS, generous=GENEROUS),
            Tensor("input_bias", "inputBiasOptional", FLOATS, generous=GENEROUS, default=None),
            Tensor("hidden_bias", "hiddenBiasOptional", FLOATS, generous=GENEROUS, default=None),
        ),
        outs=(
            Out("hy", "hyOut", FLOATS, lambda c: (c.dims.N, c.dims.H), dtype_of("cx"), generous=GENEROUS),
            Out("cy", "cyOut", FLOATS, lambda c: (c.dims.N, c.dims.H), dtype_of("cx"), generous=GENEROUS),
            Out("storage", "storageOut", FLOATS, lambda c: (c.dims.N, 4 * c.dims.H), dtype_of("cx"), generous=GENEROUS),
        ),
        dims=lambda call: CellDims(*call.tensor("cx").shape),
        rules=(
            required("input_gates", "hidden_gates", "cx"),
            both_biases_or_none,
            required("hy", "cy", "storage"),
            rank(2, 2, *FORWARD_MATRICES),
            rank(1, 1, *BIASES),
            *(shape(name, "N", "4H") for name in ("input_gates", "hidden_gates", "storage")),
            *(shape(name, "4H") for name in BIASES),
            *(shape(name, "N", "H") for name in ("hy", "cy")),
            supported_dtypes(*FORWARD_MATRICES, *BIASES),
            same_dtype((*FORWARD_MATRICES, *BIASES)),
        ),
    )
)


def _base(call: Call) -> tuple[str, Meta]:
    """The tensor that decides dtype and sizes: the first one given."""
    return call.metas(*STATES)[0]


def _dims(call: Call) -> CellDims:
    return CellDims(*_base(call)[1].shape)


def _dtype(call: Call) -> torch.dtype:
    return _base(call)[1].dtype


def one_gradient_at_least(call: Call) -> None:
    """A missing gradient counts as zero, but there must be something to propagate."""
    if call["grad_hy"] is None and call["grad_c"] is None:
        labels = f"{call.label('grad_hy')} and {call.label('grad_c')}"
        raise NullArgument(f"{labels} are both null, expected at least one of them", call.label("grad_hy"))


def base_rank(call: Call) -> None:
    """The tensor that decides the sizes is a matrix."""
    label, meta = _base(call)
    if meta.rank != 2:
        raise InvalidArgument(f"{label} has rank {meta.rank} {list(meta.shape)}, expected rank 2 [N, H]", label)


def not_empty(call: Call) -> None:
    """The document's operator takes no empty batch."""
    label, meta = _base(call)
    if meta.numel == 0:
        raise InvalidArgument(f"{label} has shape {list(meta.shape)}, expected N > 0 and H > 0", label)


def bias_shape(call: Call) -> None:
    """The bias gradient's shape matters only when it is written."""
    if call["has_bias"]:
        shape("grad_bias", "4H")(call)


lstm_cell_backward = register(
    OpSpec(
        name="lstm_cell_backward",
        aclnn="aclnnThnnFusedLstmCellBackward",
        summary="gradient of the fused LSTM cell",
        package=__package__,
        args=(
            Tensor("grad_hy", "gradHyOptional", FLOATS, generous=GENEROUS, optional=True),
            Tensor("grad_c", "gradCOptional", FLOATS, generous=GENEROUS, optional=True),
            Tensor("cx", "cx", FLOATS, generous=GENEROUS),
            Tensor("cy", "cy", FLOATS, generous=GENEROUS),
            Tensor("storage", "storage", FLOATS, generous=GENEROUS),
            Flag("has_bias", "hasBias"),
        ),
        outs=(
            Out("grad_gates", "gradGatesOut", FLOATS, lambda c: (c.dims.N, 4 * c.dims.H), _dtype, generous=GENEROUS),
            Out("grad_cx", "gradCxOut", FLOATS, lambda c: (c.dims.N, c.dims.H), _dtype, generous=GENEROUS),
            Out(
                "grad_bias", "gradBiasOut", FLOATS, lambda c: (4 * c.dims.H,), _dtype,
                wanted=lambda c: bool(c["has_bias"]), generous=GENEROUS,
            ),
        ),
        dims=_dims,
        differences=(
            Difference("one of gradHyOptional, gradCOptional null", "it counts as zeros", "161001"),
            Difference(
                "an Inf in an input", "NaN in whatever depends on it", "what IEEE and a clipped tanh make of it",
                imitated=False,
            ),
        ),
        rules=(
            coded(required("grad_hy", "grad_c")),
            one_gradient_at_least,
            required("cx", "cy", "storage", *OUTPUTS),
            supported_dtypes(*TENSORS),
            same_dtype(TENSORS),
            base_rank,
            strictly(not_empty),
            *(shape(name, "N", "H") for name in STATES),
            shape("storage", "N", "4H"),
            shape("grad_gates", "N", "4H"),
            shape("grad_cx", "N", "H"),
            bias_shape,
            nd_format(*TENSORS),
        ),
    )
)  # fmt: skip
