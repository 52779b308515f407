"""What the kernels of a single step have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

STEP_SUM_LENGTH = tl.constexpr(128)
"""Terms of float32 that a matrix unit may sum in a step: all later steps inherit the error."""


def jit_step(function: Callable[..., Any]) -> Any:
    """A Triton function whose number `step` does not change its code."""
    return triton.jit(function, do_not_specialize=["step"])
