"""What a backend's kernels give, as digests of all bits: a program.

python tests/conformance/digests.py cpu         all cases
python tests/conformance/digests.py cpu smoke   those with this tag
python tests/conformance/digests.py cpu first_dtype smoke   in the first of their dtypes
"""

import hashlib
import json
import sys

import torch
from matrix import device_of, flat, matrix

from aclgrad.testing.verdicts import run

FIRST_DTYPE = "first_dtype"


def digests(backend: str, *tags: str) -> dict[str, str]:
    """By operator, case and dtype; a GPU's kernels have no float64."""
    found = {}
    one_dtype = FIRST_DTYPE in tags
    tags = tuple(tag for tag in tags if tag != FIRST_DTYPE)
    with torch.device(device_of(backend)):
        for param in matrix(*tags):
            operator, case, dtype = param.values
            if one_dtype and dtype != case.dtypes[0]:
                continue
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
