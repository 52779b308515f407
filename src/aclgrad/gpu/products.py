"""Products by the vendor's library, into memory that is given."""

from __future__ import annotations

import torch

from .launch import INTERPRETING


def multiply(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, add: bool = False) -> None:
    """Write a · b, or add it to what is there, accumulated in float32 and rounded once to the type of `out`.

    That is the operands' type, or float32.
    """
    if INTERPRETING:  # on the CPU, where the library has no products of mixed types
        product = a.float() @ b.float()
        out.copy_(out + product if add else product)
    elif out.dtype == a.dtype:
        torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)
    else:
        wide = torch.float32
        torch.addmm(out, a, b, out_dtype=wide, out=out) if add else torch.mm(a, b, out_dtype=wide, out=out)
