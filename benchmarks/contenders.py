"""Ours and the peers as things that take turns on rotated inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import aclgrad
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import lookup
from aclgrad.testing.cases import Cost, bytes_moved
from aclgrad.testing.layouts import apply
from aclgrad.testing.peers import peers_of

from .device import COLD, MIB, Device
from .report import OURS

MOST_SETS = 128
FITS = 2  # inputs and outputs of this many last caches still leave something in them from call to call


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
    peers = peers_of(lookup(operator).spec, device.kind, device.compiling)
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
    function = getattr(aclgrad, operator, lookup(operator))
    if writes_out:
        out = torch.empty_like(args[-1])
        return lambda: function(*args, out=out)
    return lambda: function(*args)


class Inputs(NamedTuple):
    """Sets of arguments to take turns with, whether each is read just before it is timed, and a word about them."""

    sets: Sequence[Sequence[Any]]
    warm: bool
    words: str


def same_inputs(args: Sequence[Any], warm: bool) -> Inputs:
    """One set; `warm` if it is to be in the caches when it is timed."""
    return Inputs([args], warm, f"one set of {bytes_moved(args, ()) / MIB:.3g} MiB{', in the caches' if warm else ''}")


def rotated_inputs(args: Sequence[Any], count: int) -> Inputs:
    """As many copies of the arguments."""
    copies = [[apply(torch.clone, value) for value in args] for _ in range(count - 1)]
    return Inputs([args, *copies], False, f"{count} sets in rotation, {count * bytes_moved(args, ()) / MIB:.3g} MiB")


def regimes(args: Sequence[Any], cost: Cost, device: Device) -> tuple[Inputs, Inputs | None]:
    """What to measure on, and what else beside it.

    An operator without products runs at the speed of memory or of a cache: both are measured where the inputs fit the
    last cache, unless they are so small that only the overhead counts. One with products reads the same inputs always.
    """
    if cost.flops:
        return same_inputs(args, warm=False), None
    count = -(-COLD * device.last_cache // max(cost.bytes, 1))
    if count > MOST_SETS:
        return same_inputs(args, warm=True), None
    if cost.bytes > device.last_cache * FITS:
        return rotated_inputs(args, count), None
    return same_inputs(args, warm=True), rotated_inputs(args, count)
