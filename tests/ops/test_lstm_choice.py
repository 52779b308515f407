"""How an LSTM runs on a GPU is decided in one place, can be told in words, and its kernels take operands by name."""

import json
import runpy
from pathlib import Path
from statistics import geometric_mean

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.spec import F16, F32
from aclgrad.gpu.launch import INTERPRETING, jit
from aclgrad.gpu.operands import NamedKernel, Operand, Operands
from aclgrad.ops.lstm import cases, cases_lstm, spec
from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.ops.lstm.triton.choose import Candidate, backward_candidates, cheapest, forward_candidates
from aclgrad.ops.lstm.triton.limits import Limits
from aclgrad.ops.lstm.triton.recurrence.per_step.cut import PerStep, Product
from aclgrad.ops.lstm.triton.recurrence.warp_specialised.cut import WarpSpecialisedForward
from aclgrad.testing.cases import Case

H200 = Limits(programs=132, all_shared=232448, warpgroups=True)
MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "ways" / "nvidia-h200.json"
CPU = torch.device("cpu")
interpreted = pytest.mark.skipif(not INTERPRETING, reason="needs Triton's interpreter: TRITON_INTERPRET=1")


def dims(batch, hidden, steps=128):
    return LstmDims(steps, batch, hidden, hidden, 1, 1, 2, False, False)


def test_the_cheapest_way_runs_and_of_equals_the_first():
    own, library, split = (PerStep(product) for product in Product)
    resident = WarpSpecialisedForward(256)
    choice = cheapest([Candidate(own, 3.0), Candidate(library, 2.0), Candidate(split, 2.0), Candidate(resident, 4.0)])
    assert (choice.way, choice.microseconds) == (library, 2.0)
    assert choice.runner_up == Candidate(resident, 4.0), "the best of another way, not of the same with other products"
    assert cheapest([Candidate(own, 3.0)]).runner_up is None


@pytest.mark.parametrize(
    ("candidates", "text"),
    [
        (
            backward_candidates(dims(64, 512), F16, H200),
            "persistent grid, 8 rows × 32 units, weights in registers, … µs a step modelled; per step: …",
        ),
        (
            backward_candidates(dims(64, 1024), F32, H200),
            "row owners, groups of 64 rows, 1 a program, split-K 8, … µs a step modelled; persistent grid: …",
        ),
        (
            backward_candidates(dims(256, 1024), F32, H200),
            "warp-specialised row owners, groups of 2 × 128 rows, 2 × 1 a program, split-K 8, … µs a step modelled; "
            "row owners: …",
        ),
        (
            forward_candidates(dims(256, 1024), 2, H200),
            "warp-specialised pairs, groups of 256 rows, 16 units a pair, … µs a step modelled; persistent grid: …",
        ),
        (
            forward_candidates(dims(700, 1000), 1, H200),
            "a launch per step, products by the library, … µs a step modelled",
        ),
        (
            forward_candidates(dims(8, 128), 1, None),
            "a launch per step, products in the kernel, … µs a step modelled",
        ),
    ],
)
def test_a_choice_is_told_in_words(candidates, text):
    described = cheapest(candidates).describe().split()
    words = text.split()
    assert len(described) == len(words)
    for found, expected in zip(described, words, strict=True):
        assert found == expected or (expected == "…" and float(found) > 0)


def measured():
    """What every way took on an H200, by point (`benchmarks/ways.py`): {way: microseconds a step, GPU and host}."""
    points = {}
    for row in json.loads(MEASURED.read_text(encoding="utf-8")):
        sizes = tuple(row[name] for name in ("dtype", "forward", "T", "N", "H", "D"))
        points.setdefault(sizes, {})[row["way"]] = max(row["gpu_us"], row["host_us"])
    return points


def test_the_models_rank_what_was_measured():
    """Drawn sizes, both dtypes and passes: what is chosen takes hardly longer than what was fastest."""
    losses = {}
    for (dtype, forward, T, N, H, D), times in measured().items():
        size = LstmDims(T, N, H, H, 1, D, 2, False, False)
        if forward:
            found = forward_candidates(size, 2 if dtype == "float32" else 1, H200)
        else:
            found = backward_candidates(size, getattr(torch, dtype), H200)
        way = cheapest(found).way.describe()
        if way in times:  # cuts may change when models do
            losses[dtype, forward, N, H, D] = times[way] / min(times.values())
    assert len(losses) >= 100
    assert geometric_mean(losses.values()) <= 1.02, losses
    assert max(losses.values()) <= 1.5, max(losses, key=losses.get)


@interpreted
def test_layers_that_run_alike_are_told_in_one_line():
    args = Case("told", cases_lstm._lstm(3, 2, 4, 8, layers=3), (F16,)).build(F16)
    (line,) = spec.lstm.plan(args, backend="triton").launch.describe().splitlines()
    assert line.startswith("layers 0 to 2: a launch per step, products in the kernel, ")
    args = Case("told", cases._lstm(3, 2, 4, 8), (F16,)).build(F16)
    (line,) = spec.lstm_backward.plan(args, backend="triton").launch.describe().splitlines()
    assert line.startswith("layer 0: a launch per step, ")


@jit
def _kernel(target_ptr, source_ptr, count, SIZE):
    """Takes two operands, a number and a constant."""


@pytest.mark.parametrize(
    ("names", "number", "constant"),
    [
        (("source", "target"), "count", "SIZE"),
        (("target",), "count", "SIZE"),
        (("target", "source"), "number", "SIZE"),
        (("target", "source"), "count", "WIDTH"),
    ],
)
def test_names_must_be_those_of_the_kernel(names, number, constant):
    operands = [Operand(name, F32) for name in names]
    with pytest.raises(TypeError, match="_kernel takes"):
        NamedKernel(_kernel, (1,), CPU, operands, {number: 1}, {constant: 1})


def test_an_operand_that_is_there_must_be_given_and_one_that_is_not_is_none():
    operands = Operands([Operand("target", F32), Operand("source", None)])
    assert operands.pointers({"target": 16, "source": 32}) == [16, None]
    with pytest.raises(KeyError, match="target"):
        operands.pointers({"source": 32})


def test_the_readmes_table_is_what_the_chooser_says():
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "regions.py"))
    text = tool["README"].read_text(encoding="utf-8")
    assert tool["rewritten"](text) == text, "python tools/regions.py writes it anew"
