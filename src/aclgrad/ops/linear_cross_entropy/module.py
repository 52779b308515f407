"""`nn.LinearCrossEntropyLoss`, its functional form, and both over ranks that share the vocabulary."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from ...core.collectives import process_group
from ...core.errors import InvalidArgument, Unsupported
from .._shared.modules import member, recorded, require_shape
from .arguments import TokenStats, require_options
from .head import linear_cross_entropy
from .prepared import known_loss
from .shards.placement import ALONE, as_rows, is_distributed, local_part, split_over_ranks
from .shards.ranges import even_ranges, module_ranges
from .shards.style import VocabParallel

__all__ = [
    "LinearCrossEntropyLoss", "TokenStats", "VocabParallel", "VocabParallelLinearCrossEntropyLoss",
    "linear_cross_entropy",
]  # fmt: skip


class LinearCrossEntropyLoss(nn.Module):
    """`torch.nn.LinearCrossEntropyLoss` by this package's kernels: same arguments, parameters and state_dict.

    A language model's head and its loss in one: `linear.weight` is [num_classes, in_features]. Shapes: `input`
    [..., in_features], `target` [...] of class indices. `softcap`, `logit_scale`, `z_loss`, `return_stats`, and the
    `token_weight` and `normalizer` of a call are those of `linear_cross_entropy`, which has all options.

    >>> import torch, aclgrad.nn
    >>> head = aclgrad.nn.LinearCrossEntropyLoss(4, 10, bias=True, softcap=30.0)
    >>> head(torch.randn(2, 5, 4), torch.randint(10, (2, 5))).shape
    torch.Size([])
    """

    # What a module that was torch's does not have.
    softcap: float | None = None
    logit_scale: float = 1.0
    z_loss: float = 0.0
    return_stats: bool = False

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
        softcap: float | None = None,
        logit_scale: float = 1.0,
        z_loss: float = 0.0,
        return_stats: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        rows = math.prod(out_features, start=num_classes)
        self.linear = nn.Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.num_classes, self.out_features, self.options = num_classes, out_features, options
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.softcap, self.logit_scale, self.z_loss, self.return_stats = softcap, logit_scale, z_loss, return_stats
        require_options(num_classes, **self._options())

    def _options(self) -> dict[str, Any]:
        """Those that can be set, and the tensors replaced, at any time."""
        names = ("weight", "reduction", "ignore_index", "label_smoothing", "softcap", "logit_scale", "z_loss")
        return {name: getattr(self, name) for name in (*names, "return_stats")}

    def _beyond_torch(self) -> dict[str, Any]:
        """Options that torch's module does not have, where they differ from their defaults."""
        values = {name: getattr(self, name) for name in ("softcap", "logit_scale", "z_loss", "return_stats")}
        return {name: value for name, value in values.items() if value != getattr(LinearCrossEntropyLoss, name)}

    def require_torch(self) -> None:
        """Raise if torch's own module lacks an option that this one was made with."""
        for name, value in self._beyond_torch().items():
            raise Unsupported(f"{name} is {value}, which torch's module does not have", name)

    def extra_repr(self) -> str:
        """The options."""
        names = ("num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options")
        options = {name: getattr(self, name) for name in names if name != "bias"}
        options |= {"in_features": self.linear.in_features, "bias": self.linear.bias is not None}
        shown = {name: options[name] for name in ("in_features", *names)} | self._beyond_torch()
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        token_weight: Tensor | None = None,
        normalizer: float | Tensor | None = None,
    ) -> Any:
        """The loss of the classes that `input` predicts, and their `TokenStats` if the module returns those."""
        if isinstance(input, Proxy):
            return recorded(self, input, target, token_weight, normalizer)
        linear, sizes = member(self, "linear"), (self.num_classes, *self.out_features)
        expected = (math.prod(sizes) if self.out_features else self.num_classes, linear.in_features)
        weight, bias = member(linear, "weight"), member(linear, "bias")
        if not isinstance(weight, Tensor) or weight.shape != expected:
            symbols = f"[{'num_classes · out_features' if self.out_features else 'num_classes'}, linear.in_features]"
            require_shape("linear.weight", weight, expected, symbols)
        if self.out_features:
            weight, bias = weight.view(*sizes, -1), None if bias is None else bias.view(sizes)
        known = known_loss((
            input, weight, target, bias, member(self, "weight"), token_weight, normalizer, self.reduction,
            self.ignore_index, self.label_smoothing, self.softcap, self.logit_scale, self.z_loss, self.return_stats,
        ))  # fmt: skip
        if known is not None:
            return known
        return linear_cross_entropy(
            input, weight, target, linear_bias=bias, token_weight=token_weight, normalizer=normalizer, **self._options()
        )


