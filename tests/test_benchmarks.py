"""The benchmark runner: gates, peers that compute the same, bars, and the three views of a report."""

import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import __main__ as command
from benchmarks import bars, machine, markdown, plot, quiet, terminal, timing
from benchmarks.contenders import contenders, regimes
from benchmarks.device import COLD, Cpu
from benchmarks.gate import Gate, check
from benchmarks.overhead import alternation, overhead
from benchmarks.report import Point, Regime, Report, Row, Sweep
from benchmarks.runner import Job, jobs, run
from benchmarks.timing import Effort, Timing, heated, interleaved
from benchmarks.training import trainings
from rich.console import Console

from aclgrad.core import backends
from aclgrad.core.known import Known
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import lookup, operators
from aclgrad.testing.cases import BENCH, SMOKE, Cost, suite
from aclgrad.testing.peers import peers_of
from aclgrad.testing.verdicts import run as written

DEVICE = Cpu()
GLANCE = Effort(seconds=0.0, fewest=2, most=2, limit=0.0)
AT_ONCE = ("--quick", "--wait", "0")  # for no other program
NAMES = [operator.spec.name for operator in operators()]
QUICK_ROWS = ("hardsigmoid_backward", "hardsigmoid_", "lstm_backward", "token_losses", "batch_norm_stats")
"""One output and several, in place, with and without products, with a peer and without; other operators are slow."""

ROWS = [pytest.param(name, marks=[] if name in QUICK_ROWS else [pytest.mark.slow]) for name in NAMES]
MACHINE = {
    "kind": "cpu", "name": "Some CPU", "cores": 2, "threads": 2, "instructions": "AVX2", "copy_gb_s": 10.0,
    "matmul_gflop_s": {"float32": 100.0}, "torch": "2", "numba": "0",
}  # fmt: skip


def smoke(name):
    """The operator's first small case."""
    operator = lookup(name)
    return Job(operator, next(case for case in suite(operator.spec).cases if SMOKE in case.tags), torch.float32)


@pytest.fixture
def wrong_kernel(monkeypatch):
    """A backend whose every output is off by one element."""

    class Wrong:
        def __init__(self, right):
            self.right, self.workspace = right, right.workspace

        def __call__(self, args, outs, workspace):
            self.right(args, outs, workspace)
            (tensors_in(outs) or tensors_in(args))[0].view(-1)[0] += 1

    right = backends.BACKENDS["cpu"]
    monkeypatch.setitem(backends.BACKENDS, "cpu", lambda call: Wrong(right(call)))
    for operator in operators():
        monkeypatch.setattr(operator, "_plans", Known())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_every_operator(name):
    row = run(smoke(name), DEVICE, GLANCE)
    assert row.gate.passed and row.gate.share_of_allowed <= 1
    assert row.backend == "cpu" and row.main.ours.median > 0
    assert (row.main.speedup or 0) > 0 if peers_of(lookup(name).spec, DEVICE.kind) else row.main.speedup is None
    assert row.extra_bytes["aclgrad"] == lookup(name).plan(smoke(name).case.build(torch.float32)).workspace_size


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_kernel_turns_the_gate_red_and_gets_no_speed(name, wrong_kernel):
    row = run(smoke(name), DEVICE, GLANCE)
    assert not row.gate.passed and lookup(name).spec.written_names[0] in row.gate.text
    assert row.main is None and row.cold is None and not row.extra_bytes


def test_a_kernel_that_raises_is_red_and_the_others_still_run(monkeypatch):
    def broken(call):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(backends.BACKENDS, "cpu", broken)
    monkeypatch.setattr(lookup("hardsigmoid_backward"), "_plans", Known())
    row = run(smoke("hardsigmoid_backward"), DEVICE, GLANCE)
    assert not row.gate.passed and row.gate.text == "ZeroDivisionError: on purpose" and row.main is None


@pytest.fixture
def small_rates(monkeypatch):
    """The machine's rates by copies and products that take no time."""
    monkeypatch.setattr(Cpu, "copied", 1 << 16)
    monkeypatch.setattr(Cpu, "matmul_size", 16)
    monkeypatch.setattr(command, "QUICK", GLANCE)


def test_a_red_gate_is_the_exit_status(wrong_kernel, small_rates, capsys):
    assert command.main([*AT_ONCE, "--only", "hardsigmoid_backward/1Ki/float32"]) == 1
    assert "1 red" in capsys.readouterr().out


