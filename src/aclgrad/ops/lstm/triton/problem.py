"""What a recurrence is made for, what it must do, and the kernels it has for either precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from aclgrad.core.memory import Piece

from ..spec import LstmDims
from .moves import Strides


class Recurrence(Protocol):
    """From the saved activations to the gate gradients of all steps and the gradients of the initial states."""

    @property
    def groups(self) -> int:
        """Rows of `sums`."""

    @property
    def sums(self) -> Piece | None:
        """[groups, D · 4H]: sums of gate gradients that add up to the bias gradients, if they fall off."""

    @property
    def peaks(self) -> Piece | None:
        """Peaks of the rows [T · N], if the gate gradients are made as parts, their rows scaled each by itself."""

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, w_hh: Piece, operands: Sequence[Any]) -> None:
        """Compute delta with w_hh [D, H, 4H]; the operands stand in the order of the kernels' further parameters.

        There is no delta where it is made as parts.
        """


@dataclass(frozen=True)
class Problem:
    """What a recurrence is made for.

    `present` tells of dy, dh, dc, dh_prev, dc_prev which are there; `strides` are those of the saved activations, c0,
    dy and the states (direction, row, unit), then of the gate gradients (step, row).
    """

    dims: LstmDims
    dtype: torch.dtype
    device: torch.device
    present: tuple[bool, ...]
    strides: tuple[Strides, ...]

    @property
    def dtypes(self) -> tuple[torch.dtype | None, ...]:
        """Of all pointers up to `sizes`."""
        optional = [self.dtype if there else None for there in self.present]
        return (*(self.dtype,) * 15, *optional, torch.int64 if self.dims.variable else None)

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers of every kernel."""
        return (self.dims.T, self.dims.N, *self.strides)

    @property
    def reach(self) -> int:
        """The largest offset within one step."""
        batch, width = self.dims.N, self.dims.D * self.dims.H
        *others, (_, gates_row) = self.strides
        reaches = [abs(of[0]) + batch * abs(of[1]) + width * abs(of[-1]) for of in others]
        return max(*reaches, batch * gates_row + 4 * width)


AnyKernel = TypeVar("AnyKernel")


class ByPrecision(Generic[AnyKernel]):
    """A kernel that multiplies float32 as torch's switch for matrix products says at the time of the call."""

    def __init__(self, problem: Problem, make: Callable[[bool], AnyKernel]) -> None:
        self._make = make
        self._float32 = problem.dtype == torch.float32
        self._kernels: dict[bool, AnyKernel] = {}
        self.now()

    @property
    def precise(self) -> bool:
        """Whether the switch, as it stands, wants all of float32."""
        return not (self._float32 and torch.backends.cuda.matmul.allow_tf32)

    def now(self) -> AnyKernel:
        """The kernel for the switch as it stands."""
        precise = self.precise
        if precise not in self._kernels:
            self._kernels[precise] = self._make(precise)
        return self._kernels[precise]
