"""One tensor in one file: npy, bin (raw, as numpy's tofile writes) and pt (torch.save).

Files are written piece by piece, with their SHA-256 on the way, and mapped when they are read: no byte comes into
memory before somebody looks at it. A npy file has no bfloat16, so it holds the 16 bits as uint16.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import BadDump
from ...core.meta import Meta, contiguous_strides, dtype_name

NPY, BIN, PT = "npy", "bin", "pt"
FORMATS = (NPY, BIN, PT)
PIECE = 1 << 24  # bytes that are written or hashed at a time

Shape = tuple[int, ...]

_CODES = {
    torch.float16: "<f2", torch.float32: "<f4", torch.float64: "<f8", torch.bool: "|b1", torch.uint8: "|u1",
    torch.int8: "|i1", torch.int16: "<i2", torch.int32: "<i4", torch.int64: "<i8", torch.bfloat16: "<u2",
}  # fmt: skip
DTYPES = {dtype_name(dtype): dtype for dtype in _CODES}
"""Every dtype that a tensor in a file may have, by its name."""

_OF_NUMPY = {np.dtype(code): dtype for dtype, code in _CODES.items() if dtype != torch.bfloat16}
_BITS = (np.dtype("<u2"), np.dtype("V2"))  # how a bfloat16 may lie in a npy file: as bits, or as ml_dtypes leaves it


@dataclass(frozen=True)
class Stored:
    """A tensor in a file. `dtype` and `shape` are what somebody said about it: a raw file tells neither."""

    path: Path
    dtype: torch.dtype | None = None
    shape: Shape | None = None

    def load(self, dtype: torch.dtype | None = None, shape: Shape | None = None) -> Tensor:
        """The tensor, its file mapped. What was not said about it may be said now; what was said must be so.

        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "x.bin"
        >>> _ = write(torch.arange(6.0).bfloat16().view(2, 3), place)
        >>> Stored(place).load(torch.bfloat16, (2, 3))
        tensor([[0., 1., 2.],
                [3., 4., 5.]], dtype=torch.bfloat16)
        """
        dtype, shape = self.dtype or dtype, shape if self.shape is None else self.shape
        read = _READERS.get(self.path.suffix[1:])
        if read is None:
            raise BadDump(f"{self.path.name} is of no known kind, expected one of {', '.join(FORMATS)}")
        try:
            tensor = read(self.path, dtype, shape)
        except (OSError, ValueError, EOFError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or str(error).strip().split("\n")[0] or "it ends early"
            raise BadDump(f"{self.path.name} cannot be read: {why}") from None
        if self.dtype is not None and tensor.dtype != self.dtype:
            tensor = self._narrowed(tensor, self.dtype)
        if self.shape is not None and tuple(tensor.shape) != self.shape:
            raise BadDump(f"{self.path.name} has shape {list(tensor.shape)}, {list(self.shape)} was said of it")
        return tensor

    def _narrowed(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor of half type that its writer could only store as a wider one; it must have lost nothing by that."""
        if tensor.is_floating_point() and dtype.is_floating_point and tensor.element_size() > dtype.itemsize:
            narrow = tensor.to(dtype)
            if torch.equal(narrow.to(tensor.dtype).nan_to_num(), tensor.nan_to_num()):
                return narrow
        raise BadDump(f"{self.path.name} is {dtype_name(tensor.dtype)}, {dtype_name(dtype)} was said of it")


