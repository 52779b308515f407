"""`nn.LSTM`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from ...core.binding import require_strided
from ...core.dispatch import is_plain
from ...core.errors import InvalidArgument
from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import recorded, require_dtype, require_flags, require_shape, require_states
from .autograd import sequences
from .cells import with_cells
from .dims import LstmDims
from .one_step import by_cells
from .packing import Packing
from .projection import by_torch, projected
from .variants import FORWARD, op, with_reset

__all__ = ["LSTM"]

States = tuple[Tensor, Tensor]


class LSTM(nn.RNNBase):
    """`torch.nn.LSTM` by this package's kernels: same arguments, parameters and state_dict.

    Shapes, with D directions: `input` [T, N, input_size] ([N, T, input_size] with `batch_first`, [T, input_size] for
    one sequence) or a `PackedSequence`; `hx` = (h, c), each [D * num_layers, N, hidden_size], zeros if absent. Returns
    the output [T, N, D * hidden_size], of the input's kind, and (h, c). With `proj_size` h and the output have that
    size in place of hidden_size. Where `reset` [T, N] (bool, laid out as the input's first axes are, for packed input
    [total length]) is set, a sequence starts anew, from zeros: no state passes to that step from the one before. With
    `return_cell_states=True` a third result is c of every step of the last layer,
    laid out as the output is, with D * hidden_size features. It is torch's `RNNBase` and not its `LSTM`, since
    `torch.compile` refuses every instance of that.

    >>> import torch, aclgrad.nn
    >>> output, (h, c) = aclgrad.nn.LSTM(3, 4, bidirectional=True)(torch.ones(5, 2, 3))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 8]), torch.Size([2, 2, 4]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)
        self.require_supported(self)

    def forward(
        self, input: Any, hx: States | None = None, *, reset: Any = None, return_cell_states: bool = False
    ) -> Any:
        """The whole sequence."""
        if type(input) is Tensor and reset is None and not return_cell_states:
            served = by_cells(self, input, hx)
            if served is not None:
                return served
        if isinstance(input, PackedSequence):
            return self._packed(input, hx, reset, return_cell_states)
        if isinstance(input, Proxy):
            return recorded(self, input, hx, reset=reset, return_cell_states=return_cell_states)
        batched = not isinstance(input, Tensor) or input.dim() != 2
        sizes = "[N, T, input_size]" if self.batch_first else "[T, N, input_size]"
        require_shape("input", input, [None] * (1 + batched) + [self.input_size], f"{sizes} or [T, input_size]")
        require_strided("input", input)
        batch_axis = 0 if self.batch_first else 1
        if input.shape[1 - batch_axis if batched else 0] == 0:
            raise InvalidArgument(f"input has shape {list(input.shape)}, expected at least one step", "input")
        self._require_states(hx, input.shape[batch_axis] if batched else None)
        if reset is not None:
            symbols = ("[N, T]" if self.batch_first else "[T, N]") if batched else "[T]"
            require_flags("reset", reset, input.shape[:-1], symbols)
            reset = (reset.t() if self.batch_first else reset) if batched else reset.unsqueeze(1)
        if batched:
            (output, *cells), states = self._run(input, hx, None, reset=reset, cells=return_cell_states)
            return output, states, *cells
        one = None if hx is None else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
        found, (hy, cy) = self._run(input.unsqueeze(batch_axis), one, None, reset=reset, cells=return_cell_states)
        output, *cells = [sequence.squeeze(batch_axis) for sequence in found]
        return output, (hy.squeeze(1), cy.squeeze(1)), *cells

    def _packed(self, sequences: PackedSequence, hx: States | None, reset: Any, cells: bool) -> Any:
        data, sizes, order, back = sequences
        require_shape("input.data", data, (None, self.input_size), "[total length, input_size]")
        require_strided("input.data", data)
        packing = Packing.of(sizes, data)
        self._require_states(hx, packing.batch)
        states = None if hx is None else _permuted(hx, order)
        if reset is not None:
            flags = reset.data if isinstance(reset, PackedSequence) else reset
            require_flags("reset", flags, data.shape[:1], "[total length]")
            reset = flags
        found, states = self._run(data, states, packing, sizes, reset=reset, cells=cells)
        output, *more = [PackedSequence(rows, sizes, order, back) for rows in found]
        return output, _permuted(states, back), *more

    def _weights(self) -> list[Tensor]:
        """As they are now, since they may have been replaced, and as the options want them, which may have been set."""
        self.require_supported(self)
        names, directions = self._flat_weights_names, 1 + self.bidirectional
        weights: list[Any] = [getattr(self, name, None) for name in names]
        sizes = (self.input_size, self.hidden_size, self.num_layers, directions, 1 + self.bias)
        shapes = LstmDims(0, 0, *sizes, variable=False, batch_first=False, P=self.proj_size).param_shapes()
        for name, weight, shape in zip(names, weights, shapes, strict=True):
            if weight is None or weight.shape != shape:
                require_shape(name, weight, shape, self._symbols(name))
        return weights

    def _symbols(self, name: str) -> str:
        """The shape of a weight or bias in words."""
        width = "proj_size" if self.proj_size else "hidden_size"
        if name.startswith("weight_hr"):
            return "[proj_size, hidden_size]"
        if name.startswith("bias"):
            return "[4 * hidden_size]"
        columns = "input_size" if name.startswith("weight_ih_l0") else f"{1 + self.bidirectional} * {width}"
        return f"[4 * hidden_size, {columns if name.startswith('weight_ih') else width}]"

    def _require_states(self, hx: object, batch: int | None) -> None:
        chains = self.num_layers * (1 + self.bidirectional)
        if batch is None:
            require_states(hx, (chains, self.hidden_size), "[D * num_layers, hidden_size]", self.proj_size)
        else:
            sizes = (chains, batch, self.hidden_size)
            require_states(hx, sizes, "[D * num_layers, N, hidden_size]", self.proj_size)

    def _run(
        self, x: Tensor, hx: States | None, packing: Packing | None, batch_sizes: Tensor | None = None, *,
        reset: Tensor | None, cells: bool,
    ) -> tuple[list[Tensor], States]:  # fmt: skip
        """Of a batch, or of packed data with `batch_sizes` on the CPU: the output, if asked for c, and the states."""
        weights = self._weights()
        torchs = self.proj_size and not cells and reset is None
        served = by_torch(self, x, weights, hx, batch_sizes) if torchs else None
        if served is not None:
            return [served[0]], served[1]
        return self._lowered(x, weights, hx, packing, reset, cells)

    def _lowered(
        self, x: Tensor, weights: list[Tensor], hx: States | None, packing: Packing | None, reset: Tensor | None,
        cells: bool,
    ) -> tuple[list[Tensor], States]:  # fmt: skip
        """In autocast's dtype where it is on; layer by layer if something is between them or some are frozen."""
        lower = None if packing is not None and x.device.type == "cpu" else autocast_dtype(x)  # as torch has it
        if lower is None:
            for name, weight in zip(self._flat_weights_names[1:], weights[1:], strict=True):
                require_dtype(name, weight, weights[0].dtype, "weight_ih_l0")
            require_dtype("input", x, weights[0].dtype, "weight_ih_l0")
        x, *params = lowered(lower, x, *weights)
        states = lowered(lower, *hx) if hx is not None else None
        drops = self.dropout and self.training
        if cells or self.proj_size or (self.num_layers > 1 and (drops or self._some_layers_are_frozen(params))):
            return self._layer_by_layer(x, params, states, packing, reset, cells)
        output, finals = self._operator(x, params, states, packing, reset, self.num_layers, self.batch_first)
        return [output], finals

    def _some_layers_are_frozen(self, params: list[Tensor]) -> bool:
        """Whether weights of some layers want a gradient and of others none does: these need not be multiplied for."""
        each = len(params) // self.num_layers
        layers = [params[k : k + each] for k in range(0, len(params), each)]
        return torch.is_grad_enabled() and len({any(p.requires_grad for p in layer) for layer in layers}) > 1

    def _layer_by_layer(
        self, x: Tensor, params: list[Tensor], hx: Any, packing: Packing | None, reset: Tensor | None, cells: bool
    ) -> tuple[list[Tensor], States]:
        """Time-major, as torch runs them, so that the same seed drops the same values."""
        if packing is None and self.batch_first:
            x = x.transpose(0, 1)
        directions, drops = 1 + self.bidirectional, self.dropout and self.training
        each = len(params) // self.num_layers
        finals: list[States] = []
        kept: list[Tensor] = []

        def plain(x: Tensor, weights: list[Tensor], hx: Any) -> tuple[Tensor, States]:
            if not cells or len(finals) + 1 < self.num_layers:
                return self._operator(x, weights, hx, packing, reset, 1, batch_first=False)
            sizes, hx = self._of_packing(packing, x, hx, 1)
            packed = packing is not None
            output, states, c = with_cells(x, weights, hx, sizes, reset, packed, self.bias, self.bidirectional)
            kept.append(c)
            return output, states

        for layer in range(self.num_layers):
            if layer and drops:
                x = dropout(x, self.dropout)
            chains = slice(layer * directions, (layer + 1) * directions)
            states = None if hx is None else [state[chains] for state in hx]
            weights = params[layer * each : (layer + 1) * each]
            if self.proj_size:
                x, final = projected(plain, x, weights, states, packing, directions, reset)
            else:
                x, final = plain(x, weights, states)
            finals.append(final)
        hy, cy = (torch.cat(parts) for parts in zip(*finals, strict=True))
        turned = packing is None and self.batch_first
        return [sequence.transpose(0, 1) if turned else sequence for sequence in (x, *kept)], (hy, cy)

    def _of_packing(self, packing: Packing | None, x: Tensor, hx: Any, layers: int) -> tuple[Tensor | None, Any]:
        """What operators take beside the rows of packed sequences: counts, and states in any case."""
        if packing is None:
            return None, hx
        if hx is None:  # they tell how many sequences there are
            chains = layers * (1 + self.bidirectional)
            zeros = x.new_zeros(self.hidden_size)
            hx = [zeros.expand(chains, packing.batch, self.hidden_size) for _ in range(2)]
        return packing.batch_sizes, hx

    def _operator(
        self, x: Tensor, params: list[Tensor], hx: Any, packing: Packing | None, reset: Tensor | None, layers: int,
        batch_first: bool,
    ) -> tuple[Tensor, States]:  # fmt: skip
        batch_sizes, hx = self._of_packing(packing, x, hx, layers)
        packed = packing is not None
        transformed = torch._C._are_functorch_transforms_active()  # a mapped tensor does not say what it requires
        keeps = torch.is_grad_enabled() and (transformed or any(t.requires_grad for t in (x, *params, *(hx or ()))))
        attributes = (self.bias, layers, 0.0, keeps, self.bidirectional, batch_first)
        if is_plain(x, *(hx or ()), *params, *(() if reset is None else (reset,))):
            tensors = (x, reset, batch_sizes, *(hx or ()), *params)
            output, hy, cy = sequences(attributes, packed, len(hx or ()), *tensors)
        else:
            arguments = (x, params, hx or [], batch_sizes, *attributes)
            output, hy, cy, *_ = op(FORWARD, reset, packed)(*with_reset(FORWARD, arguments, reset, packed))
        return output, (hy, cy)

    @staticmethod
    def require_supported(module: nn.RNNBase) -> None:
        """Raise if the module's weights were made for other options than it has now."""
        names = module._flat_weights_names
        if any(name.startswith("weight_hr") for name in names) != bool(module.proj_size):
            expected = "0" if module.proj_size else "the rows of weight_hr_l0"
            found = f"proj_size is {module.proj_size}, expected {expected}"
            raise InvalidArgument(f"{found}: the module's weights were made for that", "proj_size")
        each = 2 * (1 + module.bias) + bool(module.proj_size)
        if len(names) != each * (1 + module.bidirectional) * module.num_layers:
            for option, made in _options_of(names).items():
                if getattr(module, option) != made:
                    found = f"{option} is {getattr(module, option)}, expected {made}"
                    raise InvalidArgument(f"{found}: the module's weights were made for that", option)
            raise InvalidArgument(
                f"_flat_weights_names is {names}, expected a name for every weight", "_flat_weights_names"
            )


def _options_of(names: list[str]) -> dict[str, int]:
    """What an LSTM was made with whose weights have these names."""
    return {
        "num_layers": sum(name.startswith("weight_ih") and not name.endswith("_reverse") for name in names),
        "bidirectional": any(name.endswith("_reverse") for name in names),
        "bias": any(name.startswith("bias") for name in names),
    }


def _permuted(states: States, order: Tensor | None) -> States:
    """With the sequences of a batch in another order."""
    return states if order is None else (states[0].index_select(1, order), states[1].index_select(1, order))
