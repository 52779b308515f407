"""Text to learn from: sentences of a small grammar, made from a seed."""

from __future__ import annotations

import random

import torch
from torch import Tensor

GRAMMAR = {
    "sentence": ("{subject} {verb} {object}. ", "{subject} {verb} {object} {place}. ", "{place} {subject} sleeps. "),
    "subject": ("the {animal}", "a {adjective} {animal}", "the {adjective} {animal}"),
    "object": ("the {thing}", "a {adjective} {thing}", "{subject}"),
    "place": ("in the {room}", "behind the {thing}", "under a {thing}"),
    "animal": ("cat", "dog", "owl", "mouse", "heron"),
    "adjective": ("small", "grey", "sleepy", "very {adjective}"),
    "thing": ("table", "lamp", "piano", "teapot"),
    "room": ("kitchen", "garden", "attic"),
    "verb": ("sees", "follows", "paints", "likes"),
}


def sentence(dice: random.Random, symbol: str = "sentence") -> str:
    """One of the grammar's expansions, with everything in braces expanded in turn."""
    chosen = dice.choice(GRAMMAR[symbol])
    while "{" in chosen:
        before, _, rest = chosen.partition("{")
        inner, _, after = rest.partition("}")
        chosen = before + sentence(dice, inner) + after
    return chosen


class Text:
    """Characters as numbers, in batches of sequences."""

    def __init__(self, seed: int, characters: int = 50_000) -> None:
        dice, pieces, length = random.Random(seed), [], 0  # noqa: S311  nothing here is secret
        while length < characters:
            pieces.append(sentence(dice))
            length += len(pieces[-1])
        text = "".join(pieces)
        self.alphabet = sorted(set(text))
        index = {character: k for k, character in enumerate(self.alphabet)}
        self.codes = torch.tensor([index[character] for character in text])

    def batch(self, dice: torch.Generator, size: int, steps: int) -> tuple[Tensor, Tensor]:
        """(characters, the characters that follow them), each [size, steps]."""
        starts = torch.randint(len(self.codes) - steps - 1, (size,), generator=dice)
        windows = self.codes[starts[:, None] + torch.arange(steps + 1)]
        return windows[:, :-1], windows[:, 1:]
