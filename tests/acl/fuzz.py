"""Random programs against the runtime: right calls, wrong calls, stale pointers and handles, in several threads.

Run as a script so that a crash ends this process and not the test run: `python fuzz.py SEED SECONDS THREADS`.
Host destinations are trusted by contract, so the program offers none but its own memory, addresses that cannot be
mapped and blocks of the runtime, live or freed; for the latter the runtime keeps every freed block here.
"""

from __future__ import annotations

import faulthandler
import inspect
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from aclgrad import AclgradError, acl
from aclgrad.frontends.acl import blocks, tensors
from aclgrad.frontends.acl.boundary import FUNCTIONS
from aclgrad.frontends.acl.devices import EVENTS, STREAMS

KEPT = 40
MODERATE = 1 << 12
HUGE = (2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**200)
WILD = (1, 7, 0x1000, 0xDEADBEEF, 0x4AC1 << 48, 2**63, 2**64 - 8)
GARBAGE = (
    None,
    "text",
    b"bytes",
    1.5,
    float("nan"),
    True,
    [],
    (1, 2),
    {},
    object(),
    1j,
    -1,
    -(2**63),
    2**5000,
    np.int32(3),
)


class Program:
    """One thread's random walk, with what it has made so far."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.host = np.zeros(4 * MODERATE, np.uint8)
        self.blocks: list[tuple[int, int]] = []
        self.handles: list[int] = []
        self.calls = 0
        self.refused = 0

    def number(self) -> Any:
        r = self.rng
        return r.choice((r.randint(0, 3), r.randint(0, 64), r.randint(0, MODERATE), r.randint(-2, 60)))

    def size(self) -> Any:
        return self.rng.choice(HUGE) if self.rng.random() < 0.1 else self.rng.randint(0, MODERATE)

    def host_pointer(self) -> int:
        return int(self.host.ctypes.data) + self.rng.randint(0, MODERATE)

    def pointer(self) -> Any:
        r = self.rng.random()
        if r < 0.15:
            return self.host_pointer()
        if r < 0.25:
            return self.rng.choice(WILD)
        if not self.blocks:
            return 0
        start, size = self.rng.choice(self.blocks)
        return start + (self.rng.randrange(size) if self.rng.random() < 0.3 else 0)

    def handle(self) -> Any:
        if self.handles and self.rng.random() < 0.95:
            return self.rng.choice(self.handles)
        return self.rng.choice((0, 0, None, *WILD))

    def dims(self) -> list[Any]:
        return [
            self.rng.choice((0, 1, 2, 3, 5, 17, 2**31, 2**40, -1)) if self.rng.random() < 0.3 else 2 for _ in range(3)
        ]

    def argument(self, name: str) -> Any:
        if self.rng.random() < 0.03:
            return self.rng.choice(GARBAGE)
        if name in ("dev_ptr", "host_ptr", "dst", "src", "ptr", "tensorData", "addr"):
            return self.pointer()
        if name in ("size", "count", "dest_max", "max_count"):
            return self.size()
        if name in ("width", "height", "dpitch", "spitch"):
            return self.rng.randint(0, 64)  # rows that stay inside the program's own memory
        if name in ("stream", "event", "start", "end", "context", "tensor", "handle"):
            return self.handle()
        if name in ("viewDims", "stride", "storageDims", "shape"):
            return self.dims()
        if name == "value":
            return self.rng.choice((self.number(), [self.handle() for _ in range(3)], [1, 0, 1], [True] * 3))
        if name == "device":
            return 0 if self.rng.random() < 0.9 else self.number()
        if name == "timeout":
            return self.rng.randint(-2, 5)
        if name in ("config_path", "configPath"):
            return None
        if name in ("array", "data"):
            return self.rng.choice((self.host, b"abc", self.number()))
        return self.number()

    def step(self) -> None:
        name = self.rng.choice(NAMES)
        call: Callable[..., Any] = FUNCTIONS[name]
        args = [self.argument(parameter) for parameter in PARAMETERS[name]]
        result = call(*args)
        self.calls += 1
        code = result[-1] if isinstance(result, tuple) and len(result) > 1 else result
        self.refused += isinstance(code, int) and code >= 100000
        made = result[0] if isinstance(result, tuple) else result
        if type(made) is int and made > 0:
            if name in ("aclrtMalloc", "aclrtMallocHost"):
                self.blocks = [*self.blocks[-KEPT:], (made, int(args[0]))]
            elif name.startswith(("aclCreate", "aclrtCreate", "aclrtGetCurrentContext")):
                self.handles = [*self.handles[-KEPT:], made]

    def look_at_tensors(self) -> None:
        for handle in self.handles:
            tensor = tensors.TENSORS.find(handle)
            if tensor is not None:
                try:
                    tensor.tensor()
                except AclgradError:
                    continue
            stream = STREAMS.find(handle)
            if stream is not None and self.rng.random() < 0.3:
                try:
                    stream.submit(lambda: None, small=self.rng.random() < 0.5)
                except AclgradError:
                    continue

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        acl.rt.set_device(0)
        while time.monotonic() < deadline:
            for _ in range(50):
                self.step()
            self.look_at_tensors()


NAMES = sorted(n for n, f in FUNCTIONS.items() if f.__module__.startswith("aclgrad.frontends.acl."))
PARAMETERS = {name: list(inspect.signature(FUNCTIONS[name]).parameters) for name in NAMES}


def main(seed: int, seconds: float, threads: int) -> None:
    faulthandler.enable()
    blocks.KEPT_BLOCKS = blocks.KEPT_BYTES = 2**62
    logging.disable(logging.WARNING)
    programs = [Program(seed * 100 + k) for k in range(threads)]
    workers = [threading.Thread(target=program.run, args=(seconds,)) for program in programs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    acl.finalize()
    calls, refused = sum(p.calls for p in programs), sum(p.refused for p in programs)
    sys.stdout.write(f"{calls} calls, {refused} refused, {len(EVENTS)} events left\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
