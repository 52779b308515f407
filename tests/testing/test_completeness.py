"""Nothing passes that was not compared: outputs too many, a baseline with holes, inputs that were changed."""

import json
import shutil

import numpy as np
import pytest
import torch
from outputs import right, verdicts

from aclgrad import BadDump, InvalidArgument
from aclgrad.core.registry import lookup
from aclgrad.frontends.dumps import msprobe
from aclgrad.frontends.dumps.files import write
from aclgrad.testing import verify, write_golden
from aclgrad.testing.report.html import page
from aclgrad.testing.report.model import IMPRECISE, INCOMPARABLE

TOO_MANY = "is there, but this call does not produce it"


def test_a_list_with_a_member_too_many_is_no_pass(tmp_path):
    """Given, in files, in a dump of msprobe's."""
    operator = lookup("lstm_backward")
    args, outs = right(operator)
    count = len(outs["dparams"])
    longer = {**outs, "dparams": [*outs["dparams"], torch.ones(3)]}
    write_golden(operator, args, tmp_path / "golden")
    shutil.copytree(tmp_path / "golden" / "rounded", tmp_path / "mine")
    write(torch.ones(3), tmp_path / "mine" / "dparamsOut.99.npy")
    msprobe.write_call(tmp_path / "dump", operator.spec.aclnn, args, [longer[n] for n in operator.spec.written_names])
    for source, dump, at in (
        (args, longer, count), (tmp_path / "golden", tmp_path / "mine", 99), (None, tmp_path / "dump", count),
    ):  # fmt: skip
        report = verify(operator, source, dump)
        assert report.exit_code == INCOMPARABLE
        assert verdicts(report)[f"dparamsOut[{at}]"] == TOO_MANY
    assert verify(operator, args, outs).ok


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda outs: outs.pop("grad_cx"), "in the baseline: is missing"),
        (lambda outs: outs.update(grad_cx=outs["grad_cx"].double()), "in the baseline: is float64[3, 5], expected"),
        (lambda outs: outs.update(grad_cx=outs["grad_cx"].T), "in the baseline: is float32[5, 3]"),
    ],
)
def test_nothing_takes_the_place_of_a_baseline(spoil, told):
    operator = lookup("lstm_cell_backward")
    args, outs = right(operator)
    names = dict(zip(operator.spec.written_names, ("grad_gates", "grad_cx", "grad_bias"), strict=True))
    baseline = {names[name]: value for name, value in outs.items()}
    spoil(baseline)
    back = {short: name for name, short in names.items()}
    report = verify(operator, args, outs, standard="double", baseline={back[n]: v for n, v in baseline.items()})
    assert report.exit_code == INCOMPARABLE
    assert verdicts(report)["gradCxOut"].startswith(told)
    assert verdicts(report)["gradGatesOut"] is True


