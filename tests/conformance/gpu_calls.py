"""Calls that between them take every way through the GPU kernels: small ones, odd ones, and sizes that are special."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from matrix import OPERATORS, cases

from aclgrad.core.plan import Operator
from aclgrad.core.spec import BF16, F16, F32, F64
from aclgrad.ops.linear_cross_entropy import cases as linear_cross_entropy
from aclgrad.ops.linear_cross_entropy import training
from aclgrad.ops.linear_cross_entropy.scale import scale_
from aclgrad.ops.linear_cross_entropy.spec import linear_cross_entropy_backward
from aclgrad.ops.lstm import cases as lstm_backward
from aclgrad.ops.lstm import cases_lstm as lstm
from aclgrad.ops.lstm import cases_packed, spec_packed, spec_resets
from aclgrad.ops.lstm import spec as lstm_spec
from aclgrad.testing.cases import EDGE, SMOKE, Case
from aclgrad.testing.layouts import apply, begun_late

BACKWARD_SIZES = {
    "registers": (6, 64, 512),
    "partial_sums": (9, 64, 1024),
    "by_warpgroups": (4, 256, 1024),
    "by_warpgroups_with_a_tail": (4, 150, 1024),
    "a_launch_a_step": (4, 600, 1024),
    "partial_sums_of_an_odd_size": (5, 64, 1000),
    "from_memory": (4, 32, 2048),
    "few_rows_of_many_units": (4, 4, 2048),
    "odd": (7, 21, 100),
    "one_past_a_tile": (5, 17, 129),
    "one_row": (9, 1, 768),
    "batch_larger_than_the_device": (3, 4099, 40),
}
"""Steps, rows and units of an LSTM's backward pass, by the way it runs on an H200."""

FLOAT32_SIZES = {
    "row_owners": (5, 128, 1024),
    "row_owners_with_a_tail": (6, 100, 1024),
    "warp_specialised_with_two_rows_each": (4, 300, 1024),
    "warp_specialised_in_four_groups": (4, 1000, 512),
    "warp_specialised_of_an_odd_depth": (4, 256, 896),
}
"""The same where float32 has ways of its own. Those by warpgroups are warp-specialised then, too."""

FORWARD_SIZES = {
    "registers": (6, 64, 512),
    "shared_and_registers": (5, 64, 1024),
    "registers_only_just": (7, 16, 768),
    "many_rows": (4, 200, 512),
    "pairs": (4, 256, 1024),
    "pairs_with_a_tail": (4, 150, 1024),
    "pairs_in_two_groups": (4, 400, 512),
    "pairs_of_an_odd_depth": (3, 200, 896),
    "from_memory": (4, 32, 2048),
    "few_units": (9, 20, 128),
    "idle_units": (9, 9, 40),
    "a_product_of_the_library": (3, 700, 1000),
    "odd": (7, 21, 100),
    "one_past_a_tile": (5, 17, 129),
    "one_row": (9, 1, 768),
    "batch_larger_than_the_device": (3, 4099, 40),
}
"""The same of its forward pass."""


PACKED_SIZES = {
    "registers": (6, 64, 512, {"share": 0.1, "directions": 2, "layers": 2}),
    "from_memory": (4, 32, 2048, {}),
    "by_warpgroups": (4, 256, 1024, {}),
    "row_owners": (12, 128, 1024, {}),
    "a_launch_a_step": (4, 600, 1024, {}),
    "warp_specialised": (4, 300, 1024, {}),
    "odd": (7, 21, 100, {"share": 0.1, "directions": 2}),
}
"""Most steps, sequences and units of packed ones, and options."""


class GpuCall(NamedTuple):
    """An operator, and the function that makes its arguments."""

    label: str
    operator: Operator
    build: Callable[[], list[Any]]


