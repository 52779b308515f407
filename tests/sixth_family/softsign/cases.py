"""Named inputs of the family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import ANY_FORMAT, BENCH, EDGE, REAL, SMOKE, Case, Data, Invalid, Suite

DTYPES = (F32, F16, BF16, F64)


def _numbers(count: int, *shape: int) -> Callable[[Data], Sequence[Any]]:
    """So many tensors of a shape."""
    return lambda data: tuple(data.normal(*shape, scale=3.0) for _ in range(count))


def _cases(count: int) -> tuple[Case, ...]:
    return (
        Case("matrix", _numbers(count, 5, 7), DTYPES, frozenset({SMOKE})),
        Case("scalar", _numbers(count), DTYPES, frozenset({EDGE})),
        Case("empty", _numbers(count, 0, 3), DTYPES, frozenset({EDGE})),
        Case("past_every_block", _numbers(count, 3, 1031), DTYPES, frozenset({EDGE, REAL})),
        Case("1Mi", _numbers(count, 1 << 20), (F32, F16), frozenset({BENCH})),
    )


INVALID = (
    Invalid("x_null", {"x": None}, NullArgument, "x"),
    Invalid("out_null", {"out": None}, NullArgument, "out", ("aclnn",)),
    Invalid("x_integer", {"x": lambda t: t.int()}, InvalidArgument, "x"),
    Invalid("out_shape", {"out": lambda t: t[:-1]}, InvalidArgument, "out"),
)

SUITES = {
    "softsign": Suite(_cases(1), INVALID, main="x", formats=ANY_FORMAT),
    "softsign_backward": Suite(
        _cases(2), (*INVALID, Invalid("shapes", {"x": lambda t: t[:-1]}, InvalidArgument, "x")), main="x"
    ),
}
