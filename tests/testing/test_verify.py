"""`verify`: what is right passes; what is a little wrong, misplaced, missing or too much never does."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from outputs import each, moved, right, verdicts

from aclgrad import BadDump, InvalidArgument
from aclgrad.core.registry import lookup, operators
from aclgrad.frontends.dumps import msprobe
from aclgrad.frontends.dumps.files import write
from aclgrad.testing import verify, write_golden
from aclgrad.testing.cases import suite
from aclgrad.testing.precision.standards import standards
from aclgrad.testing.report.model import IMPRECISE, INCOMPARABLE, RIGHT
from aclgrad.testing.verification import judging, makers, truth
from aclgrad.testing.verification.truth import Truth

STERN = {"mere", "single", "threshold", "acc-check"}
"""Standards that refuse results rounded as well as a half type can: by relative errors of its smallest numbers."""

OPERATORS = pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)


def floating(outs):
    """The names of the outputs that are floating-point numbers."""
    return [
        name for name, value in outs.items() if (value[0] if isinstance(value, list) else value).is_floating_point()
    ]


def in_every_dtype():
    """(operator, dtype) of every operator's first case; further dtypes are slow."""
    for operator in operators():
        first, *others = [dtype for dtype in suite(operator.spec).cases[0].dtypes if dtype.is_floating_point]
        yield pytest.param(operator, first, id=f"{operator.spec.name}-{first}")
        for dtype in others:
            yield pytest.param(operator, dtype, id=f"{operator.spec.name}-{dtype}", marks=pytest.mark.slow)


@pytest.fixture
def unexplained(monkeypatch):
    """Nobody looks for what wrong elements are made of, which takes longer than everything else."""
    monkeypatch.setattr(judging, "makers", lambda expected, output, places: {})


