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
    for name in ("train", "causal", "models", "text"):
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
    steps, seed = 12, 0
    runs = train.compare(steps, seed, Console(quiet=True))
    text = train.Text(seed)
    for name, kind in train.MODELS.items():
        naive, ours = (run for run in runs if run.model == name)
        exact = train.Run(name, "float64")
        train.train(exact, train.built(kind, text, seed, ours=False).double(), text, steps, seed, lambda: None)
        assert exact.losses[-1] < exact.losses[0]
        truth = torch.tensor(exact.losses, dtype=torch.float64)
        assert_within_baseline(torch.tensor(ours.losses), truth, torch.tensor(naive.losses), name)
    *_, torchs, ours = runs
    assert ours.peak < torchs.peak / 8, "a large vocabulary"


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
