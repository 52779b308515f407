"""Every operator's GPU kernels on small and odd shapes: a program to run under NVIDIA's compute-sanitizer.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python tests/gpu/sanitized.py 0 4

makes every fourth call, beginning with the first; with another argument, of those whose labels begin with it. Without
torch's cache every tensor is an allocation of its own, so an access one past its end is seen.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from gpu_calls import calls
from matrix import flat

from aclgrad.core.memory import tensors_in
from aclgrad.core.spec import F32


def main(first="0", step="1", beginning=""):
    """Make every `step`-th call, in every precision that float32 products have."""
    count = 0
    wanted = [call for call in calls() if call.label.startswith(beginning)]
    with torch.device("cuda"):
        for label, operator, build in wanted[int(first) :: int(step)]:
            args = build()
            singles = any(tensor.dtype == F32 for tensor in tensors_in(args))
            for torch.backends.cuda.matmul.allow_tf32 in (False, True) if singles else (False,):
                results = flat(operator(*args))
            torch.cuda.synchronize()
            assert all(result is None or result.is_cuda for result in results)
            count += 1
            print(label, flush=True)
    print(f"{count} calls")


if __name__ == "__main__":
    main(*sys.argv[1:])