@pytest.mark.usefixtures("unexplained")
@pytest.mark.parametrize(("operator", "dtype"), list(in_every_dtype()))
def test_an_ulp_passes_and_what_is_wrong_fails(operator, dtype):
    """40 ulp, a NaN, zeros, outputs swapped; each output alone must be found wrong, and by every standard.

    Ulp are those of the dtype that the contract rounds to. The vendor's standards let 40 of them pass in float32.
    """
    args, outs = right(operator, dtype)
    precision = Truth(operator, args).precision
    labels = tuple(operator.spec.params[name].aclnn for name in floating(outs))

    def by(count):
        return each(lambda name, item: moved(item, count, precision(name, item.dtype)), outs)

    def with_nan(_, item):
        spoilt = item.clone()
        if item.is_floating_point():
            spoilt.view(-1)[item.numel() // 2] = torch.nan
        return spoilt

    assert verify(operator, args, by(1)).exit_code == RIGHT
    accepting = {"rule"} if dtype == torch.float64 else standards().keys() - STERN
    assert accepting <= holding(verify(operator, args, outs), all)
    far = verify(operator, args, by(40))
    assert not {name for name, ok in verdicts(far).items() if ok and name.startswith(labels)}
    spoilt = verify(operator, args, each(with_nan, outs))
    assert not holding(spoilt, any, labels)
    zeros = verify(operator, args, each(lambda _, item: torch.zeros_like(item), outs))
    assert not holding(zeros, any)  # but for integers whose truth is zero
    assert all(report.exit_code == IMPRECISE for report in (far, spoilt, zeros))
    assert_swapped_outputs_fail(operator, args, outs)


def holding(report, kind, labels=("",)):
    """The standards by which all, or any, of the outputs with these labels are right."""
    outputs = [
        output
        for output in report.calls[0].outputs
        if output.name.startswith(labels) and (output.problem or output.found is not None or output.unequal)
    ]
    assert outputs
    return {name for name in standards() if kind(output.ok(name) for output in outputs)}


def assert_swapped_outputs_fail(operator, args, outs):
    """Any two outputs, or two members of a list, whose values differ."""
    swaps = []
    single = [name for name, value in outs.items() if not isinstance(value, list)]
    for one, other in pairwise(single):
        if outs[one].shape != outs[other].shape or not torch.equal(outs[one], outs[other]):
            swaps.append({**outs, one: outs[other], other: outs[one]})
    for name, value in outs.items():
        if isinstance(value, list) and len(value) > 1:
            swaps.append({**outs, name: [value[1], value[0], *value[2:]]})
    for swapped in swaps:
        assert not holding(verify(operator, args, swapped), all)


@pytest.mark.usefixtures("unexplained")
@OPERATORS
def test_a_transposed_layout_fails(operator):
    """Files whose elements stand in another order: of the outputs, or of the inputs where all outputs are vectors."""
    args, outs = right(operator)

    def turned(item):
        if isinstance(item, list):
            return [turned(member) for member in item]
        return (
            item.permute(list(range(item.dim()))[::-1]).reshape(item.shape) if isinstance(item, torch.Tensor) else item
        )

    changed = {name: turned(value) for name, value in outs.items()}
    given = [turned(arg) for arg in args] if all(map(torch.equal, flat(changed), flat(outs))) else args
    report = verify(operator, given, changed)
    assert report.exit_code == IMPRECISE
    assert not holding(report, all)


def flat(values):
    """All tensors among values."""
    items = values.values() if isinstance(values, dict) else values
    found = [x for item in items for x in (item if isinstance(item, list) else [item])]
    return [x for x in found if isinstance(x, torch.Tensor)]


FORMATS = ("npy", "bin", "pt", "msprobe")


def every_way():
    """(operator, format, dtypes): npy has every dtype, the others the first; their further ones are slow.

    And so are formats but npy, once an operator of the same family with outputs of the same kinds has been in them.
    """
    seen = set()
    for operator in operators():
        first, *others = suite(operator.spec).cases[0].dtypes
        kinds = operator.spec.package, frozenset(type(out) for out in operator.spec.outs)
        for data_format in FORMATS:
            name = f"{operator.spec.name}-{data_format}"
            short = [first, *others] if data_format == "npy" else [first]
            marks = () if data_format == "npy" or kinds not in seen else pytest.mark.slow
            yield pytest.param(operator, data_format, short, id=name, marks=marks)
            if others and len(short) == 1:
                yield pytest.param(operator, data_format, others, id=f"{name}-others", marks=pytest.mark.slow)
        seen.add(kinds)


@pytest.mark.parametrize(("operator", "data_format", "dtypes"), list(every_way()))
def test_golden_data_pass(operator, data_format, dtypes, tmp_path):
    """A dump of msprobe holds the outputs itself."""
    case = suite(operator.spec).cases[0]
    for dtype in dtypes:
        place = tmp_path / str(dtype)
        write_golden(operator, case.build(dtype), place, data_format)
        source, dump = (None, place) if data_format == "msprobe" else (place, place / "rounded")
        report = verify(operator, source, dump)
        assert report.ok, report.calls
        if dtype.is_floating_point and dtype != torch.float64:
            assert standards().keys() - STERN <= holding(report, all)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    operator = lookup("lstm_cell_backward")
    for data_format in FORMATS:
        for folder in ("one", "two"):
            args, _ = right(operator, torch.float16)
            write_golden(operator, args, tmp_path / data_format / folder, data_format, origin={"seed": 0})
        one, two = (
            {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()}
            for f in (tmp_path / data_format / "one", tmp_path / data_format / "two")
        )
        assert one == two
        assert len(one) > 8


@pytest.fixture
def golden(tmp_path):
    """A folder of golden data of the LSTM cell's gradient, and one of right outputs."""
    operator = lookup("lstm_cell_backward")
    args, outs = right(operator)
    write_golden(operator, args, tmp_path / "golden")
    for name, value in outs.items():
        write(value, tmp_path / "mine" / f"{operator.spec.params[name].aclnn}.npy")
    return tmp_path


def judged(golden, **options):
    return verify("lstm_cell_backward", golden / "golden", golden / "mine", **options)


def test_right_outputs_in_a_folder_pass(golden):
    assert judged(golden).ok


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: [p.unlink() for p in folder.iterdir()], "holds no tensors"),
        (lambda folder: (folder / "gradCxOut.npy").unlink(), "gradCxOut: is missing"),
        (
            lambda folder: np.save(folder / "more.npy", np.zeros(3)),
            "more.npy is no argument or output of .*, expected one of .*gradCxOut",
        ),
        (lambda folder: np.save(folder / "grad_cx.npy", np.zeros(3)), "is a second file for gradCxOut"),
        (
            lambda folder: np.save(folder / "gradCxOut.npy", np.zeros((5, 3), np.float32)),
            r"is float32\[5, 3\], expected",
        ),
        (
            lambda folder: np.save(folder / "gradCxOut.npy", np.zeros((3, 5), np.float16)),
            r"is float16\[3, 5\], expected",
        ),
        (lambda folder: np.save(folder / "gradCxOut.npy", np.zeros((3, 5))), r"is float64\[3, 5\], expected"),
        (lambda folder: np.save(folder / "gradCxOut.npy", np.zeros((0,), np.float32)), r"is float32\[0\], expected"),
        (lambda folder: (folder / "gradCxOut.npy").write_bytes(b""), "gradCxOut.npy cannot be read"),
        (
            lambda folder: np.save(folder / "cx.npy", np.zeros((3, 5), np.float32)),
            "cx beside the outputs is not the one",
        ),
        (lambda folder: torch.save([1], folder / "gradCxOut.pt"), "is a second file for gradCxOut"),
    ],
)
def test_what_is_not_there_or_not_as_it_should_be_is_no_pass(golden, spoil, told):
    spoil(golden / "mine")
    try:
        report = judged(golden)
    except BadDump as fault:
        report, troubles = None, [str(fault)]
    else:
        troubles = [trouble for call in report.calls for trouble in call.troubles]
    assert report is None or report.exit_code == INCOMPARABLE
    assert any(re.search(told, trouble) for trouble in troubles), troubles


