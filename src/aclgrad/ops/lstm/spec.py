"""Contract of aclnnLstmBackward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...core.errors import InvalidArgument
from ...core.registry import register
from ...core.rules import (
    dtype_of,
    length,
    nd_format,
    no_null_members,
    rank,
    require_shape,
    required,
    same_dtype,
    shape,
    shape_of,
    strictly,
    supported_dtypes,
)
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

log = logging.getLogger("aclgrad")

FLOATS = (F32, F16)
GENEROUS = (BF16, F64)
NCL = 47  # aclFormat; the vendor's later code asks for it where the document says ND
SAVED = ("i", "j", "f", "o", "h", "c", "tanhc")
UPSTREAM = ("dy", "dh", "dc")
OUTPUTS = ("dx", "dh_prev", "dc_prev", "dparams")
FLOAT_PARAMS = ("input", *UPSTREAM, "dx", "dh_prev", "dc_prev", "hx", "params", *SAVED, "dparams")


class LstmDims(NamedTuple):
    """T steps, N sequences, I inputs, H hidden units, L layers, D directions, B = 2 with bias else 1.

    `variable` marks sequences of different lengths: rows t·N + n of 2-D tensors instead of 3-D ones.
    """

    T: int
    N: int
    I: int  # noqa: E741  the document's letter
    H: int
    L: int
    D: int
    B: int
    variable: bool
    batch_first: bool

    @property
    def DL(self) -> int:
        """Chains: one per layer and direction."""
        return self.D * self.L

    def layer_input(self, layer: int) -> int:
        """Features a layer reads at each step."""
        return self.I if layer == 0 else self.D * self.H

    def sequence(self, features: int) -> tuple[int, ...]:
        """Shape of input, dy or dx with this many features."""
        if self.variable:
            return (self.T * self.N, features)
        return (self.N, self.T, features) if self.batch_first else (self.T, self.N, features)

    def param_shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of params in order: per layer and direction w_ih, w_hh, then b_ih, b_hh with bias."""
        for layer in range(self.L):
            for _ in range(self.D):
                yield (4 * self.H, self.layer_input(layer))
                yield (4 * self.H, self.H)
                if self.B == 2:
                    yield (4 * self.H,)
                    yield (4 * self.H,)


def _directions(call: Call) -> int:
    return 2 if call["bidirectional"] else 1


def _dims(call: Call) -> LstmDims:
    variable, batch_first = call["batch_sizes"] is not None, bool(call["batch_first"])
    steps = call["batch_sizes"].shape[0] if variable else call["input"].shape[1 if batch_first else 0]
    _, batch, hidden = call["i"][0].shape
    return LstmDims(
        steps, batch, call["input"].shape[-1], hidden, call["num_layers"], _directions(call),
        2 if call["has_bias"] else 1, variable, batch_first,
    )  # fmt: skip


def layers_exist(call: Call) -> None:
    """There is at least one layer."""
    if call["num_layers"] <= 0:
        label = call.label("num_layers")
        raise InvalidArgument(f"{label} is {call['num_layers']}, expected more than 0", label)


def sizes_are_readable(call: Call) -> None:
    """The tensors the sizes are read from have the ranks to read them."""
    input_rank = 3 if call["batch_sizes"] is None else 2
    rank(3, 3, "i")(call)
    rank(input_rank, input_rank, "input")(call)
    rank(1, 1, "batch_sizes")(call)


def sequence_shape(name: str, directions: bool) -> Rule:
    """input, dx: I features; dy: D·H."""

    def check(call: Call) -> None:
        dims = call.dims
        features = dims.D * dims.H if directions else dims.I
        symbols = ("T*N" if dims.variable else "N, T" if dims.batch_first else "T, N") + (
            ", D*H" if directions else ", I"
        )
        for label, meta in call.metas(name):
            require_shape(label, meta, dims.sequence(features), f"[{symbols}]")

    return check


def param_shapes(call: Call) -> None:
    """Every weight and bias and its gradient."""
    for name in ("params", "dparams"):
        for (label, meta), expected in zip(call.metas(name), call.dims.param_shapes(), strict=False):
            require_shape(label, meta, expected)


def mask_has_four_entries(call: Call) -> None:
    """dx, dh_prev, dc_prev, dparams. The aclnn door ignores the mask, as documented."""
    mask = call["output_mask"]
    if mask is not None and len(mask) != len(OUTPUTS) and not call.strict:
        raise InvalidArgument(f"output_mask has {len(mask)} entries, expected {len(OUTPUTS)}", "output_mask")


def dropout_is_not_applied(call: Call) -> None:
    """The operator has no dropout mask among its arguments; it takes the saved activations as they are."""
    if call["dropout"] != 0 and not _mentioned:
        _mentioned.append(True)
        log.warning("%s: dropout = %s is accepted and ignored", call.spec.aclnn, call["dropout"])


_mentioned: list[bool] = []


def _wanted(index: int) -> Callable[[Call], bool]:
    def wanted(call: Call) -> bool:
        mask = call["output_mask"]
        return bool(call.strict or mask is None or mask[index])

    return wanted


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
            *(Tensor(name, name, FLOATS, generous=GENEROUS) for name in UPSTREAM),
            *(TensorList(name, name, FLOATS, generous=GENEROUS) for name in SAVED),
            Tensor("batch_sizes", "batchSizesOptional", (I64,)),
            Flag("has_bias", "hasBias"),
            Int("num_layers", "numLayers"),
            Float("dropout", "dropout"),
            Flag("train", "train"),
            Flag("bidirectional", "bidirectional"),
            Flag("batch_first", "batchFirst"),
            BoolArray("output_mask", "outputMask"),
        ),
        outs=(
            Out(
                "dx", "dxOut", FLOATS, shape_of("input"), dtype_of("input"), wanted=_wanted(0), generous=GENEROUS
            ),
            Out(
                "dh_prev", "dhPrevOut", FLOATS, lambda c: (c.dims.DL, c.dims.N, c.dims.H), dtype_of("input"),
                wanted=_wanted(1), generous=GENEROUS,
            ),
            Out(
                "dc_prev", "dcPrevOut", FLOATS, lambda c: (c.dims.DL, c.dims.N, c.dims.H), dtype_of("input"),
                wanted=_wanted(2), generous=GENEROUS,
            ),
            OutList(
                "dparams", "dparamsOut", FLOATS, lambda c: list(c.dims.param_shapes()), dtype_of("input"),
                wanted=_wanted(3), generous=GENEROUS,
            ),
        ),
        dims=_dims,
        rules=(
            required("input", "hx", "params"),
            strictly(required(*UPSTREAM)),
            required(*SAVED, *OUTPUTS),
            layers_exist,
            length(lambda _: 2, "hx"),
            length(lambda call: _directions(call) * call["num_layers"], *SAVED),
            length(
                lambda call: 2 * _directions(call) * (2 if call["has_bias"] else 1) * call["num_layers"],
                "params", "dparams",
            ),
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
            param_shapes,
            *(shape(name, "T", "N", "H") for name in SAVED),
            nd_format(*FLOAT_PARAMS, "batch_sizes", also=frozenset({NCL})),
            mask_has_four_entries,
            dropout_is_not_applied,
        ),
    )
)  # fmt: skip
