"""Tensors and arrays that somebody holds in memory, as what can be judged."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.binding import require_strided
from ...core.errors import BadDump, InvalidArgument


def as_tensors(given: Any) -> Any:
    """The same with tensors in the place of numpy's arrays, which share their memory where they can.

    >>> as_tensors({"x": np.arange(3.0), "eps": 0.5})
    {'x': tensor([0., 1., 2.], dtype=torch.float64), 'eps': 0.5}
    """
    if isinstance(given, np.ndarray):
        return _tensor(given)
    if isinstance(given, Mapping):
        return {name: as_tensors(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [as_tensors(value) for value in given]
    return given


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    if array.dtype.name == "bfloat16":  # of ml_dtypes
        return _tensor(array.view(np.int16)).view(torch.bfloat16)
    if any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of memory that must not be written, which nobody does
            return torch.from_numpy(array)
    except TypeError:
        raise BadDump(f"an array holds {array.dtype.name}, expected numbers that torch has") from None


def require_values(label: str, tensor: Tensor) -> None:
    """Raise unless a tensor has elements at strides, to be read."""
    if tensor.device.type == "meta":
        raise BadDump(f"{label} has a shape and no elements: it is on the device meta")
    try:
        require_strided(label, tensor)
    except InvalidArgument as fault:
        raise BadDump(str(fault)) from None
