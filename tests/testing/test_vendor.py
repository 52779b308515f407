"""CANN's test kits: their lists run here, what `aclgrad golden` writes for them is read back and gives the same."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from outputs import right, verdicts
from typer.testing import CliRunner

from aclgrad.core.errors import InvalidArgument
from aclgrad.core.registry import aclnn_operators, lookup
from aclgrad.frontends.cli import app
from aclgrad.frontends.dumps.files import write
from aclgrad.testing.cases import is_documented, suite
from aclgrad.testing.data.calls import Call, of_case
from aclgrad.testing.vendor import ADAPTERS, LISTS, for_kit, golden_of
from aclgrad.testing.verification.listed import verify_cases

HERE = Path(__file__).parent / "lists"
ATK, TTK = HERE / "atk_hardsigmoid_backward.json", HERE / "ttk_batch_norm_elemt.csv"
RUNNER = CliRunner(env={"COLUMNS": "200"})


def run(*words):
    done = RUNNER.invoke(app, list(map(str, words)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_a_list_of_atk_says_shapes_dtypes_and_values():
    operator = lookup("hardsigmoid_backward")
    cases = LISTS["atk"](operator, ATK)
    assert [case.name for case in cases] == ["0", "1", "2"]  # the case of another operator is left out
    normal, special, empty = (case.call(operator.spec).args for case in cases)
    assert normal[0].dtype == torch.float16 and normal[0].shape == (3, 5) and normal[0].abs().max() <= 2
    assert normal[1].abs().max() > 3  # of a normal distribution
    assert (special[0] == 1.5).all() and not special[1].isfinite().any()
    assert empty[0].shape == (0, 6) and empty[0].dtype == torch.bfloat16
    again, other = (cases[0].call(operator.spec, seed).args for seed in (0, 1))
    assert torch.equal(normal[0], again[0]) and not torch.equal(normal[0], other[0])
    report = verify_cases(operator, cases)
    assert report.ok and len(report.calls) == 3


def test_a_list_of_ttk_says_shapes_dtypes_and_values():
    operator = lookup("batch_norm_elemt")
    half, no_weight = LISTS["ttk"](operator, TTK)  # neither what is of another operator nor what is switched off
    x, weight, _, mean, invstd, eps = half.call(operator.spec).args
    assert (x.dtype, weight.dtype, mean.dtype, eps) == (torch.float16, torch.float16, torch.float32, 1e-5)
    assert weight.min() >= 0.5 and x.abs().max() > 1 and invstd.shape == (3,)
    x, weight, bias, *_ = no_weight.call(operator.spec).args
    assert weight is None and bias is None
    assert x.reshape(-1)[:1].item() == 0 and (x == 100).any()  # values that must occur
    assert verify_cases(operator, [half, no_weight]).ok


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("atk", "{}", "no list of cases with inputs"),
        ("atk", "[1", "cannot be read"),
        ("atk", '[{"aclnn_name": "Add", "inputs": []}]', "no case of aclnnHardsigmoid, but of Add"),
        ("atk", '[{"aclnn_name": "Hardsigmoid", "inputs": [5]}]', "case 0: an input is 5, expected an object"),
        (
            "atk",
            '[{"id": 4, "aclnn_name": "Hardsigmoid", "inputs": [{"name": "a", "range_values": null},{"name": "b"}]}]',
            "case 4: the list names an argument 'a', aclnnHardsigmoid has self",
        ),
        (
            "atk",
            '[{"name": "Hardsigmoid", "inputs": [{"name": "self", "type": "tensor", "dtype": "int4", "shape": []}]}]',
            "self is 'int4', expected one of",
        ),
        ("ttk", "a,b\n1,2\n", "neither api_name nor input_shapes"),
        ("ttk", "testcase_name,api_name,tensor_view_shapes\nx,aclnnAdd,\n", "of aclnnHardsigmoid, but of aclnnAdd"),
        (
            "ttk",
            "testcase_name,api_name,tensor_view_shapes\nx,aclnnHardsigmoid,((2)\n",
            "case x: tensor_view_shapes is '((2)', expected a Python literal",
        ),
        (
            "ttk",
            'testcase_name,api_name,tensor_view_shapes,tensor_dtypes\nx,aclnnHardsigmoid,(),"(\'float16\',)"\n',
            "case x: 0 tensors, aclnnHardsigmoid has 1 inputs",
        ),
    ],
)  # fmt: skip
def test_wrong_lists_are_told(tmp_path, kind, text, told):
    path = tmp_path / f"list.{kind}"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as raised:
        LISTS[kind](lookup("hardsigmoid"), path)
    assert told in str(raised.value)
    code, said = run("verify", "hardsigmoid", f"--{kind}", path)
    assert code == 2
    assert told.split(",")[0] in said


def ttk_row(shapes, ranges, **more):
    """A list of one case of a hardsigmoid, with words that Python has no literals for."""
    cells = {"testcase_name": "x", "api_name": "aclnnHardsigmoid", "tensor_view_shapes": shapes,
             "tensor_dtypes": "('float32')", "input_data_ranges": ranges, **more}  # fmt: skip
    return ",".join(cells) + "\n" + ",".join(f'"{cell}"' for cell in cells.values()) + "\n"


@pytest.mark.parametrize(
    ("shapes", "ranges", "expected"),
    [
        ("((3, 5))", "(-1, 1, nan, -0.0, inf)", lambda x: x.isnan().any() and x.isinf().any() and x.shape == (3, 5)),
        ("((3, 5), (3, 5))", "(inf, inf)", lambda x: (x == torch.inf).all()),
        ("[[3, 5], [3, 5]]", "(nan, nan)", lambda x: x.isnan().all()),
        ("((3, 5),)", "((-3.4e38, 3.4e38),)", lambda x: x.isfinite().all() and x.abs().max() > 1e38),
        ("((3, 5),)", "(-inf, 3)", lambda x: (x == -torch.inf).any()),
    ],
)
def test_lists_of_ttk_as_they_are_found(tmp_path, shapes, ranges, expected):
    """A shape in doubled brackets, one range for all tensors, nan and inf as words, 1 for True."""
    path = tmp_path / "list.csv"
    path.write_text(ttk_row(shapes, ranges, is_enabled="1"))
    operator = lookup("hardsigmoid")
    (case,) = LISTS["ttk"](operator, path)
    (x,) = case.call(operator.spec).args
    assert expected(x), x
    assert verify_cases(operator, [case]).ok


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("ttk", ttk_row("5", ""), "case x: it cannot be understood: TypeError"),
        ("ttk", ttk_row("((3, -5),)", ""), "case x: the shape of self is (3, -5), expected sizes of 0 and more"),
        ("ttk", ttk_row("((3,),)", "((1,),)"), "case x: it cannot be understood: ValueError"),
        ("ttk", ttk_row("((3,),)", "(a, b)"), "case x: input_data_ranges is '(a, b)', expected a Python literal"),
        ("ttk", ttk_row("((3,),)", "", attributes="[1]"), "case x: it cannot be understood: TypeError"),
        ("atk", {"shape": "3"}, "case 0: the shape of self is '3', expected sizes of 0 and more"),
        ("atk", {"range_values": {"name": "nd", "mean": [0, 1]}}, "case 0: it cannot be understood: KeyError: 'std'"),
        ("atk", {"dtype": None}, "case 0: self is 'None', expected one of"),
    ],
)
def test_cases_that_make_no_sense_are_told(tmp_path, kind, text, told):
    path = tmp_path / f"list.{kind}"
    tensor = {"name": "self", "type": "tensor", "dtype": "fp32", "shape": [3], "range_values": [0, 1]}
    if kind == "atk":
        text = json.dumps([{"aclnn_name": "Hardsigmoid", "inputs": [{**tensor, **text}]}])
    path.write_text(text)
    code, said = run("verify", "hardsigmoid", f"--{kind}", path)
    assert code == 2 and told in said, said
    twice = [{"aclnn_name": "Hardsigmoid", "inputs": [tensor, tensor]}]
    path.write_text(json.dumps(twice))
    assert "case 0: the list names 'self' twice" in run("verify", "hardsigmoid", "--atk", path)[1]


def test_an_error_of_our_own_is_no_verdict(monkeypatch, capfd):
    def broken(*_, **__):
        raise RuntimeError("something went wrong")

    monkeypatch.setattr("aclgrad.frontends.cli.verify.verify_cases", broken)
    code, said = run("verify", "hardsigmoid_backward", "--atk", ATK)
    assert code == 2 and "nothing was judged" in said


def calls(operator):
    """The first smoke case in every dtype that a document allows."""
    case = next(case for case in suite(operator.spec).cases if "smoke" in case.tags)
    dtypes = [dtype for dtype in case.dtypes if is_documented(operator.spec, case, dtype)]
    found = [of_case(operator, case.name, dtype) for dtype in dtypes]
    return [Call(f"{call.name}_{k}", call.origin, call.args) for k, call in enumerate(found)]


def alike(one, other):
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype
    return type(one) is type(other) and (one == other or isinstance(one, float))


@pytest.mark.parametrize("operator", list(aclnn_operators()), ids=lambda operator: operator.spec.name)
def test_what_golden_writes_for_the_kits_is_read_back(operator, tmp_path):
    told = calls(operator)
    for kind, write_kit in ADAPTERS.items():
        program, cases, *_ = write_kit(operator, told, tmp_path / kind)
        compile(program.read_text(), program.name, "exec")
        assert all(len(line) <= 120 for line in program.read_text().splitlines())
        listed = LISTS[kind](operator, cases)
        assert [case.name for case in listed] == [call.name if kind == "ttk" else str(k) for k, call in enumerate(told)]
        for case, call in zip(listed, told, strict=True):
            mine = case.call(operator.spec).args
            assert all(map(alike, mine, call.args)), (kind, case)
            if kind == "ttk":  # the inputs themselves were written
                for one, other in zip(mine, call.args, strict=True):
                    same(one, other)
        report = verify_cases(operator, listed[:1], backend="reference")
        assert report.ok, report.calls


def same(one, other):
    if isinstance(one, list | tuple):
        assert all(same(*pair) is None for pair in zip(one, other, strict=True))
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


def test_prepared_data_of_ttk_lie_as_its_documents_say(tmp_path):
    operator = lookup("lstm_cell_backward")
    call = of_case(operator, None, torch.float16)
    ADAPTERS["ttk"](operator, [call], tmp_path)
    (folder,) = (tmp_path / "manual_data").iterdir()
    names = sorted(path.name for path in folder.iterdir())
    inputs = [name for name in names if name.startswith("input_")]
    golden = [name for name in names if name.startswith("golden_")]
    tensors = [value for value in call.args if isinstance(value, torch.Tensor) or value is None]
    assert len(inputs) == len(tensors) and len(names) == len(inputs) + len(golden)
    assert all(name.endswith("_float16.bin") or "_none" in name or "_float32" in name for name in inputs)
    _, outs = right(operator, torch.float16)
    first = outs[operator.spec.written_names[0]]
    path = folder / f"golden_0_{str(first.dtype)[6:]}__shape_{'x'.join(map(str, first.shape))}.bin"
    assert np.array_equal(np.fromfile(path, first.numpy().dtype), first.numpy().reshape(-1))


@pytest.fixture
def kits(monkeypatch):
    """Stand-ins for the modules of ATK that an executor imports."""
    known = {}

    def register(name):
        return lambda kind: known.setdefault(name, kind)

    class BaseApi:
        pass

    for name, content in (
        ("atk", {}), ("atk.configs", {}), ("atk.configs.dataset_config", {"InputDataset": object}), ("atk.tasks", {}),
        ("atk.tasks.api_execute", {"register": register}), ("atk.tasks.api_execute.base_api", {"BaseApi": BaseApi}),
    ):  # fmt: skip
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return known


def test_executor_and_plugin_answer_with_the_truth(tmp_path, kits):
    operator = lookup("batch_norm_reduce_backward")
    call = of_case(operator, None, torch.float16)
    _, outs = right(operator, torch.float16)
    true = [outs.get(name) for name in operator.spec.written_names]
    executor, cases = ADAPTERS["atk"](operator, [call], tmp_path / "atk")
    exec(compile(executor.read_text(), executor.name, "exec"), {"__name__": "executor"})
    told = json.loads(cases.read_text())[0]
    kind = kits[told["api_type"]]
    given = {param.aclnn: value for param, value in zip(operator.spec.args, call.args, strict=True)}
    answers = kind()(types.SimpleNamespace(kwargs=given))
    assert all(torch.equal(mine, other) for mine, other in zip(answers, true, strict=True))
    assert set(given) == {entry["name"] for entry in told["inputs"]}
    plugin, *_ = ADAPTERS["ttk"](operator, [call], tmp_path / "ttk")
    space = {}
    exec(compile(plugin.read_text(), plugin.name, "exec"), space)
    golden = space[space["__spec__"]["aclnnBatchNormReduceBackward"]].golden
    outputs = [torch.empty(()) for _ in operator.spec.outs]
    answers = golden(*call.args, *outputs)
    assert all(torch.equal(mine, other) for mine, other in zip(answers, true, strict=True))


def test_golden_of_takes_names_of_both_kinds_and_order():
    x = torch.tensor([-4.0, 0.0, 9.0])
    for given in ({"self": x}, {"x": x}, [x]):
        (answer,) = golden_of("aclnnHardsigmoid", given)
        assert answer.tolist() == [0, 0.5, 1]
    assert torch.equal(for_kit("hardsigmoid", [x]), answer)
    assert x.tolist() == [-4, 0, 9]
    args, outs = right(lookup("lstm_backward"))
    flat = for_kit("lstm_backward", args)
    assert isinstance(flat, tuple) and all(isinstance(item, torch.Tensor) for item in flat)
    assert len(flat) == sum(len(value) if isinstance(value, list) else 1 for value in outs.values())
    given = torch.tensor([1.0, 2.0])
    golden_of("aclnnInplaceHardsigmoid", [given])
    assert given.tolist() == [1, 2]  # what the operator itself would have overwritten


def test_lists_on_the_command_line(tmp_path):
    code, said = run("verify", "aclnnHardsigmoidBackward", "--atk", ATK, "--backend", "cpu", "--seed", 5)
    assert code == 0, said
    assert "hardsigmoid_backward 2" in said
    code, said = run("verify", "batch_norm_elemt", "--ttk", TTK, "--report", tmp_path / "report.html")
    assert code == 0 and (tmp_path / "report.html").exists(), said
    for words, told in (
        (("--atk", ATK, "--ttk", TTK), "stands alone"),
        (("--atk", ATK, "--inputs", tmp_path), "stands alone"),
        (("--atk", ATK, "--backend", "npu"), "npu"),
        (("--backend", "cpu"), "or a list of cases"),
        (("--dump", tmp_path, "--backend", "cpu"), "or a list of cases"),
        (("--atk", tmp_path / "nowhere"), "cannot be read"),
    ):
        code, said = run("verify", "hardsigmoid_backward", *words)
        assert code == 2 and told in said, (words, said)


def test_dumps_of_a_list_are_judged(tmp_path):
    """In TTK's flat files, in folders of the cases' names, with inputs beside the outputs or drawn from the seed."""
    operator = lookup("hardsigmoid_backward")
    assert (
        run("golden", operator.spec.name, "--format", "ttk", "--random", 2, "--dtype", "float16", "--out", tmp_path)[0]
        == 0
    )
    path, out = tmp_path / "ttk_aclnnHardsigmoidBackward.csv", tmp_path / "dump"
    cases = LISTS["ttk"](operator, path)
    for case, place in zip(cases, ("{}_output_0.npy", "{}_fail_output_0.bin"), strict=True):
        (answer,) = golden_of(operator.spec.name, case.call(operator.spec).args)
        write(answer, out / place.format(case.name))
    words = ("verify", operator.spec.name, "--ttk", path, "--dump", out)
    assert run(*words)[0] == 0
    write(answer * 1.01, out / "1_fail_output_0.bin")
    assert run(*words)[0] == 1
    (out / "1_fail_output_0.bin").unlink()
    code, said = run(*words)
    assert code == 2 and "neither a folder 1 nor a file 1_output_0" in said
    mine = [torch.ones_like(value) for value in case.call(operator.spec).args]
    write(golden_of(operator.spec.name, mine)[0], out / "1" / "out.npy")
    assert run(*words)[0] == 1  # which is the answer to other inputs
    write(mine[0], out / "1" / "gradOutput.npy")
    code, said = run(*words)
    assert code == 2 and "self is missing beside the other inputs" in said
    write(mine[1], out / "1" / "self.npy")
    assert run(*words)[0] == 0
    for name in ("out", "gradOutput", "self"):
        (out / "1" / f"{name}.npy").unlink()
    for k, value in enumerate(mine):
        write(value, out / "1" / f"input_{k}_float16.bin")
    write(golden_of(operator.spec.name, mine)[0], out / "1" / "output_0_float16.bin")
    assert run(*words)[0] == 0
    (out / "1" / "input_0_float16.bin").unlink()
    code, said = run(*words)
    assert code == 2 and "gradOutput is missing" in said
    assert run(*words[:-1], tmp_path / "nowhere")[0] == 2


def test_lists_of_tensors_are_numbered_flat(tmp_path):
    """An LSTM's weights and results, of which some are not there."""
    operator = lookup("lstm_backward")
    ADAPTERS["ttk"](operator, [of_case(operator, None, torch.float32)], tmp_path)
    (case,) = LISTS["ttk"](operator, tmp_path / "ttk_aclnnLstmBackward.csv")
    answers = golden_of(operator.spec.name, case.call(operator.spec).args)
    flat = [item for answer in answers for item in (answer if isinstance(answer, list) else [answer])]
    for k, item in enumerate(flat):
        if item is not None:
            write(item, tmp_path / "dump" / f"{case.name}_output_{k}.pt")
    report = verify_cases(operator, [case], outputs=tmp_path / "dump")
    assert report.ok, verdicts(report)
    write(flat[0], tmp_path / "dump" / f"{case.name}_output_{len(flat)}.pt")
    report = verify_cases(operator, [case], outputs=tmp_path / "dump")
    assert report.exit_code == 2 and "is no tensor of this call" in str(report.calls[0].problems)


def test_a_list_without_cases_is_no_pass(tmp_path):
    lines = TTK.read_text().splitlines()
    path = tmp_path / "list.csv"
    path.write_text("\n".join([lines[0], lines[4]]))
    assert run("verify", "batch_norm_elemt", "--ttk", path)[0] == 2
