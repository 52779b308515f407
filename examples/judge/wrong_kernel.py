"""A kernel that is almost right, and how it is found out.

The gradient of a batch norm's input, computed tile by tile, as a vector unit does it: eight channels at a time. The
last tile begins earlier, so that it is a whole one, too. One of its loads forgets this.

    python examples/judge/wrong_kernel.py --report report.html
"""

from __future__ import annotations

import argparse

import torch
from rich.console import Console

from aclgrad.testing import check_gradient

CHANNELS = 8  # of a tile


def batch_norm_elemt_backward(grad_out, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counter, *, right=False):
    """The gradient [N, C, …] of the input: grad_out and x [N, C, …], the others [C]; counter [processes]."""
    channels, count = x.shape[1], counter.sum()
    out = torch.empty_like(x)
    for start in range(0, channels, CHANNELS):
        lanes = torch.arange(min(CHANNELS, channels))
        tile = min(start, channels - len(lanes)) + lanes
        forgotten = (start + lanes).clamp(max=channels - 1)

        def load(vector, places=tile):
            return vector[places].float().view(1, -1, *[1] * (x.dim() - 2))

        scale = load(invstd)
        projection = load(sum_dy_xmu, tile if right else forgotten) / count * scale * scale
        gradient = grad_out[:, tile].float() - load(sum_dy) / count - (x[:, tile].float() - load(mean)) * projection
        gradient *= scale if weight is None else scale * load(weight)
        out[:, tile] = gradient.to(out.dtype)
    return out


def main() -> None:
    """Judge it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", help="a file for the report: .html, .csv, .json or .xml")
    wanted = parser.parse_args()
    found = check_gradient(batch_norm_elemt_backward, "aclnnBatchNormElemtBackward", dtypes=[torch.float32])
    found.show()
    if wanted.report:
        Console(highlight=False).print(f"wrote {found.write(wanted.report)}")


if __name__ == "__main__":
    main()
