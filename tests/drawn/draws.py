"""How a test draws: many small random problems, as many as there is time for, and all that is wrong at the end."""

import datetime
import math
import os
import random
import time

import torch

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", torch.cuda.current_device()) if GPU else torch.device("cpu")
SEED = int(os.environ.get("ACLGRAD_TEST_SEED") or (time.time_ns() >> 20 if GPU else datetime.date.today().toordinal()))
"""Of a GPU's run its moment, of a CPU's its day."""

BACKEND = os.environ.get("ACLGRAD_TEST_BACKEND")
"""Of operators; "triton" without a GPU has its interpreter run them. None: that of the device."""

ONE = os.environ.get("ACLGRAD_TEST_DRAW")
SECONDS = float(os.environ.get("ACLGRAD_TEST_SECONDS", "20" if GPU else "1"))
"""After which no further draw begins."""

COUNT = os.environ.get("ACLGRAD_TEST_DRAWS")
"""Of each test, if not as many as it says."""

SHOWN, LINE = 6, 500  # messages of a test, characters of each
FATAL = ("illegal memory access", "device-side assert", "unspecified launch failure", "misaligned address")


class Dice(random.Random):
    """Draws a problem; `values()` is a seed for its numbers, another one in each of its turns."""

    turn = 0

    def values(self):
        return self.randrange(1 << 30) + self.turn


JUDGED, TURNS = " (allowed ", 3
"""The rule asks how far a naive run is off. In a handful of numbers that may be nothing at all, by luck; not thrice."""


def every_draw(name, check, most):
    """`check(dice, say)` for at most so many draws; what it says of a draw stands before what is wrong with it.

    What the rule of tolerance finds wrong is wrong if it is so in every turn, with other values each.
    """
    wrong, end = [], time.monotonic() + SECONDS
    for k in range(int(COUNT or most)) if ONE is None else (int(ONE),):
        if k and ONE is None and time.monotonic() > end:
            break
        print(f"{name}, draw {k} of ACLGRAD_TEST_SEED={SEED}", flush=True)
        found = _found(f"{name} {SEED} {k}", check)
        if found:
            wrong.append(f"ACLGRAD_TEST_SEED={SEED} ACLGRAD_TEST_DRAW={k}: {found}")
            if any(word in found for word in FATAL):
                break  # nothing more runs in this process
    assert not wrong, f"{len(wrong)} of {k + 1} draws:\n" + "\n".join(wrong[:SHOWN])


def _found(seed, check):
    """What is wrong with a draw, if anything is."""
    for turn in range(TURNS):
        said, dice = [], Dice(seed)
        dice.turn = turn
        try:
            check(dice, said.append)
            if GPU:
                torch.cuda.synchronize()
        except Exception as why:  # noqa: BLE001  whatever it is, the next draw is another
            found = f"{'; '.join(map(str, said))}: {type(why).__name__}: {str(why)[:LINE]}"
            if JUDGED not in found:
                return found
        else:
            return None
    return found


def between(dice, low, high):
    """A whole number, as often small as large."""
    return min(high, math.floor(low * math.pow((high + 1) / low, dice.random())))


def some(dice, **largest):
    """Sizes of at least 1 by name; every third is beside a power of two."""
    found = {}
    for name, high in largest.items():
        size = between(dice, 1, high)
        if dice.random() < 0.3:
            size = max(1, (1 << size.bit_length() - 1) + dice.choice([-1, 0, 1]))
        found[name] = size
    return found


def fitting(dice, bounds, **largest):
    """The same, drawn until the product of each of these groups of sizes is within its bound."""
    while True:
        found = some(dice, **largest)
        if all(math.prod(found[name] for name in names) <= bound for names, bound in bounds.items()):
            return found
