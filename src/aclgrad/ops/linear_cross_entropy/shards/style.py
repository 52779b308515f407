"""The head in a plan of `torch.distributed.tensor.parallel.parallelize_module`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ....core.errors import InvalidArgument, WrongType
from .placement import is_distributed

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle as Style
else:
    Style = object


class VocabParallel(Style):
    """A `ParallelStyle` for `LinearCrossEntropyLoss`: its vocabulary is split over a device mesh.

        parallelize_module(model, mesh["tp"], {"head": aclgrad.nn.VocabParallel(sequence_parallel=True)})

    The rows of weight and bias become DTensors with `Shard(0)`. The module takes a DTensor or a local tensor; the
    latter is replicated, or with `sequence_parallel` split along its first dimension, or as `input_layouts` says:
    `Replicate()`, or `Shard` of a dimension of tokens. Targets are whole on all ranks. The loss is the same on all of
    them; it is a plain tensor, or with `use_local_output=False` a DTensor.
    """

    def __new__(cls, *args: Any, **options: Any) -> VocabParallel:  # noqa: ARG004
        """Of a class that inherits from torch's, which is imported here."""
        made: VocabParallel = object.__new__(_style(cls))
        return made

    def __init__(
        self, *, sequence_parallel: bool = False, input_layouts: Any = None, use_local_output: bool = True
    ) -> None:
        super().__init__()
        if sequence_parallel and input_layouts is not None:
            raise InvalidArgument("input_layouts is given beside sequence_parallel, expected one", "input_layouts")
        self.sequence_parallel, self.input_layouts = sequence_parallel, input_layouts
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        """Shard the module's parameters, and have its inputs and outputs converted."""
        from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

        from ..module import LinearCrossEntropyLoss

        if not isinstance(module, LinearCrossEntropyLoss):
            kind = f"{type(module).__module__}.{type(module).__qualname__}"
            raise WrongType(
                f"the module is a {kind}, expected an aclgrad.nn.LinearCrossEntropyLoss: aclgrad.nn.convert makes one "
                "of torch's"
            )
        if module.out_features:
            raise InvalidArgument(f"out_features is {module.out_features}, expected none beside a split vocabulary")
        layout = Shard(0) if self.sequence_parallel else self.input_layouts or Replicate()

        def shard(name: str, part: nn.Module, mesh: Any) -> None:
            if name == "linear":
                for key, parameter in part.named_parameters(recurse=False):
                    whole = distribute_tensor(parameter.detach(), mesh, [Shard(0)])
                    part.register_parameter(key, nn.Parameter(whole, parameter.requires_grad))

        def convert(module: nn.Module, given: Any, mesh: Any) -> Any:  # noqa: ARG001
            x, target, *rest = given
            return (_placed(x, target, mesh, layout), target, *rest)

        def convert_back(module: nn.Module, found: Any, mesh: Any) -> Any:  # noqa: ARG001
            return _local(found) if self.use_local_output else found

        return distribute_module(module, device_mesh, shard, convert, convert_back)


@cache
def _style(cls: type[VocabParallel]) -> Any:
    """The class, with torch's `ParallelStyle` below it."""
    from torch.distributed.tensor.parallel import ParallelStyle

    return type(cls.__name__, (cls, ParallelStyle), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _placed(input: Any, target: Any, mesh: Any, layout: Any) -> Any:
    """A local input as a DTensor of this layout."""
    if is_distributed(input):
        return input
    from torch.distributed.tensor import DTensor

    shape = torch.Size((*target.shape, input.shape[-1]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(input, mesh, [layout], run_check=False, shape=shape, stride=stride)


def _local(found: Any) -> Any:
    if isinstance(found, tuple):
        loss, stats = found
        return _local(loss), type(stats)(*(_local(value) for value in stats))
    value: Tensor = found.to_local().clone() if is_distributed(found) else found  # a view would bear no hooks
    return value
