"""Operands that a kernel wants side by side along their last dimension: others are copied, there and back.

A kernel for every stride would have to be compiled for each. A copy is one more pass over what is rarely brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.memory import Piece, Scratch
from ..core.meta import Meta


def _is_plain(meta: Meta, dtype: torch.dtype | None) -> bool:
    return dtype in (None, meta.dtype) and (meta.shape[-1] <= 1 or meta.strides[-1] == 1)


class Copies:
    """Where the operands of a kernel lie: in their own memory, or, if they are copied, in pieces of the workspace.

    `metas` describe the operands, None what is absent; the last `results` of them are written. `strides` are those that
    the kernel finds. With a `dtype` whatever has another one is copied to it as well.
    """

    def __init__(
        self, metas: Sequence[Meta | None], results: int, scratch: Scratch, dtype: torch.dtype | None = None
    ) -> None:
        self._pieces: dict[int, Piece] = {}
        self._first_result = len(metas) - results
        self.strides: list[tuple[int, ...]] = []
        for k, meta in enumerate(metas):
            if meta is not None and not _is_plain(meta, dtype):
                self._pieces[k] = scratch.tensor(meta.shape, dtype or meta.dtype)
                self.strides.append(torch.empty(meta.shape, device="meta").stride())
            else:
                self.strides.append(() if meta is None else meta.strides)

    def bring(self, operands: Sequence[Any], workspace: torch.Tensor | None) -> list[int]:
        """The operands' addresses, 0 for None, after those that are read and lie elsewhere were copied."""
        if not self._pieces or workspace is None:
            return [0 if operand is None else operand.data_ptr() for operand in operands]
        found = list(operands)
        with torch.no_grad():
            for k, piece in self._pieces.items():
                found[k] = piece.view(workspace)
                if k < self._first_result:
                    found[k].copy_(operands[k])
        return [0 if operand is None else operand.data_ptr() for operand in found]

    def bring_back(self, operands: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Copy what the kernel wrote to where it belongs."""
        if not self._pieces or workspace is None:
            return
        with torch.no_grad():
            for k, piece in self._pieces.items():
                if k >= self._first_result:
                    operands[k].copy_(piece.view(workspace))
