"""What the zoo's models learn from, made from a seed: something like speech, and a maze to remember in."""

from __future__ import annotations

import torch
from torch import Tensor


class Speech:
    """Sequences of symbols, each a spectrum of its own for some moments, in noise."""

    bands, symbols = 24, 12

    def __init__(self, seed: int) -> None:
        dice = torch.Generator().manual_seed(seed)
        self.spectra = torch.rand(self.symbols, self.bands, generator=dice)

    def batch(self, dice: torch.Generator, size: int = 16, longest: int = 12) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(sound [N, bands, T], its lengths [N], symbols [N, S] from 1, how many [N])."""
        counts = torch.randint(2, longest + 1, (size,), generator=dice)
        target = torch.randint(1, self.symbols + 1, (size, longest), generator=dice)
        moments = torch.randint(3, 9, (size, longest), generator=dice)
        moments[torch.arange(longest) >= counts[:, None]] = 0
        lengths = moments.sum(1)
        sound = 0.3 * torch.randn(size, self.bands, int(lengths.max()), generator=dice)
        for n in range(size):
            sound[n, :, : lengths[n]] += self.spectra[target[n] - 1].repeat_interleave(moments[n], 0).T
        return sound, lengths, target, counts


class Maze:
    """A corridor: a sign at its entrance says which way is right at its end, some steps later. Played at random."""

    sights, actions = 4, 2  # the signs, the corridor's end, and whether this is the entrance

    def batch(self, dice: torch.Generator, steps: int = 80, size: int = 32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(sights [T, N, 4], whether an episode begins [T, N], actions [T, N], rewards [T, N])."""
        sight, begins = torch.zeros(steps, size, self.sights), torch.zeros(steps, size, dtype=torch.bool)
        action = torch.randint(self.actions, (steps, size), generator=dice)
        reward = torch.zeros(steps, size)
        for n in range(size):
            t = 0
            while t < steps:
                end = t + int(torch.randint(3, 8, (), generator=dice))
                sign = int(torch.randint(2, (), generator=dice))
                begins[t, n], sight[t, n, sign], sight[t, n, 3] = True, 1.0, 1.0
                if end < steps:
                    sight[end, n, 2] = 1.0
                    reward[end, n] = 1.0 if action[end, n] == sign else -1.0
                t = end + 1
        return sight, begins, action, reward
