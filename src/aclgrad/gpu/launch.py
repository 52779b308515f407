"""Launch Triton functions with as little work on the host as can be.

Triton's own `function[grid](…)` inspects every argument at every launch. A plan fixes everything but the addresses, so
a `Kernel` is specialised when it is made: sizes and strides are known then, and a launch only looks whether the
addresses are aligned. The functions keep to one order of parameters: pointers, numbers, constants.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import triton

from ..core.words import counted
from .compilation import Grid, NotCompiled, compiled

ALIGNED = 16
"""Bytes to which Triton wants a pointer aligned for its widest accesses."""

FEW = 1 << 14
"""Elements that take as long as a launch, whatever the code is like: see `few`."""

INTERPRETING = triton.knobs.runtime.interpret
"""Whether Triton functions run in Triton's interpreter (TRITON_INTERPRET=1, set before the first import)."""

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
KNOWN = (3, 6) <= VERSION <= (3, 9)
"""Whether the installed Triton is one whose Gluon our kernels speak, and whose innermost launcher `_launcher` calls."""

Number: TypeAlias = "float | tuple[Number, ...] | None"
Pointer: TypeAlias = "torch.Tensor | int | None"
Dtype: TypeAlias = "torch.dtype | int | None"


class _Recording(threading.local):
    """Who writes launches down on this thread instead of making them (`tape`)."""

    recorder: Any = None


recording = _Recording()


def jit(function: Callable[..., Any]) -> Any:
    """A Triton function; `triton.jit` with a type."""
    return triton.jit(function)


class RowCount(int):
    """How many rows a call has, where calls with other numbers of rows make the same launches."""


class Loaded(NamedTuple):
    """A compiled kernel, its grid, and the values of all parameters of its function."""

    kernel: Any  # Triton's
    grid: Grid
    values: tuple[Any, ...]


class Specialised(ABC):
    """A function with its grid, numbers and constants, compiled when it is made: for pointers that are aligned.

    For others it is compiled when they come. A subclass says what else its function takes, and launches it. `options`
    are Triton's, such as `num_warps`. A grid with a 0 in it launches nothing.

    Triton makes other code for a number that is 1 and for one that is a multiple of 16. The numbers to compile for may
    be others than those to launch with (`any_like`), where one code is to serve many.
    """

    __slots__ = (
        "_compiled_for", "_constants", "_device", "_dtypes", "_empty", "_function", "_grid", "_loaded", "_misaligned",
        "_numbers", "_options", "_run",
    )  # fmt: skip

    def __init__(
        self,
        function: Any,
        grid: Sequence[int],
        device: torch.device,
        dtypes: Sequence[Dtype],
        numbers: Sequence[Number] = (),
        constants: Mapping[str, Any] | None = None,
        compiled_for: Sequence[Number] | None = None,
        **options: Any,
    ) -> None:
        padded = (*grid, 1, 1)
        self._function = function
        self._grid: Grid = (padded[0], padded[1], padded[2])
        self._empty = 0 in self._grid
        self._device = device
        self._dtypes = tuple(dtypes)
        self._numbers = tuple(numbers)
        self._compiled_for = self._numbers if compiled_for is None else tuple(compiled_for)
        self._constants = dict(constants or {})
        self._options = options
        self._misaligned: dict[tuple[StandIn, ...], Callable[..., None]] = {}
        self._loaded: dict[tuple[StandIn, ...], Any] = {}
        self._run = None if self._empty else self._specialised(self._dtypes)

    def _loaded_for(self, addresses: Sequence[int], arguments: Sequence[Any]) -> Loaded | None:
        """The code for pointers to these addresses, and the function's first arguments before its numbers."""
        if self._run is None:
            return None
        lying = stand_ins(self._dtypes, addresses)
        if lying not in self._loaded:
            self._for_addresses(addresses)
        return Loaded(self._loaded[lying], self._grid, (*arguments, *self._numbers, *self._constants.values()))

    @abstractmethod
    def _specialised(self, pointers: Sequence[StandIn]) -> Callable[..., None] | None:
        """The launcher for pointers that are aligned, given by their dtypes, or `Misaligned`; None if interpreted."""

    def _compiled(self, *arguments: Any) -> Any:
        """The function compiled for arguments, dtypes or stand-ins for tensors; its numbers come behind them."""
        settings = {**self._constants, **self._options}
        return compiled(self._function, (*arguments, *self._compiled_for), self._grid, self._device, **settings)

    def _for_addresses(self, addresses: Sequence[int]) -> Callable[..., None]:
        """The launcher for pointers to these addresses."""
        pointers = stand_ins(self._dtypes, addresses)
        run = self._misaligned.get(pointers) or self._specialised(pointers)
        assert run is not None  # what is interpreted has no launcher
        self._misaligned[pointers] = run
        return run

    def describe(self) -> str:
        """The function, its grid and the sizes of its blocks, in words."""
        sizes = [f"{name} {size}" for name, size in self._constants.items() if type(size) is int]
        told = ", ".join([*sizes, *(counted(n, "warp") for name, n in self._options.items() if name == "num_warps")])
        text = f"{self._function.fn.__name__.lstrip('_')}: {counted(math.prod(self._grid), 'program')}"
        return f"{text} ({told})" if told else text