def calls() -> Iterator[GpuCall]:
    """What all operators must take, then what is special."""
    for operator in OPERATORS:
        for case in cases(operator, SMOKE, EDGE):
            for dtype in (dtype for dtype in case.dtypes if dtype != F64):
                for layout in (straight, shifted, turned, crossed) if SMOKE in case.tags else (straight,):
                    label = f"{operator.spec.name} {case} {dtype} {layout.__name__}"
                    yield GpuCall(label, operator, lambda c=case, d=dtype, lay=layout: lay(c.build(d)))
    for dtype in (F32, F16):
        sizes = {**BACKWARD_SIZES, **FLOAT32_SIZES} if dtype == F32 else BACKWARD_SIZES
        for name, size in sizes.items():
            yield GpuCall(f"lstm_backward {name} {dtype}", lstm_spec.lstm_backward, partial(backward, *size, dtype))
        for name, (_, N, H) in FORWARD_SIZES.items():
            yield GpuCall(f"lstm {name} {dtype}", lstm_spec.lstm, partial(forward, 3, N, H, dtype))
        for name in ("registers", "from_memory", "odd"):
            for operator, build, size in (
                (spec_resets.lstm_with_resets, forward, FORWARD_SIZES[name]),
                (spec_resets.lstm_with_resets_backward, backward, BACKWARD_SIZES[name]),
            ):
                make = partial(_reset, operator, build, *size, dtype)
                yield GpuCall(f"{operator.spec.name} {name} {dtype}", operator, make)
        for name, size in PACKED_SIZES.items():
            for operator, build in (
                (spec_packed.lstm_packed, cases_packed.forward),
                (spec_packed.lstm_packed_backward, cases_packed.backward),
            ):
                yield GpuCall(f"{operator.spec.name} {name} {dtype}", operator, partial(packed, build, *size, dtype))
    yield GpuCall("lstm_backward, products", lstm_spec.lstm_backward, partial(backward, 64, 64, 512, F32))
    yield GpuCall("lstm, products", lstm_spec.lstm, partial(forward, 12, 64, 512, F32, features=512))
    for dtype in (BF16, F16):
        for softmax in (False, True):
            rows = 33008 if softmax else 33001  # aligned rows of a softmax are read beside the products
            many = Case("cut", linear_cross_entropy._head(300, 264, rows, softmax=softmax), (dtype,))
            build = partial(many.build, dtype)
            yield GpuCall(f"gradient of {rows} {dtype}", linear_cross_entropy_backward, build)
        yield GpuCall(f"loss and gradients {dtype}", training.together, partial(head, 300, 264, 33008, dtype))
        yield from token_calls(dtype, 300, 264, 33008)
    yield GpuCall("loss and gradients float32", training.together, partial(head, 40, 65, 257, F32))
    yield from token_calls(F32, 40, 65, 257)
    yield GpuCall("gradients scaled", scale_, lambda: [torch.randn(5, 7), torch.tensor(0.5)])


def straight(args):
    """As they were made."""
    return args


def shifted(args):
    """At addresses that allow no wide access."""
    return [apply(begun_late, arg) for arg in args]


def turned(args):
    """The last two dimensions swapped in memory."""
    return [apply(_turned, arg) for arg in args]


def crossed(args):
    """The first one turned against the others."""
    return [apply(_turned, args[0]), *args[1:]]


def _turned(tensor):
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def backward(T, N, H, dtype, features=24, **options):
    """Arguments of `lstm_backward`."""
    return Case("gpu", lstm_backward._lstm(T, N, features, H, **options), (dtype,)).build(dtype)


def forward(T, N, H, dtype, features=24, **options):
    """Arguments of `lstm`."""
    return Case("gpu", lstm._lstm(T, N, features, H, **options), (dtype,)).build(dtype)


def packed(build, T, N, H, options, dtype):
    """Arguments of `lstm_packed` or its gradient; every fifth sequence has a single step."""
    lengths = sorted((1 if n % 5 == 4 else T - n % T for n in range(N)), reverse=True)
    return Case("gpu", build(lengths, 24, H, **options), (dtype,)).build(dtype)


def with_reset(operator, args, reset):
    """The arguments of an operator with resets, from those of the plain one."""
    place = list(operator.spec.params).index("reset")
    return [*args[:place], reset, *args[place:]]


def _reset(operator, build, T, N, H, dtype):
    return with_reset(operator, build(T, N, H, dtype), torch.rand(T, N) < 0.3)


def head(tokens, hidden, rows, dtype):
    """Arguments of the loss with its gradients."""
    x, w = torch.randn(tokens, hidden).to(dtype), (torch.randn(rows, hidden) * hidden**-0.5).to(dtype)
    return [x, w, torch.randint(0, rows, (tokens,)), -100, True, True, True]


def token_calls(dtype, tokens, hidden, rows):
    """The losses of all tokens, and their gradient from statistics that may be any."""
    inputs = partial(head, tokens, hidden, rows, dtype)
    yield GpuCall(f"token losses {dtype}", training.losses, lambda: inputs()[:4])
    yield GpuCall(
        f"token gradients {dtype}",
        training.gradients,
        lambda: [torch.randn(tokens), *inputs()[:4], *torch.ones(3, tokens), True, True],
    )
