"""What a launch tells the compiled layer: one row of 64-bit words, written in Python and read in the kernel.

First the sizes, then a block of views for each direction. A view is the address of a tensor's first element and its strides
in elements along time, batch and features; a tensor that is not there has address 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.memory import Piece
from ...cpu.compiler import jit


class Sizes(NamedTuple):
    """One layer's sizes; the rest of the table hangs on them."""

    steps: int
    batch: int
    hidden: int
    directions: int
    features: int  # of the layer's input
    sources: int  # tensors the layer's input consists of, side by side
    chunk: int  # steps between two rounds of large products
    width: int  # hidden units in a block: columns of a panel of B
    height: int  # rows of a panel of a step's gate gradients
    tall: int  # rows of a panel of a chunk's gate gradients
    source_height: int  # features in a panel of the layer's input
    state_height: int  # hidden units in a panel of the previous states
    unit_strides: int  # 1 if the features of everything a step reads are contiguous


class View(NamedTuple):
    """Where a tensor lies."""

    address: int
    t: int
    n: int
    k: int


FIELDS = (
    "batch_sizes",
    # inputs
    "i", "j", "f", "o", "tanhc", "c", "c0", "h", "h0", "dy", "dh", "dc", "w_ih", "w_hh", "source0", "source1",
    # outputs
    "dx", "dh_prev", "dc_prev", "dw_ih", "dw_hh", "db_ih", "db_hh",
    # scratch of one direction
    "row_of_step",  # int64 [T + 1]: rows of gate gradients before each step, in the order of the backward pass
    "packed_ih", "packed_hh",  # weights as B
    "state_dh", "state_dc",  # [N, blocks·width]
    "packed_step",  # gate gradients of two consecutive steps as A, [2] packed
    "delta",  # gate gradients of a chunk as B: [4·blocks] panels
    "dw",  # transposed weight gradients, [features + H, 4·blocks·width]
    "db",  # float64 [4·blocks·width]
    # scratch of all directions
    "packed_source", "packed_state",  # transposed layer input and previous states of a chunk as A
    "packed_delta",  # gate gradients of a chunk as A
    "dx_rows",  # [rows, features]
    "gathered",  # what a step reads, made contiguous
    "turned",  # tiles of transposed weight gradients
)  # fmt: skip

(
    BATCH_SIZES,
    I, J, F, O, TANHC, C, C0, H, H0, DY, DH, DC, W_IH, W_HH, SOURCE0, SOURCE1,
    DX, DH_PREV, DC_PREV, DW_IH, DW_HH, DB_IH, DB_HH,
    ROW_OF_STEP, PACKED_IH, PACKED_HH, STATE_DH, STATE_DC, PACKED_STEP, DELTA, DW, DB,
    PACKED_SOURCE, PACKED_STATE, PACKED_DELTA, DX_ROWS, GATHERED, TURNED,
) = range(len(FIELDS))  # fmt: skip

SIZE_WORDS, VIEW_WORDS = len(Sizes._fields), len(View._fields)
CHAIN_WORDS = VIEW_WORDS * len(FIELDS)


@jit
def sizes_of(words: Any) -> Sizes:
    """The layer's sizes."""
    return Sizes(
        words[0], words[1], words[2], words[3], words[4], words[5], words[6],
        words[7], words[8], words[9], words[10], words[11], words[12],
    )  # fmt: skip


@jit
def view(words: Any, direction: int, name: int) -> View:
    """A tensor of one direction."""
    at = SIZE_WORDS + direction * CHAIN_WORDS + name * VIEW_WORDS
    return View(words[at], words[at + 1], words[at + 2], words[at + 3])


@dataclass(frozen=True)
class Place:
    """A view whose address is known when the operands are: which operand, which member of a list, how many bytes in."""

    operand: int
    member: int | None
    offset: int
    strides: tuple[int, int, int]


@dataclass
class Table:
    """The words of one layer, complete but for the addresses."""

    words: list[int]
    places: list[tuple[int, Place]] = field(default_factory=list)

    @classmethod
    def of(cls, sizes: Sizes, chains: Sequence[dict[str, Place]]) -> Table:
        """A table with these places for each direction."""
        table = cls([*sizes])
        for chain in chains:
            for name in FIELDS:
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


def scratch(piece: Piece, operand: int, offset: int = 0) -> Place:
    """A piece of the workspace, which is the operand of this number."""
    return Place(operand, None, piece.offset + offset, (0, 0, 0))
