"""The GPU kernels, Gluon's as well, compile for GPUs of several generations. No GPU is needed.

`compiled.py` without labels compiles all there is, which takes minutes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from gpu_calls import calls

PROGRAM = Path(__file__).with_name("compiled.py")
SPECIAL = (
    "lstm_backward partial_sums torch.float16",
    "lstm_backward wide torch.float32",
    "lstm_backward a_launch_a_step torch.float16",
    "lstm shared_and_registers torch.float32",
    "lstm many_rows torch.float16",
    "lstm one_step torch.float32 straight",
    "gradient of 33008 torch.bfloat16",
    "loss and gradients torch.bfloat16",
)
EVERYWHERE = {"recur", "recur_forward", "advance", "_cell", "_line", "_moments", "probabilities", "row_statistics"}
HOPPERS = {"relay", "multiply_halves", "logits_and_statistics", "fused_probabilities", "weight_grad_beside_p"}
"""Functions that must be among the compiled ones: on every GPU, and on Hopper."""


@pytest.mark.parametrize(("capability", "expected"), [(80, EVERYWHERE), (90, EVERYWHERE | HOPPERS), (120, EVERYWHERE)])
def test_kernels_compile_for(capability, expected):
    first_of_each = {call.operator.spec.name: call.label for call in reversed(list(calls()))}
    labels = {*first_of_each.values(), *SPECIAL}
    assert labels <= {call.label for call in calls()}
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(capability), *labels],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert expected <= set(done.stdout.split())
