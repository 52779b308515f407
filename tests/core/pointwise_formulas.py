"""Formulas in Triton for `test_pointwise.py`."""

import triton.language as tl

from aclgrad.gpu.launch import jit


@jit
def _sum(x, y, z):
    total = x.to(tl.float32) + y.to(tl.float32)
    return total if z is None else total + z.to(tl.float32)


@jit
def _sum_and_difference(x, y):
    return x + y, x - y


@jit
def _twice(y):
    return y * 2


FORMULAS = {"sum": _sum, "both": _sum_and_difference, "twice": _twice}
