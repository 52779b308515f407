"""The family's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from torch import Tensor

from . import spec
from .packing import require_lengths

Saved = list[Tensor] | None
LstmResults = tuple[Tensor, Tensor, Tensor, Saved, Saved, Saved, Saved, Saved, Saved, Saved]
LstmGradients = tuple[Tensor | None, Tensor | None, Tensor | None, list[Tensor] | None]


def lstm(
    input: Tensor,
    params: Sequence[Tensor],
    hx: Sequence[Tensor] | None = None,
    batch_sizes: Tensor | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = True,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    check: bool = False,
    out: tuple[Any, ...] | None = None,
    backend: str | None = None,
) -> LstmResults:
    """A whole LSTM: any number of layers, one or two directions, fixed or variable length.

    Shapes, with D directions and L layers: `input` [T, N, I] ([N, T, I] with `batch_first`); `params` per layer and
    direction w_ih [4H, I or D·H], w_hh [4H, H] and, with bias, b_ih and b_hh [4H], rows in blocks i, f, g, o; `hx`
    (h0, c0), each [D·L, N, H], zeros if absent or empty. With `batch_sizes` [T] the sequences have different lengths:
    `input` is a padded [T·N, I] with rows t·N + n, of which row (t, n) counts if batch_sizes[t] > n; `check=True` reads
    and validates its values.

    Returns (output, hy, cy, i, j, f, o, h, c, tanhc): `output` [T, N, D·H] ([N, T, D·H] with `batch_first`), zero past
    a sequence's end; `hy` and `cy` [D·L, N, H], the states at each sequence's end; then what `lstm_backward` takes,
    lists of D·L tensors [T, N, H], always time-major. Without `train` the lists are None and cost nothing.
    `dropout` is taken for the signature's sake and has no effect.
    One dtype for all: float32, float16, bfloat16 or float64; half types are computed in float32.

    >>> import torch, aclgrad
    >>> T, N, I, H = 2, 1, 3, 4
    >>> w = [torch.zeros(4 * H, I), torch.zeros(4 * H, H)]
    >>> output, hy, cy, *saved = aclgrad.lstm(torch.ones(T, N, I), w, (torch.ones(1, N, H),) * 2, has_bias=False)
    >>> cy  # every gate is σ(0) = 0.5 and the candidate tanh(0) = 0, so the cell state halves at each step
    tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]])
    >>> output.shape, hy.shape, [len(values) for values in saved]
    (torch.Size([2, 1, 4]), torch.Size([1, 1, 4]), [1, 1, 1, 1, 1, 1, 1])
    """
    if check and _readable(batch_sizes, 1) and _readable(input, 2):
        require_lengths(batch_sizes, input.shape[0] // max(1, len(batch_sizes)))
    arguments = (
        input, params, hx, batch_sizes, has_bias, num_layers, dropout, train, bidirectional, batch_first,
    )  # fmt: skip
    return cast(LstmResults, spec.lstm(*arguments, out=out, backend=backend))


def lstm_backward(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    i: Sequence[Tensor],
    j: Sequence[Tensor],
    f: Sequence[Tensor],
    o: Sequence[Tensor],
    h: Sequence[Tensor],
    c: Sequence[Tensor],
    tanhc: Sequence[Tensor],
    batch_sizes: Tensor | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = True,
    bidirectional: bool = False,
    batch_first: bool = False,
    output_mask: Sequence[bool] | None = None,
    *,
    check: bool = False,
    out: tuple[Any, Any, Any, Any] | None = None,
    backend: str | None = None,
) -> LstmGradients:
    """Gradient of a whole LSTM: any number of layers, one or two directions, fixed or variable length.

    Shapes, with D directions and L layers: `input` [T, N, I] ([N, T, I] with `batch_first`); `hx` (h0, c0), each
    [D·L, N, H]; `params` per layer and direction w_ih [4H, I or D·H], w_hh [4H, H] and, with bias, b_ih and b_hh [4H],
    rows in blocks i, f, g, o; `dy` [T, N, D·H], `dh`, `dc` [D·L, N, H], each None for zero; `i`, `j` (the candidate),
    `f`, `o`, `h`, `c`, `tanhc` lists of D·L tensors [T, N, H] saved by the forward pass, always time-major. With
    `batch_sizes` [T] the sequences have different lengths: `input` and `dy` are padded 2-D tensors with rows t·N + n,
    of which row (t, n) counts if batch_sizes[t] > n; `check=True` reads and validates its values.

    Returns (dx, dh_prev, dc_prev, dparams); `output_mask` of four bools skips the work for some and returns None there.
    `dropout` and `train` are taken for the signature's sake: the saved activations already contain their effect.
    One dtype for all: float32, float16, bfloat16 or float64; half types are computed in float32.

    >>> import torch, aclgrad
    >>> T, N, I, H = 2, 1, 3, 4
    >>> x, state, saved = torch.ones(T, N, I), torch.ones(1, N, H), [torch.full((T, N, H), 0.5)]
    >>> w = [torch.ones(4 * H, I), torch.ones(4 * H, H)]
    >>> dx, dh0, dc0, dw = aclgrad.lstm_backward(
    ...     x, (state, state), w, torch.ones(T, N, H), None, None, *[saved] * 7, has_bias=False)
    >>> dx.shape, dh0.shape, [tuple(g.shape) for g in dw]
    (torch.Size([2, 1, 3]), torch.Size([1, 1, 4]), [(16, 3), (16, 4)])
    """
    if check and _readable(batch_sizes, 1) and isinstance(i, list | tuple) and i and _readable(i[0], 3):
        require_lengths(batch_sizes, i[0].shape[1])
    arguments = (
        input, hx, params, dy, dh, dc, i, j, f, o, h, c, tanhc, batch_sizes,
        has_bias, num_layers, dropout, train, bidirectional, batch_first, output_mask,
    )  # fmt: skip
    return cast(LstmGradients, spec.lstm_backward(*arguments, out=out, backend=backend))


def _readable(value: Tensor | None, rank: int) -> TypeGuard[Tensor]:
    """Whether sizes can be read from it; if not, the contract says what is wrong."""
    return isinstance(value, Tensor) and value.dim() == rank
