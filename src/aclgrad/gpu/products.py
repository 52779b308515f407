"""Products by the vendor's library, into memory that is given, and what they are known to be like."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .launch import INTERPRETING

TILE = (128, 256)
"""Rows and columns of a large product that a multiprocessor takes at a time; our own products do likewise."""


class LibraryProduct(NamedTuple):
    """out = a · b, or out += a · b if it `adds`; of two or three dimensions, as `multiply` takes them.

    In a recurrence (`steps`) `a` is as it is before step 1, and lies `advance` elements further at every next step.
    """

    out: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    adds: bool = False
    advance: int = 0


def multiply(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, add: bool = False) -> None:
    """Write a · b, or add it to what is there, accumulated in float32 and rounded once to the type of `out`.

    That is the operands' type, or float32. Operands of three dimensions are as many products as the first one counts.
    """
    if INTERPRETING:  # on the CPU, where the library has no products of mixed types
        product = a.float() @ b.float()
        out.copy_(out + product if add else product)
        return
    plain, adding = (torch.mm, torch.addmm) if out.dim() == 2 else (torch.bmm, torch.baddbmm)
    if out.dtype == a.dtype:
        adding(out, a, b, out=out) if add else plain(a, b, out=out)
    else:
        wide = torch.float32
        adding(out, a, b, out_dtype=wide, out=out) if add else plain(a, b, out_dtype=wide, out=out)