def test_a_pattern_that_matches_nothing_is_an_error(small_rates, capsys):
    assert command.main([*AT_ONCE, "--only", "no_such_row"]) == 2
    assert "no row matches 'no_such_row'" in capsys.readouterr().out


def test_the_command_on_one_row_saves_nothing(tmp_path, small_rates, capsys):
    assert command.main([*AT_ONCE, "--only", "hardsigmoid_backward/1Ki/float32", "--results", str(tmp_path)]) == 0
    assert "gates: 1 green, 0 red" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_rows_that_are_measured_again_replace_those_of_the_saved_report(tmp_path, small_rates):
    row = ["--only", "hardsigmoid_backward/1Ki/float32"]
    saved = command.measure(DEVICE, row[1], GLANCE, Console(quiet=True))
    path = tmp_path / f"{machine.slug(saved.machine)}.json"
    other = replace(saved.rows[0], case="another")
    replace(saved, rows=[replace(saved.rows[0], backend="before"), other]).save(path)
    assert command.main([*AT_ONCE, *row, "--update", "--results", str(tmp_path)]) == 0
    rows = Report.load(path).rows
    assert [(row.case, row.backend) for row in rows] == [("1Ki", "cpu"), ("another", "cpu")]
    assert "1Ki" in path.with_suffix(".md").read_text()


PEERS = [(name, peer) for name in NAMES for peer in peers_of(lookup(name).spec, DEVICE.kind)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "peer"), PEERS, ids=[f"{name}-{peer.name}" for name, peer in PEERS])
def test_peers_compute_what_the_operator_computes(name, peer):
    args, wide = (peer.alike(smoke(name).case.build(dtype)) for dtype in (torch.float32, torch.float64))
    truth = tensors_in(written(lookup(name), wide))
    results = tensors_in([peer.prepare(*args)()])
    assert results
    for result, true in zip(results, truth, strict=False):  # a peer has no use for some of the outputs
        torch.testing.assert_close(result.double(), true, rtol=1e-4, atol=1e-4)


def test_every_benchmark_case_becomes_a_job():
    assert len(list(jobs("cpu"))) > 30
    assert all(BENCH in job.case.tags for job in jobs("cpu"))
    assert {job.key for job in jobs("cpu", "hardsigmoid_backward/1Mi/*16")} == {
        f"hardsigmoid_backward/1Mi/{t}" for t in ("float16", "bfloat16")
    }


def test_every_bar_is_about_a_row_that_exists():
    known = {job.key: {"speedup": 1.0, "ratio": 1.0, "extra_bytes": 0.0, "share_of_bound": 1.0} for job in jobs("cpu")}
    of_modules = dict.fromkeys(("speedup", "lead", "extra_bytes", "share_of_bound"), 1.0)
    of_modules |= {"times one process": 1.0, "times without a sum": 1.0}  # of a peer of that name
    known |= {row.key: of_modules for row in trainings("cpu")}
    known |= {"alternation/x": {"p99": 0.0}}
    known |= {f"overhead/{door}": {"seconds": 0.0} for door in ("python door", "aclnn pair")}
    judged = bars.judge(bars.CPU_BARS, known)
    assert [j.key for j in judged if j.met is None] == ["overhead/C ABI pair"]
    known = {job.key: {"speedup": 1.0, "ratio": 1.0, "extra_bytes": 0.0, "share_of_bound": 1.0} for job in jobs("cuda")}
    known |= {row.key: of_modules for row in trainings("cuda")}
    assert [j.key for j in bars.judge(bars.CUDA_BARS, known) if j.met is None] == []


def test_a_bar_may_be_about_the_average_of_its_rows():
    average = bars.Bar("some/*", "speedup", 2.0, "≥ 2×", on_average=True)
    (judged,) = bars.judge((average,), {"some/a": {"speedup": 1.0}, "some/b": {"speedup": 4.0}})
    assert judged.met
    assert judged.value == pytest.approx(2.0)
    (judged,) = bars.judge((average,), {"some/a": {"speedup": 1.0}, "some/b": {}})
    assert judged.met is None


