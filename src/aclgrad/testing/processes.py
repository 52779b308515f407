"""A few processes that form a group of torch.distributed, and do what they are told until they are told to stop.

    with Processes(4) as ranks:
        found = ranks(function, *args)    # function(rank, groups, *args) on every rank; what each returned

They are forked from a server that has imported torch once. They end with this process, however that ends: a closed pipe
ends their loop. Whatever takes too long is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = [
    "torch.distributed.tensor.parallel",
    "torch._dynamo",
    "aclgrad.nn",
    "aclgrad.cpu.threads",
    "aclgrad.testing.cases",
]
PATIENCE = 120.0
"""Seconds that a task may take."""


class Failed(AssertionError):
    """What went wrong on some ranks."""


class Processes:
    """`size` processes; `timeout` is that of their groups in seconds, `threads` what each computes with.

    `groups[n]` is a group of the first n of them. A function is known by its module, which is found on `sys.path`, and
    by its name there. Warnings are errors in them.
    """

    def __init__(self, size: int, timeout: float = 60.0, threads: int = 1) -> None:
        self.size, self.timeout, self.threads = size, timeout, threads
        self.workers: list[tuple[Any, Any]] = []

    def __enter__(self) -> Processes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start them."""
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(PRELOADED)
        self._folder = tempfile.TemporaryDirectory()
        where = str(Path(self._folder.name) / "store")
        for rank in range(self.size):
            ours, theirs = server.Pipe()
            arguments = (rank, self.size, where, self.timeout, self.threads, theirs, list(sys.path))
            worker = server.Process(target=_work, args=arguments, daemon=True)
            worker.start()
            theirs.close()
            self.workers.append((worker, ours))

    def stop(self) -> None:
        """End them, and wait until they have ended."""
        for _, pipe in self.workers:
            pipe.close()
        for worker, _ in self.workers:
            worker.join(5)
            worker.kill()
            worker.join()
        self.workers = []
        self._folder.cleanup()

    @property
    def pids(self) -> list[int]:
        """Their numbers."""
        return [worker.pid for worker, _ in self.workers]

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What the function returned on every rank. Where it failed ranks wait for others: there are new ones then."""
        found = self.outcomes(function, *args)
        wrong = [f"rank {rank}:\n{text}" for rank, (fine, text) in enumerate(found) if not fine]
        if wrong:
            self.stop()
            self.start()
            raise Failed("\n".join(wrong))
        return [value for _, value in found]

    def outcomes(self, function: Callable[..., Any], *args: Any, patience: float = PATIENCE) -> list[tuple[bool, Any]]:
        """(True, what it returned) or (False, what it raised in words) of every rank; (False, "gone") if that is."""
        task = pickle.dumps((function.__module__, function.__name__, args))
        for _, pipe in self.workers:
            with suppress(OSError):  # of one that is gone
                pipe.send_bytes(task)
        end = time.monotonic() + patience
        return [self._outcome(worker, pipe, end) for worker, pipe in self.workers]

    def _outcome(self, worker: Any, pipe: Any, end: float) -> tuple[bool, Any]:
        try:
            if pipe.poll(max(0.0, end - time.monotonic())):
                return pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            return False, "gone"
        worker.kill()
        return False, "took too long and was killed"


def _work(
    rank: int, size: int, where: str, timeout: float, threads: int, pipe: Any, path: Sequence[str]
) -> None:  # fmt: skip
    """A process: one task after the other."""
    sys.path[:] = path
    import torch

    distributed: Any = torch.distributed
    torch.set_num_threads(threads)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    warnings.filterwarnings("ignore", "The .grad attribute", UserWarning)  # of torch to itself
    limit = timedelta(seconds=timeout)
    store = distributed.FileStore(where, size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    groups = {count: distributed.new_group(list(range(count)), timeout=limit) for count in range(1, size)}
    groups[size] = distributed.group.WORLD
    while True:
        try:
            module, name, args = pickle.loads(pipe.recv_bytes())  # noqa: S301  from the process that started this one
        except (EOFError, OSError):
            os._exit(0)  # what has gone wrong in a collective is not waited for
        try:
            outcome = True, getattr(import_module(module), name)(rank, groups, *args)
        except Exception:  # noqa: BLE001  whoever asked has to know of everything
            outcome = False, traceback.format_exc()
        pipe.send(outcome)
