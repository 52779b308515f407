"""Ours and the peers as things that take turns on rotated inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import aclgrad
from aclgrad.testing.cases import Cost, bytes_moved, tensors_in
from aclgrad.testing.layouts import apply

from .device import COLD, MIB, Device
from .peers import peers_of

OURS = "aclgrad"
MOST_SETS = 128
CACHED = "one set, in the caches"


class Contender:
    """Calls on several sets of inputs; `contender(k)` runs the k-th, beginning at its own place in the rotation."""

    def __init__(self, calls: Sequence[Callable[[], Any]], start: int, writes_out: bool) -> None:
        self.calls, self.start, self.writes_out = calls, start, writes_out

    def __call__(self, k: int) -> Any:
        return self.calls[(self.start + k) % len(self.calls)]()

    def extra_memory(self, device: Device) -> int:
        """The most bytes allocated during a call, less those of the outputs it allocates."""
        results: list[Any] = []
        peak = device.peak(lambda: results.append(self(0)))
        if self.writes_out:
            return peak
        outputs = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_in(results)}
        return max(0, peak - sum(outputs.values()))


def contenders(operator: str, sets: Sequence[Sequence[Any]], device: Device) -> dict[str, Contender]:
    """Ours, then the operator's peers. None begins where another has just read the inputs into the caches."""
    peers = peers_of(operator, device.kind)
    writes_out = bool(peers) and peers[0].writes_out
    calls = {OURS: [_ours(operator, args, writes_out) for args in sets]}
    calls |= {peer.name: [peer.prepare(*args) for args in sets] for peer in peers}
    outs = [writes_out, *(peer.writes_out for peer in peers)]
    return {
        name: Contender(prepared, k * len(sets) // len(calls), outs[k])
        for k, (name, prepared) in enumerate(calls.items())
    }


def _ours(operator: str, args: Sequence[Any], writes_out: bool) -> Callable[[], Any]:
    """The public call as a user writes it; with a prepared output where the peer has one too."""
    function = getattr(aclgrad, operator)
    if writes_out:
        out = torch.empty_like(args[-1])
        return lambda: function(*args, out=out)
    return lambda: function(*args)


def rotation(args: Sequence[Any], cost: Cost, device: Device) -> tuple[list[Sequence[Any]], str]:
    """Copies of the arguments to take turns with, and what they are in words.

    An operator without products is measured at memory speed: its inputs exceed the last cache, alone or by rotation.
    One with products reads the same inputs every time; so does a call so small that its overhead is what is measured.
    """
    size = bytes_moved(args, ())
    count = 1 if cost.flops else -(-COLD * device.last_cache // max(cost.bytes, 1))
    if count > MOST_SETS:
        return [args], CACHED
    copies = [[apply(torch.clone, value) for value in args] for _ in range(count - 1)]
    words = f"{count} sets in rotation" if copies else "one set"
    return [args, *copies], f"{words}, {count * size / MIB:.3g} MiB"
