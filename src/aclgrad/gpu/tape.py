"""What a launch does, written down once and done again with other memory, without Python in between.

A launch decides nothing that is not known from the call's metadata, from how its tensors are aligned and from torch's
switches. So the first call of a plan is watched instead of made: kernels, products, copies and fills become the rows of
a table (`driver`, `cpu.calls`) in which every address is one of the call's tensors and an offset. From then on a call
says where its tensors lie, and compiled code does the rest.

A launch that does anything else, such as an operation of torch's that is no copy, is made in the ordinary way.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..core.meta import meta_of
from .driver import NotAsACall, copy_call, current_handle, current_stream, require_success, zero_call
from .launch import ALIGNED, Loaded, recording
from .launch_call import LaunchCall
from .pointwise import copying, filling, in_wide_elements
from .products import LibraryProduct, product_call, settings

if TYPE_CHECKING:
    from ..core.backends import Launch
    from ..cpu.calls import CallTable, CCall, Placed, Steps, Word

logger = logging.getLogger(__name__)
aten = torch.ops.aten
MEMORY = {aten.empty.memory_format, aten.empty_strided.default, aten.new_empty.default}
"""Operations that do nothing to memory, besides views; what they give lies nowhere that a tape knows."""


class Tape:
    """Calls whose memory is said when they are made."""

    def __init__(self, table: CallTable, device: int, *, multiplies: bool, counts: bool) -> None:
        self._table, self._device, self._multiplies, self.counts = table, device, multiplies, counts

    def play(self, bases: Sequence[int], rows: int = 0) -> None:
        """Make the calls, with tensors at these addresses, on the current stream; of so many rows if it `counts`."""
        stream = current_stream(self._device)
        require_success(self._table.run([*bases, stream, current_handle() if self._multiplies else 0, rows]))


class Overlap(Exception):
    """Tensors share a part of their memory, so that an address does not say which one it belongs to."""


class Taped:
    """A launch that is written down at its first call, and played from then on.

    There is a tape for every way in which tensors are aligned and are the same, and for every state of torch's
    switches. Where calls may have any number of rows (`core/rows.py`), it is that of the first argument.
    """

    def __init__(self, launch: Launch, device: int) -> None:
        self._launch, self._device = launch, device
        self.workspace, self.describe = launch.workspace, launch.describe
        self._tapes: dict[Any, Tape | None] = {}
        self._obeys: dict[Any, bool] = {}  # whether it asks for torch's switches where tensors lie so
        self._single: list[int] | None = None  # which of the values are tensors, and which are lists of them
        self._lists: list[int] = []
        self._is_one_call = False  # which takes no longer in the ordinary way, without a look at where tensors lie

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        if self._is_one_call or recording.recorder is not None:  # or a part of what is being written down
            self._launch(args, outs, workspace)
            return
        values = (*args, *outs, workspace)
        if self._single is None:
            self._find_tensors(values)
        assert self._single is not None
        bases = [values[k].data_ptr() for k in self._single]
        for k in self._lists:
            bases += [tensor.data_ptr() for tensor in values[k]]
        union = 0
        for base in bases:
            union |= base
        apart = len(set(bases)) == len(bases)
        lie = (
            union % ALIGNED and tuple([base % ALIGNED for base in bases]),
            apart or tuple([bases.index(base) for base in bases]),  # which tensors are the same
        )
        tape = self._tapes.get(self._key(lie), MISSING)
        if tape is MISSING:
            tape = self._recorded(lie, values, args, outs, workspace)
        if tape is None:
            self._launch(args, outs, workspace)
        else:
            tape.play(bases, args[0].shape[0] if tape.counts else 0)

    def _key(self, lie: Any) -> Any:
        return lie, settings() if self._obeys.get(lie, True) else None

    def _find_tensors(self, values: Sequence[Any]) -> None:
        self._lists = [
            k
            for k, value in enumerate(values)
            if isinstance(value, list | tuple) and value and all(isinstance(item, torch.Tensor) for item in value)
        ]
        self._single = [k for k, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def _recorded(
        self, lie: Any, values: Sequence[Any], args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None
    ) -> Tape | None:
        """The tape of a call that is not made; None if it is to be made in the ordinary way."""
        assert self._single is not None
        if len(self._tapes) >= MOST_TAPES:
            return None
        tensors = [values[k] for k in self._single]
        for k in self._lists:
            tensors += values[k]
        tape = None
        try:
            recorder = recording.recorder = Recorder(tensors)
            with Listening(recorder):
                self._launch(args, outs, workspace)
            tape, self._obeys[lie] = recorder.tape(self._device), recorder.obeys
            self._is_one_call = tape is None
        except Overlap:
            return None  # another call's tensors may lie apart
        except NotAsACall as reason:
            logger.debug("%s is launched in the ordinary way: %s", type(self._launch).__name__, reason)
        finally:
            recording.recorder = None
        self._tapes[self._key(lie)] = tape
        return tape


MOST_TAPES = 16
"""Of a plan; calls that would need more are made in the ordinary way."""

MISSING: Any = object()


class Recorder:
    """Writes down what is called, for memory that lies anywhere."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        spans: dict[int, tuple[int, int]] = {}  # by the first byte: how many there are, and whose
        for base, tensor in enumerate(tensors):
            start, size = tensor.data_ptr(), meta_of(tensor).span
            if size > spans.get(start, (0, 0))[0]:
                spans[start] = size, base
        self._starts = sorted(spans)
        self._ends = [start + spans[start][0] for start in self._starts]
        self._bases = [spans[start][1] for start in self._starts]
        if any(end > start for end, start in zip(self._ends, self._starts[1:], strict=False)):
            raise Overlap
        self._count = len(tensors)
        self._multiplies = self._counts = False
        self.obeys = False  # torch's switches: somebody has asked for them (`products.allows_tf32`)
        self._parts: list[Steps] = []
        self._once: list[CCall] = []  # calls that are made a single time, behind the parts
        self._open: list[tuple[int, Placed]] = []
        self._memory: list[Any] = []  # in which the parameters lie

    @property
    def stream(self) -> Word:
        """Behind the tensors, the stream is given."""
        return self._placed(self._count)

    @property
    def handle(self) -> Word:
        """Behind that, the library's handle."""
        self._multiplies = True
        return self._placed(self._count + 1)

    def pointer(self, address: int) -> Word:
        """An address as one of the tensors and an offset."""
        if address == 0:
            return 0
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._ends[at]:
            raise NotAsACall("an address that is in none of the call's tensors")
        return self._placed(self._bases[at], address - self._starts[at])

    def rows(self, count: int) -> Word:  # noqa: ARG002  another one at each playing
        """Behind that, the number of rows."""
        self._counts = True
        return self._placed(self._count + 2)

    @staticmethod
    def _placed(base: int, offset: int = 0) -> Placed:
        from ..cpu.calls import Placed

        return Placed(base, offset)

    def launch(self, loaded: Loaded | None) -> None:
        """A kernel's launch."""
        call = LaunchCall(loaded, self)
        self._keep(call)
        self._once += [*call.before, call.call]

    def product(self, product: LibraryProduct) -> None:
        """A product of the library."""
        self.obeys = True
        self._once.append(product_call(product, self))

    def add(self, parts: Sequence[Steps], launch: LaunchCall) -> None:
        """Steps of a recurrence."""
        self.obeys = True
        self._close()
        self._keep(launch)
        self._parts += parts

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """A copy from one of the tensors to another, or to other places of it."""
        if not isinstance(source, torch.Tensor) or target.device != source.device or target.shape != source.shape:
            raise NotAsACall("a copy that is more than that")
        if not target.numel():
            return
        if target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous():
            size = target.numel() * target.element_size()
            self._once.append(copy_call(target.data_ptr(), source.data_ptr(), size, self))
        else:
            target, source = in_wide_elements(target, source)
            copying(target, source)(source, target)

    def fill(self, target: torch.Tensor, value: float) -> None:
        """The same number in every element."""
        if not target.is_contiguous():
            raise NotAsACall("memory with gaps is filled")
        if not value and target.numel():
            self._once.append(zero_call(target.data_ptr(), target.numel() * target.element_size(), self))
        elif target.numel():
            filling(target, value)(target)

    def tape(self, device: int) -> Tape | None:
        """All that was written down; None if it is a single call."""
        from ..cpu.calls import CallTable

        if not self._parts and len(self._once) == 1 and not self._multiplies:
            return None
        self._close()
        table = CallTable(self._parts, self._count + 3, self._open, self._memory)
        return Tape(table, device, multiplies=self._multiplies, counts=self._counts)

    def _close(self) -> None:
        """What was called a single time becomes a part of its own."""
        from ..cpu.calls import Steps

        if self._once:
            self._parts.append(Steps([self._once]))
            self._once = []

    def _keep(self, launch: LaunchCall) -> None:
        self._open += launch.open
        self._memory.append(launch.memory)


class Listening(TorchDispatchMode):
    """Hears of operations of torch's: views are made, copies and fills written down, all else is refused."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view or func in MEMORY:
            return func(*args, **(kwargs or {}))
        if func is aten.copy_.default:
            self._recorder.copy(*args[:2])
        elif func is aten.zero_.default:
            self._recorder.fill(args[0], 0.0)
        elif func is aten.fill_.Scalar:
            self._recorder.fill(*args)
        else:
            raise NotAsACall(f"{func} is called")
        return args[0]