class VocabParallelLinearCrossEntropyLoss(LinearCrossEntropyLoss):
    """A `LinearCrossEntropyLoss` whose vocabulary is split over the ranks of a group, each of which has some rows.

    `group` is a process group (None: the default one) or a device mesh of one dimension. `linear.weight` is
    [local rows, in_features]; of a mesh it is a DTensor, which `torch.distributed.checkpoint` saves as a whole. `vocab`
    = (start, stop) are this rank's rows; else the vocabulary is split as DTensor splits it. A call takes what that of
    `LinearCrossEntropyLoss` takes, the same on all ranks, and returns the same loss on all of them. The other arguments
    are those of `linear_cross_entropy`; the class weights `weight` are of all classes.

    >>> import torch, torch.distributed as dist, aclgrad.nn
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> head = aclgrad.nn.VocabParallelLinearCrossEntropyLoss(4, 10)
    >>> head(torch.randn(2, 5, 4), torch.randint(10, (2, 5))).shape, head.vocab
    (torch.Size([]), (0, 10))
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        group: Any = None,
        vocab: tuple[int, int] | None = None,
        reduce_input_grad: bool = True,
        sequence_parallel: bool = False,
        check: bool = False,
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        softcap: float | None = None,
        logit_scale: float = 1.0,
        z_loss: float = 0.0,
        return_stats: bool = False,
    ) -> None:
        super().__init__(
            in_features, num_classes, bias=bias, device="meta", dtype=dtype, reduction=reduction, weight=weight,
            ignore_index=ignore_index, label_smoothing=label_smoothing, softcap=softcap, logit_scale=logit_scale,
            z_loss=z_loss, return_stats=return_stats,
        )  # fmt: skip
        self.group = group
        self._ranges = module_ranges(num_classes, self._ranks, vocab)
        self.vocab = self._ranges[self._ranks.rank()]
        mesh = None if self._ranks is group or group is None else group
        if mesh is not None and self._ranges != even_ranges(num_classes, len(self._ranges)):
            raise InvalidArgument(
                f"vocab is {vocab} beside a device mesh, expected None: a DTensor is split its own way", "vocab"
            )
        self.reduce_input_grad, self.sequence_parallel, self.check = reduce_input_grad, sequence_parallel, check
        start, stop = self.vocab
        for name, parameter in list(self.linear.named_parameters()):
            local = torch.empty(stop - start, *parameter.shape[1:], dtype=parameter.dtype, device=device)
            self.linear.register_parameter(name, nn.Parameter(as_rows(local, mesh, num_classes)))
        self.reset_parameters()

    @property
    def _ranks(self) -> Any:
        """The process group."""
        return process_group(self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> VocabParallelLinearCrossEntropyLoss:
        """A copy over the same group, which cannot be copied."""
        memo[id(self)] = made = type(self).__new__(type(self))
        made.__setstate__(copy.deepcopy({**self.__dict__, "group": None}, memo))  # type: ignore[no-untyped-call]
        made.group = self.group
        return made

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weight and bias anew as `nn.Linear` does, other numbers on every rank though all have the same seed."""
        limit = self.linear.in_features**-0.5 if self.linear.in_features else 0.0
        for parameter in self.linear.parameters():
            local = local_part(parameter)
            seed = int(torch.randint(2**62, ())) + self.vocab[0]
            if not local.is_meta:
                local.uniform_(-limit, limit, generator=torch.Generator(local.device).manual_seed(seed))

    @classmethod
    def from_whole(cls, head: LinearCrossEntropyLoss, **how: Any) -> VocabParallelLinearCrossEntropyLoss:
        """One with this rank's rows of a head, and its options; `how` are arguments about the group."""
        linear = head.linear
        made = cls(
            linear.in_features, head.num_classes, bias=linear.bias is not None, device=linear.weight.device,
            dtype=linear.weight.dtype, **head._options(), **how,
        )  # fmt: skip
        start, stop = made.vocab
        with torch.no_grad():
            for own, whole in zip(made.linear.parameters(), linear.parameters(), strict=True):
                local_part(own).copy_(whole[start:stop])
                own.requires_grad_(whole.requires_grad)
        return made.train(head.training)

    def extra_repr(self) -> str:
        """The options, and whose rows these are."""
        return f"{super().extra_repr()}, vocab={self.vocab}, ranks={len(self._ranges)}"

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        token_weight: Tensor | None = None,
        normalizer: float | Tensor | None = None,
    ) -> Any:
        """The loss of the classes that `input` predicts, and their `TokenStats` if the module returns those."""
        if isinstance(input, Proxy):
            return recorded(self, input, target, token_weight, normalizer)
        start, stop = self.vocab
        weight, bias = self.linear.weight, self.linear.bias
        expected = (stop - start, self.linear.in_features)
        require_shape("linear.weight", local_part(weight), expected, "[local rows, linear.in_features]")
        arguments = {
            "input": input, "linear_weight": weight, "target": target, "linear_bias": bias,
            "token_weight": token_weight, "normalizer": normalizer, **self._options(),
        }  # fmt: skip
        how = {name: getattr(self, name) for name in ("reduce_input_grad", "sequence_parallel", "check")}
        if is_distributed(weight):
            return linear_cross_entropy(**arguments, **how)
        found = split_over_ranks(arguments, self._ranks, None, ranges=self._ranges, **how)
        return linear_cross_entropy(**arguments) if found is ALONE else found
