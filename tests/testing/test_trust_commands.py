"""`aclgrad golden` and `aclgrad verify` as a person uses them: files, words, exit codes."""

import csv
import io
import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from aclgrad.core.registry import aclnn_operators, operators
from aclgrad.frontends.cli import app
from aclgrad.testing.data.calls import drawn
from aclgrad.testing.report.forms import COLUMNS

RUNNER = CliRunner(env={"COLUMNS": "200"})
OPERATOR = "hardsigmoid_backward"


def run(*words):
    """(exit code, what was said on one line)."""
    done = RUNNER.invoke(app, list(map(str, words)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


@pytest.fixture
def golden(tmp_path):
    """Golden data of a small case, and a folder with right outputs."""
    code, said = run("golden", OPERATOR, "--dtype", "float16", "--out", tmp_path / "golden")
    assert code == 0, said
    assert f"aclgrad verify {OPERATOR} --inputs {tmp_path / 'golden'} --dump THAT_FOLDER" in said
    shutil.copytree(tmp_path / "golden" / "rounded", tmp_path / "mine")
    return tmp_path


def verify(golden, *options):
    return run("verify", "aclnnHardsigmoidBackward", "--inputs", golden / "golden", "--dump", golden / "mine", *options)


def spoil(golden, by=1.008):
    """One wrong element."""
    path = golden / "mine" / "out.npy"
    values = np.load(path)
    values.reshape(-1)[np.abs(values).argmax()] *= np.float16(by)
    np.save(path, values)


def test_right_wrong_and_missing_outputs_differ_by_the_exit_code(golden):
    code, said = verify(golden)
    assert (code, said.split()[-1]) == (0, "float64") and "right by the standard rule" in said
    spoil(golden)
    code, said = verify(golden)
    assert code == 1
    assert "not precise enough by the standard rule" in said
    assert "the worst elements of out" in said and "gradOutput[" in said and "self[" in said
    code, said = run("verify", OPERATOR, "--dump", golden / "mine")
    assert code == 2 and "mine holds none; inputs, or --inputs, names another folder" in said
    (golden / "mine" / "out.npy").unlink()
    code, said = verify(golden)
    assert code == 2
    assert "holds no tensors" in said and "cannot compare" in said
    assert run("verify", OPERATOR, "--dump", golden / "nowhere")[0] == 2


def test_an_empty_folder_is_right_for_no_operator(tmp_path):
    for operator in operators():
        code, said = run("verify", operator.spec.name, "--dump", tmp_path)
        assert code == 2 and "holds no tensors" in said, operator


def test_reports_for_machines(golden):
    spoil(golden)
    files = [golden / f"report.{kind}" for kind in ("html", "csv", "json", "xml")]
    code, said = verify(golden, "--standard", "mere", *(word for file in files for word in ("--report", file)))
    assert code == 0  # whose largest relative error may be ten times the mean
    assert all(str(file) in said for file in files)
    (row,) = csv.DictReader(io.StringIO(files[1].read_text()))
    assert tuple(row)[: len(COLUMNS)] == COLUMNS
    assert row["API Name"] == "Aclnn.aclnnHardsigmoidBackward.0.forward.output.0"
    assert (row["DEVICE Dtype"], row["Shape"], row["Status"], row["rule"]) == (
        "torch.float16",
        "(7, 9)",
        "pass",
        "error",
    )
    assert 0.99 < float(row["余弦相似度"]) < 1
    told = json.loads(files[2].read_text())
    assert told["exit_code"] == 0 and told["standards"]["opbase"]["revision"].startswith("233ee24")
    output = told["calls"][0]["outputs"][0]
    assert output["judgements"]["rule"]["ok"] is False
    assert output["worst"][0]["inputs"].keys() == {
        f"{name}{output['worst'][0]['index']}" for name in ("gradOutput", "self")
    }
    verify(golden, "--report", files[3])
    suite = ElementTree.parse(files[3]).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert "largest error" in suite.find("testcase/failure").get("message")
    (golden / "mine" / "more.bin").write_bytes(b"1")
    assert verify(golden, "--report", files[3], "--report", files[1])[0] == 2
    suite = ElementTree.parse(files[3]).getroot()[0]
    assert suite.get("errors") == "1" and "more.bin" in suite.find("testcase/error").get("message")
    assert "more.bin is no argument" in files[1].read_text()


def test_a_report_that_cannot_be_written_is_told(golden):
    code, said = verify(golden, "--report", "/proc/nowhere/report.json")
    assert code == 2
    assert "/proc/nowhere/report.json cannot be written" in said
    assert verify(golden, "--report", "report.pdf")[0] == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--case", "nosuch"), "has no case 'nosuch', expected one of matrix, scalar"),
        (("--case", "several_threads", "--dtype", "bfloat16"), "is not for bfloat16, expected float32, float16"),
        (("--dtype", "int4"), "dtype is 'int4', expected one of float16"),
        (("--format", "xls"), "'xls' is unknown, expected one of npy, bin, pt, msprobe"),
        (("--case", "matrix", "--random", "2"), "--case and --random exclude each other"),
        (("--random", "0"), "0 calls, expected at least 1"),
        (("--args", "nowhere.json"), "nowhere.json cannot be read"),
    ],
)
def test_wrong_words_are_told(tmp_path, words, told):
    code, said = run("golden", OPERATOR, "--out", tmp_path / "golden", *words)
    assert code == 2
    assert told in said, said
    assert not (tmp_path / "golden").exists()


