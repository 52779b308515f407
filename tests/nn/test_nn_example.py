"""The training example runs, and its two trainings are one."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from aclgrad.testing import assert_within_baseline

EXAMPLE = Path(__file__).parents[2] / "examples" / "training"


@pytest.fixture
def train(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("train")
    for name in ("train", "causal", "curves", "data", "models", "text", "zoo"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_it_runs_from_the_command_line(tmp_path):
    picture = tmp_path / "curves.png"
    command = [sys.executable, EXAMPLE / "train.py", "--steps", "2", "--out", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in ("LSTM", "transformer", "aclgrad.nn", "MiB/step"))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_both_trainings_follow_one_curve(train):
    runs = follow_one_curve(train.tasks(0), steps=12)
    assert all(run.losses[-1] < run.losses[0] for run in runs)
    *_, torchs, ours = runs
    assert ours.peak < torchs.peak / 8, "a large vocabulary"


def follow_one_curve(tasks, steps):
    """The losses of ours are as near to those in float64 as torch's are."""
    curves = importlib.import_module("curves")
    runs = curves.compare(tasks, steps, 0, Console(quiet=True))
    for task in tasks:
        naive, ours = (run for run in runs if run.model == task.name)
        exact = curves.Run(task.name, "float64")
        curves.train(exact, task.built(0, ours=False).double(), task, steps, 0, lambda: None)
        truth = torch.tensor(exact.losses, dtype=torch.float64)
        assert_within_baseline(torch.tensor(ours.losses), truth, torch.tensor(naive.losses), task.name)
    return runs


@pytest.mark.slow
def test_the_zoo_follows_one_curve(train):
    """A parametrised weight, packed sequences, resets, a large vocabulary."""
    runs = follow_one_curve(train.zoo(0), steps=6)
    assert [run.model for run in runs[::2]] == ["AWD-LSTM", "DeepSpeech", "R2D2", "transformer"]


def test_a_zoo_of_twins(train):
    """Nothing of torch's is left where there is a twin, and one step of each has torch's loss."""
    for task in train.zoo(0):
        batch = task.batch(torch.Generator().manual_seed(1))
        theirs, ours = (task.built(0, ours) for ours in (False, True))
        assert not any(isinstance(module, torch.nn.LSTM) for module in ours.modules()), task.name
        losses = []
        for model in (theirs, ours):
            torch.manual_seed(2)
            losses.append(model(*batch).item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-5), task.name


def test_the_text_is_the_same_for_a_seed_and_has_no_braces(train):
    text = train.Text(3, characters=2000)
    assert torch.equal(text.codes, train.Text(3, characters=2000).codes)
    assert set(text.alphabet) <= set("abcdefghijklmnopqrstuvwxyz. ")
    x, target = text.batch(torch.Generator().manual_seed(0), 4, 9)
    assert x.shape == target.shape == (4, 9) and torch.equal(x[:, 1:], target[:, :-1])


def test_a_causal_model_whose_loss_is_exchanged(train):  # which puts the folder on the path
    causal = importlib.import_module("causal")
    theirs, ours = (causal.train(kind, steps=6) for kind in (causal.CausalModel, causal.WithoutLogits))
    assert ours[-1] < ours[0] - 0.2
    assert ours == pytest.approx(theirs, rel=1e-5)
