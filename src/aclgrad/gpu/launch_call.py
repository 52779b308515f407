"""A kernel's launch as a call of CUDA's driver, with the memory in which its parameters lie."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .driver import NotAsACall, Words, c_call, functions
from .launch import KNOWN, Loaded, RowCount

if TYPE_CHECKING:
    from ..cpu.calls import CCall, Placed, Word  # compiles with numba, which is imported when it is needed

COOPERATIVE, OVERLAPPING = 2, 6  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE, …_PROGRAMMATIC_STREAM_SERIALIZATION
TENSOR_MAP, ALIGNED_MAP = 16, 64  # words of a CUtensorMap, bytes to which it is aligned


class LaunchCall:
    """A compiled kernel's launch, and the memory in which its parameters lie.

    The kernel may take the number of a step as parameter `step`; `clock` is where that is written.
    """

    def __init__(self, loaded: Loaded | None, words: Words, step: int | None = None) -> None:
        if loaded is None:
            raise NotAsACall("the kernel is interpreted")
        kernel, grid, values = loaded
        metadata, launcher = kernel.metadata, kernel.run
        if launcher.global_scratch_size or launcher.profile_scratch_size or metadata.num_ctas != 1 or not KNOWN:
            raise NotAsACall(f"{metadata.name} takes more than grid, shared memory and parameters")
        signature = list(kernel.src.signature.values())
        maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
        parameters = [list(_words(kind, value, maps)) for kind, value in zip(signature, values, strict=True)]
        self._lay_out([word for of_one in parameters for word in of_one], words)
        self.clock = 0 if step is None else self._places[sum(map(len, parameters[:step]))]
        threads = 32 * metadata.num_warps
        attributes = [
            (kind, 1)
            for kind, there in ((OVERLAPPING, launcher.launch_pdl), (COOPERATIVE, launcher.launch_cooperative_grid))
            if there
        ]
        known = functions()
        if attributes:
            config = self._configured([*grid, threads, 1, 1, metadata.shared, 0], attributes, words.stream)
            self.call = c_call(known.launch_with, [config, kernel.function, self._pointers, 0])
        else:
            arguments = [kernel.function, *grid, threads, 1, 1, metadata.shared, words.stream, self._pointers, 0]
            self.call = c_call(known.launch, arguments)

    def _lay_out(self, values: Sequence[_Value], words: Words) -> None:
        """Write down the parameters' values, and behind them the address of each."""
        count = len(values) + 2  # Triton's kernels have two more, for scratch memory
        wide = sum(value.kind == "map" for value in values)
        self.memory = np.zeros(2 * count + 2 * TENSOR_MAP * wide + 64, dtype=np.uint64)
        self.open: list[tuple[int, Placed]] = []
        self.before: list[CCall] = []
        start = self.memory.ctypes.data
        at, places = 0, []
        for kind, value, content in [*values, _Value("number", 0), _Value("number", 0)]:
            if kind == "map":
                at += -(start + 8 * at) % ALIGNED_MAP // 8
                self.memory[at : at + TENSOR_MAP] = np.frombuffer(content, dtype=np.uint64)
                self.before.append(c_call(functions().lead, [start + 8 * at, words.pointer(value)]))
            elif kind == "pointer":
                self._put(at, words.pointer(value))
            elif kind == "rows":
                self._put(at, words.rows(value))
            else:
                self.memory[at] = value % 2**64
            places.append(start + 8 * at)
            at += TENSOR_MAP if kind == "map" else 1
        self._places = places[: len(values)]
        self._pointers = start + 8 * at
        self.memory[at : at + count] = places
        self._free = at + count

    def _put(self, at: int, word: Word) -> None:
        """Write a word, or remember that it lies open."""
        if isinstance(word, int):
            self.memory[at] = word % 2**64
        else:
            self.open.append((self.memory.ctypes.data + 8 * at, word))

    def _configured(self, sizes: Sequence[int], attributes: Sequence[tuple[int, int]], stream: Word) -> int:
        """The address of a CUlaunchConfig: sizes of 4 bytes each, the stream, and attributes of 72 bytes."""
        at, start = self._free, self.memory.ctypes.data
        self.memory[at : at + 4] = np.array(sizes, dtype=np.uint32).view(np.uint64)
        self._put(at + 4, stream)
        self.memory[at + 5 : at + 7] = start + 8 * (at + 7), len(attributes)
        for index, (kind, value) in enumerate(attributes):
            self.memory[at + 7 + 9 * index : at + 9 + 9 * index] = kind, value
        return start + 8 * at


class _Value(NamedTuple):
    """A parameter of a kernel: a number, a call's number of rows, a pointer, or the map of a tensor at `value`."""

    kind: str
    value: int
    content: bytes = b""


def _words(kind: Any, value: Any, maps: Iterator[Any]) -> Iterator[_Value]:
    """The parameters that a value of the function becomes: none if it is known to the compiler."""
    if isinstance(kind, tuple):
        for of_member, member in zip(kind, value, strict=True):
            yield from _words(of_member, member, maps)
    elif kind.startswith("tensordesc"):
        yield from _tensor_map(value, next(maps, None))
    elif kind == "fp32":
        yield _Value("number", struct.unpack("i", struct.pack("f", value))[0])
    elif kind.startswith("*"):
        yield _Value("pointer", value)
    elif kind != "constexpr":
        yield _Value("rows" if isinstance(value, RowCount) else "number", int(value))


def _tensor_map(tensor: Any, described: Any) -> Iterator[_Value]:
    """What the bulk copy engine knows of a matrix, then its sizes and strides. The map is Triton's."""
    from triton.backends.nvidia import driver

    if described is None:
        raise NotAsACall("a matrix is copied without a tensor map")
    made, *numbers = driver.make_tensordesc_arg(tensor, described)
    content = ctypes.string_at(id(made) + type(made).__basicsize__ - 8 * TENSOR_MAP, 8 * TENSOR_MAP)
    yield _Value("map", tensor.base.data_ptr(), content)
    for number in numbers:
        yield _Value("number", int(number))
