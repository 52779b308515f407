"""What an operator is compared with. A family may name such peers in `PEERS` of its `peers`.

`prepare(*args)` takes the operator's arguments in contract order, does whatever belongs outside the timed part, and
returns the call to be timed. The first peer of an operator is the one that its bars are about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.registry import part
from ..core.spec import OpSpec

Prepared = Callable[[], Any]
CPU, CUDA = ("cpu",), ("cuda",)
MOST_SHAPES = 64  # for which torch.compile keeps code


@dataclass(frozen=True)
class Peer:
    """A contender; one that `writes_out` is given a prepared output, and then ours gets one too."""

    name: str
    prepare: Callable[..., Prepared]
    writes_out: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    compiles: bool = False  # for seconds, before it runs
    alike: Callable[[Sequence[Any]], Sequence[Any]] = list  # of any arguments some for which both compute the same


def peers_of(spec: OpSpec, device: str, compiling: bool = False) -> Sequence[Peer]:
    """The peers of an operator on this kind of device; those that take long to compile only if `compiling`."""
    known: dict[str, tuple[Peer, ...]] = getattr(part(spec.package, "peers"), "PEERS", {})
    return [peer for peer in known.get(spec.name, ()) if device in peer.devices and (compiling or not peer.compiles)]


Module = TypeVar("Module", bound=nn.Module)


def loaded(module: Module, x: Tensor, params: Sequence[Tensor]) -> Module:
    """The module with these parameters, where x is and in its dtype."""
    module.to(x.device, x.dtype)
    with torch.no_grad():
        for own, given in zip(module.parameters(), params, strict=True):
            own.copy_(given)
    return module


def named(spec: OpSpec, args: Sequence[Any]) -> dict[str, Any]:
    """An operator's arguments by the names of its contract."""
    return dict(zip((arg.name for arg in spec.args), args, strict=True))


no_tf32 = partial(torch.backends.cudnn.flags, enabled=True, allow_tf32=False)
"""A context without the TF32 products that cuDNN makes of float32 by default."""


def without_tf32(prepare: Callable[..., Prepared]) -> Callable[..., Prepared]:
    """A peer that multiplies float32 as float32."""

    def prepared(*args: Any) -> Prepared:
        with no_tf32():
            call = prepare(*args)

        def run() -> Any:
            with no_tf32():
                return call()

        return run

    return prepared


def compiled(eager: Callable[..., Prepared]) -> Callable[..., Prepared]:
    """An eager peer through torch.compile, which compiles once for each shape and dtype."""

    @cache
    def function() -> Callable[..., Any]:
        torch._dynamo.config.recompile_limit = MOST_SHAPES
        whole: Callable[..., Any] = torch.compile(lambda *args: eager(*args)(), dynamic=False)
        return whole

    def prepare(*args: Any) -> Prepared:
        run = function()
        return lambda: run(*args)

    return prepare
