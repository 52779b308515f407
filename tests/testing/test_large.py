"""A hundred million elements are judged in seconds, from mapped files, in the memory that a small call takes."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import open_memmap

SHAPE, ROWS = (10_000, 10_000), 500  # that are written at a time
SECONDS = 40  # of a processor: two cores for twenty
MEMORY = 600 << 10  # KiB that are not of a file; torch alone takes 200 MiB


@pytest.fixture
def call(tmp_path):
    """Files of a call's inputs and outputs, with one element that is wrong."""
    if shutil.disk_usage(tmp_path).free < 3 << 30:
        pytest.skip("the files need 1.2 GB of disk")
    dice = np.random.default_rng(0)
    grad, x, out = (
        open_memmap(tmp_path / f"{name}.npy", mode="w+", dtype=np.float32, shape=SHAPE)
        for name in ("gradOutput", "self", "out")
    )
    for rows in (slice(start, start + ROWS) for start in range(0, SHAPE[0], ROWS)):
        grad[rows] = dice.standard_normal((ROWS, SHAPE[1]), np.float32)
        x[rows] = 3 * dice.standard_normal((ROWS, SHAPE[1]), np.float32)
        out[rows] = np.where(np.abs(x[rows]) < 3, grad[rows] / np.float32(6), 0)
    out[7777, 123] += 1
    yield tmp_path
    shutil.rmtree(tmp_path)


def peak(process):
    """The most memory besides mapped files that a process took until its end, in KiB."""
    most = 0
    while process.poll() is None:
        told = re.search(r"RssAnon:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        most = max(most, int(told[1])) if told else most
        time.sleep(0.05)
    return most


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process takes is read as Linux tells it")
def test_a_hundred_million_elements(call):
    before = os.times()
    command = [sys.executable, "-m", "aclgrad", "verify", "hardsigmoid_backward", "--dump", call]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        most = peak(process)
        said = process.stdout.read()
    after = os.times()
    assert process.returncode == 1 and "[7777, 123]" in said, said
    taken = after.children_user + after.children_system - before.children_user - before.children_system
    assert taken < SECONDS and most < MEMORY, (taken, most)
