"""The GPU kernels, Gluon's as well, compile for GPUs of several generations. No GPU is needed.

A call of each family always, for a Hopper, which has them all; one of each operator, what is special, and the other
generations are slow tests. `compiled.py` without labels compiles all there is, which takes minutes.
"""

import datetime
import os
from pathlib import Path

import pytest

pytest.importorskip("triton")

from gpu_calls import calls

PROGRAM, TAPED, COUNTED = (Path(__file__).with_name(f"{name}.py") for name in ("compiled", "taped", "counted"))
MOST_KERNELS = {"hardsigmoid": 35, "lstm_cell": 45, "sync_batch_norm": 95, "linear_cross_entropy": 190, "lstm": 185}
"""Of a hundred random small calls of any dtypes; each number of units has kernels of its own, each set of options."""

SEED = os.environ.get("ACLGRAD_TEST_SEED", str(datetime.date.today().toordinal()))
SPECIAL = (
    "lstm_backward partial_sums torch.float16",
    "lstm_backward by_warpgroups torch.float32",
    "lstm_backward row_owners torch.float32",
    "lstm_backward a_launch_a_step torch.float16",
    "lstm shared_and_registers torch.float32",
    "lstm many_rows torch.float16",
    "lstm pairs torch.float32",
    "lstm one_step torch.float32 straight",
    "lstm_with_resets registers torch.float16",
    "lstm_with_resets_backward from_memory torch.float32",
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


KNOWN = list(calls())
FIRST_OF_EACH = {call.operator.spec.name: call.label for call in reversed(KNOWN)}


QUICK = ("hardsigmoid", "lstm_cell_backward", "batch_norm_stats", "linear_online_max_sum", "lstm", "lstm_backward")


def test_a_call_of_each_family_compiles_for_hopper_and_goes_on_tape(python):
    found = taped(python, [FIRST_OF_EACH[name] for name in QUICK])
    assert {"_line", "cell_gradient", "moments", "logits_product", *GLUON} <= found


def test_a_hundred_random_calls_of_a_family_need_few_kernels(python):
    lines = map(str.split, run(python, COUNTED, SEED, *MOST_KERNELS).splitlines())
    found = {family: int(count) for family, count, *_ in lines}
    assert found.keys() == MOST_KERNELS.keys()
    assert all(found[family] <= most for family, most in MOST_KERNELS.items()), f"ACLGRAD_TEST_SEED={SEED}: {found}"


@pytest.mark.slow
def test_every_launch_goes_on_tape(python):
    taped(python, [*FIRST_OF_EACH.values(), *SPECIAL])


def taped(python, labels):
    """Each call's launch is written down, unless it is one call; the names of what is compiled.

    That of packed sequences is padded by torch's operations, which are no calls.
    """
    outcomes, names = {}, set()
    for line in run(python, TAPED, *labels).splitlines():
        label, found, outcome = line.rpartition(": ")
        if found:
            outcomes[label] = outcome
        else:
            names.add(line)
    assert outcomes.keys() == set(labels)
    alone = {outcome for label, outcome in outcomes.items() if not label.startswith("lstm_packed")}
    assert alone == {"written down", "a single call"}
    return names


@pytest.mark.slow
@pytest.mark.parametrize("capability", EXPECTED)
def test_kernels_compile_for(python, capability):
    labels = {*FIRST_OF_EACH.values(), *SPECIAL}
    assert labels <= {call.label for call in KNOWN}
    assert compiled(python, capability, labels) & (PLAIN | GLUON | HOPPER) == EXPECTED[capability]


def compiled(python, capability, labels):
    """The names of what is compiled for these calls."""
    return set(run(python, PROGRAM, capability, *labels).split())


def run(python, program, *arguments):
    """What a program prints to which Triton is a compiler."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = python(program, *arguments, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