def test_gate_reads_every_output(monkeypatch):
    operator = lookup("lstm_cell_backward")
    args = smoke(operator.spec.name).case.build(torch.float32)
    assert check(operator, args, torch.float32).passed
    original = operator.__class__.__call__

    def last_output_wrong(self, *given, **named):
        results = original(self, *given, **named)
        results[-1][-1] = float("nan")
        return results

    monkeypatch.setattr(operator.__class__, "__call__", last_output_wrong)
    gate = check(operator, args, torch.float32)
    assert not gate.passed and gate.text.startswith("grad_bias")


def test_contenders_take_turns():
    turns = []
    timings, _ = interleaved(
        {name: lambda k, name=name: turns.append((name, k)) for name in "ab"}, lambda call, k, n: call(k) or 1.0,
        Effort(seconds=0.0, fewest=3, most=5, limit=9.0),
    )  # fmt: skip
    assert turns[2:] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert timings["a"].samples == 3


def test_a_disturbed_batch_is_thrown_away_until_patience_ends(monkeypatch):
    shares = iter([0.5, 0.0, 0.4])  # of a batch, of a look at the machine, of a batch

    class Watch:
        def others(self):
            return next(shares)

    for module in (quiet, timing):
        monkeypatch.setattr(module, "Watch", Watch)
    clock = iter([1.0, 9.0, 7.0])  # once to warm up, then a batch lost and one kept
    effort = Effort(seconds=0.0, fewest=1, most=1, limit=0.0, patience=quiet.Patience(quiet.LOOK / 2))
    timings, others = interleaved({"a": print}, lambda call, k, n: next(clock), effort)
    assert timings["a"].median == 7.0 and others == pytest.approx(0.4) and effort.patience.seconds < 0


def test_others_are_not_ourselves():
    watch, begin, own = quiet.Watch(), time.perf_counter(), time.process_time()
    while time.perf_counter() < begin + 0.4:
        pass
    ours = (time.process_time() - own) / (os.cpu_count() * (time.perf_counter() - begin))
    assert ours > 0 and 0 <= watch.others() <= 1 - ours + 0.1  # the system counts in hundredths of a second


def test_quantiles():
    found = Timing.of([float(k) for k in range(100, 0, -1)])
    assert (found.best, found.median, found.p90, found.p99, found.worst) == (1, 51, 91, 100, 100)


def test_inputs_are_warm_and_cold_where_they_fit_the_cache():
    args = [torch.zeros(1 << 10), torch.zeros(1 << 10)]
    size = DEVICE.last_cache // 8
    warm, cold = regimes(args, Cost(bytes=size, flops=0), DEVICE)
    assert warm.warm and len(warm.sets) == 1
    assert (
        not cold.warm and len(cold.sets) * size >= COLD * DEVICE.last_cache and f"{len(cold.sets)} sets" in cold.words
    )
    assert regimes(args, Cost(bytes=12 << 10, flops=0), DEVICE)[1] is None
    large, nothing = regimes(args, Cost(bytes=4 * DEVICE.last_cache, flops=0), DEVICE)
    assert not large.warm and nothing is None
    products, nothing = regimes(args, Cost(bytes=size, flops=1), DEVICE)
    assert len(products.sets) == 1 and nothing is None


def test_nobody_reads_what_another_has_just_read():
    sets = [[torch.zeros(8), torch.zeros(8)] for _ in range(4)]
    rivals = contenders("hardsigmoid_backward", sets, DEVICE)
    assert len({rival.start for rival in rivals.values()}) == len(rivals)


def test_a_heated_clock_times_the_last_run():
    runs = iter([5.0] * timing.WARMING + [2.0])
    assert heated(lambda call, first, count: next(runs))(print, 0, 1) == 2.0


def test_memory_meter_sees_temporaries_that_are_gone_at_the_end():
    x = torch.zeros(1 << 18)
    assert DEVICE.peak(lambda: ((x + 1) * (x + 2)).sum()) >= 3 * x.nbytes
    assert DEVICE.peak(lambda: x.neg_()) == 0


def test_memory_meter_sees_a_workspace_that_calls_share():
    job = smoke("lstm_backward")
    args = job.case.build()
    size = job.operator.plan(args).workspace_size
    results = sum(tensor.nbytes for tensor in tensors_in(job.operator(*args)))
    for _ in range(2):
        assert size + results <= DEVICE.peak(lambda: job.operator(*args)) < 2 * size + results


