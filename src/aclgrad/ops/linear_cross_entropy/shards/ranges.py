"""Which rows of the vocabulary every rank has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ....core.agreement import agreement_of
from ....core.dispatch import is_watched
from ....core.errors import InvalidArgument, Unsupported, WrongType
from ..._shared.modules import require_int

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def even_ranges(rows: int, ranks: int) -> Ranges:
    """As DTensor cuts them: each rank has as many as the first, the last ones fewer or none.

    >>> even_ranges(5, 4)
    ((0, 2), (2, 4), (4, 5), (5, 5))
    """
    each = -(-rows // ranks)
    return tuple((min(rank * each, rows), min((rank + 1) * each, rows)) for rank in range(ranks))


def require_range(vocab: object) -> Range | None:
    """The argument `vocab`, a pair of numbers or None."""
    if vocab is None:
        return None
    if not isinstance(vocab, Sequence) or len(vocab) != 2:
        raise WrongType(f"vocab is {vocab!r}, expected (start, stop), the local rows of the vocabulary", "vocab")
    start, stop = (require_int("vocab", each) for each in vocab)
    if not 0 <= start <= stop:
        raise InvalidArgument(f"vocab is {(start, stop)}, expected 0 <= start <= stop", "vocab")
    return start, stop


def require_tiling(ranges: Sequence[Range]) -> Ranges:
    """Raise unless the ranks' rows follow each other without gaps, in the order of the ranks."""
    expected = 0
    for rank, (start, stop) in enumerate(ranges):
        if start != expected:
            raise InvalidArgument(
                f"vocab is {(start, stop)} on rank {rank}, expected it to begin at {expected}, where rank {rank - 1} "
                "ends"
                if rank
                else f"vocab is {(start, stop)} on rank 0, expected it to begin at 0",
                "vocab",
            )
        expected = stop
    return tuple((start, stop) for start, stop in ranges)


_told: Any = WeakIdKeyDictionary()
"""Weight → {(group, vocab): ranges}. Every rank comes with a weight for the first time in the same call."""


ASKED = "vocab: a graph cannot ask other ranks for their rows; use nn.VocabParallelLinearCrossEntropyLoss or a DTensor"


def ranges_of(group: Any, weight: Tensor, vocab: Range | None) -> Ranges:
    """What all ranks' weights are of the vocabulary: told once for every weight, by the group's store."""
    if torch.compiler.is_compiling():  # where the whole graph is wanted the compiler raises this; nothing else does
        torch._dynamo.graph_break(msg=ASKED)
    key, known = (group.group_name, vocab, weight.shape[0]), _told.setdefault(weight, {})
    if key not in known:
        if is_watched():
            raise Unsupported(f"{ASKED}, or call once before", "vocab")
        known[key] = tell_ranges(group, weight.shape[0], vocab)
    return known[key]  # type: ignore[no-any-return]


def tell_ranges(group: Any, rows: int, vocab: Range | None) -> Ranges:
    """Every rank's rows of the vocabulary, from what each has to say."""
    told = agreement_of(group).told({"rows": rows, "vocab": vocab})
    if any((words["vocab"] is None) != (vocab is None) for words in told):
        raise InvalidArgument("vocab is given on some ranks and absent on others, expected the same on all", "vocab")
    if vocab is not None:
        return require_tiling([tuple(words["vocab"]) for words in told])
    stop, ranges = 0, []
    for words in told:
        ranges.append((stop, stop + words["rows"]))
        stop += words["rows"]
    return tuple(ranges)


def module_ranges(rows: int, group: Any, vocab: object) -> Ranges:
    """Those of a module whose vocabulary has so many rows; all ranks make it at the same time."""
    mine = require_range(vocab)
    if mine is None:
        return even_ranges(rows, group.size())
    ranges = tell_ranges(group, mine[1] - mine[0], mine)
    if ranges[-1][1] != rows:
        raise InvalidArgument(f"vocab ends at {ranges[-1][1]} on the last rank, expected num_classes = {rows}", "vocab")
    return ranges
