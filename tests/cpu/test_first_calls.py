"""What is compiled when: few kernels for all calls of a family, nothing for other sizes, and a line that says so."""

import datetime
import io
import os
import sys
import time
from pathlib import Path

import pytest
import torch

import aclgrad
from aclgrad import nn
from aclgrad.core import first_calls
from aclgrad.cpu.compiler import entry

MOST_KERNELS = 30
SEED = os.environ.get("ACLGRAD_TEST_SEED", str(datetime.date.today().toordinal()))
FAMILIES = ("hardsigmoid", "linear_cross_entropy", "lstm", "lstm_cell", "sync_batch_norm")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_hundred_random_calls_of_a_family_need_few_kernels(python):
    done = python(Path(__file__).with_name("counted.py"), SEED, *FAMILIES)
    assert done.returncode == 0, done.stderr
    found = {family: int(count) for family, count, *_ in map(str.split, done.stdout.splitlines())}
    assert set(found) == set(FAMILIES)
    assert all(count <= MOST_KERNELS for count in found.values()), f"ACLGRAD_TEST_SEED={SEED}\n{done.stdout}"


def lstm(scale, data):
    module = nn.LSTM(5 * scale, 3 * scale, bias=True)
    output, _ = module(data(2 + scale, 1 + scale, 5 * scale))
    output.sum().backward()


def head(scale, data):
    target = torch.arange(7 * scale)
    nn.LinearCrossEntropyLoss(12 * scale, 40 * scale - 1)(data(7 * scale, 12 * scale), target).backward()


def cell(scale, data):
    hidden, _ = nn.LSTMCell(4 * scale, 3 * scale)(data(6 * scale, 4 * scale))
    hidden.sum().backward()


def batch_norm(scale, data):
    x, weight = data(3 * scale, 2 + scale, 4, 5 * scale), torch.ones(2 + scale)
    mean, invstd = aclgrad.batch_norm_stats(x, 1e-5)
    aclgrad.batch_norm_elemt(x, weight, weight, mean, invstd, 1e-5)
    aclgrad.batch_norm_reduce_backward(x, x, mean, invstd, weight, True, True, True)


def hardsigmoid(scale, data):
    nn.Hardsigmoid()(data(9 * scale, scale)).sum().backward()


@pytest.mark.parametrize("step", [lstm, head, cell, batch_norm, hardsigmoid], ids=lambda step: step.__name__)
def test_other_sizes_compile_nothing(step):
    def data(*shape):
        return torch.randn(*shape, requires_grad=True)

    step(1, data)
    before = entry.cache_info().misses
    for scale in (2, 7, 23):
        step(scale, data)
    assert entry.cache_info().misses == before


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch):
    """What is written to a terminal while something takes so many seconds."""
    monkeypatch.setattr(first_calls, "PATIENCE", 0.05)
    monkeypatch.setattr(first_calls, "_line", first_calls._Line())
    monkeypatch.setenv("TERM", "xterm")

    def run(*seconds, stream=None):
        monkeypatch.setattr(sys, "stderr", stream or Terminal())
        for k, duration in enumerate(seconds):
            with first_calls.compiling(f"kernel_{k}"):
                time.sleep(duration)
        return sys.stderr.getvalue()

    return run


def test_a_line_tells_what_takes_long_on_a_terminal_alone(said, monkeypatch):
    assert said(0.0) == ""
    assert "aclgrad compiles for this machine, once: kernel_0" in said(0.4)
    assert "kernel_2" in said(0.03, 0.03, 0.1), "what one call waits for adds up"
    assert said(0.2, stream=io.StringIO()) == ""
    with first_calls.untold():
        assert said(0.2) == ""
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert said(0.2) == ""


RUN = """
from aclgrad.core.first_calls import compiled
from aclgrad.core.registry import lookup
from aclgrad.testing.cases import SMOKE, suite
import torch
for name in ("hardsigmoid", "hardsigmoid_backward"):
    for case in suite(lookup(name).spec).cases:
        if SMOKE in case.tags and torch.float32 in case.dtypes:
            lookup(name)(*case.build(torch.float32), backend="cpu")
assert not compiled, compiled
"""


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "all"])
def test_what_was_warmed_compiles_nothing(python, tmp_path, fresh):
    """What other tests have compiled is there, unless it is `fresh`."""
    environment = {**os.environ, "ACLGRAD_CACHE": str(tmp_path)} if fresh else os.environ
    words = ["-m", "aclgrad", "warm", "--family", "hardsigmoid", "--dtype", "float32", "--device", "cpu"]
    for program, expected in ((words, "CPU kernels compiled, the others were there"), (["-c", RUN], "")):
        done = python(*program, env=environment)
        assert done.returncode == 0, done.stderr
        assert expected in " ".join(done.stdout.split())
