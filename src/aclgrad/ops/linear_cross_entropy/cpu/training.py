"""Linear cross entropy for training on the CPU.

`loss_and_gradients` takes three products, in the memory of one and a half. The statistics come first. The logits they
are made of are kept where weight_grad will be: each block of its rows holds H tokens' logits of that block, and is
written when these have been used. Tokens beyond H have theirs computed again, and so have all if weight_grad is not
wanted.

A logit is kept in as many bits as weight_grad has, less the largest of its part of the columns: what counts in the
softmax is close to that, so that 16 bits lose no more than the rounding of p does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.gemm import gemm_for
from aclgrad.cpu.steps import WORKSPACE, Bases, Chain, Place, Step

from ..empty import Nothing, NoTokens, Zeros
from ..gaps import WithoutGaps, has_gaps
from ..spec_training import differentiates
from .choose import Kept, kept_as, kept_tokens, training_parts
from .gradient_plan import plan_gradient
from .losses import MEASURED, Losses, Vectors, wide_of
from .options import ClassVectors, RowOptions
from .slopes import READ, Slopes, differentiated
from .targets import is_wide
from .tokens import ShareNumbers, share_losses


class _InSteps:
    """Phase two of an operator: bias and class weights are laid out as it needs them, then come its steps."""

    def __init__(self, call: Call, scratch: Scratch, classes: ClassVectors, steps: Steps) -> None:
        self._bases = Bases(call)
        given = self._bases.places
        self._steps = Chain([*classes.steps(given), *steps(given, WORKSPACE.at(scratch.size))])

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        self._steps(self._bases((*args, *outs), workspace), workspace.numel())


Steps = Callable[[Mapping[str, Place], Place], Sequence[Step]]
"""Of the places of a call's tensors, by name, and that of the rest of the workspace."""


class LossAndGradients(_InSteps):
    """Phase two of `loss_and_gradients`. The matrices are contiguous."""

    def __init__(self, call: Call) -> None:
        features, target, wide = call.dims.H, call["target"], wide_of(call)
        self._tokens = call.dims.BT
        scratch = Scratch()
        gemm = gemm_for(call["input"].dtype)
        parts = training_parts(gemm)
        any_metas = dict.fromkeys(("logits_max", "sum_exp_logits"), target)
        plan = plan_gradient(differentiated(call, any_metas), gemm, parts=parts)
        itemsize, has_weight_grad = kept_as(call["input"].dtype).itemsize, call["weight_grad"] is not None
        tokens_kept, beside = kept_tokens(call.dims, 2 * plan.height, itemsize, has_weight_grad)
        if not (tokens_kept and differentiates(call)):
            tokens_kept, beside = 0, False
        pitch = tokens_kept if beside else features
        self._kept = kept = Kept(tokens_kept, block=plan.block_columns, pitch=pitch) if tokens_kept else Kept(0)
        self._beside = scratch.reserve(call.dims.V * pitch * itemsize) if beside else None
        self._losses = Losses(call, "losses", scratch, kept)
        found = self._losses.vectors
        self._share = Vectors(call, ("grad",), scratch)
        self._slopes = None
        if differentiates(call) and (features or call["bias_grad"] is not None):
            metas = {**dict.fromkeys(READ), **{name: found.metas[name] for name in MEASURED}}
            self._slopes = Slopes(call, self._share.metas["grad"], metas, scratch, kept, parts)
        self._shared = scratch.size
        weights, normalizer = call["token_weight"], call["normalizer"]
        numbers = ShareNumbers(
            call.dims.BT, is_wide(target), call["ignore_index"], int(call["mean"]), int(weights is not None),
            int(normalizer is not None), target.strides[0], found.stride("losses"),
            0 if weights is None else weights.strides[0],
        )  # fmt: skip
        signature = (int, *[wide] * 5, *(int for _ in numbers))
        self._reduce = cpu_threads.compile(share_losses, signature).fixed(*numbers)
        super().__init__(call, scratch, self._losses.classes, self._steps_of)

    @property
    def workspace(self) -> int:
        """Bytes: the gradient leaves the largest logits where they are, and takes the place of all other statistics."""
        measure = self._losses.measure
        behind = measure.kept_bytes + self._slopes.gradient.workspace if self._slopes else 0
        return self._shared + max(measure.workspace, behind)

    def _steps_of(self, given: Mapping[str, Place], behind: Place) -> Sequence[Step]:
        kept = behind
        if self._kept.tokens:
            kept = given["weight_grad"] if self._beside is None else WORKSPACE.at(self._beside)
        (found, columns), steps = self._losses.steps(given, behind, kept)
        grad = self._share.places(given)
        weights, normalizer = (given.get(name, WORKSPACE) for name in ("token_weight", "normalizer"))
        shared = [given["target"], found["losses"], weights, normalizer, given["loss"], grad["grad"]]
        steps.append(Step(self._reduce, shared))
        if self._slopes is not None:  # something is wanted, and without features there is nothing in it
            behind_tops = behind.at(self._losses.measure.kept_bytes)
            steps += self._slopes.steps(given, found | grad, columns, behind_tops, tops=behind, kept=kept)
        return steps

    def describe(self) -> str:
        """In words."""
        where = "the memory of weight_grad" if self._beside is None else "the workspace"
        few = "" if self._kept.tokens == self._tokens else f" of {self._kept.tokens:,} tokens"
        kept = f"logits{few} kept in {where}" if self._kept.tokens else "logits computed twice"
        gradient = "none" if self._slopes is None else self._slopes.gradient.describe()
        return f"{kept}; statistics: {self._losses.measure.describe()}; gradient: {gradient}"


class TokenLosses(_InSteps):
    """Phase two of `token_losses`."""

    def __init__(self, call: Call) -> None:
        scratch = Scratch()
        self._losses = losses = Losses(call, "loss", scratch, Kept(0))
        self._shared = scratch.size
        super().__init__(call, scratch, losses.classes, lambda given, behind: losses.steps(given, behind, behind)[1])

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._shared + self._losses.measure.workspace

    def describe(self) -> str:
        """In words."""
        return f"statistics: {self._losses.measure.describe()}"


class TokenGradients(_InSteps):
    """Phase two of `token_gradients`."""

    def __init__(self, call: Call) -> None:
        scratch = Scratch()
        classes = ClassVectors(call, wide_of(call), scratch, RowOptions.of(call))
        parts = training_parts(gemm_for(call["input"].dtype))
        self._slopes = slopes = Slopes(call, call["grad"], call.values, scratch, Kept(0), parts)
        self._shared = scratch.size

        def steps(given: Mapping[str, Place], behind: Place) -> Sequence[Step]:
            return slopes.steps(given, given, classes.places(), behind, tops=behind, kept=behind)

        super().__init__(call, scratch, classes, steps)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._shared + self._slopes.gradient.workspace

    def describe(self) -> str:
        """In words."""
        return f"logits computed again, {self._slopes.gradient.describe()}"


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
    empty = not call.dims.BT or (not call.dims.H and call["bias_grad"] is None)
    return Zeros() if empty else TokenGradients(call)
