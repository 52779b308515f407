"""Named inputs: for golden data, `aclgrad demo` and `aclgrad selftest`."""

from aclgrad.custom import F16, F32, F64, InvalidArgument, NullArgument
from aclgrad.testing.cases import EDGE, REAL, SMOKE, Case, Invalid, Suite

DTYPES = (F32, F16, F64)


def numbers(count, *shape):
    """So many tensors of a shape."""
    return lambda data: tuple(data.normal(*shape, scale=3.0) for _ in range(count))


def cases(count):
    """The same for both operators."""
    return (
        Case("matrix", numbers(count, 5, 7), DTYPES, frozenset({SMOKE})),
        Case("scalar", numbers(count), DTYPES, frozenset({EDGE})),
        Case("empty", numbers(count, 0, 3), DTYPES, frozenset({EDGE})),
        Case("64Ki", numbers(count, 1 << 16), DTYPES, frozenset({REAL})),
    )


INVALID = (
    Invalid("x_null", {"x": None}, NullArgument, "x"),
    Invalid("x_integer", {"x": lambda t: t.int()}, InvalidArgument, "x"),
)

SUITES = {
    "squared_relu": Suite(cases(1), INVALID, main="x"),
    "squared_relu_backward": Suite(cases(2), INVALID, main="x"),
}
