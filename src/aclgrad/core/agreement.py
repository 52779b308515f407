"""What ranks tell each other beside the tensors: sizes and options, by the store of their group.

A collective of different sizes ends in a hang, in a process that torch aborts, or in wrong numbers. So before the first
one of some sizes all ranks say what they are about to do, in words, and whoever differs is named on every rank. That
takes no collective, and nothing when the same sizes come again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .errors import CommunicationError, InvalidArgument

Words = Mapping[str, Any]
"""Names and values that JSON has."""

PATIENCE = timedelta(minutes=30)
"""Of a group that does not tell its timeout: torch's default."""


class Agreement:
    """The talk of one group. Its ranks come here in the same order."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._size, self._rank = group.size(), group.rank()
        self._store = _store_of(group)
        self._count = 0
        self._known: set[tuple[Any, ...]] = set()
        self._last: list[str] = []  # keys of the latest meeting

    def once(self, words: Words) -> None:
        """Raise unless all ranks say the same words, if these have not been said before; a word is a plain value."""
        key = tuple(words.values())
        if key not in self._known:
            if self._store is not None:  # else there would be a collective that nobody counts on
                self.now(words)
            self._known.add(key)

    def now(self, words: Words) -> None:
        """Raise unless all ranks say the same words."""
        text = json.dumps(words)
        if self._store is not None and self._meet(text):
            return
        said = self._said(text)
        if any(each != said[0] for each in said):
            raise InvalidArgument(_difference(said))

    def told(self, words: Words) -> list[Words]:
        """What every rank says to the same questions, in their order."""
        text = json.dumps(words)
        if self._store is not None:
            self._meet(text)
        said = self._said(text)
        found: list[Words] = [json.loads(each) for each in said]
        if any(each.keys() != words.keys() for each in found):
            raise InvalidArgument(_difference(said))
        return found

    def _meet(self, text: str) -> bool:
        """Say it, wait until every rank has said something; whether all said the same."""
        store, place = self._store, f"aclgrad/{self._count + 1}"
        self._count += 1
        try:
            store.set(f"{place}/{self._rank}", text)
            store.add(f"{place}/says {text}", 1)
            if store.add(f"{place}/here", 1) == self._size:  # the last one knows
                same = store.add(f"{place}/says {text}", 0) == self._size
                store.set(f"{place}/all", "same" if same else "differ")
            store.wait([f"{place}/all"], _timeout_of(self._group))
            found: bytes = store.get(f"{place}/all")
        except RuntimeError as error:
            raise CommunicationError(
                f"rank {self._rank} of {self._size} waited for {self._missing(place)} to begin with {text}: {error}"
            ) from error
        self._forget_last()
        self._last = [*(f"{place}/{rank}" for rank in range(self._size)), f"{place}/says {text}"]
        self._last += [f"{place}/here", f"{place}/all"]
        return found == b"same"

    def _missing(self, place: str) -> str:
        """The ranks that have said nothing, in words."""
        try:
            missing = [rank for rank in range(self._size) if not self._store.check([f"{place}/{rank}"])]
        except RuntimeError:  # whoever keeps the store is gone as well
            missing = []
        return f"rank {', '.join(map(str, missing))}" if missing else "other ranks"

    def _said(self, text: str) -> list[str]:
        """What every rank said in the latest meeting; without a store they meet here."""
        if self._store is None:
            import torch.distributed as distributed

            said: list[Any] = [None] * self._size
            distributed.all_gather_object(said, text, group=self._group)
            return said
        return [self._store.get(f"aclgrad/{self._count}/{rank}").decode() for rank in range(self._size)]

    def _forget_last(self) -> None:
        """Delete what was said one meeting before, which every rank has read since it came to this one."""
        if self._rank == 0:
            for key in self._last:
                self._store.delete_key(key)


_agreements: WeakKeyDictionary[Any, Agreement] = WeakKeyDictionary()


def agreement_of(group: Any) -> Agreement:
    """The talk of a process group."""
    if group not in _agreements:
        _agreements[group] = Agreement(group)
    return _agreements[group]


def _difference(said: list[str]) -> str:
    """Which rank differs from most others, and in what."""
    words = [json.loads(each) for each in said]
    names = Counter(tuple(each) for each in words)
    if len(names) > 1:
        ((usual_names, _), *_) = names.most_common()
        usual = next(each for each in words if tuple(each) == usual_names)
        found = [
            f"rank {rank} begins with {said[rank]}, expected {json.dumps(usual)} as on rank {words.index(usual)}"
            for rank, each in enumerate(words)
            if tuple(each) != usual_names
        ]
        return "; ".join(found)
    differing = []
    for name in words[0]:
        values = [json.dumps(each[name]) for each in words]
        ((usual, _), *_) = Counter(values).most_common()
        differing += [
            f"{name} is {value} on rank {rank}, expected {usual} as on rank {values.index(usual)}"
            for rank, value in enumerate(values)
            if value != usual
        ]
    return "; ".join(differing)


def _store_of(group: Any) -> Any:
    """The store by which the group found together; None if it has none."""
    try:
        return group.get_group_store()
    except (AttributeError, RuntimeError):
        return None


def _timeout_of(group: Any) -> timedelta:
    """How long the group waits for a collective."""
    for device in ("cpu", "cuda"):
        try:
            found = group._get_backend(torch.device(device)).options._timeout
        except (AttributeError, RuntimeError):
            continue
        if isinstance(found, timedelta):
            return found
    return PATIENCE