def test_golden_data_that_were_changed_are_told(golden):
    path = golden / "golden" / "golden.gradCxOut.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    report = judged(golden)
    assert report.exit_code == INCOMPARABLE
    assert "golden.gradCxOut.npy is not the file that was written" in report.calls[0].troubles[0]
    manifest = golden / "golden" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "operator": "lstm"}))
    with pytest.raises(BadDump, match=r"manifest.json is of lstm, expected lstm_cell_backward"):
        judged(golden)
    manifest.write_text("{}")
    with pytest.raises(BadDump, match="is no manifest of golden data"):
        judged(golden)


def test_outputs_beside_golden_data_are_found_there(golden):
    """What was written into the folder of the inputs; without it nothing passes, the golden data least of all."""
    place = golden / "golden"
    assert verify("lstm_cell_backward", None, place).exit_code == INCOMPARABLE
    for path in (golden / "mine").iterdir():
        path.rename(place / path.name)
    assert verify("lstm_cell_backward", None, place).ok


@pytest.mark.parametrize(
    "named",
    ["{aclnn}.npy", "{python}.npy", "output_{aclnn}.bin", "output.{k}.pt", "output{k}.npy", "out_{k}.bin",
     "Aclnn.x.0.forward.output.{k}.npy", "VF_x_99_forward_output.{k}.npy", "{aclnn}.out.npy"],
)  # fmt: skip
def test_outputs_go_by_many_names(golden, named):
    operator = lookup("lstm_cell_backward")
    for k, name in enumerate(operator.spec.written_names):
        aclnn = operator.spec.params[name].aclnn
        value = np.load(golden / "mine" / f"{aclnn}.npy")
        (golden / "mine" / f"{aclnn}.npy").unlink()
        write(torch.from_numpy(value), golden / "mine" / named.format(aclnn=aclnn, python=name, k=k))
    report = judged(golden)
    assert report.ok, report.calls[0].troubles


