"""What a recurrence is made for, what it must do, and torch's switch for its precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from aclgrad.core.memory import Piece
from aclgrad.gpu.operands import Given, Operand
from aclgrad.gpu.products import allows_tf32

from ..dims import LstmDims
from .fp16_split.split import aligned
from .moves import Strides
from .packed import PackedRows

BACKWARD_SAVED = ("i", "f", "g", "o", "tanhc", "c")
FORWARD_SAVED = ("i", "g", "f", "o", "h", "c", "tanhc")
"""The activations that kernels of a pass read or write, in their order; `g` is the contract's `j`."""


class Recurrence(Protocol):
    """All steps of a layer in one pass.

    Forward: from what the layer's input gives the gates to all states. Backward: from the saved activations to the gate
    gradients of all steps and the gradients of the initial states.
    """

    @property
    def bias_sums(self) -> Piece | None:
        """[groups, D · 4H]: sums of gate gradients that add up to the bias gradients, if they are made on the way."""

    @property
    def row_amax(self) -> Piece | None:
        """[rows]: the amax of each row of the gate gradients, if they are left split with a scale for each row."""

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; the operands that do not lie in the recurrence's own workspace are given by name."""

    def describe(self) -> str:
        """How the steps are run, in one line."""


@dataclass(frozen=True)
class Problem:
    """What a recurrence is made for.

    `present` names the optional operands that are there. `strides` are those of operands by name, in the order of the
    kernels' parameters: (step, row) of gates or gate gradients, (direction, row, unit) of states, (step, row, unit) of
    saved activations, (step, row, direction, unit) of dy or the output. `anew` has which rows start a step from zeros,
    `packed` where those of a step lie.
    """

    dims: LstmDims
    dtype: torch.dtype
    device: torch.device
    forward: bool
    present: frozenset[str]
    strides: Mapping[str, Strides]
    anew: Piece | None = None
    packed: PackedRows | None = None

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that all kernels of the pass take."""
        return {"T": self.dims.T, "N": self.dims.N, **{f"{name}_strides": of for name, of in self.strides.items()}}

    @property
    def max_offset(self) -> int:
        """The largest offset in elements within one step."""
        batch, width = self.dims.N, self.dims.D * self.dims.H

        def of(strides: Strides) -> int:
            if len(strides) == 2:
                return batch * strides[1] + 4 * width
            return abs(strides[0]) + batch * abs(strides[1]) + width * abs(strides[-1])

        h_buffer = 4 * self.dims.D * batch * self.h_stride if self.forward else 0
        return max(h_buffer, *map(of, self.strides.values()))

    @property
    def h_stride(self) -> int:
        """Elements from one row of h to the next, where programs exchange it."""
        return aligned(self.dims.H)

    @property
    def factor_dtype(self) -> torch.dtype:
        """What the forward pass multiplies: float32 is split."""
        return torch.float16 if self.dtype == torch.float32 else self.dtype

    def split(self, precise: bool) -> int:
        """In how many parts the forward pass multiplies h and w_hh: high and low, or one."""
        return 2 if self.dtype == torch.float32 and precise else 1

    def given(self, precise: bool = True) -> list[Operand]:
        """The operands that all kernels of the pass are given, in their order."""
        return self._given_forward(precise) if self.forward else self._given_backward()

    def _given_backward(self) -> list[Operand]:
        return [
            *(Operand(f"{name}{direction}", self.dtype) for direction in (0, 1) for name in BACKWARD_SAVED),
            Operand("c_init", self.dtype),
            *(self._optional(name, self.dtype) for name in ("dy", "dh", "dc", "dh_prev", "dc_prev")),
            *self._lengths(),
        ]

    def _given_forward(self, precise: bool) -> list[Operand]:
        half, float32 = self.factor_dtype, self.dtype == torch.float32
        return [
            Operand("w_hh", half),
            Operand("w_hh_low", half if self.split(precise) == 2 else None),
            Operand("w_hh_amax", torch.int32 if float32 else None),
            Operand("gates", torch.float32),
            self._optional("x_amax", torch.int32),
            self._optional("w_ih_amax", torch.int32),
            self._optional("bias", torch.float32),
            self._optional("h0_product", torch.float32),
            self._optional("h_init", self.dtype),
            self._optional("c_init", self.dtype),
            *(Operand(name, self.dtype) for name in ("output", "hy", "cy")),
            *(
                Operand(f"{name}{direction}", self.dtype if "saved" in self.present else None)
                for direction in (0, 1)
                for name in FORWARD_SAVED
            ),
            *self._lengths(),
        ]

    def _lengths(self) -> list[Operand]:
        """How many rows a step has, and where they lie."""
        if self.packed is not None:
            return self.packed.operands()
        return [self._optional("batch_sizes", torch.int64), Operand("starts", None)]

    def _optional(self, name: str, dtype: torch.dtype) -> Operand:
        return Operand(name, dtype if name in self.present else None)


def precise_now(dtype: torch.dtype) -> bool:
    """Whether torch's switch for matrix products, as it stands, wants all of the dtype's precision."""
    return not (dtype == torch.float32 and allows_tf32())


UNKNOWN = ("T",)
"""Numbers of which compilers learn nothing: the machine code of all recurrences is the same for any length but 1."""

AnyKernel = TypeVar("AnyKernel")


class ByPrecision(Generic[AnyKernel]):
    """A kernel that multiplies float32 as torch's switch says at the time of the call.

    The one for the switch as it stands is compiled at once, the other when it is first needed: few turn the switch.
    """

    def __init__(self, dtype: torch.dtype, make: Callable[[bool], AnyKernel]) -> None:
        self._dtype, self._make = dtype, make
        self._kernels: dict[bool, AnyKernel] = {}
        self.now()

    @property
    def precise(self) -> bool:
        """As the switch stands."""
        return precise_now(self._dtype)

    def now(self) -> AnyKernel:
        """The kernel for the switch as it stands."""
        precise = self.precise
        if precise not in self._kernels:
            self._kernels[precise] = self._make(precise)
        return self._kernels[precise]
