"""What a backend's kernels give, as digests of all bits: a program.

python tests/conformance/digests.py cpu         all cases
python tests/conformance/digests.py cpu smoke   those with this tag
"""

import hashlib
import json
import sys

import torch
from matrix import device_of, flat, matrix

from aclgrad.testing.verdicts import run


def digests(backend: str, *tags: str) -> dict[str, str]:
    """By operator, case and dtype; a GPU's kernels have no float64."""
    found = {}
    with torch.device(device_of(backend)):
        for param in matrix(*tags):
            operator, case, dtype = param.values
            if backend == "cpu" or dtype != torch.float64:
                found[param.id] = digest(run(operator, case.build(dtype), backend))
    return found


def digest(results) -> str:
    every = hashlib.sha256()
    for tensor in flat(results):
        every.update(b"none" if tensor is None else tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy())
    return every.hexdigest()


if __name__ == "__main__":
    json.dump(digests(*sys.argv[1:]), sys.stdout)