def write(tensor: Tensor, path: Path) -> str:
    """Write a tensor into a file of the kind that its suffix says. Returns the file's SHA-256.

    Shape: any; the elements stand in row-major order, whatever the strides. The same tensor gives the same bytes.
    """
    if tensor.dtype not in _CODES:
        raise BadDump(f"{path.name} cannot hold {dtype_name(tensor.dtype)}, expected one of {', '.join(DTYPES)}")
    tensor = tensor.detach().cpu().resolve_neg()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == f".{PT}":
        alone = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        torch.save(tensor if alone and type(tensor) is Tensor and _is_plain(tensor) else _plain(tensor), path)
        return checksum(path)
    if path.suffix not in (f".{NPY}", f".{BIN}"):
        raise BadDump(f"{path.name} is of no known kind, expected one of {', '.join(FORMATS)}")
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in _content(tensor, with_header=path.suffix == f".{NPY}"):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _content(tensor: Tensor, with_header: bool) -> Iterator[memoryview]:
    if with_header:
        header = io.BytesIO()
        said: dict[str, Any] = {"descr": _CODES[tensor.dtype], "fortran_order": False, "shape": tuple(tensor.shape)}
        np.lib.format.write_array_header_1_0(header, said)
        yield header.getbuffer()
    yield from _pieces(tensor)


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of the elements in row-major order."""
    nbytes = tensor.numel() * tensor.element_size()
    rows = PIECE * len(tensor) // nbytes if nbytes > PIECE and tensor.dim() else 0
    if rows:
        for part in torch.split(tensor, rows):
            yield _bytes(part)
    elif nbytes > PIECE:
        for row in tensor:
            yield from _pieces(row)
    else:
        yield _bytes(tensor)


def _bytes(tensor: Tensor) -> memoryview:
    plain = tensor if _is_plain(tensor) else _plain(tensor)
    return plain.view(-1).view(torch.uint8).numpy().data


def _is_plain(tensor: Tensor) -> bool:
    """Whether the strides are what a row-major tensor has, those of dimensions that do not matter included."""
    return tensor.dim() > 0 and tensor.stride() == contiguous_strides(tuple(tensor.shape))


def _plain(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor)


def _mapped(path: Path, dtype: torch.dtype, shape: Shape, offset: int = 0) -> Tensor:
    """A tensor over a file's bytes; what is written to it never reaches the file."""
    if prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)
    place = np.memmap(path, dtype=np.uint8, mode="c", offset=offset, shape=(prod(shape) * dtype.itemsize,))
    return torch.from_numpy(place).view(dtype).view(shape)


def _read_npy(path: Path, dtype: torch.dtype | None, shape: Shape | None) -> Tensor:  # noqa: ARG001  the file tells it
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found, reverse, kind = read(file)
        offset = file.tell()
    if path.stat().st_size < offset + prod(found) * kind.itemsize:
        raise ValueError(f"it ends before {kind.name} {list(found)} is complete")
    if kind in _BITS and (dtype == torch.bfloat16 or kind.kind == "V"):
        known: torch.dtype | None = torch.bfloat16
    else:
        known = _OF_NUMPY.get(kind) or (torch.uint16 if kind in _BITS else None)
    if known is None:
        native = kind.newbyteorder("=")
        if native not in _OF_NUMPY:
            raise ValueError(f"its elements are {kind.name}, expected one of {', '.join(DTYPES)}")
        return torch.from_numpy(np.load(path).astype(native))
    if reverse:
        return _mapped(path, known, found[::-1], offset).permute(*range(len(found))[::-1])
    return _mapped(path, known, found, offset)


def _read_bin(path: Path, dtype: torch.dtype | None, shape: Shape | None) -> Tensor:
    if dtype is None or shape is None:
        raise ValueError("a raw file tells neither dtype nor shape, expected golden data with their manifest, or .npy")
    size, wanted = path.stat().st_size, prod(shape) * dtype.itemsize
    if size != wanted:
        raise ValueError(f"it has {size} bytes, {Meta(shape, contiguous_strides(shape), dtype, _CPU)} has {wanted}")
    return _mapped(path, dtype, shape)


def _read_pt(path: Path, dtype: torch.dtype | None, shape: Shape | None) -> Tensor:  # noqa: ARG001  the file tells them
    try:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # written before torch had files that can be mapped
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError("it is no file of torch.save, or one of more than tensors") from None
    if not isinstance(found, Tensor):
        raise ValueError(f"it holds a {type(found).__name__}, expected a tensor")
    return found.detach()


_CPU = torch.device("cpu")
_READERS: dict[str, Callable[[Path, torch.dtype | None, Shape | None], Tensor]] = {
    NPY: _read_npy, BIN: _read_bin, PT: _read_pt,
}  # fmt: skip