def test_inputs_that_were_changed_after_golden_data_were_made_are_told(tmp_path):
    operator = lookup("lstm_cell_backward")
    args, outs = right(operator)
    write_golden(operator, args, tmp_path)
    assert verify(operator, tmp_path, outs).ok
    path = tmp_path / "cx.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    report = verify(operator, tmp_path, outs)
    assert report.exit_code == INCOMPARABLE
    assert report.calls[0].problems == ["cx.npy is not the file that was written: its checksum differs"]
    path.unlink()
    assert verify(operator, tmp_path, outs).calls[0].problems == ["cx.npy cannot be read: No such file or directory"]
    path.write_bytes(content)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["outputs"]["gradCxOut"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert "does not describe gradCxOut" in verify(operator, tmp_path, outs).calls[0].problems[0]


def test_an_optional_output_that_is_not_there_is_told(capsys):
    operator = lookup("linear_online_max_sum")
    args, outs = right(operator)
    del outs["vocab_parallel_logits"]
    report = verify(operator, args, outs)
    assert report.ok
    assert report.calls[0].notes == ["vocabParallelLogitsOutOptional is not there, and need not be: it was not judged"]
    report.show()
    assert report.calls[0].notes[0] in " ".join(capsys.readouterr().out.split())
    assert report.calls[0].notes[0] in page(report)


def test_a_call_that_was_not_dumped_is_named(tmp_path, capsys):
    operator = lookup("hardsigmoid")
    for k in range(2):
        write_golden(operator, [torch.randn(4)], tmp_path / "golden" / str(k))
    shutil.copytree(tmp_path / "golden" / "0" / "rounded", tmp_path / "mine" / "0")
    report = verify(operator, tmp_path / "golden", tmp_path / "mine")
    assert report.exit_code == INCOMPARABLE
    report.show()
    assert "hardsigmoid 1: no outputs were found for these inputs" in " ".join(capsys.readouterr().out.split())


def test_the_only_output_may_be_called_so(tmp_path):
    """As scripts that write their results with numpy's tofile name them."""
    x = torch.linspace(-4, 4, 5)
    torch.nn.functional.hardsigmoid(x).numpy().tofile(tmp_path / "output.bin")
    assert verify("hardsigmoid", [x], tmp_path).ok
    args, _ = right(lookup("lstm_cell_backward"))
    np.zeros(3, np.float32).tofile(tmp_path / "output.bin")
    report = verify("lstm_cell_backward", args, tmp_path)
    assert any("output.bin is no argument or output of" in told for told in report.calls[0].problems)


def test_arrays_of_numpy_are_judged_like_tensors():
    x = np.linspace(-4, 4, 20, dtype=np.float32)
    out = np.clip(x / np.float32(6) + np.float32(0.5), 0, 1)
    out.flags.writeable = False
    assert verify("hardsigmoid", [x], out).ok
    assert verify("hardsigmoid", {"self": x[::-1]}, {"out": out[::-1]}).ok
    assert verify("hardsigmoid", [x.astype(">f4")], out.astype(">f4")).ok
    assert not verify("hardsigmoid", [x], out * np.float32(1.001)).ok
    with pytest.raises(BadDump, match="an array holds object, expected numbers"):
        verify("hardsigmoid", [x], np.array([{}], dtype=object))


def test_integers_are_judged_by_the_formula():
    x = torch.arange(-5, 5, dtype=torch.int32)
    right = (x >= 3).int()
    assert verify("hardsigmoid", [x], right).ok
    report = verify("hardsigmoid", [x], torch.zeros_like(x))
    assert report.exit_code == IMPRECISE and report.calls[0].outputs[0].unequal == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (torch.ones(4).to_sparse(), "it has layout torch.sparse_coo, expected strided"),
        (torch.empty(4, device="meta"), "it has a shape and no elements"),
        (["out"], "is str, expected a tensor"),
        ([None], "is missing"),
    ],
)
def test_what_has_no_elements_to_look_at_is_told(given, told):
    report = verify("hardsigmoid", [torch.ones(4)], given)
    assert report.exit_code == INCOMPARABLE and told in verdicts(report)["out"]
    if isinstance(given, torch.Tensor):
        told = told.replace("it ", "self ")
        assert told in verify("hardsigmoid", [given], torch.ones(4)).calls[0].problems[0]


@pytest.mark.parametrize("given", [None, 0.5])
def test_outputs_that_are_none_are_told(given):
    with pytest.raises(BadDump, match=f"outputs are {type(given).__name__}, expected tensors or a folder"):
        verify("hardsigmoid", [torch.ones(4)], given)


def test_a_level_that_is_none_is_told():
    for standard in ("double", "rule"):
        with pytest.raises(InvalidArgument, match="level is 'L3', expected one of L0, L1, L2"):
            verify("hardsigmoid", [torch.ones(4)], torch.ones(4), standard=standard, level="L3")


def test_a_call_without_outputs_is_no_pass():
    operator = lookup("batch_norm_reduce_backward")
    args, outs = right(operator, case="nothing")
    report = verify(operator, args, outs)
    assert report.exit_code == INCOMPARABLE
    assert report.calls[0].problems == ["this call produces nothing that could be compared"]
