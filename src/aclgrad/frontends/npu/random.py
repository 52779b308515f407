"""Random numbers on the device: a sequence of its own, beside the processor's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import memory
from .memory import DEVICE_TYPE

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


class _Kind(type(torch.Generator)):  # type: ignore[misc]
    """Generators that torch has made are instances, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_Kind):
    """`torch.Generator`, which torch cannot make for the device: there it is one of the device behind."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if torch.device(device).type != DEVICE_TYPE:
            return torch._C.Generator(device)
        return torch._C.Generator.__new__(cls, memory.behind)  # type: ignore[call-arg]

    def __init__(self, device: Any = None) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device, and not the one behind."""
        return torch.device(DEVICE_TYPE, 0)


_generators: dict[torch.device, torch.Generator] = {}


def generator() -> torch.Generator:
    """The device's generator; it starts with torch's seed."""
    found = _generators.get(memory.behind)
    if found is None:
        found = _generators[memory.behind] = torch._C.Generator(memory.behind)
        found.manual_seed(torch.initial_seed())
    return found


def manual_seed(seed: int) -> None:
    """Begin the sequence that belongs to a number."""
    generator().manual_seed(int(seed))


def seed() -> None:
    """Begin a sequence that nobody has chosen."""
    generator().seed()


def initial_seed() -> int:
    """The number of the present sequence."""
    return generator().initial_seed()


def get_rng_state(device: Any = None) -> Tensor:  # noqa: ARG001  there is one
    """Where the sequence is."""
    return generator().get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:  # noqa: ARG001
    """Go on from there."""
    generator().set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Where the sequences of all devices are."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Any) -> None:
    """Go on from there on all devices."""
    for state in new_states:
        set_rng_state(state)


manual_seed_all = manual_seed
seed_all = seed
