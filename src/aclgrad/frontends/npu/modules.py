"""The modules that a program for Ascend imports: there while the device is, and honest about what they lack."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from ..._version import __version__
from ..collected import collected
from . import amp, formats, torch_module


class Named(ModuleType):
    """A module that says what it has when it is asked for something else."""

    def __init__(self, name: str, doc: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, doc)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=__file__, is_package=True)
        self.__path__: list[str] = []
        self.__file__ = __file__  # torch and Python show it where a name is missing
        self.__dict__.update(names)
        self._names = sorted(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        shown = ", ".join(sorted((word for word in self._names if not word.startswith("__")), key=str.isupper))
        raise AttributeError(f"{self.__name__} of aclgrad.npu has no {name}, expected one of: {shown}", name=name)

    def __dir__(self) -> list[str]:
        return self._names


def put() -> Callable[[], None]:
    """Put the modules into `sys.modules`, and `torch.npu`; what is returned brings back what was there before."""
    made = {module.__name__: module for module in _made()}
    made["torch.npu"], made["torch.npu.amp"] = made["torch_npu.npu"], made["torch_npu.npu.amp"]
    before = {name: sys.modules.get(name) for name in made}
    if hasattr(torch, "npu"):
        del torch.npu
    _forget()
    torch._register_device_module("npu", made["torch.npu"])
    sys.modules.update(made)

    def undo() -> None:
        torch.npu = _absent()  # type: ignore[attr-defined]
        _forget()
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module

    return undo


def _forget() -> None:
    """Torch keeps the module of a device that it was asked for."""
    forget = getattr(torch.get_device_module, "cache_clear", None)
    if forget is not None:
        forget()


def _absent() -> ModuleType:
    """What torch needs to know of a device whose name it keeps."""
    answers = {"is_available": lambda: False, "device_count": lambda: 0, "manual_seed_all": lambda seed: None}  # noqa: ARG005
    absent = Named("torch.npu", "There is no device npu.", answers)
    absent._is_in_bad_fork = torch_module._is_in_bad_fork  # type: ignore[attr-defined]
    return absent


def _made() -> Iterator[ModuleType]:
    scaled = Named("torch_npu.npu.amp", amp.__doc__ or "", {name: getattr(amp, name) for name in amp.__all__})
    functions = {name: getattr(torch_module, name) for name in torch_module.__all__}
    npu = Named("torch_npu.npu", torch_module.__doc__ or "", {**functions, "amp": scaled})
    npu._is_in_bad_fork = torch_module._is_in_bad_fork  # type: ignore[attr-defined]  # torch asks for it
    names = {**collected("torch_npu"), **{name: getattr(formats, name) for name in formats.__all__}, "npu": npu}
    names["__version__"] = f"{torch.__version__.partition('+')[0]}+aclgrad{__version__}"
    yield from (Named("torch_npu", "torch_npu, as far as aclgrad has it.", names), npu, scaled)
    yield from _acl()


def _acl() -> Iterator[ModuleType]:
    """pyACL's: the public modules of this package."""
    parts = {}
    for part in ("rt", "util"):
        found = importlib.import_module(f"aclgrad.acl.{part}")
        public = getattr(found, "__all__", [name for name in vars(found) if not name.startswith("_")])
        parts[part] = Named(f"acl.{part}", found.__doc__ or "", {name: getattr(found, name) for name in public})
        yield parts[part]
    acl = importlib.import_module("aclgrad.acl")
    yield Named("acl", acl.__doc__ or "", {**{name: getattr(acl, name) for name in dir(acl)}, **parts})
