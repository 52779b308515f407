"""Linear cross entropy for training on the CPU.

`loss_and_gradients` takes three products, in the memory of one and a half. The statistics come first. The logits they
are made of are kept where weight_grad will be: each block of its rows holds H tokens' logits of that block, and is
written when these have been used. Tokens beyond H have theirs computed again, and so have all if weight_grad is not
wanted.

A logit is kept in as many bits as weight_grad has, less the largest of its part of the columns: what counts in the
softmax is close to that, so that 16 bits lose no more than the rounding of p does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta, Value
from aclgrad.core.spec import F16, F32, Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.gemm import gemm_for

from .. import spec, spec_forward
from ..empty import Nothing, NoTokens, Zeros
from ..gaps import WithoutGaps, has_gaps
from ..training import STATISTICS
from .choose import BLOCK_PARTS, kept_tokens, training_parts
from .gradient import Gradient, GradientOperands
from .gradient_plan import plan_gradient
from .statistics import Statistics, StatisticsOperands
from .statistics_plan import Kept


@jit
def _loss(row: int, vocabulary: int, others: Any, predicted: Any) -> Any:
    """Log Σ exp(logit − largest) − predicted of a token that counts; NaN if its target is not in the vocabulary.

    The sum less 1 is what the others add up to, if the own target is the largest.
    """
    return math.log1p(others + math.expm1(predicted)) - predicted if 0 <= row < vocabulary else math.nan


def _add(
    _thread: int, _threads: int, target: Any, others: Any, predicted: Any, share: Any, loss: Any,
    tokens: int, vocabulary: int, ignored: int, stride: int, mean: int,
) -> None:  # fmt: skip
    """What each token's loss counts, and the sum or the mean of them all."""
    count = 0
    for token in range(tokens):
        count += target[token * stride] != ignored
    weight = 1.0 / count if mean else 1.0
    total = 0.0
    for token in range(tokens):
        row = target[token * stride]
        share[token] = weight if row != ignored else 0.0
        if row != ignored:
            total += _loss(row, vocabulary, others[token], predicted[token])
    loss[0] = total / count if mean else total


def _list(
    _thread: int, _threads: int, target: Any, others: Any, predicted: Any, loss: Any,
    tokens: int, vocabulary: int, ignored: int, target_stride: int, others_stride: int, stride: int,
) -> None:  # fmt: skip
    """The loss of every token, 0 if it is ignored."""
    for token in range(tokens):
        row = target[token * target_stride]
        counted = _loss(row, vocabulary, others[token * others_stride], predicted[token])
        loss[token * stride] = counted if row != ignored else 0.0


def _share(
    _thread: int, _threads: int, target: Any, grad: Any, share: Any,
    tokens: int, ignored: int, target_stride: int, grad_stride: int,
) -> None:  # fmt: skip
    """The gradient of every token's loss, 0 if it is ignored."""
    for token in range(tokens):
        share[token] = grad[token * grad_stride] if target[token * target_stride] != ignored else 0.0


def _measured(call: Call, known: dict[str, Value], kept: Kept, kept_as: torch.dtype | None) -> Statistics:
    """Statistics of a whole vocabulary's logits, as they are."""
    whole = {"vocab_start_index": 0, "vocab_end_index": call.dims.V}
    values = {**known, **{name: call[name] for name in ("input", "weight", "target")}, **whole}
    return Statistics(Call(spec_forward.linear_online_max_sum.spec, values, strict=False), kept, kept_as, exact=True)


def _differentiated(call: Call, known: dict[str, Value]) -> Call:
    """The call of the gradient operator: targets are rows of the weight, or none."""
    values = {name: call[name] for name in ("input", "weight", "input_grad", "weight_grad")}
    values |= {"masked_target": call["target"], "target_mask": None, "softmax": None, **known}
    return Call(spec.linear_cross_entropy_backward.spec, values, strict=False)


def _gradient(call: Call, gradient: Call, kept: int, parts: int) -> Gradient:
    """One machine code for logits that are kept and for those that are not."""
    dtype, wide, target = call["input"].dtype, torch.promote_types(call["input"].dtype, F32), call["target"].dtype
    types = GradientOperands(
        grad=wide, input=dtype, weight=dtype, target_mask=None, masked_target=target, logits_max=wide,
        sum_exp_logits=wide, sum_exp_others=wide, tops=wide, kept=_kept_dtype(dtype),
    )  # fmt: skip
    return Gradient(gradient, types, kept, parts)


