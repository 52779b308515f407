"""Contracts of aclnnLSTM and aclnnLstmBackward."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...core.errors import InvalidArgument
from ...core.profile import documented, null_where_coded
from ...core.registry import register
from ...core.rules import (
    PRIVATE_FORMATS,
    dtype_of,
    length,
    nd_format,
    no_null_members,
    no_private_format,
    rank,
    required,
    same_dtype,
    shape,
    shape_of,
    supported_dtypes,
)
from ...core.soc import ATLAS_950, is_one_of
from ...core.spec import (
    BF16,
    F16,
    F32,
    F64,
    I64,
    BoolArray,
    Call,
    Flag,
    Float,
    Int,
    OpSpec,
    Out,
    OutList,
    Rule,
    Tensor,
    TensorList,
)
from . import differences
from .dims import (
    SAVED,
    chain_count,
    dims_of,
    layers_exist,
    output_shape,
    param_count,
    param_shapes,
    saved_shapes,
    sequence_shape,
    states_are_a_pair,
    steps_of,
)
from .dims import LstmDims as LstmDims

log = logging.getLogger("aclgrad")

FLOATS = (F32, F16)
GENEROUS = (BF16, F64)
NCL = 47  # aclFormat; the vendor's later code asks for it where the document says ND
STATES = ("output", "hy", "cy")
UPSTREAM = ("dy", "dh", "dc")
OUTPUTS = ("dx", "dh_prev", "dc_prev", "dparams")
FLOAT_PARAMS = ("input", *UPSTREAM, "dx", "dh_prev", "dc_prev", "hx", "params", *SAVED, "dparams")


def _forward_dims(call: Call) -> LstmDims:
    if call["batch_sizes"] is None:
        batch = call["input"].shape[0 if call["batch_first"] else 1]
    else:
        batch = call["input"].shape[0] // steps_of(call)
    return dims_of(call, steps_of(call), batch, call["params"][0].shape[0] // 4)


def _backward_dims(call: Call) -> LstmDims:
    _, batch, hidden = call["i"][0].shape
    return dims_of(call, steps_of(call), batch, hidden)


def if_training(*rules: Rule) -> Rule:
    """These rules are about what only a training forward pass produces."""

    def check(call: Call) -> None:
        if call["train"]:
            for rule in rules:
                rule(call)

    return check


def forward_sizes_are_readable(call: Call) -> None:
    """The tensors the sizes are read from have the ranks, and the counts the number, to read them."""
    _sequences_are_readable(call)
    label, weight = call.metas("params")[0]
    if weight.rank != 2:
        raise InvalidArgument(f"{label} has rank {weight.rank} {list(weight.shape)}, expected rank 2", label)
    if call["batch_sizes"] is not None and steps_of(call) == 0:
        label = call.label("batch_sizes")
        raise InvalidArgument(f"{label} is empty, expected one count for each step", label)


def _sequences_are_readable(call: Call) -> None:
    input_rank = 3 if call["batch_sizes"] is None else 2
    rank(input_rank, input_rank, "input")(call)
    rank(1, 1, "batch_sizes")(call)


def sizes_are_readable(call: Call) -> None:
    """The tensors the sizes are read from have the ranks to read them."""
    rank(3, 3, "i")(call)
    _sequences_are_readable(call)


def formats_are_public(call: Call) -> None:
    """Atlas 950 refuses a device-private format; the chips before it read the tensor as it lies and warn."""
    names = ("input", "params", "hx", *STATES, "batch_sizes", *(SAVED if call["train"] else ()))
    if is_one_of(call.soc, ATLAS_950):
        no_private_format(*names)(call)
    for label, meta in call.metas(*names):
        if meta.format in PRIVATE_FORMATS:
            log.warning("%s: %s has the private format %d, read as ND", call.spec.aclnn, label, meta.format)


def mask_has_four_entries(call: Call) -> None:
    """dx, dh_prev, dc_prev, dparams. The aclnn door ignores the mask, as documented."""
    mask = call["output_mask"]
    if mask is not None and len(mask) != len(OUTPUTS) and not call.strict:
        raise InvalidArgument(f"output_mask has {len(mask)} entries, expected {len(OUTPUTS)}", "output_mask")


def dropout_is_not_applied(call: Call) -> None:
    """No operator of the family has a dropout mask among its arguments."""
    if call["dropout"] != 0 and not _mentioned:
        _mentioned.append(True)
        log.warning("%s: dropout = %s is accepted and ignored", call.spec.aclnn, call["dropout"])


_mentioned: list[bool] = []


def values_of_biases(call: Call) -> list[str]:
    """A gradient depends on whether there are biases and not on what they are."""
    count = len(call["params"]) if call["has_bias"] else 0
    return [f"{call.label('params')}[{k}]" for k in range(count) if k % 4 >= 2]


def _wanted(index: int) -> Callable[[Call], bool]:
    def wanted(call: Call) -> bool:
        mask = call["output_mask"]
        return bool(call.strict or mask is None or mask[index])

    return wanted


def _state(call: Call) -> tuple[int, int, int]:
    """Shape of a state or its gradient, of all chains."""
    return call.dims.DL, call.dims.N, call.dims.H


def _saved(name: str, aclnn: str) -> OutList:
    """A list of activations for the gradient."""
    return OutList(
        name, aclnn, FLOATS, lambda call: [call.dims.saved()] * call.dims.DL, dtype_of("input"),
        wanted=lambda call: bool(call["train"]), generous=GENEROUS,
    )  # fmt: skip


_OPTIONS = (
    Flag("has_bias", "hasBias", default=True),
    Int("num_layers", "numLayers", default=1),
    Float("dropout", "dropout", default=0.0),
    Flag("train", "train", default=True),
    Flag("bidirectional", "bidirectional", default=False),
    Flag("batch_first", "batchFirst", default=False),
)

lstm = register(
    OpSpec(
        name="lstm",
        aclnn="aclnnLSTM",
        summary="a whole LSTM",
        package=__package__,
        args=(
            Tensor("input", "input", FLOATS, generous=GENEROUS),
            TensorList("params", "params", FLOATS, generous=GENEROUS),
            TensorList("hx", "hx", FLOATS, generous=GENEROUS, default=None),
            Tensor("batch_sizes", "batchSizes", (I64,), default=None),
            *_OPTIONS,
        ),
        outs=(
            Out(
                "output", "output", FLOATS, lambda c: c.dims.output(c.dims.D * c.dims.H), dtype_of("input"),
                generous=GENEROUS,
            ),
            Out("hy", "hy", FLOATS, _state, dtype_of("input"), generous=GENEROUS),
            Out("cy", "cy", FLOATS, _state, dtype_of("input"), generous=GENEROUS),
            *(_saved(name, f"{name}Out") for name in SAVED[:-1]),
            _saved("tanhc", "tanhCOut"),
        ),
        dims=_forward_dims,
        differences=differences.FORWARD,
        skipped=differences.forward_is_skipped,
        flops=lambda call: call.dims.forward_flops(),
        rules=(
            required("input", "params", *STATES),
            if_training(required(*SAVED)),
            layers_exist,
            length(param_count, "params"),
            states_are_a_pair,
            if_training(length(chain_count, *SAVED)),
            no_null_members("params", "hx"),
            if_training(no_null_members(*SAVED)),
            supported_dtypes("input", "params", "hx", *STATES),
            same_dtype(("input", "params", "hx", *STATES)),
            if_training(supported_dtypes(*SAVED), same_dtype(SAVED, base="input")),
            supported_dtypes("batch_sizes"),
            forward_sizes_are_readable,
            sequence_shape("input", directions=False),
            param_shapes("params"),
            shape("hx", "DL", "N", "H"),
            output_shape,
            shape("hy", "DL", "N", "H"),
            shape("cy", "DL", "N", "H"),
            if_training(saved_shapes),
            formats_are_public,
            dropout_is_not_applied,
        ),
    )
)  # fmt: skip


lstm_backward = register(
    OpSpec(
        name="lstm_backward",
        aclnn="aclnnLstmBackward",
        summary="gradient of a whole LSTM",
        package=__package__,
        args=(
            Tensor("input", "input", FLOATS, generous=GENEROUS),
            TensorList("hx", "hx", FLOATS, generous=GENEROUS),
            TensorList("params", "params", FLOATS, generous=GENEROUS),
            *(Tensor(name, name, FLOATS, generous=GENEROUS, optional=True) for name in UPSTREAM),
            *(TensorList(name, name, FLOATS, generous=GENEROUS) for name in SAVED),
            Tensor("batch_sizes", "batchSizesOptional", (I64,), default=None),
            *_OPTIONS,
            BoolArray("output_mask", "outputMask", default=None),
        ),
        outs=(
            Out(
                "dx", "dxOut", FLOATS, shape_of("input"), dtype_of("input"), wanted=_wanted(0), generous=GENEROUS
            ),
            Out("dh_prev", "dhPrevOut", FLOATS, _state, dtype_of("input"), wanted=_wanted(1), generous=GENEROUS),
            Out("dc_prev", "dcPrevOut", FLOATS, _state, dtype_of("input"), wanted=_wanted(2), generous=GENEROUS),
            OutList(
                "dparams", "dparamsOut", FLOATS, lambda c: list(c.dims.param_shapes()), dtype_of("input"),
                wanted=_wanted(3), generous=GENEROUS,
            ),
        ),
        dims=_backward_dims,
        differences=differences.BACKWARD,
        skipped=differences.backward_is_skipped,
        unread=values_of_biases,
        flops=lambda call: call.dims.backward_flops(*(_wanted(k)(call) for k in (0, 1, 3))),
        rules=(
            required("input", "hx", "params"),
            documented(required(*UPSTREAM)),
            required(*SAVED, *OUTPUTS),
            layers_exist,
            null_where_coded(length(lambda _: 2, "hx")),
            null_where_coded(length(chain_count, *SAVED)),
            null_where_coded(length(param_count, "params", "dparams")),
            no_null_members("hx", "params", *SAVED, "dparams"),
            supported_dtypes(*FLOAT_PARAMS),
            same_dtype(FLOAT_PARAMS),
            supported_dtypes("batch_sizes"),
            sizes_are_readable,
            sequence_shape("input", directions=False),
            shape("hx", "DL", "N", "H"),
            sequence_shape("dx", directions=False),
            shape("dh_prev", "DL", "N", "H"),
            shape("dc_prev", "DL", "N", "H"),
            sequence_shape("dy", directions=True),
            shape("dh", "DL", "N", "H"),
            shape("dc", "DL", "N", "H"),
            param_shapes("params", "dparams"),
            saved_shapes,
            nd_format(*FLOAT_PARAMS, "batch_sizes", also=frozenset({NCL})),
            mask_has_four_entries,
            dropout_is_not_applied,
        ),
    )
)  # fmt: skip
