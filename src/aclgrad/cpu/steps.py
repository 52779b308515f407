"""Kernels that a launch runs one after the other, with the places of their operands found in phase one.

An operand lies in one of the tensors of a call or somewhere in the workspace. Phase one says where, as an offset from
one of these; phase two has their addresses, and adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, itemgetter
from typing import Any, NamedTuple

import torch

from ..core.meta import Meta
from ..core.spec import Call
from .threads import Kernel
from .workspace import ThreadWorkspace


class Place(NamedTuple):
    """An address of phase two: bytes behind one of the `bases`."""

    base: int
    offset: int

    def at(self, offset: int) -> Place:
        """So many bytes further on."""
        return Place(self.base, self.offset + offset)


WORKSPACE = Place(0, 0)


class Step:
    """A kernel and the places of its first arguments; it knows the others (`Kernel.fixed`)."""

    __slots__ = ("_bases", "_kernel", "_offsets", "_start", "_threads")

    def __init__(self, kernel: Kernel, places: Sequence[Place], threads: ThreadWorkspace | None = None) -> None:
        """One thread runs it, or those whose `threads` have memory of their own where the first place is."""
        self._kernel, self._threads, self._start = kernel, threads, places[0].offset
        self._bases = itemgetter(*[place.base for place in places])
        self._offsets = [place.offset for place in places]

    def __call__(self, bases: Sequence[int], room: int) -> None:
        """Run it; the workspace has `room` for so many bytes."""
        threads = 1 if self._threads is None else self._threads.threads_in(room - self._start)
        self._kernel(threads, *map(add, self._bases(bases), self._offsets))


class Bases:
    """The addresses that places begin at: the workspace's, then those of a call's tensors."""

    def __init__(self, call: Call) -> None:
        names = list(call.spec.params)
        self._positions = [k for k, name in enumerate(names) if isinstance(call[name], Meta)]
        self.places: Mapping[str, Place] = {names[k]: Place(1 + n, 0) for n, k in enumerate(self._positions)}

    def __call__(self, tensors: Sequence[Any], workspace: torch.Tensor) -> list[int]:
        """Of these arguments and outputs."""
        return [workspace.data_ptr(), *[tensors[k].data_ptr() for k in self._positions]]
