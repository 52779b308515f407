"""What the modules share: the checks of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from ...core.binding import integer, require_strided
from ...core.errors import InvalidArgument, WrongType
from ...core.meta import dtype_name


def recorded(module: nn.Module, input: Proxy, *others: Any, **named: Any) -> Any:
    """A call as a node of the graph that `torch.fx` records: its tracers look into all modules but torch's own."""
    tracer: Any = input.tracer
    if tracer.root is module:
        raise WrongType("input is a Proxy, expected the module inside another one: torch.fx records it as a node")
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (input, *others), named)


def member(module: nn.Module, name: str) -> Any:
    """A parameter, a buffer or a module of a module, as it is now; torch's own lookup takes half a microsecond."""
    for members in (module._parameters, module._buffers, module._modules):
        if name in members:
            return members[name]
    return getattr(module, name)  # it is computed, as by a parametrisation, or something else than a member


def require_tensor(name: str, value: object) -> None:
    """Raise unless it is a tensor, and one: what is nested has no shape."""
    if not isinstance(value, Tensor):
        raise WrongType(f"{name} is {type(value).__name__}, expected a tensor", name)
    if value.is_nested:
        require_strided(name, value)


def require_int(name: str, value: object) -> int:
    """The value as an int; torch takes whatever is an integer for one, but for a bool."""
    if isinstance(value, bool):
        raise WrongType(f"{name} is {value}, expected an int", name)
    return integer(name, value)


def require_shape(name: str, value: object, expected: Sequence[int | None], symbols: str) -> None:
    """Raise unless it is a tensor of this shape; None stands for any size."""
    require_tensor(name, value)
    assert isinstance(value, Tensor)  # as just required
    shape = value.shape
    if shape == tuple(expected):
        return
    if len(shape) != len(expected) or any(e is not None and s != e for s, e in zip(shape, expected, strict=True)):
        sizes = ", ".join("*" if size is None else str(size) for size in expected)
        raise InvalidArgument(f"{name} has shape {list(shape)}, expected [{sizes}] = {symbols}", name)


def require_flags(name: str, value: object, expected: Sequence[int], symbols: str) -> None:
    """Raise unless it is a tensor of bools of this shape."""
    require_shape(name, value, expected, symbols)
    assert isinstance(value, Tensor)
    if value.dtype != torch.bool:
        raise InvalidArgument(f"{name} is {dtype_name(value.dtype)}, expected bool", name)


def require_states(hx: object, expected: Sequence[int], symbols: str, projected: int = 0) -> None:
    """Raise unless it is None, for zeros, or the states (h, c) of an LSTM, both of this shape; h may be `projected`."""
    if hx is None:
        return
    if not isinstance(hx, tuple | list):
        raise WrongType(f"hx is {type(hx).__name__}, expected a tuple (h, c)", "hx")
    if len(hx) != 2:
        raise InvalidArgument(f"hx has {len(hx)} members, expected 2: (h, c)", "hx")
    if projected:
        require_shape("hx[0]", hx[0], [*expected[:-1], projected], symbols.replace("hidden_size", "proj_size"))
    for k in range(1 if projected else 0, 2):
        require_shape(f"hx[{k}]", hx[k], expected, symbols)


def require_dtype(name: str, value: Tensor, expected: torch.dtype, like: str) -> None:
    """Raise unless the tensor has this dtype."""
    if value.dtype != expected:
        raise InvalidArgument(f"{name} is {dtype_name(value.dtype)}, expected {dtype_name(expected)} like {like}", name)
