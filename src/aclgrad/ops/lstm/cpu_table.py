"""What a launch tells the compiled layer: one row of 64-bit words, written in Python and read in the kernel.

First the sizes, then a block of views for each direction. A view is the address of a tensor's first element and its
strides in elements along time, batch and features; a tensor that is not there has address 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from ...cpu.compiler import jit


class Sizes(NamedTuple):
    """One layer's sizes. Hidden units come in blocks, as wide as a panel of B; rows of a step in panels of A."""

    steps: int
    batch: int
    hidden: int
    directions: int
    features: int  # of the layer's input
    sources: int  # tensors that the layer's input consists of, side by side
    chunk: int  # steps between two rounds of large products
    width: int  # hidden units in a block
    blocks: int
    height: int  # rows in a panel of a step's gate gradients
    panels: int
    tall: int  # rows in a panel of a chunk's gate gradients
    source_height: int  # features in a panel of one source
    state_height: int  # hidden units in a panel of previous states
    unit_strides: int  # 1 if the features of everything a step reads are contiguous


class View(NamedTuple):
    """Where a tensor lies."""

    address: int
    t: int
    n: int
    k: int


class Field(IntEnum):
    """The views of one direction."""

    BATCH_SIZES = 0
    # inputs
    I, J, F, O, TANHC, C, C0, H, H0 = range(1, 10)  # noqa: E741  the operator's letters
    DY, DH, DC, W_IH, W_HH, SOURCE0, SOURCE1 = range(10, 17)
    # outputs
    DX, DH_PREV, DC_PREV, DW_IH, DW_HH, DB_IH, DB_HH = range(17, 24)
    # scratch of the direction
    ROWS_BEFORE = 24  # int64 [T + 1]: rows of gate gradients before each step, in the order of the backward pass
    PACKED_IH = 25  # weights as B
    PACKED_HH = 26
    STATE_DH = 27  # [N, blocks·width]
    STATE_DC = 28
    PACKED_STEP = 29  # gate gradients of a step as A; the view's t leads in bytes to those of the step after
    DELTA = 30  # gate gradients of a chunk as B: 4·blocks panels
    DW = 31  # transposed weight gradients [features + H, 4·blocks·width]
    DB = 32  # float64 [4·blocks·width]
    # scratch of all directions
    PACKED_SOURCE0 = 33  # layer input and previous states of a chunk, transposed, as A
    PACKED_SOURCE1 = 34
    PACKED_STATE = 35
    PACKED_DELTA = 36  # gate gradients of a chunk as A
    DX_ROWS = 37  # [rows, features]
    GATHERED = 38  # what a step reads, made contiguous
    TURNED = 39  # tiles of weight gradients, turned back
    ZEROS = 40  # [H], in place of an absent dy


SIZE_WORDS, VIEW_WORDS = len(Sizes._fields), len(View._fields)
CHAIN_WORDS = VIEW_WORDS * len(Field)


class Layer(NamedTuple):
    """What every function of the kernel is handed: the layer as one thread of the team sees it.

    `element`, `real` and `wide` are pointers that count for their types: what tensors hold, what is computed in, what
    bias gradients are summed in.
    """

    thread: int
    threads: int
    words: Any
    sizes: Sizes
    element: Any
    real: Any
    wide: Any


@jit
def sizes_of(words: Any) -> Sizes:
    """The sizes at the head of the table."""
    return Sizes(
        words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7],
        words[8], words[9], words[10], words[11], words[12], words[13], words[14],
    )  # fmt: skip


@jit
def view(layer: Layer, direction: int, name: int) -> View:
    """A tensor of one direction."""
    at = SIZE_WORDS + direction * CHAIN_WORDS + name * VIEW_WORDS
    words = layer.words
    return View(words[at], words[at + 1], words[at + 2], words[at + 3])


@dataclass(frozen=True)
class Place:
    """A view whose address is known when the operands are: which operand, which member of a list, how many bytes in."""

    operand: int
    member: int | None
    offset: int
    strides: tuple[int, int, int] = (0, 0, 0)


@dataclass
class Table:
    """The words of one layer, complete but for the addresses."""

    words: list[int]
    places: list[tuple[int, Place]] = field(default_factory=list)

    @classmethod
    def of(cls, sizes: Sizes, chains: Sequence[dict[Field, Place]]) -> Table:
        """A table with these places for each direction."""
        table = cls([*sizes])
        for chain in chains:
            for name in Field:
                place = chain.get(name)
                if place is not None:
                    table.places.append((len(table.words), place))
                table.words += [0, *(place.strides if place is not None else (0, 0, 0))]
        return table

    def fill(self, operands: Sequence[Any]) -> array[int]:
        """The words with the addresses of these operands."""
        words = array("q", self.words)
        for position, place in self.places:
            tensor = operands[place.operand]
            if place.member is not None:
                tensor = tensor[place.member]
            words[position] = tensor.data_ptr() + place.offset
        return words