def test_what_is_updated_in_place_is_an_output_too(tmp_path):
    operator = lookup("batch_norm_gather_stats_with_counts")
    args, outs = right(operator)
    write_golden(operator, args, tmp_path / "golden")
    for name, value in outs.items():
        write(value, tmp_path / "mine" / f"{operator.spec.params[name].aclnn}.npy")
    assert verify(operator, tmp_path / "golden", tmp_path / "mine").ok
    (tmp_path / "mine" / "runningVar.npy").unlink()
    assert verdicts(verify(operator, tmp_path / "golden", tmp_path / "mine"))["runningVar"] == "is missing"
    write(args[4], tmp_path / "mine" / "runningVar.npy")  # as it was before
    assert verdicts(verify(operator, tmp_path / "golden", tmp_path / "mine"))["runningVar"] is False


def test_an_optional_output_may_be_left_out(tmp_path):
    operator = lookup("linear_online_max_sum")
    args, outs = right(operator)
    del outs["vocab_parallel_logits"]
    assert verify(operator, args, outs).ok
    write_golden(operator, args, tmp_path)
    (tmp_path / "rounded" / "vocabParallelLogitsOutOptional.npy").unlink()
    assert verify(operator, tmp_path, tmp_path / "rounded").ok


def test_what_a_call_does_not_produce_is_too_much():
    operator = lookup("batch_norm_reduce_backward")
    args, outs = right(operator)
    args[6] = False  # no gradient of the weight
    report = verify(operator, args, outs)
    assert report.exit_code == INCOMPARABLE
    assert verdicts(report)["gradWeight"] == "is there, but this call does not produce it"


def test_folders_of_calls_belong_together_by_their_names(tmp_path):
    operator = lookup("hardsigmoid")
    for k in range(3):
        x = torch.randn(4, k + 1)
        write_golden(operator, [x], tmp_path / "golden" / str(k))
        write(torch.nn.functional.hardsigmoid(x), tmp_path / "mine" / str(k) / "out.npy")
    report = verify(operator, tmp_path / "golden", tmp_path / "mine")
    assert [call.name for call in report.calls] == ["0", "1", "2"]
    assert report.ok
    (tmp_path / "mine" / "1" / "out.npy").unlink()
    report = verify(operator, tmp_path / "golden", tmp_path / "mine")
    assert report.exit_code == INCOMPARABLE
    assert report.calls[1].problems == ["no outputs were found for these inputs"]
    write(x, tmp_path / "mine" / "7" / "out.npy")
    assert "these outputs have no inputs" in [p for c in verify(operator, tmp_path / "golden", tmp_path / "mine").calls
                                              for p in c.problems]  # fmt: skip


def test_calls_of_a_dump_of_msprobe_are_chosen_by_name(tmp_path):
    """A chip's own dump holds inputs and outputs; other calls may be in it."""
    x, grad = torch.randn(5, 6), torch.randn(5, 6)
    out = torch.where(x.abs() < 3, grad / 6, 0.0)
    msprobe.write_call(tmp_path, "aclnnHardsigmoidBackward", [grad, x], [out])
    msprobe.write_call(tmp_path, "mul", [grad, x], [grad * x], kind="Torch")
    msprobe.write_call(tmp_path, "my_gradient", [grad], [out + 1], kind="Custom", keywords={"self": x})
    report = verify("hardsigmoid_backward", None, tmp_path)
    assert [call.name for call in report.calls] == ["Aclnn.aclnnHardsigmoidBackward.0.forward"]
    assert report.ok
    wrong = verify("hardsigmoid_backward", None, tmp_path / "dump.json", call="Custom.my_gradient.0.forward")
    assert wrong.exit_code == IMPRECISE
    with pytest.raises(BadDump, match=r"has no call of aclnnHardsigmoid, but Aclnn.aclnnHardsigmoidBackward.0.forward"):
        verify("hardsigmoid", None, tmp_path)
    with pytest.raises(BadDump, match="has no call 'nothing'"):
        verify("hardsigmoid", None, tmp_path, call="nothing")


def test_inputs_that_are_no_legal_call_cannot_be_compared():
    report = verify("hardsigmoid_backward", [torch.ones(3), torch.ones(4)], torch.ones(4))
    assert report.exit_code == INCOMPARABLE
    assert "the inputs are no legal call: x has shape [4], expected [3] like grad_output" in report.calls[0].problems
    report = verify("hardsigmoid_backward", {"gradOutput": torch.ones(3)}, torch.ones(3))
    assert report.calls[0].problems == ["self is missing among the inputs of hardsigmoid_backward"]


