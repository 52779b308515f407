"""The manners of `aclgrad`: a mistake is told in words with exit code 2, never in a traceback."""

import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from rich.console import Console

import aclgrad
from aclgrad.core.backends import BACKENDS
from aclgrad.core.known import Known
from aclgrad.core.registry import aclnn_operators, lookup
from aclgrad.frontends.capi import build
from aclgrad.frontends.cli import app, main, native
from aclgrad.frontends.tables import show


def commands(command, words=()):
    """The words of every command that does something, `capi build` among them."""
    inner = getattr(command, "commands", None)
    return [words] if inner is None else [deep for name in inner for deep in commands(inner[name], (*words, name))]


MODULE = sys.modules["aclgrad.frontends.cli.app"]  # the name stands for the application it defines
COMMANDS = commands(typer.main.get_command(app))
ALL = [(), ("capi",), *COMMANDS]
GARBAGE = ["--nosuch", "-x", "--nosuch=3", "\udcff", "", "--device=\udcff", "[red]", "--out", "--every=maybe"]


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run the command in this process: (exit code, all it said on one line). Only SystemExit may leave it."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, entry=main):
        monkeypatch.setattr(sys, "argv", ["aclgrad", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            entry()
        code = left.value.code
        printed = capsys.readouterr()
        said = f"{printed.out} {printed.err} {code if isinstance(code, str) else ''}"
        return 1 if isinstance(code, str) else code or 0, " ".join(re.sub(r"[│╭╮╰╯─]", " ", said).split())

    return run


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder for `build.CACHE_VARIABLE` where the library is already, for what the C++ compiler says later."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(build.CACHE_VARIABLE, str(folder))
        build.installation()
    return str(folder)


def test_every_command_is_tried():
    assert {words[0] for words in COMMANDS} == {
        "list",
        "explain",
        "demo",
        "golden",
        "verify",
        "selftest",
        "warm",
        "cc",
        "config",
        "capi",
        "check",
    }


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != ("cc",)], ids=" ".join)
def test_garbage_is_told_apart_from_arguments(call, words):
    for garbage in GARBAGE:
        code, said = call(*words, garbage, "and", "so", "on")
        assert code == 2, (garbage, said)
        assert "Error" in said, (garbage, said)


def test_garbage_for_the_compiler_is_the_compilers(call, tmp_path, monkeypatch, built):
    monkeypatch.setenv(build.CACHE_VARIABLE, built)
    for garbage in ("-nosuch", str(tmp_path / "nowhere.c"), "\udcff.c"):
        assert call("cc", garbage)[0] not in (0, 2)
    assert call("cc")[0] == 2


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_h_is_help(call, words):
    code, said = call(*words, "-h")
    assert code == 0
    assert re.match(rf"Usage: .* ?{' '.join(words)} \[", said), said
    assert call(*words, "--help") == (0, said)


def test_a_compilers_options_are_not_taken_for_help(call, monkeypatch):
    compiled = []
    monkeypatch.setattr(native.build, "installation", lambda: build.Installation(Path("/made")))
    monkeypatch.setattr(native.subprocess, "call", lambda command: compiled.append(command) or 0)
    assert call("cc", "-shared", "-Wshadow", "program.c") == (0, "")
    assert compiled[0][1:4] == ["-shared", "-Wshadow", "program.c"]


@pytest.mark.parametrize("command", ["explain", "selftest", "verify"])
def test_an_operator_that_is_none_is_told_with_the_nearest_one(call, command):
    for wrong, meant in (
        ("lstmbackward", "lstm_backward"),
        ("aclnnLstmBackwards", "aclnnLstmBackward"),
        ("ACLNNLSTMGETWORKSPACE", "aclnnLSTMGetWorkspaceSize"),
        ("hard_sigmoid", "hardsigmoid"),
        ("batch-norm-stats", "batch_norm_stats"),
    ):
        code, said = call(command, wrong)
        assert code == 2
        assert f"'{wrong}' is no operator, did you mean {meant}?" in said
    code, said = call(command, "nonsense")
    assert code == 2
    assert "expected one of hardsigmoid, " in said
    assert all(operator.spec.name in said for operator in aclnn_operators())