def test_golden_data_are_replaced_and_nothing_else_is(golden):
    before = sorted(golden.rglob("*"))
    assert run("golden", OPERATOR, "--format", "pt", "--out", golden / "golden")[0] == 0
    assert {path.suffix for path in (golden / "golden").iterdir()} == {".pt", ".json", ""}
    assert run("golden", OPERATOR, "--dtype", "float16", "--out", golden / "golden")[0] == 0
    assert sorted(golden.rglob("*")) == before
    code, said = run("golden", OPERATOR, "--out", golden)
    assert code == 2
    assert "holds mine/out.npy, expected an empty folder or one of golden data" in said
    assert sorted(golden.rglob("*")) == before


def test_random_calls_are_the_same_for_the_same_seed(tmp_path):
    for folder, seed in (("one", 3), ("two", 3), ("three", 4)):
        assert run("golden", "lstm_cell", "--random", 3, "--seed", seed, "--out", tmp_path / folder)[0] == 0
    one, two, three = (
        {path.relative_to(tmp_path / folder): path.read_bytes() for path in (tmp_path / folder).rglob("*.*")}
        for folder in ("one", "two", "three")
    )
    assert one == two
    assert one != three
    for k in "012":
        shutil.copytree(tmp_path / "one" / k / "rounded", tmp_path / "mine" / k)
    code, said = run("verify", "lstm_cell", "--inputs", tmp_path / "one", "--dump", tmp_path / "mine")
    assert code == 0, said
    assert all(f"lstm_cell {k}" in said for k in "012")


def test_the_named_cases_are_listed(tmp_path):
    code, said = run("golden", OPERATOR, "--cases")
    assert code == 0 and "matrix" in said and "bfloat16" in said
    code, said = run("golden", OPERATOR)
    assert code == 2 and "expected a folder to write into" in said


def test_every_operator_can_be_drawn():
    for operator in aclnn_operators():
        samples = list(drawn(operator, 6, None, 5))
        assert len({str(sample.origin) for sample in samples}) > 1, operator
        assert [s.origin for s in samples] == [s.origin for s in drawn(operator, 6, None, 5)]


def described(tmp_path, told):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(told))
    return run("golden", "batch_norm_elemt", "--args", path, "--out", tmp_path / "golden")


BATCH = {
    "input": {"shape": [4, 3, 5], "dtype": "fp16", "range": [-2, 2]}, "weight": None, "bias": None,
    "mean": {"values": [0.5, 0.0, -1], "dtype": "float32"},
    "invstd": {"shape": [3], "dtype": "float32", "normal": [1, 0.01]}, "eps": 1e-5,
}  # fmt: skip


def test_arguments_are_described_in_a_file(tmp_path):
    code, said = described(tmp_path, BATCH)
    assert code == 0, said
    assert np.load(tmp_path / "golden" / "mean.npy").tolist() == [0.5, 0.0, -1.0]
    x = np.load(tmp_path / "golden" / "input.npy")
    assert x.dtype == np.float16 and np.abs(x).max() <= 2
    manifest = json.loads((tmp_path / "golden" / "manifest.json").read_text())
    assert manifest["arguments"]["weight"] is None and manifest["arguments"]["eps"] == 1e-5
    torch.save(torch.full((3,), 2.0), tmp_path / "mean.pt")
    code, said = described(tmp_path, {**BATCH, "mean": {"shape": [3], "dtype": "float32", "file": "mean.pt"}})
    assert code == 0, said
    assert np.load(tmp_path / "golden" / "mean.npy").tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"invstds": 1}, "batch_norm_elemt has no parameter 'invstds', did you mean invstd?"),
        ({"input": {"shape": [4, 3], "dtype": "int4"}}, "input is 'int4', expected one of"),
        ({"input": {"shape": [4, 3], "dtyp": "fp16"}}, "input has 'dtyp', expected a tensor by shape, dtype"),
        ({"input": {"shape": [4, 3]}}, "input lacks its dtype or its shape"),
        ({"input": {"shape": [4, 3], "dtype": "fp16", "range": "wide"}}, "the range of input is 'wide'"),
        ({"mean": {"shape": [4], "dtype": "fp32"}}, "mean has shape [4], expected [3]"),
        ({"eps": [1, 2]}, "eps is a list, expected a number"),
        ({"mean": {"shape": [3], "dtype": "fp32", "file": "no.npy"}}, "no.npy cannot be read"),
        ({"input": {"shape": [-4, 3], "dtype": "fp16"}}, "the shape of input is [-4, 3], expected sizes of 0 and more"),
        ({"input": {"shape": [2**62, 3], "dtype": "fp16"}}, "input cannot be understood: RuntimeError"),
        ({"mean": {"values": [1, 2], "shape": [3], "dtype": "fp32"}}, "mean cannot be understood: RuntimeError: shape"),
        ({"mean": {"values": [[1], [2, 3]], "dtype": "fp32"}}, "mean cannot be understood: ValueError"),
        ({"invstd": {"shape": [3], "dtype": "fp32", "normal": [1]}}, "invstd cannot be understood: IndexError"),
        ({"mean": {"shape": [3], "dtype": "fp32", "file": None}}, "mean cannot be understood: TypeError"),
    ],
)
def test_wrong_descriptions_are_told(tmp_path, change, told):
    code, said = described(tmp_path, {**BATCH, **change})
    assert code == 2
    assert told in said, said


def test_an_argument_without_a_default_must_be_described(tmp_path):
    code, said = described(tmp_path, {name: value for name, value in BATCH.items() if name != "eps"})
    assert code == 2
    assert "eps is missing, batch_norm_elemt has no default for it" in said
