"""Sizes drawn at random: the same seed draws the same, every family can be measured, a red gate has no speed."""

import json
import math
from dataclasses import replace

import pytest
import torch
from benchmarks import __main__ as command
from benchmarks.device import Cpu
from benchmarks.gate import Gate
from benchmarks.plane import command as plane
from benchmarks.plane import measure, points
from benchmarks.plane.measure import Result, measured
from benchmarks.plane.points import FAMILIES, Point, drawn, grid
from benchmarks.plane.show import Summary, save, summaries
from benchmarks.report import OURS
from benchmarks.timing import QUICK

import aclgrad

BRIEF = replace(QUICK, seconds=0.001, fewest=1, most=2)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_draws_the_same_points_within_the_limits(family):
    found = list(drawn(family, 7, 40, "cpu"))
    assert found == list(drawn(family, 7, 40, "cpu")) != list(drawn(family, 8, 40, "cpu"))
    for point in found:
        assert str(point)
        assert all(size >= 1 for size in (*point.sizes.values(), *point.shape))
        assert math.prod(point.shape) <= points.ELEMENTS["cpu"]
    if family == "lstm":
        assert any(point.sizes["H"] % 8 for point in found) and any(point.sizes["H"] % 16 == 0 for point in found)
    if found[0].shape:
        assert {len(point.shape) for point in found} >= {2, 3, 4, 5}
        assert {point.channels_last for point in found} == {True, False}


def test_the_grid_is_always_the_same():
    assert list(grid("cuda")) == list(grid("cuda"))
    assert {point.sizes["T"] for point in grid("cuda")} == {64}


@pytest.mark.parametrize(
    "point",
    [
        Point("lstm", "nn.LSTM", torch.float32, {"T": 3, "B": 2, "I": 5, "H": 4, "layers": 2, "directions": 2}),
        Point("head", "nn.LinearCrossEntropyLoss", torch.float32, {"N": 5, "H": 8, "V": 11}),
        Point("pointwise", "nn.Hardsigmoid", torch.float32, {}, (2, 3, 4, 5), channels_last=True),
        Point("cell", "nn.LSTMCell", torch.float32, {"N": 2, "H": 8}),
        Point("cell", "lstm_cell", torch.float32, {"N": 2, "H": 8}),
        Point("batch_norm", "nn.SyncBatchNorm", torch.float32, {}, (4, 3, 2)),
        Point("batch_norm", "batch_norm_stats", torch.float32, {}, (4, 3, 2, 2), channels_last=True),
    ],
    ids=str,
)
def test_a_point_is_measured_beside_a_peer(point):
    result = measured(point, Cpu(BRIEF), BRIEF)
    assert result.gate.passed, result.gate.text
    assert OURS in result.device and len(result.device) > 1
    assert result.ratio() > 0


def test_a_red_gate_has_no_speed(monkeypatch):
    monkeypatch.setattr(aclgrad.nn.Hardsigmoid, "forward", lambda self, x: x * 2)
    point = Point("pointwise", "nn.Hardsigmoid", torch.float32, {}, (3, 4))
    result = measured(point, Cpu(BRIEF), BRIEF)
    assert not result.gate.passed and result.ratio() is None and not result.device


def test_a_gate_that_was_passed_aside_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(measure, "checked", lambda point, kind: Gate(False, math.inf, "tried alone"))
    point, here = Point("cell", "lstm_cell", torch.float32, {"N": 2, "H": 8}), Cpu(BRIEF)
    assert measured(point, here, BRIEF, Gate(True, 0.1, "")).ratio() > 0
    assert measured(point, here, BRIEF, Gate(False, 0.1, "no memory")).gate.text == "tried alone"


def test_processes_check_the_points_first(monkeypatch):
    monkeypatch.setattr(plane, "checked_aside", lambda points, kind, processes: enumerate(["gate", "other"]))
    seen = []

    def measure_one(point, device, effort, gate):
        seen.append(gate)
        return Result(point, Gate(True, 0.0, ""), {OURS: 1.0, "torch": 2.0})

    monkeypatch.setattr(plane, "measured", measure_one)
    command.main(["plane", "--family", "cell", "--points", "2", "--wait", "0", "--processes", "2"])
    assert seen == ["gate", "other"]


@pytest.mark.slow  # a process takes seconds to begin
def test_points_are_checked_in_processes():
    points = [Point("cell", "lstm_cell", torch.float32, {"N": n, "H": 8}) for n in (1, 2, 3)]
    found = dict(measure.checked_aside(points, "cpu", 2))
    assert sorted(found) == [0, 1, 2] and all(gate.passed for gate in found.values())


def results(ratios):
    gate = measure.Gate(True, 0.5, "")
    point = Point("lstm", "nn.LSTM", torch.float16, {"T": 3, "B": 2, "I": 5, "H": 4, "layers": 1, "directions": 1})
    return [Result(point, gate, {OURS: 1.0, "nn.LSTM": 0.1, "nn.LSTM, no TF32": ratio}) for ratio in ratios]


def test_a_summary_counts_equal_precision_only():
    assert summaries(results([0.5, 2.0, 4.0])) == {"float16": Summary(3, 1 / 3, 0.5, pytest.approx(4 ** (1 / 3)))}


def test_figures_and_picture_are_saved(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.plane.heatmap import draw

    found = results([0.5, 2.0])
    save(found, {"kind": "cpu"}, "3", tmp_path / "plane" / "x.json")
    read = json.loads((tmp_path / "plane" / "x.json").read_text())
    assert [point["dtype"] for point in read["points"]] == ["float16"] * 2 and read["seed"] == "3"
    draw(found, "a machine", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_the_command_measures_and_shows(capsys, monkeypatch):
    monkeypatch.setitem(points.MOST, "cpu", 3e8)
    assert command.main(["plane", "--family", "head", "--points", "1", "--wait", "0", "--dtype", "float32"]) in (0, 1)
    assert "nn.LinearCrossEntropyLoss" in capsys.readouterr().out


def test_no_point_is_begun_after_its_seconds(monkeypatch, capsys):
    seen = []

    def measure_one(point, device, effort, gate):
        seen.append(point)
        return Result(point, Gate(True, 0.0, ""), {OURS: 1.0, "torch": 2.0})

    monkeypatch.setattr(plane, "measured", measure_one)
    assert command.main(["plane", "--family", "cell", "--points", "9", "--wait", "0", "--seconds", "0"]) == 0
    assert len(seen) == 1
    assert "1 of 9 points" in capsys.readouterr().out
    command.main(["plane", "--family", "cell", "--points", "9", "--wait", "0"])
    assert len(seen) == 10