@pytest.mark.parametrize("operator", list(aclnn_operators()), ids=lambda operator: operator.spec.name)
def test_an_operator_goes_by_its_names_in_either_language_and_case(call, operator):
    spec = operator.spec
    expected = call("explain", spec.name, entry=lambda: app())
    assert f"{spec.name} = {spec.aclnn}" in expected[1]
    for name in (spec.aclnn, f"{spec.aclnn}GetWorkspaceSize"):
        for written in (name, name.lower(), name.upper()):
            assert call("explain", written) == expected


def test_backends_and_devices_are_refused_before_anything_runs(call, monkeypatch):
    monkeypatch.setattr(MODULE, "report", lambda *_, **__: pytest.fail("it runs"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("aclgrad.gpu.backend.interpreting", lambda: False)
    monkeypatch.setattr(lookup("lstm"), "_plans", Known())  # made while Triton interprets
    for words, told in (
        (("selftest", "--backend", "nosuch"), "--backend: 'nosuch' is no backend, expected cpu or triton or reference"),
        (("selftest", "lstm", "--backend", "triton"), "--backend: lstm: triton: runs on CUDA tensors"),
        (("selftest", "--device", "cuda"), "--device: 'cuda' is not to be had here, expected cpu"),
        (("selftest", "--backend", "reference", "--device", "mps"), "--device: 'mps' is not to be had here"),
        (("demo", "--device", "npu:0"), "--device: 'npu:0' is not to be had here"),
    ):
        code, said = call(*words)
        assert code == 2, said
        assert told in said
    assert list(BACKENDS) == ["cpu", "triton", "reference"]


@pytest.mark.parametrize("folder", ["/dev/null", "/dev/null/deeper", "/proc/here"])
def test_a_folder_that_cannot_be_written_is_told(call, folder):
    code, said = call("capi", "build", "--out", folder)
    assert code == 2
    assert f"--out: {folder} cannot be written" in said


def test_a_compiler_that_is_none_is_told(call, monkeypatch, tmp_path, built):
    """A C compiler where it is to build the library, a C++ compiler where the library is there."""
    for variable, suffix in (("CC", "c"), ("CXX", "cpp")):
        for command, told in (
            ("/no/such/compiler", "the compiler /no/such/compiler cannot be run"),
            (str(tmp_path), f"the compiler {tmp_path} cannot be run"),
            ("'", f'{variable} is "\'", expected a command: No closing quotation'),
        ):
            monkeypatch.setenv(variable, command)
            code, said = call("cc", f"program.{suffix}")
            assert code == 1
            assert told in said
        monkeypatch.delenv(variable)
        monkeypatch.setenv(build.CACHE_VARIABLE, built)


def test_what_the_contracts_refuse_is_told_in_a_line(call, monkeypatch):
    def refuse(*_, **__):
        raise aclgrad.InvalidArgument("x is bfloat16, expected float32")

    monkeypatch.setattr(MODULE, "report", refuse)
    assert call("demo") == (1, "aclgrad: x is bfloat16, expected float32")


def test_python_m_aclgrad_is_the_command(call):
    code, said = call("--version", entry=lambda: runpy.run_module("aclgrad", run_name="__main__"))
    assert (code, said) == (0, f"aclgrad {aclgrad.__version__}")


INTERRUPTED = """
import os, signal, sys, threading
from aclgrad.frontends.cli import main
sys.argv = ["aclgrad", "selftest", "--backend", "reference"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background is started deaf to it
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
main()
"""


def test_control_c_ends_a_long_command_without_a_word(python):
    done = python("-c", INTERRUPTED)
    assert done.returncode in (1, 130)
    assert "Traceback" not in done.stdout + done.stderr
    assert "runs hold" not in done.stdout, "it should have been interrupted"


LISTED = "import sys; from aclgrad.frontends.cli import main; sys.argv = ['aclgrad', 'list']; main()"


def test_a_reader_that_leaves_hears_no_complaint(python):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as left:
        done = python("-c", LISTED, stdout=left)
    assert (done.stderr, done.returncode) == ("", 1)


def test_an_encoding_without_our_signs_gets_question_marks():
    command = [sys.executable, "-c", LISTED.replace("'list'", "'demo', '-h'")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told(python):
    with FULL.open("w") as full:
        done = python("-c", LISTED, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("aclgrad: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_tables_keep_every_word_in_any_width(width):
    headings = ("operator", "aclnn function", "dtypes", "")
    rows = [("lstm_cell", "aclnnThnnFusedLstmCell", "float32, float16", "ok"), ("x", "y", "", "WRONG")]
    written = io.StringIO()
    show(Console(file=written, width=width), "a title", headings, rows, right=("dtypes",))
    assert max(map(len, written.getvalue().splitlines())) <= width
    said = written.getvalue().split()
    for row in rows:
        for cell in row:
            assert all(any(word in found for found in said) for word in cell.split())
    assert "…" not in written.getvalue()


def test_without_colour_there_is_none(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    written = io.StringIO()
    show(Console(file=written, force_terminal=True, width=80), "t", ("a", "b"), [("[green]ok[/]", "1")])
    assert "ok" in written.getvalue()
    assert "\x1b[32m" not in written.getvalue()


def test_explain_tells_which_kernel_runs_sizes_and_why(call):
    code, said = call("explain", "hardsigmoid_backward", "--shape", "x=300x70", "--dtype", "float16", "--device", "cpu")
    assert code == 0
    assert "hardsigmoid_backward x=300x70 in float16 on cpu: cpu, no workspace: 2 tiles of 1 × 16384 elements" in said
    code, said = call("explain", "lstm", "--shape", "T=3,N=2,H=4", "--set", "layers=2", "--backend", "reference")
    assert code == 0
    assert said.endswith("reference, no workspace: textbook formula in float64")


def test_explain_knows_operators_without_a_document_and_other_names_of_sizes(call):
    code, said = call("explain", "loss_and_gradients", "--shape", "tokens=6,H=8,vocabulary=9", "--device", "cpu")
    assert code == 0 and "gradient: p in blocks" in said
    assert call("explain", "loss_and_gradients")[0] == 0
    names = ("T=3,N=2,H=4", "steps=3,batch=2,hidden=4")
    said = [call("explain", "lstm", "--shape", sizes, "--device", "cpu")[1] for sizes in names]
    assert said[0].partition("on cpu:")[2] == said[1].partition("on cpu:")[2] != ""


def test_explain_plans_for_a_gpu_that_is_not_here(python):
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    sizes = ["--shape", "T=64,N=128", "--shape", "H=2048", "--dtype", "float16", "--device", "H200"]
    done = python("-m", "aclgrad", "explain", "aclnnLstmBackward", *sizes, env=environment)
    assert done.returncode == 0, done.stderr
    assert "lstm_backward T=64,N=128 H=2048 in float16 on NVIDIA H200:" in done.stdout
    assert re.search(r"layer 0: a launch per step, .* µs a step modelled; persistent grid: ", done.stdout)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shape", "T=3"], "N, H missing, expected T=…,N=…,H=…,I=…"),
        (["--shape", "T=3,N=2,H=4,Q=1"], "'Q' is no size here"),
        (["--shape", "T=3,N=2,H=-4"], "'H=-4' holds '-4', expected a whole number"),
        (["--shape", "T=3,N=2,H"], "'H' is no NAME=VALUE"),
        (["--shape", "T=3,N=2,H=4", "--dtype", "int8"], "'int8' is no dtype here, expected float32 or float16"),
        (["--shape", "T=3,N=2,H=4", "--backend", "npu"], "'npu' is no backend"),
        (["--shape", "T=3,N=2,H=4", "--device", "abacus"], "'abacus' is unknown, expected cpu or"),
        (["--shape", "T=3,N=2,H=4", "--set", "laiers=2"], "'laiers' is no option here, expected layers=1"),
        (["--shape", "T=3,N=2,H=4", "--set", "bias=perhaps"], "bias is 'perhaps', expected true or false"),
        (["--shape", "T=3,N=2,H=4", "--set", "layers=0"], "num_layers is 0"),
        (["--dtype", "float16"], "needs sizes: --shape T=…,N=…,H=… (also I, layers=1"),
    ],
)  # fmt: skip
def test_wrong_sizes_are_told_in_words(call, words, told):
    code, said = call("explain", "lstm_backward", *words)
    assert code == 2
    assert told in said
