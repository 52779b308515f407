"""The sizes of an LSTM and the rules that both of its contracts share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...core.errors import InvalidArgument
from ...core.rules import require_shape
from ...core.spec import Call, Rule

SAVED = ("i", "j", "f", "o", "h", "c", "tanhc")


class LstmDims(NamedTuple):
    """T steps, N sequences, I inputs, H hidden units, L layers, D directions, B = 2 with bias else 1.

    `variable` marks sequences of different lengths: rows t·N + n of 2-D tensors instead of 3-D ones. `total` is their
    number where they are packed: without padding, the first batch_sizes[0] rows of time 0, then those of time 1. P is
    what a module projects h to, 0 if it does not; operators do not.
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
    P: int = 0
    total: int | None = None

    @property
    def DL(self) -> int:
        """Chains: one per layer and direction."""
        return self.D * self.L

    @property
    def rows(self) -> int:
        """Positions of all sequences, with their padding unless they are packed."""
        return self.T * self.N if self.total is None else self.total

    def layer_input(self, layer: int) -> int:
        """Features a layer reads at each step."""
        return self.I if layer == 0 else self.D * (self.P or self.H)

    def sequence(self, features: int) -> tuple[int, ...]:
        """Shape of input, dy or dx with this many features."""
        return (self.rows, features) if self.variable else self.output(features)

    def output(self, features: int) -> tuple[int, ...]:
        """Shape of the output, which has three dimensions also where lengths vary, unless it is packed."""
        if self.total is not None:
            return self.total, features
        if self.batch_first and not self.variable:
            return self.N, self.T, features
        return self.T, self.N, features

    def saved(self) -> tuple[int, ...]:
        """Shape of a saved activation."""
        return (self.T, self.N, self.H) if self.total is None else (self.total, self.H)

    def forward_flops(self) -> int:
        """Two products per chain: of every step's input with w_ih, and of its state with w_hh."""
        return sum(2 * self.rows * math.prod(shape) for shape in self.param_shapes() if len(shape) == 2)

    def backward_flops(self, dx: bool, dh_prev: bool, dparams: bool) -> int:
        """Up to four: for each weight its gradient, and that of what it multiplies; h0's alone may be left out."""
        count = 0
        for layer in range(self.L):
            features = self.layer_input(layer)
            inputs = self.rows * features * (dx or layer > 0)
            states = max(self.rows - (not dh_prev) * self.N, 0) * self.H
            weights = self.rows * (features + self.H) * dparams
            count += self.D * 2 * 4 * self.H * (inputs + states + weights)
        return count

    def param_shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of params in order: per layer and direction w_ih, w_hh, then b_ih, b_hh with bias, w_hr with P."""
        for layer in range(self.L):
            for _ in range(self.D):
                yield (4 * self.H, self.layer_input(layer))
                yield (4 * self.H, self.P or self.H)
                if self.B == 2:
                    yield (4 * self.H,)
                    yield (4 * self.H,)
                if self.P:
                    yield (self.P, self.H)


def dims_of(call: Call, steps: int, batch: int, hidden: int) -> LstmDims:
    """The sizes, given those that each operator reads from tensors of its own."""
    return LstmDims(
        steps, batch, call["input"].shape[-1], hidden, call["num_layers"], directions(call),
        2 if call["has_bias"] else 1, call["batch_sizes"] is not None, bool(call["batch_first"]),
    )  # fmt: skip


def directions(call: Call) -> int:
    """One or two."""
    return 2 if call["bidirectional"] else 1


def steps_of(call: Call) -> int:
    """T, by the counts where lengths vary, else by the input."""
    counts = call["batch_sizes"]
    steps: int = call["input"].shape[1 if call["batch_first"] else 0] if counts is None else counts.shape[0]
    return steps


def chain_count(call: Call) -> int:
    """Members of a list of saved activations."""
    return int(directions(call) * call["num_layers"])


def param_count(call: Call) -> int:
    """Members of params: weights and, with bias, as many biases."""
    return 2 * (2 if call["has_bias"] else 1) * chain_count(call)


def layers_exist(call: Call) -> None:
    """There is at least one layer."""
    if call["num_layers"] <= 0:
        label = call.label("num_layers")
        raise InvalidArgument(f"{label} is {call['num_layers']}, expected more than 0", label)


def states_are_a_pair(call: Call) -> None:
    """h0 and c0; none at all stands for zeros."""
    if call["hx"] is not None and len(call["hx"]) not in (0, 2):
        label = call.label("hx")
        raise InvalidArgument(f"{label} has {len(call['hx'])} tensors, expected 2 or none", label)


def sequence_shape(name: str, directions: bool) -> Rule:
    """input, dx: I features; dy: D·H."""

    def check(call: Call) -> None:
        dims = call.dims
        features = dims.D * dims.H if directions else dims.I
        rows = "N, T" if dims.batch_first else "T, N"
        if dims.variable:
            rows = "T*N" if dims.total is None else "total length"
        symbols = rows + (", D*H" if directions else ", I")
        for label, meta in call.metas(name):
            require_shape(label, meta, dims.sequence(features), f"[{symbols}]")

    return check


def output_shape(call: Call) -> None:
    """output: D·H features."""
    symbols = "[N, T, D*H]" if call.dims.batch_first and not call.dims.variable else "[T, N, D*H]"
    if call.dims.total is not None:
        symbols = "[total length, D*H]"
    for label, meta in call.metas("output"):
        require_shape(label, meta, call.dims.output(call.dims.D * call.dims.H), symbols)


def saved_shapes(call: Call) -> None:
    """Every saved activation."""
    symbols = "[T, N, H]" if call.dims.total is None else "[total length, H]"
    for label, meta in call.metas(*SAVED):
        require_shape(label, meta, call.dims.saved(), symbols)


def param_shapes(*names: str) -> Rule:
    """Every weight and bias, or its gradient."""

    def check(call: Call) -> None:
        for name in names:
            for (label, meta), expected in zip(call.metas(name), call.dims.param_shapes(), strict=False):
                require_shape(label, meta, expected)

    return check
