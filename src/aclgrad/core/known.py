"""What was made of calls seen before, found again by their metadata.

To read and hash the metadata of a tensor takes Python half a microsecond, as long as a small kernel. So the newest
calls are recognised by the check in C++ that torch's compiler guards its programs with: one for all tensors of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_, itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from torch.nn import Parameter

from .binding import fingerprint
from .meta import Meta

KEPT = 2048
"""Calls that one store remembers; then it begins anew."""

NEAR = 8
"""Of the calls whose first tensors have one shape: how many are recognised by their tensors."""

T = TypeVar("T")
_Pick: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]


def _compiled_check() -> Any:
    """The class of such checks; None where torch has none that takes what it is given here."""
    one = torch.empty(1, device="cpu")
    try:
        guards: Any = torch._C._dynamo.guards  # torch leaves this untyped
        made = guards.TensorGuards(one, dynamic_dims_sizes=[[1]], dynamic_dims_strides=[[1]])
        return guards.TensorGuards if made.check(one) and not made.check(one[:0]) else None
    except (AttributeError, RuntimeError, TypeError):
        return None


_Guards = _compiled_check()
_PLAIN = (torch.Tensor, Parameter)
_SIMPLE = (type(None), bool, int, float, str)
_META = attrgetter("meta")


def _check_of(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """The check that other tensors are like these; None where there is none, as for one tensor twice."""
    if _Guards is None or len(set(map(id, tensors))) < len(tensors):
        return None
    sizes, strides = ([list(of(tensor)) for tensor in tensors] for of in (torch.Tensor.size, torch.Tensor.stride))
    check: Callable[..., bool] = _Guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


class Alike:
    """Whether tensors have the metadata of those that were seen before, which all had the same."""

    def __init__(self) -> None:
        self._check: Callable[..., bool] | None = None
        self._missed = 0

    def __call__(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True only if they have; then they are of one class as well, and want a gradient or not."""
        return self._check is not None and self._check(*tensors)

    def see(self, tensors: Sequence[torch.Tensor]) -> None:
        """Tensors that are known to have these metadata, and were not recognised."""
        self._missed += 1
        if _is_worth_it(self._missed):
            self._check = _check_of(tensors)


def _is_worth_it(missed: int) -> bool:
    """Whether to make a check, which takes longer than to do without: when twice as many calls were missed as then."""
    return missed & (missed - 1) == 0


class Known(Generic[T]):
    """A dictionary of calls: what differs in no value that `fingerprint` looks at has the same entry."""

    def __init__(self) -> None:
        self._made: dict[Any, _Kept[T]] = {}
        self._newest: Recognised[T] = Recognised()

    def __len__(self) -> int:
        return len(self._made)

    def values(self) -> Iterable[T]:
        """All that is kept."""
        return [kept.made for kept in self._made.values()]

    def clear(self) -> None:
        """Forget all."""
        self._made.clear()
        self._newest.clear()

    def find(self, values: Sequence[Any], *beside: Any) -> T | None:
        """What was kept for a call of these arguments and of equal things `beside`."""
        made = self._newest.find(values, *beside)
        if made is not None:
            return made
        try:
            kept = self._made.get((fingerprint(values), beside))
        except TypeError:  # something cannot be hashed
            return None
        return None if kept is None else self._missed(kept, values, *beside)

    def recognise(self, values: Sequence[Any], *beside: Any) -> T | None:
        """The same if the call is one of the newest."""
        return self._newest.find(values, *beside)

    def keep(self, made: T, values: Sequence[Any], *beside: Any) -> None:
        """Remember what was made of a call, unless that has values that cannot be hashed."""
        key = (fingerprint(values), beside)
        try:
            hash(key)
        except TypeError:
            return
        self._put(key, made)

    def _missed(self, kept: _Kept[T], values: Sequence[Any], *beside: Any) -> T:
        """What was kept for a call that was not recognised."""
        kept.missed += 1
        if _is_worth_it(kept.missed):
            self._newest.keep(kept.made, values, *beside)
        return kept.made

    def _put(self, key: Any, made: T) -> None:
        if len(self._made) >= KEPT:
            self.clear()
        self._made[key] = _Kept(made)


