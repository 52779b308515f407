"""Every operator's GPU kernels on small and odd shapes: a program to run under NVIDIA's compute-sanitizer.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python tests/gpu/sanitized.py 0 4

makes every fourth call, beginning with the first. Without torch's cache every tensor is an allocation of its own, so an
access one past its end is seen.
"""

# ruff: noqa: E402  the tests' own modules are found by a path that is set here
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

from matrix import OPERATORS, cases, flat
from test_gpu_lstm import SIZES, problem

import aclgrad
from aclgrad.core.spec import BF16, F16, F32, F64
from aclgrad.ops.linear_cross_entropy import cases as linear_cross_entropy
from aclgrad.testing.cases import EDGE, SMOKE, Case
from aclgrad.testing.layouts import apply


def shifted(tensor):
    """The same values at an address that allows no wide access."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    return room[1:].view(tensor.shape).copy_(tensor)


def turned(tensor):
    """The same values with the last two dimensions swapped in memory."""
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def calls():
    """(label, function that makes the call), one after another: what all operators must take, then what is special."""
    for operator in OPERATORS:
        for case in cases(operator, SMOKE, EDGE):
            for dtype in (dtype for dtype in case.dtypes if dtype != F64):
                layouts = {"": lambda tensor: tensor}
                if SMOKE in case.tags:
                    layouts |= {"shifted": shifted, "turned": turned}
                for name, layout in layouts.items():
                    yield f"{operator.spec.name} {case} {dtype} {name}", called(operator, case, dtype, layout)
    for name, (_, batch, hidden) in SIZES.items():
        for dtype in (F32, F16):
            yield f"lstm_backward {name} {dtype}", lambda b=batch, h=hidden, d=dtype: recurrence(b, h, d)
    for softmax in (False, True):
        for dtype in (BF16, F16):
            rows = 33008 if softmax else 33001  # aligned rows of a softmax are read beside the products
            many = Case("cut", linear_cross_entropy._head(300, 264, rows, softmax=softmax), (dtype,))
            yield (
                f"linear_cross_entropy_backward {softmax} {dtype}",
                called(aclgrad.linear_cross_entropy_backward, many, dtype, lambda tensor: tensor),
            )


def called(operator, case, dtype, layout):
    """A call that makes its arguments first."""
    return lambda: operator(*(apply(layout, value) for value in case.build(dtype)))


def recurrence(batch, hidden, dtype):
    """Three steps of the LSTM, in every precision it has."""
    args = problem(3, batch, hidden, dtype)
    results = aclgrad.lstm_backward(*args)
    if dtype == F32:
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
        try:
            results = aclgrad.lstm_backward(*args)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    return results


def main(first, step):
    """Make every `step`-th call."""
    count = 0
    with torch.device("cuda"):
        for index, (label, call) in enumerate(calls()):
            if index % step == first:
                results = flat(call())
                torch.cuda.synchronize()
                assert all(result is None or result.is_cuda for result in results)
                count += 1
                print(label, flush=True)
    print(f"{count} calls")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ("0", "1")))
