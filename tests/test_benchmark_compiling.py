"""The benchmark of torch.compile: its models compute the same, its process answers, the page shows what was saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import compiling

import aclgrad.nn


def test_both_models_take_the_same_step():
    words = compiling.tokens(3, 4)
    theirs, ours = (compiling.Model(kind, 2) for kind in (nn.LSTM, aclgrad.nn.LSTM))
    found, expected = (compiling.step(model, model, words) for model in (ours, theirs))
    torch.testing.assert_close(found, expected)


def test_the_page_shows_what_was_saved():
    rows = json.loads(compiling.RESULT.read_text())
    assert [(row["variant"], row["layers"]) for row in rows] == [
        (variant, layers) for layers in compiling.LAYERS for variant in compiling.VARIANTS
    ]
    page = compiling.PAGE.read_text(encoding="utf-8")
    shown = page.partition(compiling.BEGIN)[2].partition(compiling.END)[0]
    assert shown.strip() == compiling.table(rows)


@pytest.mark.slow
def test_new_sizes_are_no_new_graphs():
    """In a process as the benchmark starts it."""
    command = [sys.executable, "-m", "benchmarks.compiling", "--one", "aclgrad.nn", "1"]
    done = subprocess.run(command, cwd=compiling.machine.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    assert (row["graphs"], row["more_graphs"]) == (1, 0)
