"""The operators for one shard of the vocabulary on CPUs, made of the kernels for a whole one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta, Value
from aclgrad.core.spec import U8, Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.gemm import gemm_for

from .. import spec_forward
from ..empty import Nothing, NothingFound, Zeros
from ..spec_shards import ELSEWHERE, SLOPES, found_by
from .choose import Kept, training_parts
from .gradient import Gradient, GradientOperands
from .losses import ASIDE, MEASURED, wide_of
from .options import ClassVectors, RowOptions
from .slopes import differentiated
from .statistics import Statistics, StatisticsOperands
from .targets import is_wide, target_at


def row_options(call: Call, smooths: bool, finds: bool = False, bends: bool = False) -> RowOptions:
    """Those of a shard's call; `bends` is what else makes a row more than a softmax."""
    changed = call["bias"] is not None or call["softcap"] != 0 or call["logit_scale"] != 1
    return RowOptions(changed or smooths or finds or bends, smooths, finds, call["softcap"], call["logit_scale"])


class FoundNumbers(NamedTuple):
    """Sizes and strides of `gather_found`."""

    tokens: int
    vocabulary: int
    smooths: int
    finds: int
    wide_row: int  # see `targets.py`
    row: int
    found_row: int
    found_column: int


def gather_found(
    _thread: int, _threads: int, row: int, top: Any, others: Any, predicted: Any, mixed: Any, weighed: Any, won: Any,
    found: Any, *numbers: int,
) -> None:  # fmt: skip
    """What the shard found of its tokens, in the rows of one matrix (`spec_shards.Found`)."""
    of = FoundNumbers(*numbers)
    for token in range(of.tokens):
        own = target_at(row, of.wide_row, token * of.row)
        at = found + token * of.found_column
        at[0] = top[token]
        at[of.found_row] = others[token]
        at[2 * of.found_row] = predicted[token] if 0 <= own < of.vocabulary else ELSEWHERE
        next_row = 3
        if of.smooths:
            at[next_row * of.found_row] = weighed[token]
            next_row += 1
        if of.finds:
            at[next_row * of.found_row] = mixed[token]
            at[(next_row + 1) * of.found_row] = won[token]


class ShardStatistics:
    """Phase two of `shard_statistics`."""

    def __init__(self, call: Call, kept: Kept | None = None) -> None:
        wide, tokens, row = wide_of(call), (call.dims.BT,), call["row"]
        scratch, places = Scratch(), found_by(call)
        options = row_options(call, places.weighed is not None, places.mixed is not None)
        dtypes = {**dict.fromkeys((*MEASURED, *ASIDE), wide), "won": U8}
        self._names = tuple(call.spec.params)
        self._vectors = {name: scratch.tensor(tokens, dtype) for name, dtype in dtypes.items()}
        self._classes = ClassVectors(call, wide, scratch, options)
        whole: dict[str, Value] = {"vocab_start_index": 0, "vocab_end_index": call.dims.V, "target": row}
        metas = {name: Meta(tokens, (1,), dtype, call.device) for name, dtype in dtypes.items()}
        values = {**whole, **metas, "input": call["input"], "weight": call["weight"]}
        measured = Call(spec_forward.linear_online_max_sum.spec, values, strict=False)
        self.measure = Statistics(measured, kept or Kept(0), options)
        self.shared = scratch.size
        numbers = FoundNumbers(
            *tokens, call.dims.V, int(options.smooths), int(options.finds), is_wide(row), row.strides[0],
            *call["found"].strides,
        )  # fmt: skip
        signature = (int, *[wide] * 5, U8, wide, *(int for _ in numbers))
        self._gather = cpu_threads.compile(gather_found, signature).fixed(*numbers)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self.shared + self.measure.workspace

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None, kept: int | None = None
    ) -> None:
        """Compute into the outputs; `kept` is where logits are kept, if they are."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        base, behind = workspace.data_ptr(), workspace[self.shared :]
        found = {name: base + piece.offset for name, piece in self._vectors.items()}
        bias, classes = self._classes(given, workspace)
        x, weight, row = (given[name].data_ptr() for name in ("input", "weight", "row"))
        logits = behind.data_ptr() if kept is None else kept
        self.measure.run(StatisticsOperands(x, weight, row, **found, bias=bias, classes=classes, kept=logits), behind)
        read = (found[name] for name in ("logits_max", "sum_exp_others", "predicted_logits", *ASIDE))
        self._gather(1, row, *read, given["found"].data_ptr())

    def describe(self) -> str:
        """In words."""
        return f"statistics: {self.measure.describe()}"


class Gapless:
    """Numbers of every token [BT], by name: as they are if they lie side by side, else copied; zeros where absent."""

    def __init__(self, call: Call, names: Sequence[str], scratch: Scratch) -> None:
        tokens, wide = (call.dims.BT,), wide_of(call)
        self.metas = {name: Meta(tokens, (1,), wide, call.device) for name in names}
        self._copied: dict[str, Piece] = {
            name: scratch.tensor(tokens, wide) for name in names if call[name] is None or call[name].strides != (1,)
        }

    def __call__(self, given: Mapping[str, Any], workspace: torch.Tensor) -> dict[str, int]:
        """Their addresses."""
        addresses = {name: given[name].data_ptr() for name in self.metas if name not in self._copied}
        for name, piece in self._copied.items():
            copy = piece.view(workspace)
            if given[name] is None:
                copy.zero_()
            else:
                copy.copy_(given[name])
            addresses[name] = copy.data_ptr()
        return addresses


OF_TOKENS = ("top", "total", *SLOPES)


class ShardGradients:
    """Phase two of `shard_gradients`."""

    def __init__(self, call: Call) -> None:
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        bends = call["beta"] is not None or call["delta"] is not None
        options = row_options(call, smooths=False, bends=bends)
        self._vectors = Gapless(call, OF_TOKENS, scratch)
        self._classes = ClassVectors(call, wide_of(call), scratch, options)
        parts = training_parts(gemm_for(call["input"].dtype))
        self._gradient = Gradient(self._differentiated(call), None, parts, options)
        self._shared = scratch.size

    def _differentiated(self, call: Call) -> Call:
        metas = self._vectors.metas
        of_a_whole = Call(call.spec, {**call.values, "target": call["row"]}, strict=False)
        statistics = {"logits_max": metas["top"], "sum_exp_logits": metas["total"]}
        return differentiated(of_a_whole, statistics)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._shared + self._gradient.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every thread has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        at, (bias, classes) = self._vectors(given, workspace), self._classes(given, workspace)
        behind, bias_grad = workspace[self._shared :], given["bias_grad"]
        x, weight, row = (given[name].data_ptr() for name in ("input", "weight", "row"))
        anything = behind.data_ptr()
        operands = GradientOperands(
            at["alpha"], x, weight, row, at["top"], at["total"], tops=anything, kept=anything,
            own_slope=at["own_slope"], beta=at["beta"], delta=at["delta"], bias=bias, classes=classes,
            bias_grad=anything if bias_grad is None else bias_grad.data_ptr(),
        )  # fmt: skip
        self._gradient.run(operands, (given["input_grad"], given["weight_grad"]), behind)

    def describe(self) -> str:
        """In words."""
        return f"logits computed again, {self._gradient.describe()}"


def shard_statistics(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    if not call.dims.BT:
        return Nothing()
    return ShardStatistics(call) if call.dims.V else NothingFound(found_by(call))


def shard_gradients(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    empty = not call.dims.BT or not call.dims.V or (not call.dims.H and call["bias_grad"] is None)
    return Zeros() if empty else ShardGradients(call)
