"""A few processes that form a group, and do what they are told until they are told to stop.

They are forked from a server that has imported torch once. They end with this process, however that ends: a closed pipe
ends their loop. Whatever takes too long is killed.
"""

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch.distributed.tensor.parallel", "aclgrad.nn", "aclgrad.testing.cases"])

PATIENCE = 60
"""Seconds that a task may take."""


class Failed(AssertionError):
    """What went wrong on some ranks."""


class Processes:
    """`processes(function, *args)` calls `function(rank, groups, *args)` on every rank; `groups[n]` has the first n.

    A function is named by its module, which is found on `sys.path`.
    """

    def __init__(self, size, timeout=20):
        self.size, self.timeout = size, timeout

    def __enter__(self):
        self._start()
        return self

    def _start(self):
        self._folder = tempfile.TemporaryDirectory()
        where = str(Path(self._folder.name) / "store")
        self.workers = []
        for rank in range(self.size):
            ours, theirs = SERVER.Pipe()
            arguments = (rank, self.size, where, self.timeout, theirs, list(sys.path))
            worker = SERVER.Process(target=_work, args=arguments, daemon=True)
            worker.start()
            theirs.close()
            self.workers.append((worker, ours))

    def __exit__(self, *_):
        self._stop()

    def _stop(self):
        for _, pipe in self.workers:
            pipe.close()
        for worker, _ in self.workers:
            worker.join(5)
            worker.kill()
            worker.join()
        self._folder.cleanup()

    def __call__(self, function, *args):
        """What the function returned on every rank. Where it failed ranks wait for others: there are new ones then."""
        found = self.outcomes(function, *args)
        wrong = [f"rank {rank}:\n{text}" for rank, (fine, text) in enumerate(found) if not fine]
        if wrong:
            self._stop()
            self._start()
            raise Failed("\n".join(wrong))
        return [value for _, value in found]

    def outcomes(self, function, *args, patience=PATIENCE):
        """(True, what it returned) or (False, what it raised) of every rank; None of one that is gone."""
        task = pickle.dumps((function.__module__, function.__name__, args))
        for _, pipe in self.workers:
            with suppress(OSError):  # of one that is gone
                pipe.send_bytes(task)
        end = time.monotonic() + patience
        found = []
        for rank, (worker, pipe) in enumerate(self.workers):
            try:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    worker.kill()
                    raise Failed(f"rank {rank} was not through with {function.__name__} after {patience} s")
                found.append(pipe.recv())
            except (EOFError, ConnectionResetError):
                found.append((False, "gone"))
        return found


def _work(rank, size, where, timeout, pipe, path):
    sys.path[:] = path
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    warnings.filterwarnings("ignore", "The .grad attribute", UserWarning)
    limit = timedelta(seconds=timeout)
    store = dist.FileStore(where, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    groups = {size: dist.group.WORLD}
    for count in range(1, size):
        groups[count] = dist.new_group(range(count), timeout=limit)
    while True:
        try:
            module, name, args = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # what has gone wrong in a collective shall not be waited for
        try:
            function = getattr(__import__(module), name)
            outcome = True, function(rank, groups, *args)
        except Exception:  # noqa: BLE001  the parent has to know of everything
            outcome = False, traceback.format_exc()
        pipe.send(outcome)
