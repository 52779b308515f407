"""The report as a page: whole, self-contained, readable at any width, and it names the place of an error."""

import re
from html.parser import HTMLParser

import pytest
import torch
from browser import NEEDS_BROWSER, seen
from outputs import right

from aclgrad.core.registry import lookup, operators
from aclgrad.testing import verify
from aclgrad.testing.precision.places import Places
from aclgrad.testing.report import svg
from aclgrad.testing.report.model import worst_of

VOID = {"meta", "br"}


class Checked(HTMLParser):
    """Counts what a page opens and closes, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.count, self.references, self.ids = [], {}, [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.references += [value for name, value in attrs if name in ("href", "src", "srcset", "action", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.fixture(scope="module")
def wrong():
    """The LSTM's gradient, wrong in one step and in two rows of a weight."""
    operator = lookup("lstm_backward")
    args, outs = right(operator)
    outs["dx"][1] *= 1.01
    outs["dparams"][0][2:4] *= 1.01
    outs["dh_prev"].view(-1)[3] = torch.nan
    return verify(operator, args, outs)


def test_a_page_is_whole_and_refers_to_nothing(wrong, tmp_path):
    text = wrong.write(tmp_path / "report.html").read_text(encoding="utf-8")
    page = Checked(text)
    assert page.references == []
    assert "script" not in page.count
    assert not re.search(r"https?://|@import|url\(", text)
    assert page.count["svg"] > 10
    assert "not precise enough" in text


@pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)
def test_every_operator_has_a_page(operator):
    from aclgrad.testing.report.html import embedded, page

    args, outs = right(operator)
    name = next(iter(outs))
    for report in (verify(operator, args, outs), verify(operator, args, {**outs, name: None})):
        Checked(page(report))
    assert embedded(report).startswith("<iframe srcdoc=")


def test_words_of_others_are_shown_as_they_are(tmp_path):
    (tmp_path / "<b>&x.npy").write_bytes(b"")
    report = verify("hardsigmoid", [torch.ones(3)], tmp_path)
    text = report.write(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;x.npy is no argument" in text
    Checked(text)


def test_a_page_names_the_place_of_an_error(wrong, tmp_path):
    text = wrong.write(tmp_path / "report.html").read_text(encoding="utf-8")
    dx, weights = (wrong.calls[0].outputs[k] for k in (0, 3))
    allowed = next(c.limit for c in dx.judgements["rule"].criteria if c.what == "largest error")
    assert dx.places.beyond(allowed) == ["dimension 0 (of 4): 1"]
    assert weights.name == "dparamsOut[0]"
    assert "<li>dimension 0 (of 4): 1</li>" in text
    assert f"<li>dimension 0 (of {weights.shape[0]}): 2–3</li>" in text
    assert "nan where finite is true" in text


def test_elements_that_are_rounded_well_are_not_among_the_worst():
    x = torch.linspace(-2, 2, 64)
    exact, wrong = (torch.nn.functional.hardsigmoid(x.double()).float() for _ in range(2))
    wrong[7] *= 1.001
    (output,) = verify("hardsigmoid", [x], wrong).calls[0].outputs
    assert [bad.place for bad in worst_of(output)] == [7]
    (output,) = verify("hardsigmoid", [x], exact, standard="threshold").calls[0].outputs
    assert len(worst_of(output)) >= 8  # there is nothing else to show
    operator = lookup("linear_online_max_sum")
    args, outs = right(operator)
    outs["masked_target"] = outs["masked_target"] + 1
    output = next(each for each in verify(operator, args, outs).calls[0].outputs if each.unequal)
    assert len(worst_of(output)) > 1


def test_true_zeros_stand_apart_from_small_values():
    x = torch.linspace(-4, 4, 64)
    out = torch.nn.functional.hardsigmoid(x)
    drawn = svg.by_size(verify("hardsigmoid", [x], out).calls[0].outputs[0].histogram)
    assert f"{int((out == 0).sum())} elements of size 0, off by no error" in drawn
    assert "2⁻¹" in drawn and "2⁻¹²⁶" not in drawn
    drawn = svg.by_size(verify("hardsigmoid", [x - 9], out * 0).calls[0].outputs[0].histogram)
    assert "64 elements of size 0" in drawn  # and nothing else


def test_ranges_of_indices_are_told_in_words():
    places = Places((500, 20_000, 7))  # of which a cell stands for five
    places.along[0][[0, 1, 5]] = 1.0
    places.along[1][3:] = 1.0
    assert places.beyond(0.5) == ["dimension 0 (of 500): 0–1, 5", "dimension 1 (of 20000): 15–19999"]
    places.along[0][:] = torch.arange(500) % 2
    assert places.beyond(0.5)[0].endswith("more ranges")
    places.along[0][:300] = 1.0  # of 500, and every second of the others
    assert [told.split(":")[0] for told in places.beyond(0.5)] == ["dimension 1 (of 20000)"]


def test_a_report_shows_itself_in_a_terminal(wrong, capsys):
    wrong.show()
    said = capsys.readouterr().out
    assert "WRONG" in said and "right" in said
    assert "the worst elements of dxOut" in said
    assert "not precise enough by the standard rule" in said


def test_the_terminal_tells_which_other_standards_refuse(capsys):
    true = torch.cat([torch.full((999,), 2.0**-8), torch.tensor([1.0])])
    x = (true - 0.5) * 6
    out = torch.nn.functional.hardsigmoid(x)
    out[:3] *= 1 + 2.0**-17
    report = verify("hardsigmoid", [x], out)
    report.show()
    assert report.ok and "threshold: out" in " ".join(capsys.readouterr().out.split())


def test_a_report_shows_itself_in_a_notebook(wrong, monkeypatch):
    import sys
    import types

    shown = []
    shell = type("ZMQInteractiveShell", (), {})
    notebook = types.ModuleType("IPython")
    notebook.get_ipython = shell
    display = types.ModuleType("IPython.display")
    display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    wrong.show()
    assert shown == [wrong]
    assert "<iframe" in wrong._repr_html_()


@NEEDS_BROWSER
def test_a_browser_shows_it_at_any_width_in_light_and_in_dark(wrong, tmp_path):
    path = wrong.write(tmp_path / "report.html")
    wide, narrow = seen(path, tmp_path, 1200), seen(path, tmp_path, 390, dark=True)
    for page in (wide, narrow):
        assert page["width"] == page["room"], "the page is wider than its window"
    assert (wide["background"], narrow["background"]) == ("rgb(255, 255, 255)", "rgb(18, 22, 28)")
    for page in (wide, narrow):
        assert page["drawn"] >= 8  # of the outputs that are wrong, which are open
        assert "not precise enough" in page["text"]
        assert "dimension 0 (of 4): 1" in page["text"]
    assert not any("worst" in table for table in narrow["scrolled"])  # what an element was made of stands below it