@dataclass(slots=True)
class _Kept(Generic[T]):
    """What was made of a call, and how often that was asked for by a call which was not recognised."""

    made: T
    missed: int = 0


class Recognised(Generic[T]):
    """The newest calls, recognised by one check; it also sees which tensors want a gradient, and of what class all are.

    So calls that are watched by torch.func, autocast or inference mode are others than those that are not.
    """

    def __init__(self) -> None:
        self._calls: dict[Any, tuple[_Call[T], ...]] = {}

    def clear(self) -> None:
        """Forget all."""
        self._calls.clear()

    def find(self, values: Sequence[Any], *beside: Any) -> T | None:
        """What was kept for a call like this one; None also where it is not recognised."""
        try:
            for call in self._calls.get(_place(values, beside), ()):
                if call.fits(values):
                    return call.made
        except (AttributeError, RuntimeError, TypeError):  # no handle, a tensor without sizes, what cannot be hashed
            pass
        return None

    def keep(self, made: T, values: Sequence[Any], *beside: Any) -> None:
        """Remember what was made of a call, if it can be recognised."""
        call = _Call.of(values, made)
        if call is None:
            return
        place = _place(values, beside)
        if len(self._calls) >= KEPT:
            self.clear()
        self._calls[place] = (call, *self._calls.get(place, ())[: NEAR - 1])


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    """A call that is recognised by its tensors, those in lists among them, and by all else that it was given."""

    made: T
    check: Callable[..., bool]  # of all tensors
    tensors: _Pick | None  # None: they are all there is
    lists: Sequence[tuple[int, int]]  # (position, how many members)
    handles: _Pick | None  # of the aclnn door
    metas: Sequence[Meta]  # of the handles
    rest: _Pick | None
    others: Sequence[Any]  # the rest

    @classmethod
    def of(cls, values: Sequence[Any], made: T) -> _Call[T] | None:
        """None where something is neither a tensor of torch's own class, nor has metadata, nor is immutable."""
        tensors, handles, lists, rest = ([k for k, value in enumerate(values) if is_one(value)] for is_one in _KINDS)
        members = [member for k in lists for member in values[k]]
        if len(tensors) + len(handles) + len(lists) + len(rest) < len(values) or not all(map(_is_plain, members)):
            return None
        examined = [*(values[k] for k in tensors), *members]
        check = _check_of(examined)
        if check is None:
            return None
        return cls(
            made,
            check,
            None if len(tensors) == len(values) else _picked(tensors),
            [(k, len(values[k])) for k in lists],
            _picked(handles) if handles else None,
            [values[k].meta for k in handles],
            _picked(rest) if rest else None,
            tuple(values[k] for k in rest),
        )

    def fits(self, values: Sequence[Any]) -> bool:
        """Whether a call has the same metadata; it has as many values."""
        tensors = values if self.tensors is None else self.tensors(values)
        for k, count in self.lists:
            members = values[k]
            if type(members) is not list or len(members) != count:
                return False
            tensors = (*tensors, *members)
        if not self.check(*tensors):
            return False
        if self.handles is not None and list(map(_META, self.handles(values))) != self.metas:
            return False
        if self.rest is None:
            return True
        others = self.rest(values)
        return all(map(is_, others, self.others)) or (  # what has another type may not say in a word if it is equal
            all(map(is_, map(type, others), map(type, self.others))) and others == self.others
        )


def _place(values: Sequence[Any], beside: tuple[Any, ...]) -> Any:
    return getattr(values[0], "shape", None), len(values), beside


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


_KINDS: tuple[Callable[[Any], bool], ...] = (
    _is_plain,
    lambda value: isinstance(getattr(value, "meta", None), Meta),
    lambda value: type(value) is list,
    lambda value: type(value) in _SIMPLE,
)


def _picked(places: Sequence[int]) -> _Pick:
    """What takes the values at these places."""
    return itemgetter(*places) if len(places) > 1 else lambda values: tuple([values[k] for k in places])
