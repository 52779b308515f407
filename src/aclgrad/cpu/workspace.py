"""The workspace of a kernel whose threads have memory of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .threads import team_size


class TeamWorkspace(NamedTuple):
    """Memory for all, then `each` bytes for every thread of a team; how many those are is known only when it runs.

    A plan may live longer than a number of threads. So its workspace is as large as the team is when it is asked for,
    and the team never larger than the workspace it is given.
    """

    shared: int
    each: int
    work: int
    grain: int

    @property
    def size(self) -> int:
        """Bytes for the team that would run now."""
        return self.shared + self.each * team_size(self.work, self.grain)

    def threads(self, workspace: torch.Tensor) -> int:
        """How many threads run with this workspace now."""
        return min(team_size(self.work, self.grain), (workspace.numel() - self.shared) // self.each)