def _kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a logit is kept as, in the memory of an element of this dtype."""
    return F16 if dtype.itemsize == F16.itemsize else dtype


class LossAndGradients:
    """Phase two of `loss_and_gradients`. The matrices are contiguous."""

    def __init__(self, call: Call) -> None:
        tokens, features, vocabulary = call.dims
        target, dtype = call["target"], call["input"].dtype
        wide = torch.promote_types(dtype, F32)
        scratch = Scratch()
        names = ("logits_max", "sum_exp_logits", "predicted_logits", "sum_exp_others", "grad")
        self._names = tuple(call.spec.params)
        self._vectors = {name: scratch.tensor((tokens,), wide) for name in names}
        known: dict[str, Value] = dict.fromkeys(names, Meta((tokens,), (1,), wide, call.device))
        gradient, gemm = _differentiated(call, known), gemm_for(dtype)
        parts = training_parts(gemm)
        plan = plan_gradient(gradient, gemm, parts=parts)
        tokens_kept = 0 if call["weight_grad"] is None else kept_tokens(call.dims, 2 * plan.height)
        kept = Kept(tokens_kept, block=plan.block_columns, pitch=features) if tokens_kept else Kept(0)
        self._keeps = kept.tokens > 0
        self._measure = _measured(call, known, kept, _kept_dtype(dtype) if self._keeps else None)
        self._gradient = _gradient(call, gradient, kept.tokens, parts) if features else None
        self._shared = scratch.size
        self._numbers = (tokens, vocabulary, call["ignore_index"], target.strides[0], int(call["mean"]))
        signature = (target.dtype, wide, wide, wide, call["loss"].dtype, *(int for _ in self._numbers))
        self._add = cpu_threads.compile(_add, signature)

    @property
    def workspace(self) -> int:
        """Bytes: the gradient leaves the largest logits where they are, and takes the place of all other statistics."""
        behind = self._measure.kept_bytes + self._gradient.workspace if self._gradient else 0
        return self._shared + max(self._measure.workspace, behind)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        gradients = (given["input_grad"], given["weight_grad"])
        vectors = {name: piece.view(workspace) for name, piece in self._vectors.items()}
        matrices = {name: given[name] for name in ("input", "weight")}
        grad, statistics = vectors.pop("grad"), vectors
        behind = workspace[self._shared :]
        kept = given["weight_grad"] if self._keeps else None
        self._measure.run(StatisticsOperands(**matrices, target=given["target"], **statistics, kept=kept), behind)
        predicted = statistics.pop("predicted_logits")
        summed = (given["target"], statistics["sum_exp_others"], predicted, grad, given["loss"])
        self._add(1, *(each.data_ptr() for each in summed), *self._numbers)
        if self._gradient is None:
            Zeros()(args, gradients, None)
            return
        operands = GradientOperands(
            grad, **matrices, target_mask=None, masked_target=given["target"], **statistics,
            tops=behind, kept=behind if kept is None else kept,
        )  # fmt: skip
        self._gradient.run(operands, gradients, behind[self._measure.kept_bytes :])

    def describe(self) -> str:
        """In words."""
        kept = "logits kept in the memory of weight_grad" if self._keeps else "logits computed twice"
        gradient = "no features, so no gradient" if self._gradient is None else self._gradient.describe()
        return f"{kept}; statistics: {self._measure.describe()}; gradient: {gradient}"


class TokenLosses:
    """Phase two of `token_losses`."""

    def __init__(self, call: Call) -> None:
        tokens, target, loss = call.dims.BT, call["target"], call["loss"]
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        self._predicted = scratch.tensor((tokens,), loss.dtype)
        self._shared = scratch.size
        known: dict[str, Value] = {name: call[name] for name in STATISTICS}
        known["predicted_logits"] = Meta((tokens,), (1,), loss.dtype, call.device)
        self._measure = _measured(call, known, Kept(0), None)
        strides = (meta.strides[0] for meta in (target, call["sum_exp_others"], loss))
        self._numbers = (tokens, call.dims.V, call["ignore_index"], *strides)
        self._list = cpu_threads.compile(_list, (target.dtype, *[loss.dtype] * 3, *(int for _ in self._numbers)))

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._shared + self._measure.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        predicted = self._predicted.view(workspace)
        read = {name: given[name] for name in ("input", "weight", "target", *STATISTICS)}
        self._measure.run(StatisticsOperands(**read, predicted_logits=predicted), workspace[self._shared :])
        listed = (given["target"], given["sum_exp_others"], predicted, given["loss"])
        self._list(1, *(each.data_ptr() for each in listed), *self._numbers)

    def describe(self) -> str:
        """In words."""
        return f"statistics: {self._measure.describe()}"


class TokenGradients:
    """Phase two of `token_gradients`."""

    def __init__(self, call: Call) -> None:
        tokens, target, grad = call.dims.BT, call["target"], call["grad"]
        wide = torch.promote_types(call["input"].dtype, F32)
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        self._share_piece = scratch.tensor((tokens,), wide)
        known: dict[str, Value] = {"grad": Meta((tokens,), (1,), wide, call.device)}
        known |= {name: call[name] for name in STATISTICS}
        self._gradient = _gradient(call, _differentiated(call, known), 0, BLOCK_PARTS)
        self._shared = scratch.size
        self._numbers = (tokens, call["ignore_index"], target.strides[0], grad.strides[0])
        self._share = cpu_threads.compile(_share, (target.dtype, grad.dtype, wide, *(int for _ in self._numbers)))

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._shared + self._gradient.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        share, behind = self._share_piece.view(workspace), workspace[self._shared :]
        self._share(1, *(each.data_ptr() for each in (given["target"], given["grad"], share)), *self._numbers)
        read = {name: given[name] for name in ("input", "weight", *STATISTICS)}
        operands = GradientOperands(
            share, **read, target_mask=None, masked_target=given["target"], tops=behind, kept=behind
        )  # fmt: skip
        self._gradient.run(operands, outs, behind)

    def describe(self) -> str:
        """In words."""
        return f"logits computed again, {self._gradient.describe()}"


def loss_and_gradients(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    if not call.dims.BT:
        return NoTokens(call)
    return WithoutGaps(LossAndGradients, call) if has_gaps(call) else LossAndGradients(call)


def token_losses(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return TokenLosses(call) if call.dims.BT else Nothing()


def token_gradients(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return Zeros() if 0 in call.dims else TokenGradients(call)
