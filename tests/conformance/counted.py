"""How many GPU kernels random small calls need: `counted.py SEED FAMILY…`, a program to run without TRITON_INTERPRET.

For each family a number is printed, and the functions with how often each is compiled. Calls are planned for a Hopper
that is not there, and nothing is compiled.
"""

import random
import sys
from collections import Counter

import torch
from compiled import AbsentGpu, elsewhere
from triton.runtime.jit import JITFunction

from aclgrad.core.registry import operators
from aclgrad.testing.samples import sample

CALLS = 100


class Kernel:
    """Stands for a compiled one."""

    function, packed_metadata = 1, None

    def __init__(self, launcher):
        self.run = launcher

    def __getitem__(self, grid):
        return None


def count(seed, family, gpu):
    """Plan calls of a family, and print what they need."""
    wanted = set()

    def noted(function, key, *_):
        wanted.add((function.__name__, key))
        return Kernel(gpu.launcher_cls(None, None))

    JITFunction._do_compile = noted
    chosen = [operator for operator in operators() if operator.spec.package.endswith(f".{family}")]
    rng = random.Random(f"{family} {seed}")
    planned = 0
    while planned < CALLS:
        call = sample(rng.choice(chosen), rng)
        if call.dtype == torch.float64:
            continue
        planned += 1
        out = call.out if call.out is None or isinstance(call.out, tuple) else (call.out,)
        args, outs = ([elsewhere(value) for value in values] for values in (call.args, out or ()))
        call.operator.plan(args, outs if out else None, asked=out is not None)
    names = Counter(name for name, _ in wanted)
    print(family, len(wanted), *(f"{name}:{n}" for name, n in names.most_common()), flush=True)


if __name__ == "__main__":
    absent = AbsentGpu(90)
    with absent.pretended():
        for name in sys.argv[2:]:
            count(sys.argv[1], name, absent)
