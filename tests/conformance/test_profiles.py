"""Where documents and binaries differ: every difference that a contract lists is one, under the right profile."""

import pytest
import torch

from aclgrad import acl, aclnn
from aclgrad.core import profile
from aclgrad.core.memory import tensors_in
from aclgrad.core.meta import Meta
from aclgrad.core.registry import aclnn_operators, find
from aclgrad.testing.cases import SMOKE, is_documented, suite

LEFT, WRITTEN = "left alone", "written"
MARK = 7.0


class Scene:
    """A legal call of an operator, to be changed."""

    def __init__(self, name):
        self.operator = find(name)
        spec = self.operator.spec
        case, dtype = next(
            (case, dtype)
            for case in suite(spec).cases
            for dtype in case.dtypes
            if SMOKE in case.tags and is_documented(spec, case, dtype)
        )
        self.names = [param.name for param in (*spec.args, *spec.outs)]
        self.values = dict(zip(self.names, case.build(dtype), strict=False))

    def __getitem__(self, name):
        return self.values[name]

    def with_outs(self):
        """The outputs' memory, which follows from the arguments."""
        args = [self.values[arg.name] for arg in self.operator.spec.args]
        _, produced = self.operator.judge(args, asked=True)
        for out, meta in zip(self.operator.spec.outs, produced, strict=True):
            is_list = meta is not None and type(meta) is not Meta
            made = [torch.full(each.shape, MARK, dtype=each.dtype) for each in (meta if is_list else [meta]) if each]
            self.values[out.name] = made if is_list else made[0] if made else None
        return self

    def run(self, *looked_at):
        """(status, what became of these outputs)."""
        spec = self.operator.spec
        arguments = [self.values[name] for name in self.names]
        size, executor, status = getattr(aclnn, f"{spec.aclnn}GetWorkspaceSize")(*arguments)
        if status:
            assert acl.get_recent_err_msg()
            return status
        workspace = torch.empty(size, dtype=torch.uint8) if size else None
        assert getattr(aclnn, spec.aclnn)(workspace, size, executor, None) == 0
        outs = tensors_in([self.values[name] for name in looked_at])
        return (0, LEFT if all(bool((out == MARK).all()) for out in outs) else WRITTEN) if looked_at else 0


def cell_without_a_gradient():
    scene = Scene("lstm_cell_backward").with_outs()
    scene.values["grad_c"] = None
    return scene.run()


def lstm_without_gradients():
    scene = Scene("lstm_backward").with_outs()
    scene.values.update(dy=None, dc=None)
    return scene.run()


def lstm_with_a_short_list():
    scene = Scene("lstm_backward").with_outs()
    scene.values["tanhc"] = [*scene["tanhc"], scene["tanhc"][0]]
    return scene.run()


def lstm_without_steps():
    scene = Scene("lstm_backward")
    steps = 1 if scene["batch_first"] else 0
    for name in ("input", "dy"):
        scene.values[name] = scene[name].narrow(steps, 0, 0).contiguous()
    for name in ("i", "j", "f", "o", "h", "c", "tanhc"):
        scene.values[name] = [member[:0] for member in scene[name]]
    return scene.with_outs().run("dh_prev", "dc_prev")


def forward_without_steps():
    scene = Scene("lstm")
    steps = 1 if scene["batch_first"] else 0
    scene.values["input"] = scene["input"].narrow(steps, 0, 0).contiguous()
    return scene.with_outs().run("hy", "cy")


def head(tokens, rows, *, softmax):
    scene = Scene("linear_cross_entropy_backward")
    scene.values.update(
        grad=torch.ones(tokens), input=torch.ones(tokens, 8).half(), weight=torch.ones(rows, 8).half(),
        target_mask=torch.zeros(tokens, dtype=torch.bool), masked_target=torch.zeros(tokens, dtype=torch.int64),
        logits_max=torch.ones(tokens), sum_exp_logits=torch.ones(tokens),
        softmax=torch.ones(tokens, rows) if softmax else None,
    )  # fmt: skip
    return scene.with_outs()


def sums_of_nothing():
    scene = Scene("batch_norm_reduce_backward")
    for name in ("grad_out", "input"):
        scene.values[name] = scene[name][:0].contiguous()
    return scene.with_outs().run("sum_dy", "grad_bias")


def normalisation_without_a_mean():
    scene = Scene("batch_norm_elemt").with_outs()
    scene.values["mean"] = None
    return scene.run()


SCENES = {
    ("lstm_cell_backward", "one of gradHyOptional, gradCOptional null"): (cell_without_a_gradient, 0, 161001),
    ("lstm_backward", "dy, dh or dc null"): (lstm_without_gradients, 161001, 0),
    ("lstm_backward", "a list of the wrong length"): (lstm_with_a_short_list, 161002, 161001),
    ("lstm_backward", "an empty tensor"): (lstm_without_steps, (0, WRITTEN), (0, LEFT)),
    ("lstm", "an empty input"): (forward_without_steps, (0, WRITTEN), (0, LEFT)),
    ("linear_cross_entropy_backward", "V < 128"): (lambda: head(8, 127, softmax=False).run(), 161002, 0),
    ("linear_cross_entropy_backward", "an empty input or weight"): (
        lambda: head(0, 128, softmax=False).run("weight_grad"), (0, WRITTEN), (0, LEFT),
    ),
    ("batch_norm_elemt", "input, mean, invstd or output null"): (normalisation_without_a_mean, 161001, 161002),
    ("batch_norm_reduce_backward", "an empty gradOut or input"): (sums_of_nothing, (0, WRITTEN), (0, LEFT)),
}  # fmt: skip


def test_every_difference_has_a_scene():
    listed = {
        (operator.spec.name, difference.question)
        for operator in aclnn_operators()
        for difference in operator.spec.differences
        if difference.imitated
    }
    assert set(SCENES) == listed


@pytest.mark.parametrize("difference", SCENES, ids=" ".join)
def test_a_profile_decides(monkeypatch, difference):
    play, *expected = SCENES[difference]
    for name, answer in zip((profile.DOCUMENT, profile.BINARY), expected, strict=True):
        monkeypatch.setenv(profile.VARIABLE, name)
        assert play() == answer, name


def test_a_limit_that_the_code_has_too(monkeypatch):
    monkeypatch.setenv(profile.VARIABLE, profile.BINARY)
    assert head(8, 127, softmax=True).run() == 161002


def test_without_a_word_the_documents_count(monkeypatch):
    for value in (None, "", profile.DOCUMENT):
        monkeypatch.delenv(profile.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(profile.VARIABLE, value)
        assert profile.current_profile() == profile.DOCUMENT


def test_a_profile_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv(profile.VARIABLE, "device")
    x = torch.ones(8)
    assert aclnn.aclnnHardsigmoidGetWorkspaceSize(x, torch.empty(8))[2] == 161002
    assert "ACLGRAD_PROFILE is 'device', expected document or binary" in acl.get_recent_err_msg()
    assert acl.init() == 100000
    assert "ACLGRAD_PROFILE is 'device'" in acl.get_recent_err_msg()
