"""What torch_npu's older LSTM functions compute, by the operators of the family."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ...core.dispatch import wants_gradient
from ...core.errors import InvalidArgument
from .functional import lstm, lstm_backward

AllGradients = tuple[Tensor, Tensor, Tensor, list[Tensor]]
Steps = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Order(NamedTuple):
    """Which rows of [T, N, …] are steps of a sequence, and how they are put into the order that the operator takes.

    That is forward in time, the longest sequence first. Turning the rows back is the same for `rows`.
    """

    rows: Tensor | None  # [T, N]: at (t, n) the step that comes there, of a reversed sequence
    batch: Tensor | None  # [N]: the sequences by their lengths
    back: Tensor | None
    present: Tensor | None  # [T, N]
    batch_sizes: Tensor | None  # [T]

    @classmethod
    def of(cls, like: Tensor, mask: Tensor | None, reverse: bool) -> Order:
        """That of sequences like a tensor [T, N, …], which end where a mask [T, N, …] is zero, if there is one."""
        if like.dim() != 3:
            raise InvalidArgument(f"input has shape {list(like.shape)}, expected [T, N, I]", "input")
        steps, batch = like.shape[:2]
        time = torch.arange(steps, device=like.device)[:, None]
        if mask is None:
            rows = (steps - 1 - time).expand(steps, batch) if reverse else None
            return cls(rows, None, None, None, None)
        if mask.shape[:2] != like.shape[:2]:
            raise InvalidArgument(f"seq_mask has shape {list(mask.shape)}, expected [{steps}, {batch}, …]", "seq_mask")
        present = mask.reshape(steps, batch, -1)[..., 0] != 0
        lengths = present.sum(0)
        if not torch.equal(present, time < lengths):
            raise InvalidArgument(
                "seq_mask has steps behind the end of a sequence, expected ones, then zeros", "seq_mask"
            )
        order = lengths.argsort(descending=True, stable=True)
        rows = torch.where(present, lengths - 1 - time, time) if reverse else None
        return cls(rows, order, order.argsort(), present, present.sum(1))

    def arranged(self, steps: Tensor) -> Tensor:
        """[T, N, F] as the operator takes it."""
        return self._sorted(self._turned(steps), self.batch)

    def restored(self, steps: Tensor) -> Tensor:
        """[T, N, F] as the caller has it."""
        return self._turned(self._sorted(steps, self.back))

    def states(self, state: Tensor) -> Tensor:
        """[1, N, H] as the operator takes it."""
        return self._sorted(state, self.batch)

    def restored_states(self, state: Tensor) -> Tensor:
        """[1, N, H] as the caller has it."""
        return self._sorted(state, self.back)

    def kept(self, steps: Tensor, state: Tensor) -> Tensor:
        """States after every step. A reversed sequence begins at its end: before it, `state`."""
        if self.present is None or self.rows is None:
            return steps
        return torch.where(self.present[..., None], steps, state)

    def flat(self, steps: Tensor) -> Tensor:
        """[T, N, F] as [T·N, F] where the lengths vary."""
        return steps if self.batch_sizes is None else steps.flatten(0, 1)

    def _turned(self, steps: Tensor) -> Tensor:
        return steps if self.rows is None else steps.gather(0, self.rows[..., None].expand(steps.shape))

    def _sorted(self, steps: Tensor, order: Tensor | None) -> Tensor:
        return steps if order is None else steps.index_select(1, order)


def called(
    input: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, h: Tensor, c: Tensor, reverse: bool
) -> Steps:
    """(y, h, c, i, j, f, o, tanhc), differentiable if a gradient is wanted.

    Shapes: `input` [T, N, I]; `weight` [I+H, 4H]; `bias` [4H]; `mask` [T, N, …], zero past a sequence's end; `h` and
    `c` [1, N, H].
    """
    order = Order.of(input, mask, reverse)
    if wants_gradient((input, weight, bias, h, c)):
        results: Steps = _Differentiable.apply(order, input, weight, bias, h, c)  # type: ignore[no-untyped-call]
        return results
    return _steps(order, input, weight, bias, h, c)


def _steps(order: Order, input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> Steps:
    x, states = order.flat(order.arranged(input)), (order.states(h), order.states(c))
    y, _, _, *saved = lstm(x, _params(weight, bias, input), states, order.batch_sizes)
    i, j, f, o, hs, cs, tanhc = (order.restored(values[0]) for values in saved if values is not None)
    return order.restored(y), order.kept(hs, h), order.kept(cs, c), i, j, f, o, tanhc


def gradients(
    order: Order,
    upstream: tuple[Tensor | None, ...],
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    h: Tensor,
    c: Tensor,
    saved: Steps,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(input, weight, bias, h, c), from those of (y, h, c), each [T, N, H] or None; only final states count."""
    grady, gradh, gradc = upstream
    final = 0 if order.rows is not None else -1
    dh, dc = (None if gradient is None else order.states(gradient[final][None]) for gradient in (gradh, gradc))
    dy = None if grady is None else order.flat(order.arranged(grady))
    _, hs, cs, i, j, f, o, tanhc = ([order.arranged(values)] for values in saved)
    x, states = order.flat(order.arranged(input)), (order.states(h), order.states(c))
    params = _params(weight, bias, input)
    operands: Any = (x, states, params, dy, dh, dc, i, j, f, o, hs, cs, tanhc, order.batch_sizes)
    dx, dh0, dc0, (dw_ih, dw_hh, db, _) = cast(AllGradients, lstm_backward(*operands))
    dweight = torch.cat([dw_ih, dw_hh], 1).t().contiguous()
    return order.restored(dx.view(input.shape)), dweight, db, order.restored_states(dh0), order.restored_states(dc0)


def _params(weight: Tensor, bias: Tensor, input: Tensor) -> list[Tensor]:
    """Torch's weights and biases of one layer."""
    columns = input.shape[-1]
    return [weight[:columns].t(), weight[columns:].t(), bias, torch.zeros_like(bias)]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, order: Order, *operands: Tensor) -> Steps:
        results = _steps(order, *operands)
        ctx.order = order
        ctx.save_for_backward(*operands, *results)
        ctx.mark_non_differentiable(*results[3:])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        x, weight, bias, h, c, *saved = ctx.saved_tensors
        return None, *gradients(ctx.order, upstream[:3], x, weight, bias, h, c, cast(Steps, tuple(saved)))
