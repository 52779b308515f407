"""The GPU kernels, Gluon's as well, compile for GPUs of several generations. No GPU is needed.

Hopper has them all; the other generations are slow tests. `compiled.py` without labels compiles all there is, which
takes minutes.
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
    "lstm_backward by_warpgroups torch.float32",
    "lstm_backward row_owners torch.float32",
    "lstm_backward a_launch_a_step torch.float16",
    "lstm shared_and_registers torch.float32",
    "lstm many_rows torch.float16",
    "lstm pairs torch.float32",
    "lstm one_step torch.float32 straight",
    "gradient of 33008 torch.bfloat16",
    "loss and gradients torch.bfloat16",
    "loss_and_gradients every_option torch.bfloat16 straight",
    "token_losses every_option torch.bfloat16 straight",
    "token_gradients every_option torch.bfloat16 straight",
)
PLAIN = {"step_backward", "step_forward", "cell_gradient", "_line", "moments", "probabilities", "row_statistics"}
GLUON = {"persistent_backward", "persistent_forward"}
HOPPER = {"row_owner_backward", "warp_specialised_backward", "warp_specialised_forward", "split_product"}
HOPPER |= {"logits_product", "probabilities_product", "weight_grad_beside_p"}
"""Some functions that every GPU runs, all that it takes Gluon for, and those that it takes a Hopper for."""

EXPECTED = {75: PLAIN, 80: PLAIN | GLUON, 90: PLAIN | GLUON | HOPPER, 120: PLAIN | GLUON}


@pytest.mark.parametrize(
    "capability", [pytest.param(number, marks=() if number == 90 else pytest.mark.slow) for number in EXPECTED]
)
def test_kernels_compile_for(capability):
    known = list(calls())
    first_of_each = {call.operator.spec.name: call.label for call in reversed(known)}
    labels = {*first_of_each.values(), *SPECIAL}
    assert labels <= {call.label for call in known}
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(capability), *labels],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    compiled = set(done.stdout.split())
    assert compiled & (PLAIN | GLUON | HOPPER) == EXPECTED[capability]
