"""hardsigmoid on the CPU: one pass over any layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu.compiler import jit
from ...cpu.lanes import cast
from ...cpu.strided import TILE, Loops, elementwise
from ...cpu.threads import Kernel, team_size


@jit
def _gradient(grad: Any, x: Any) -> Any:
    wide = grad + x  # of the type the result is computed in; its value is not used
    return grad * cast(1 / 6, wide) if (x > -3.0) and (x < 3.0) else cast(0.0, wide)


_loops = elementwise(_gradient)


def _kernel(thread: int, threads: int, table: Any, grad: Any, x: Any, out: Any) -> None:
    _loops(thread, threads, table, (grad, x, out))


class HardsigmoidBackward:
    """Phase two of `hardsigmoid_backward`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        metas = [call[name] for name in ("grad_output", "x", "out")]
        loops = Loops.over(metas[0].shape, *(meta.strides for meta in metas))
        self._count = loops.count
        self._table = loops.table()
        self._table_address = self._table.data_ptr()
        self._kernel = Kernel(_kernel, (torch.int64, *loops.arguments(*(meta.dtype for meta in metas))))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x = args
        threads = team_size(self._count, TILE)
        self._kernel(threads, self._table_address, grad.data_ptr(), x.data_ptr(), outs[0].data_ptr())


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes and any strides."""
    return HardsigmoidBackward(call)