def test_words_that_are_none_are_told():
    with pytest.raises(
        InvalidArgument, match="'hardsigmoid_backwards' is no operator, did you mean hardsigmoid_backward"
    ):
        verify("hardsigmoid_backwards", [], [])
    with pytest.raises(InvalidArgument, match="standard is 'good', expected one of rule, opbase"):
        verify("hardsigmoid", [torch.ones(3)], torch.ones(3), standard="good")
    with pytest.raises(BadDump, match="2 outputs are given, hardsigmoid has 1: out"):
        verify("hardsigmoid", [torch.ones(3)], [torch.ones(3)] * 2)
    with pytest.raises(InvalidArgument, match="hardsigmoid has no parameter 'y'"):
        verify("hardsigmoid", [torch.ones(3)], {"y": torch.ones(3)})


def test_empty_outputs_pass_if_they_are_there():
    operator = lookup("hardsigmoid_backward")
    args, outs = right(operator, case="empty")
    report = verify(operator, args, outs)
    assert report.ok
    assert all(judgement.ok for judgement in report.calls[0].outputs[0].judgements.values())


def test_a_standard_without_figures_for_a_dtype_is_no_pass():
    x = torch.randn(4, dtype=torch.float64)
    out = torch.nn.functional.hardsigmoid(x)
    assert verify("hardsigmoid", [x], out).ok
    assert verify("hardsigmoid", [x], out, standard="opbase").exit_code == INCOMPARABLE


def test_another_implementation_can_be_the_benchmark():
    """A result ten times as far off as the benchmark, and one that is as far."""
    x = torch.randn(64, 64)
    true = torch.nn.functional.hardsigmoid(x.double())
    off = torch.randn(64, 64, dtype=torch.float64).clamp(-1, 1) * 1e-5
    near, far = (true * (1 + off)).float(), (true * (1 + 10 * off)).float()
    for level in ("L0", "L2"):
        assert not verify("hardsigmoid", [x], near, standard="double", level=level).ok  # than the formula in float32
        assert verify("hardsigmoid", [x], near, standard="double", level=level, baseline=near).ok
        assert not verify("hardsigmoid", [x], far, standard="double", level=level, baseline=near).ok


def test_what_fails_is_explained(monkeypatch):
    """By the standard that was asked for, or by our rule; of large calls fewer elements."""
    operator = lookup("linear_cross_entropy_backward")
    args, outs = right(operator)

    def explained(outs, standard="rule"):
        output = verify(operator, args, outs, standard=standard).calls[0].outputs[0]
        assert not output.ok("threshold")
        return sum(map(len, output.makers.values()))

    wrong = {name: value * 1.1 for name, value in outs.items()}
    assert explained(outs) == 0
    in_full = explained(wrong)
    assert explained(outs, "threshold") > 0 < in_full
    monkeypatch.setattr(makers, "MOST", 3 * sum(arg.numel() for arg in args if isinstance(arg, torch.Tensor)))
    assert 0 < explained(wrong) < in_full


def test_large_elementwise_calls_are_judged_in_pieces(monkeypatch):
    """The formula is computed piece by piece, and says the same as in one go."""
    operator = lookup("hardsigmoid_backward")
    args, outs = right(operator, case="several_threads")
    whole = verify(operator, args, outs)
    monkeypatch.setattr(truth, "LARGE", 1)
    pieces = verify(operator, args, outs)
    assert pieces.calls[0].outputs[0].found == whole.calls[0].outputs[0].found
    assert pieces.calls[0].outputs[0].naive == whole.calls[0].outputs[0].naive
    assert Truth(operator, args)._by_pieces
    assert not Truth(lookup("batch_norm_elemt"), right(lookup("batch_norm_elemt"))[0])._by_pieces


def test_every_standard_has_its_place_and_its_figures():
    for standard in standards().values():
        assert standard.title and standard.source and standard.revision
        assert standard.of(torch.float32) is not None
