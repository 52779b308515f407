"""What the ranks of a group exchange, behind one seam with three implementations.

`Group` is a process group of torch, `Traced` the same for a graph that is being recorded, and `Simulated` has the
shards of all ranks in one process, without a group. A *part* is what one shard gives. A process has the part of its own
rank, a simulation one of every rank: so all methods take a list of parts, in the order of `ranks`.

Nothing here waits for a device, and torch.distributed is imported by whoever uses a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .dispatch import is_watched
from .errors import CommunicationError, InvalidArgument, WrongType

Pending = Callable[[], list[Tensor]]
"""Waits for a collective that was started; its results, one for each part."""


class Collective(Protocol):
    """How parts of all ranks come together. Every rank makes the same calls in the same order."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def ranks(self) -> Sequence[int]:
        """Those whose parts are in this process."""

    def gather(self, what: str, parts: Sequence[Tensor]) -> Tensor:
        """[size, …]: the parts of all ranks in their order, each of one shape; the same bits on every rank."""

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """Begin to add up the parts of all ranks, whose memory it may use; the sum of each part."""

    def start_scatter(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """Begin to add up parts [size · rows, …]; of each part only the rows of its rank."""


@dataclass(frozen=True)
class Simulated:
    """All ranks in one process."""

    size: int

    @property
    def ranks(self) -> Sequence[int]:
        """All of them."""
        return range(self.size)

    def gather(self, what: str, parts: Sequence[Tensor]) -> Tensor:  # noqa: ARG002
        """A copy of all parts."""
        return torch.stack(list(parts))

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:  # noqa: ARG002
        """Summed in the order of the ranks."""
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return lambda: [total] * len(parts)

    def start_scatter(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """The rows of each rank."""
        (total, *_) = self.start_sum(what, parts)()
        return lambda: list(total.chunk(self.size))


@dataclass(frozen=True)
class Traced:
    """A process group by its name, in a graph: torch's functional collectives."""

    name: str
    size: int
    rank: int

    @property
    def ranks(self) -> Sequence[int]:
        """The rank of this process."""
        return (self.rank,)

    def gather(self, what: str, parts: Sequence[Tensor]) -> Tensor:  # noqa: ARG002
        """One node of the graph, and one that waits for it."""
        (part,) = parts
        joined = torch.ops._c10d_functional.all_gather_into_tensor(part.reshape(1, -1), self.size, self.name)
        return _waited(joined).view(self.size, *part.shape)

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:  # noqa: ARG002
        """One node; what waits for it comes where it is called."""
        (part,) = parts
        total = torch.ops._c10d_functional.all_reduce(part, "sum", self.name)
        return lambda: [_waited(total)]

    def start_scatter(self, what: str, parts: Sequence[Tensor]) -> Pending:  # noqa: ARG002
        """Likewise."""
        (part,) = parts
        rows = torch.ops._c10d_functional.reduce_scatter_tensor(part, "sum", self.size, self.name)
        return lambda: [_waited(rows)]


def _waited(tensor: Tensor) -> Tensor:
    return torch.ops._c10d_functional.wait_tensor(tensor)  # type: ignore[no-any-return]


class Group:
    """A process group of torch: gloo, NCCL or any other."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size, self.rank = group.size(), group.rank()

    @property
    def ranks(self) -> Sequence[int]:
        """The rank of this process."""
        return (self.rank,)

    def gather(self, what: str, parts: Sequence[Tensor]) -> Tensor:
        """One all-gather; where the backend has none for the device, the sum of parts beside zeros."""
        (part,) = parts
        part = part.contiguous()
        if self._is_enough(part):
            return part.expand(self.size, *part.shape)
        if _only_sums(self.group, part.device):
            joined = part.new_zeros(self.size, *part.shape)  # every place has one part that is not zero: no rounding
            joined[self.rank] = part
            with self._explained("all_reduce", what):
                _distributed().all_reduce(joined, group=self.group)
            return joined
        joined = part.new_empty(self.size, *part.shape)
        _mark_ends(joined)
        with self._explained("all_gather", what):
            _all_gather()(joined.view(self.size * part.numel()), part.view(-1), group=self.group)
        short = _still_marked(joined)
        if short:
            raise CommunicationError(f"all_gather of {what}: rank {short[0]} of the group sent less than others")
        return joined

    def start_sum(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """One all-reduce, in place."""
        (part,) = parts
        if self._is_enough(part):
            return lambda: [part]
        with self._explained("all_reduce", what):
            work = _distributed().all_reduce(part, group=self.group, async_op=True)
        return lambda: [self._finished(work, "all_reduce", what, part)]

    def start_scatter(self, what: str, parts: Sequence[Tensor]) -> Pending:
        """One reduce-scatter; where the backend has none for the device, the rows of an all-reduce."""
        (part,) = parts
        rows = part.shape[0] // self.size
        if self._is_enough(part):
            return lambda: [part[:rows]]
        if _only_sums(self.group, part.device):
            pending = self.start_sum(what, parts)
            return lambda: [pending()[0][self.rank * rows : (self.rank + 1) * rows]]
        mine = part.new_empty(rows, *part.shape[1:])
        with self._explained("reduce_scatter", what):
            work = _reduce_scatter()(mine, part, group=self.group, async_op=True)
        return lambda: [self._finished(work, "reduce_scatter", what, mine)]

    def _is_enough(self, part: Tensor) -> bool:
        """Whether nobody has anything to add."""
        return self.size == 1 or not part.numel()

    def _finished(self, work: Any, collective: str, what: str, result: Tensor) -> Tensor:
        with self._explained(collective, what):
            work.wait()
        return result

    @contextmanager
    def _explained(self, collective: str, what: str) -> Iterator[None]:
        """What torch raises, with the collective and this rank."""
        try:
            yield
        except RuntimeError as error:
            place = f"on rank {self.rank} of {self.size}"
            raise CommunicationError(f"{collective} of {what} failed {place}: {error}") from error


def collective_of(group: Any) -> Group | Traced:
    """How the ranks of a process group exchange parts: by nodes of a graph where somebody records it, else at once."""
    if is_watched():
        return Traced(group.group_name, group.size(), group.rank())
    return Group(group)


def process_group(group: Any) -> Any:
    """The process group that a user gave for `group`: itself, the only one of a device mesh, or by None the default."""
    distributed = _distributed()
    if group is None:
        return distributed.group.WORLD
    if isinstance(group, distributed.ProcessGroup):
        return group
    if group is distributed.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgument("group is one that this process is no member of, expected a group of its own", "group")
    if isinstance(group, distributed.DeviceMesh):
        if group.ndim != 1:
            names = group.mesh_dim_names or group.ndim
            raise InvalidArgument(f"group is a mesh of dimensions {names}, expected one dimension: mesh[name]", "group")
        return group.get_group()
    raise WrongType(f"group is {type(group).__name__}, expected a ProcessGroup or a DeviceMesh", "group")


def _distributed() -> Any:
    import torch.distributed as distributed

    return distributed


def _all_gather() -> Any:
    """By its name in this version of torch: a deprecated one warns at every call."""
    distributed = _distributed()
    return getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


def _reduce_scatter() -> Any:
    distributed = _distributed()
    return getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


def _only_sums(group: Any, device: torch.device) -> bool:
    """Whether the group promises no more than an all-reduce for tensors of this device: gloo for a GPU's."""
    return device.type != "cpu" and "gloo" in str(_distributed().get_backend_config(group)).split(f"{device.type}:")[-1]


_MARKS = {2: (torch.int16, 0x7FD5), 4: (torch.int32, 0x7FCAC16D), 8: (torch.int64, 0x7FFCAC16DACC16D5)}
"""By the size of an element: an integer of that size whose bits are a NaN that no arithmetic makes."""


def _mark_ends(joined: Tensor) -> None:
    """Mark where the last element of every part will be: gloo takes a message that is too short without a word."""
    if joined.is_cpu:
        integer, mark = _MARKS[joined.element_size()]
        joined.view(integer).flatten(1)[:, -1] = mark


def _still_marked(joined: Tensor) -> list[int]:
    """The ranks whose last element did not come."""
    if not joined.is_cpu:
        return []
    integer, mark = _MARKS[joined.element_size()]
    return (joined.view(integer).flatten(1)[:, -1] == mark).nonzero().flatten().tolist()