class Kernel(Specialised):
    """A Triton function with its grid, numbers and constants. `kernel(*tensors)` launches it on the current stream.

    A pointer is a tensor or, unless interpreted, an address. One that is not wanted is None, among `dtypes` as well as
    in the call.
    """

    __slots__ = ()

    def __call__(self, *pointers: Pointer) -> None:
        """Launch. The tensors are on the kernel's device, which is the current one (see `OnDevice`)."""
        if self._empty:
            return
        run = self._run
        if run is None:
            with np.errstate(all="ignore"):  # the interpreter's numpy would warn of a 1/0 where a GPU does not
                self._function[self._grid](*self._arguments(pointers), *self._numbers, **self._constants)
            return
        addresses, aligned = addresses_of(pointers)
        if recording.recorder is not None:
            recording.recorder.launch(self.loaded(addresses))
            return
        if not aligned:
            run = self._for_addresses(addresses)
        run(*addresses)

    def fixed(self, *pointers: Pointer) -> Callable[[Any], None]:
        """The launch as a function of a number behind the pointers, which the function must not specialise on.

        Among the dtypes it is 0.
        """
        if self._run is None:
            return partial(self, *pointers)
        addresses, aligned = addresses_of(pointers)
        return partial(self._run if aligned else self._for_addresses([*addresses, 0]), *addresses)

    def with_rows(self, rows: int, *pointers: Pointer) -> None:
        """Launch with a call's number of rows behind the pointers; see `fixed`."""
        if self._run is not None and recording.recorder is not None:
            addresses, _ = addresses_of(pointers)
            recording.recorder.launch(self._loaded_for([*addresses, 0], self._arguments([*addresses, RowCount(rows)])))
        else:
            self.fixed(*pointers)(rows)

    def loaded(self, addresses: Sequence[int]) -> Loaded | None:
        """What the driver is given to launch it with pointers to these addresses; None if it is not compiled."""
        return self._loaded_for(addresses, self._arguments(addresses))

    def _specialised(self, pointers: Sequence[StandIn]) -> Callable[..., None] | None:
        if INTERPRETING:
            return None
        kernel = self._loaded[tuple(pointers)] = self._compiled(*self._arguments(self._known(pointers)))
        return _launcher(kernel, self._grid, self._device, (*self._numbers, *self._constants.values()))

    def _known(self, pointers: Sequence[StandIn]) -> Sequence[StandIn]:
        """The stand-ins as the compiler takes them."""
        return pointers

    def _arguments(self, pointers: Sequence[Any]) -> Sequence[Any]:
        """The function's first arguments."""
        return pointers


def few(elements: int) -> bool:
    """Whether a kernel over so many elements is one of the few that are compiled for any numbers and sizes of tiles.

    A kernel takes a second or more to compile, and what is gained by other code for each size and layout is less than a
    microsecond there.
    """
    return elements <= FEW


def any_like(number: Number) -> Number:
    """A number of which the compiler learns nothing but whether 32 bits hold it.

    >>> any_like(1), any_like((16, 2**40)), any_like(0.5)
    (5, (5, 8589934597), 0.5)
    """
    if isinstance(number, tuple):
        return tuple([any_like(member) for member in number])
    if type(number) is not int:
        return number
    return 5 if -(2**31) <= number < 2**31 else 2**33 + 5


def addresses_of(pointers: Sequence[Pointer]) -> tuple[list[int], bool]:
    """The addresses, and whether all are aligned; that of a missing one is 0."""
    addresses = [
        0 if pointer is None else pointer if type(pointer) is int else pointer.data_ptr()  # type: ignore[union-attr]
        for pointer in pointers
    ]
    union = 0
    for address in addresses:
        union |= address
    return addresses, union % ALIGNED == 0


@dataclass(frozen=True)
class Misaligned:
    """What Triton takes for a tensor whose address is odd."""

    dtype: Dtype

    def data_ptr(self) -> int:
        """An address of no alignment."""
        return 1


@dataclass(frozen=True)
class Aligned(Misaligned):
    """What Triton takes for a tensor whose address is aligned; inside a tuple it would not take a dtype for one."""

    def data_ptr(self) -> int:
        """An address of any alignment."""
        return 0


StandIn: TypeAlias = "Dtype | Misaligned"


def stand_ins(dtypes: Sequence[Dtype], addresses: Sequence[int]) -> tuple[StandIn, ...]:
    """What `compiled` takes for pointers of these dtypes that lie at these addresses."""
    pairs = zip(dtypes, addresses, strict=True)
    return tuple([dtype if address % ALIGNED == 0 else Misaligned(dtype) for dtype, address in pairs])


def _launcher(kernel: Any, grid: Grid, device: torch.device, values: Sequence[Any]) -> Callable[..., None]:
    """A function of addresses that launches a compiled kernel with these values behind them.

    Triton's own way calls a hook before and after, and asks the driver about every pointer. Where its innermost
    function is known to take what follows, that is called, without hooks and scratch memory.
    """
    if isinstance(kernel, NotCompiled):
        return kernel.launch
    launcher = kernel.run
    scratch = launcher.global_scratch_size or launcher.profile_scratch_size or getattr(launcher, "gsan_enabled", False)
    if not KNOWN or torch.version.hip is not None or scratch:
        run = kernel[grid]
        return lambda *addresses: run(*addresses, *values)
    launch, function, x, y, z, index = launcher.launch, kernel.function, *grid, device.index
    stream = triton.runtime.driver.active.get_current_stream
    ways, metadata = (launcher.launch_cooperative_grid, launcher.launch_pdl), (kernel.packed_metadata, None)
    hooks, no_scratch = (None, None), (None, None)
    if VERSION == (3, 6):
        how = (*ways, *no_scratch, *metadata, *hooks)
        return lambda *addresses: launch(x, y, z, stream(index), function, *how, *addresses, *values)
    types = (launcher.arg_annotations, launcher.kernel_signature)
    known = (*ways, *metadata, *hooks, *no_scratch, *types)
    return lambda *addresses: launch(x, y, z, stream(index), function, *known, (*addresses, *values))