def test_overhead_and_alternation_measure_all_doors(tmp_path, monkeypatch):
    monkeypatch.setenv("ACLGRAD_CACHE", str(tmp_path))
    names = [item.name for item in overhead(DEVICE, GLANCE)]
    assert names[:3] == ["python door", "aclnn pair", "aten alone"]
    assert names[3:] in ([], ["C ABI pair"])  # where there is no compiler, there is no library
    (turns,) = alternation(DEVICE, Effort(seconds=0.05, fewest=1, most=1, limit=1.0))
    assert turns.ours.samples == turns.peer.samples > 0


@pytest.fixture
def report():
    """Two measured rows, one red, one bar met, one missed."""

    def always(seconds):
        return Timing(seconds, seconds, seconds, seconds, seconds, 9)

    def regime(ours):
        return Regime("one set", always(ours), {"aten": always(2e-4)}, 5e-5, "memory", 0.01)

    extra = {"aclgrad": 0, "aten": 1 << 20}
    green = Row(
        "hardsigmoid_backward", "1Mi", "float32", "cpu", Gate(True, 0.5, "fine"), regime(1e-4), regime(2e-4), extra
    )  # fmt: skip
    slower = replace(green, dtype="float16", main=regime(4e-4))
    red = Row("hardsigmoid_backward", "16Mi", "float32", "cpu", Gate(False, 9.0, "output 0: wrong"))
    points = [Point(1024, 1e-5, 1e-5, 1e-6), Point(2048, 2e-5, 1e-5, 2e-6)]
    sweep = Sweep("hardsigmoid_backward", "float32", "aten", points)
    made = Report(MACHINE, [green, slower, red], sweeps=[sweep])
    made.bars = bars.judge((bars.within("*/1Mi/*", 1.1, "aten"),), made.quantities())
    return made


def test_report_survives_json(report, tmp_path):
    path = tmp_path / "results" / "machine.json"
    report.save(path)
    assert Report.load(path) == report
    assert json.loads(path.read_text())["rows"][2]["main"] is None


def test_the_page_of_a_machine_has_all_rows(report):
    text = markdown.render(report)
    assert "| fp32 / fp16 | 100 / 400 µs | aten | 200 / 200 µs | 2.00× / 0.50× | 0.50 / 0.12 | 1.00× |" in text
    assert "gate red" in text and "1 met, 1 missed" in text and "Missed: hardsigmoid_backward/1Mi/float16" in text


def test_the_brief_goes_between_the_markers(report, tmp_path):
    page = tmp_path / "README.md"
    start, end = markdown.markers("cpu")
    page.write_text(f"before\n{start}\nformer\n{end}\nafter\n")
    for _ in range(2):
        markdown.insert(report, "results/some.md", page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "former" not in text
    assert max(map(len, text.splitlines())) <= 120
    shown = " ".join(text.split())
    assert "[all rows](results/some.md)" in shown and "1 met, 1 missed" in shown
    assert "Missed: hardsigmoid_backward/1Mi/float16" in shown


def test_markdown_wants_markers(report, tmp_path):
    page = tmp_path / "README.md"
    page.write_text("nothing here")
    with pytest.raises(SystemExit, match="has no"):
        markdown.insert(report, "results/some.md", page)
    assert page.read_text() == "nothing here"


def test_the_newest_report_of_each_kind_is_shown(report, tmp_path):
    page = tmp_path / "README.md"
    page.write_text("\n".join(markdown.markers("cpu")))
    for name, date in (("older", "2026-01-01"), ("newer", "2026-02-01")):
        replace(report, machine={**report.machine, "date": date}).save(tmp_path / f"{name}.json")
    command.show_newest(tmp_path, page, Console(file=io.StringIO()))
    assert "(newer.md)" in page.read_text() and "older" not in page.read_text()
    assert (tmp_path / "overview.png").stat().st_size > 5_000


def test_terminal_shows_no_speed_for_a_red_row(report):
    console = Console(record=True, width=250, file=io.StringIO())
    terminal.show(report, console)
    text = console.export_text()
    assert "2.00×" in text and "gate red hardsigmoid_backward/16Mi/float32: output 0: wrong" in text
    assert "gates: 2 green, 1 red · bars: 1 met, 1 missed, 0 not measured" in text


def test_picture_is_drawn(report, tmp_path):
    path = tmp_path / "report.png"
    plot.draw(report, path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 20_000


def test_results_name_no_host(report):
    described = json.dumps(command.machine.describe(DEVICE))
    assert "/" not in described.replace("\\", "")
    assert command.machine.slug(MACHINE) == "some-cpu-2-cores-avx2"
