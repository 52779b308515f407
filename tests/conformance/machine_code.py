"""Digests of the GPU kernels' machine code, a line a call: to see that a change of the source leaves it alone.

    python tests/conformance/machine_code.py 90 > before     # compute capability; labels of calls choose some of them
    python tests/conformance/machine_code.py 90 | diff before -

Names of functions and of files do not count. No GPU is needed; all calls take minutes.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile

import compiled
from gpu_calls import calls
from triton import knobs


def digest(binary: bytes) -> str:
    """Of the instructions in a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        tool = knobs.nvidia.cuobjdump.path
        command = [tool, "--dump-sass", file.name]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s.*$", listing, flags=re.MULTILINE)
    assert instructions, listing[:200]
    return hashlib.sha256("\n".join(instructions).encode()).hexdigest()[:16]


class Listed(compiled.AbsentGpu):
    """Digests what it is given to load."""

    def __init__(self, capability: int) -> None:
        super().__init__(capability)
        self.digests: list[str] = []

    def load_binary(self, name, binary, shared, device):
        """As if loaded; see `AbsentGpu`."""
        self.digests.append(digest(binary))
        return super().load_binary(name, binary, shared, device)


def main(capability: str, *labels: str) -> None:
    """A line for each call: its label, and what it compiled that no call before it had, in the order of digests."""
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # or a line that moves within its file would count
    gpu = Listed(int(capability))
    with gpu.pretended():
        for call in calls():
            if labels and call.label not in labels:
                continue
            gpu.digests.clear()
            compiled.plan(call)
            print(call.label, *sorted(gpu.digests), sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
