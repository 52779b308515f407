"""What a launch passes to the compiled layer: one row of 64-bit words, written in Python and read in the kernel.

First the sizes, then a block of views for each direction. A view is the address of a tensor's first element and its
strides in elements along time, batch and features; a tensor that is not there has address 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from aclgrad.cpu.compiler import jit


class Sizes(NamedTuple):
    """One layer's sizes. Hidden units come in blocks, as wide as a panel of B; rows of a step in panels of A."""

    steps: int
    batch: int
    hidden: int
    directions: int
    features: int  # of the layer's input
    sources: int  # tensors that the layer's input consists of, side by side
    capacity: int  # rows that the steps between two rounds of large products may have, but for a single step
    width: int  # hidden units in a block
    blocks: int
    height: int  # rows in a panel of a step's gate gradients
    panels: int
    busy: int  # panels that the rows of an average step fill
    tall: int  # rows in a panel of a chunk's gate gradients
    source_height: int  # features in a panel of one source
    state_height: int  # hidden units in a panel of previous states
    unit_strides: int  # 1 if the features of everything a step touches are contiguous
    training: int  # 1 if the forward pass saves activations
    packed: int  # 1 if rows of all sequences that have a time follow those of the time before, without padding


class View(NamedTuple):
    """Where a tensor lies. Of packed sequences a row has an index along t, that of its time's first one, and n."""

    address: int
    t: int
    n: int
    k: int


class Field(IntEnum):
    """The views of one direction."""

    BATCH_SIZES = 0
    # activations: inputs of the gradient, outputs of the forward pass
    I, J, F, O, TANHC, C, H = range(1, 8)  # noqa: E741  the operator's letters
    # inputs
    H0, C0, DY, DH, DC, W_IH, W_HH, B_IH, B_HH, SOURCE0, SOURCE1 = range(8, 19)
    # outputs
    Y, HY, CY, DX, DH_PREV, DC_PREV, DW_IH, DW_HH, DB_IH, DB_HH = range(19, 29)
    # scratch of the direction
    ROWS_UNTIL = 29  # int64 [T + 1], of both directions: rows that are computed before each time
    PACKED_IH = 30  # weights as B
    PACKED_HH = 31
    STATE_DH = 32  # [N, blocks·width]
    STATE_DC = 33
    PACKED_STEP = 34  # what a step leaves for the step after as A; the view's t leads in bytes to those of the latter
    DELTA = 35  # gate gradients of a chunk as B: 4·blocks panels
    DW = (
        36  # transposed weight gradients; the view's t leads to the next row, n to the next of k threads' slots, if any
    )
    DB = 37  # float64 [4·blocks·width]
    BIAS = 38  # [4·blocks·width], block by block the four gates, as in the panels of the forward pass's weights
    GATES = 39  # [rows, 4·blocks·width], what the gates of a chunk are activated from
    COLLECTED = 40  # [rows, features], the layer's input of a chunk where it does not lie evenly
    # scratch of all directions, but in the forward pass of each
    PACKED_SOURCE0 = 41  # layer input and previous states of a chunk, transposed, as A; in the forward pass not so
    PACKED_SOURCE1 = 42
    PACKED_STATE = 43
    PACKED_DELTA = 44  # gate gradients of a chunk as A
    DX_ROWS = 45  # [rows, features]
    GATHERED = 46  # what a step reads or writes, made contiguous
    TURNED = 47  # tiles of weight gradients, turned back
    ZEROS = 48  # [H], in place of an absent dy or of a state that is zero
    RESET = 49  # an input: bools [T, N], between which times a state is dropped
    ANEW = 50  # scratch of the direction, int64 [T, N], its t in bytes: whether a row starts a time from zeros


SIZE_WORDS, VIEW_WORDS = len(Sizes._fields), len(View._fields)
CHAIN_WORDS = VIEW_WORDS * len(Field)


class Layer(NamedTuple):
    """What every function of the kernel is handed: the layer as one thread sees it.

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
        words[8], words[9], words[10], words[11], words[12], words[13], words[14], words[15], words[16], words[17],
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
