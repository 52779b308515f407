"""How many kernels random small calls of a family need: `counted.py SEED FAMILY…` prints a number for each.

Calls are planned and nothing is compiled. In a process of its own: what it knows of kernels is not true.
"""

import os
import random
import sys
from types import SimpleNamespace

from aclgrad.core.registry import operators
from aclgrad.cpu import compiler
from aclgrad.testing.samples import sample

CALLS = 100
wanted: set[str] = set()


def noted(function, *rest):
    wanted.add(function.__name__)
    return SimpleNamespace(address=1, cache_hits=1)


def count(seed: str, family: str) -> None:
    """Plan calls of a family and print what they need."""
    chosen = [operator for operator in operators() if operator.spec.package.endswith(f".{family}")]
    rng = random.Random(f"{family} {seed}")
    for _ in range(CALLS):
        call = sample(rng.choice(chosen), rng)
        out = call.out if call.out is None or isinstance(call.out, tuple) else (call.out,)
        call.operator.plan(call.args, out, backend="cpu", asked=out is not None)
    print(family, len(wanted), *sorted(name.rsplit("_", 2)[0] for name in wanted), flush=True)


if __name__ == "__main__":
    compiler.cfunc = noted
    for name in sys.argv[2:]:
        child = os.fork()  # kernels that families share count for each
        if not child:
            count(sys.argv[1], name)
            os._exit(0)
        os.waitpid(child, 0)
