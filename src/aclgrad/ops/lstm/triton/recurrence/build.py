"""The recurrence that a choice stands for."""

from __future__ import annotations

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.operands import Given

from ..choose import Choice, choose
from ..fp16_split.split import SplitMatrix
from ..problem import Problem, Recurrence, precise_now
from .per_step.backward import PerStepBackwardRecurrence
from .per_step.cut import PerStep
from .per_step.forward import PerStepForwardRecurrence
from .persistent.backward import PersistentBackwardRecurrence
from .persistent.backward_cut import PersistentBackward
from .persistent.forward import PersistentForwardRecurrence
from .persistent.forward_cut import PersistentForward
from .row_owner.backward import RowOwnerRecurrence
from .row_owner.cut import RowOwner
from .warp_specialised.backward import WarpSpecialisedBackwardRecurrence
from .warp_specialised.cut import WarpSpecialisedBackward, WarpSpecialisedForward
from .warp_specialised.forward import WarpSpecialisedForwardRecurrence


def leaves_delta_split(choice: Choice) -> bool:
    """Whether the gate gradients are left split, and nowhere as they are."""
    return isinstance(choice.way, RowOwner | WarpSpecialisedBackward)


def backward(
    problem: Problem, choice: Choice, scratch: Scratch, w_hh: Piece, delta: Piece | None, split: SplitMatrix | None
) -> Recurrence:
    """The gradient's, which writes gate gradients to `delta` or leaves them `split`."""
    way = choice.way
    if isinstance(way, RowOwner | WarpSpecialisedBackward):
        assert split is not None
        kind = RowOwnerRecurrence if isinstance(way, RowOwner) else WarpSpecialisedBackwardRecurrence
        return kind(problem, choice, way, scratch, w_hh, split)
    assert delta is not None
    if isinstance(way, PersistentBackward):
        return PersistentBackwardRecurrence(problem, choice, way, scratch, w_hh, delta)
    assert isinstance(way, PerStep)
    return PerStepBackwardRecurrence(problem, choice, way, scratch, w_hh, delta)


class ForwardRecurrence:
    """The forward pass's, as precise as torch's switch says at the time of the call."""

    bias_sums = None
    row_amax = None

    def __init__(self, problem: Problem, scratch: Scratch) -> None:
        dims, split = problem.dims, problem.split(precise=True)
        self._dtype = problem.dtype
        h_buffer = scratch.tensor((2, dims.D, split, dims.N, problem.h_stride), problem.factor_dtype)
        precisions = (True, False) if split == 2 else (True,)
        self._by_precision = {precise: _forward(problem, precise, scratch, h_buffer) for precise in precisions}
        self._now().compile()

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        self._now()(workspace, given)

    def describe(self) -> str:
        """As it would run now."""
        return self._now().describe()

    def _now(self) -> _Forward:
        return self._by_precision[precise_now(self._dtype)]


_Forward = PerStepForwardRecurrence | PersistentForwardRecurrence | WarpSpecialisedForwardRecurrence


def _forward(problem: Problem, precise: bool, scratch: Scratch, h_buffer: Piece) -> _Forward:
    """For one precision. Kernels are compiled when they are first needed: few turn the switch."""
    choice = choose(problem, precise=precise)
    way = choice.way
    if isinstance(way, WarpSpecialisedForward):
        return WarpSpecialisedForwardRecurrence(problem, choice, way, scratch, h_buffer)
    if isinstance(way, PersistentForward):
        return PersistentForwardRecurrence(problem, precise, choice, way, scratch, h_buffer)
    assert isinstance(way, PerStep)
    return PerStepForwardRecurrence(problem, precise, choice, way, scratch, h_buffer)
