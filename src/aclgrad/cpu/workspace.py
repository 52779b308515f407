"""The workspace of a kernel whose threads have memory of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .threads import thread_count, threads_in_words


class ThreadWorkspace(NamedTuple):
    """Memory for all, then `each` bytes for every thread; how many those are is known only when it runs.

    A plan may live longer than a number of threads. So its workspace is as large as the threads of the moment need,
    and no more threads run than the workspace it is given has memory for.
    """

    shared: int
    each: int
    work: int
    grain: int

    @property
    def size(self) -> int:
        """Bytes for the threads that would run now."""
        return self.shared + self.each * thread_count(self.work, self.grain)

    def threads(self, workspace: torch.Tensor) -> int:
        """How many threads run with this workspace now."""
        return self.threads_in(workspace.numel())

    def threads_in(self, room: int) -> int:
        """The same for a workspace of so many bytes."""
        return min(thread_count(self.work, self.grain), (room - self.shared) // self.each)

    def describe(self) -> str:
        """How many threads would run now."""
        return threads_in_words(self.work, self.grain)
