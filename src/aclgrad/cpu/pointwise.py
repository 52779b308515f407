"""Element-wise launches on the CPU: a formula, the names of its operands, any layout.

A family writes the formula of one element as a compiled function and names the operands:

    @jit
    def _gradient(grad, x):
        return grad if x > 0.0 else cast(0.0, grad)

    def relu_backward(call):
        return Pointwise(call, _gradient, ("grad_output", "x"))

The formula gets numbers (half types as float32, integers as int64), and what it returns is rounded once to the dtype of
the output. Of several outputs it returns a tuple. An input that the call does not have is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ..core.pointwise import PointwiseOperands
from ..core.spec import Call
from .strided import Loops, Reach, elementwise
from .threads import Kernel


@cache
def _kernel(formula: Any, outs: int) -> Any:
    """The kernel `(thread, threads, table, staging, *operands)` of a formula."""
    loops = elementwise(formula, outs)

    def pointwise(thread: int, threads: int, table: Any, staging: Any, *operands: Any) -> None:
        loops(thread, threads, table, staging, operands)

    # Machine code is kept on disk by this name: two formulas of equal types must not be taken for each other.
    pointwise.__name__ = f"pointwise_{formula.__module__}_{formula.__qualname__}".replace(".", "_")
    return pointwise


class Pointwise:
    """Phase two of an element-wise operator: `outs = formula(*inputs)` for every element.

    `formula` is a compiled function of numbers. `inputs` and `outs` are names of the contract, in the formula's order;
    what is updated in place stands in both. All operands have one shape; dtypes and strides may be any.
    """

    workspace = 0

    def __init__(self, call: Call, formula: Any, inputs: Sequence[str], outs: Sequence[str] = ("out",)) -> None:
        operands = PointwiseOperands(call, inputs, outs)
        standing = (0,) * len(operands.shape)  # an absent operand's strides
        loops = Loops.over(operands.shape, *(steps or standing for steps in operands.spread(operands.strides)))
        self._pick = operands.present
        self._reach = Reach(loops, operands.spread(operands.dtypes), len(outs))
        self._kernel = Kernel(_kernel(formula, len(outs)), self._reach.signature)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        tensors = (*args, *outs)
        if self._pick is not None:
            tensors = self._pick(tensors)
        self._reach.run(self._kernel, [tensor.data_ptr() for tensor in tensors])

    def describe(self) -> str:
        """In words."""
        return self._reach.describe()
