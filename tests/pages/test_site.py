"""The documentation site: whole, linked, true. Its HTML is built and looked at where the group `docs` is installed."""

import contextlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
import typer
from browser import NEEDS_BROWSER, seen
from typer.main import get_command
from website import family, pages, places
from website.refusals import refusals

from aclgrad import acl, aclnn
from aclgrad.core.registry import aclnn_operators, lookup, operators
from aclgrad.frontends.cli import app
from aclgrad.testing.cases import suite
from aclgrad.testing.precision.standards import tomllib
from page_blocks import anchors, blocks, run_python, site, without_blocks

ROOT = Path(__file__).parents[2]
RUN = {
    **dict.fromkeys(("python", "pycon"), "run"),
    **dict.fromkeys(("c", "cpp"), "compiled by tests/capi"),
    **dict.fromkeys(("sh", "toml"), "parsed"),
}
LOOKED_AT = {"", "text", "math", "cmake", "json"}
"""Languages of blocks that are no program of ours: output, formulas, what CMake reads, data."""


@pytest.fixture(scope="module")
def found():
    return pages.pages()


@pytest.fixture(scope="module")
def code():
    return [block for blocks_of_a_page in site().values() for block in blocks_of_a_page]


def test_every_operator_has_a_page_and_every_page_a_place(found):
    for operator in operators():
        text = found[f"operators/{operator.spec.name}.md"]
        for param in (*operator.spec.args, *operator.spec.outs):
            assert f"| `{param.name}` |" in text
        for title in ("Formula", "Arguments", "Examples", "What is refused, in this order", "Numerics"):
            assert f"\n## {title}\n" in text, f"{operator.spec.name} has no {title}"

    def named(entry):
        return [entry] if isinstance(entry, str) else [page for part in entry for page in flat(part)]

    def flat(part):
        return named(part) if isinstance(part, str) else [page for inside in part.values() for page in named(inside)]

    placed = named(pages.navigation(found))
    assert sorted(placed) == sorted(found), set(placed) ^ set(found)


def test_a_page_has_what_is_known_of_an_operator(found):
    text = found["operators/linear_cross_entropy_backward.md"]
    assert "```math" in text
    assert "| `target_mask` | `targetMask` | `const aclTensor *` | input | uint8, bool |" in text
    assert "aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize" in text
    assert "fewer than 128 rows" in text and "vocabEndIndex" not in text  # choices of this operator, of no other
    assert "vocabEndIndex" in found["operators/linear_online_max_sum.md"]
    assert "../families/linear_cross_entropy.md" in text


@pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)
def test_every_status_of_the_named_refusals_is_on_the_page(operator):
    statuses = {invalid.raises.status for invalid in suite(operator.spec).invalid}
    assert {refusal.error.status for refusal in refusals(operator)} == statuses


def test_refusals_are_what_phase_one_says_in_the_order_of_the_rules(monkeypatch):
    operator = lookup("hardsigmoid_backward")
    said = refusals(operator)
    found = {name: [r.check for r in said if name in r.words] for name in ("null", "rank 9", "like gradOutput")}
    rules = len(operator.spec.rules)
    assert found == {"null": [1, 1], "rank 9": [5], "like gradOutput": [6, 6]}
    assert max(refusal.check for refusal in said) > rules  # an output whose elements share memory: every operator's
    words = {f"{name} {refusal.words}" for refusal in said for name in refusal.arguments}
    args = suite(operator.spec).cases[0].build()
    legal = dict(zip(operator.spec.params, (*args, torch.empty_like(args[0])), strict=True))
    for invalid in suite(operator.spec).invalid:
        for name, value in invalid.environment.items():
            monkeypatch.setenv(name, value)
        aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(*invalid.apply(legal).values())
        message = acl.get_recent_err_msg().partition(": ")[2].rpartition(" (")[0]
        assert message in words, invalid.name
        monkeypatch.undo()


def test_formulas_and_choices_belong_to_operators():
    """What a README says of an operator by a name that no operator has would be on no page."""
    names = {operator.spec.name for operator in operators()}
    documented = {operator.spec.aclnn for operator in aclnn_operators()}
    for operator in operators():
        text = family.readme(operator.spec).read_text(encoding="utf-8")
        for formula in family.FORMULA.finditer(text):
            assert set(re.findall(r"\w+", formula[1])) <= names
        choices = family.section(text, family.CHOICES)
        assert set(re.findall(r"`(aclnn\w+)`", choices)) <= documented
        assert choices or not operator.spec.aclnn
    assert all(family.formulas(o.spec, family.readme(o.spec).read_text()) for o in aclnn_operators())


def test_heat_maps_have_a_page_as_soon_as_they_are_measured(monkeypatch, found):
    place = "pictures/benchmarks/results/plane/nvidia-h200-lstm-grid.png"
    monkeypatch.setattr(pages, "pictures", lambda: {place: Path("x.png")})
    shown = pages._planes()["benchmarks/planes.md"]
    assert f"](../{place})" in shown and "## lstm on nvidia h200: a grid of sizes" in shown
    assert "benchmarks/planes.md" in str(pages.navigation({**found, "benchmarks/planes.md": shown}))
    monkeypatch.setattr(pages, "pictures", dict)
    assert not pages._planes()


def test_a_link_to_nothing_is_found(tmp_path):
    with pytest.raises(places.BrokenLink, match="nowhere"):
        places.relocated("[x](nowhere.md)", ROOT / "docs" / "aclnn.md", "aclnn.md")


def test_links_of_all_pages_lead_to_pages_and_headings(found):
    for page, text in found.items():
        for _, target in places.LINK.findall(without_blocks(text)):
            address, _, anchor = target.partition("#")
            if ":" in address or address.endswith(places.PICTURES):
                continue
            there = str(Path(places.ROOT / page).parent.joinpath(address).resolve().relative_to(places.ROOT))
            there = page if not address else there
            assert there in found, f"{page} links to {target}"
            assert not anchor or anchor in anchors(found[there]), f"{page} links to {target}"


def test_every_block_of_code_is_of_a_language_that_is_run(code):
    for block in code:
        assert block.language in RUN or block.language in LOOKED_AT, f"{block}: {block.language!r} is run by nobody"
    compiled = {block.page.partition("/")[0] for block in code if block.language in ("c", "cpp") and not block.not_run}
    assert compiled <= {"operators", "docs"}
    assert all(
        block.page.startswith("docs/findings/") for block in code if block.language == "cpp" and not block.not_run
    )


def test_pythons_blocks_run_and_do_what_they_say(python):
    """In a process of its own, where the reference computes: what the examples say does not hang on a kernel."""
    run_pages(python)


@pytest.mark.slow
def test_pythons_blocks_run_with_kernels(python):
    run_pages(python, "--kernels")


def run_pages(python, *options):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}  # as a reader's
    done = python(ROOT / "tests" / "page_blocks.py", *options, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"operators/{operator.spec.name}.md" in done.stdout for operator in operators())


def test_a_promise_that_does_not_come_true_is_found():
    for text in ("import aclgrad\naclgrad.hardsigmoid(None)", "x = 1  # raises NullArgument: x", "print(1)\n# 2"):
        with pytest.raises(AssertionError, match="page:2"):
            run_python(blocks("page", f"```python\n{text}\n```"))


def commands(block):
    """The command lines of a block, without comments and continuations."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    for line in text.splitlines():
        for command in re.split(r"&&|\|\||;|\|", re.sub(r"(^|\s)#.*", "", line)):
            if command.strip():
                yield command.strip()


def test_toml_parses(code):
    for block in code:
        if block.language == "toml":
            assert tomllib.loads(block.text), block


def test_shell_blocks_parse_and_name_what_is_there(code):
    """Commands of ours get the arguments they take, targets of make and files of the repository exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in (block for block in code if block.language == "sh"):
        parsed = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
        assert parsed.returncode == 0, f"{block}: {parsed.stderr}"
        for command in commands(block):
            words = shlex.split(re.sub(r"^([A-Z_]+=\S* )+", "", command))
            if words[:1] == ["aclgrad"]:
                understood(block, words[1:])
            elif words[:1] == ["make"]:
                assert {word for word in words[1:] if "=" not in word} <= targets, f"{block}: {command}"
            for word in words:
                if re.fullmatch(r"(examples|tests|tools|docs|src)/[\w./-]+", word):
                    assert (ROOT / word).exists(), f"{block}: {word}"


def understood(block, words):
    """Parse a command of ours as Typer would, without running it; it raises what is wrong."""
    command = get_command(app)
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"{block}: aclgrad {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    with contextlib.suppress(typer.Exit):
        command.make_context(command.name, list(words)).close()


class Parsed(HTMLParser):
    """What a page of the built site loads, links to and can be linked at."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids.add(named.get("id"))
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag == "link" and named.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(named.get("href"))
        elif tag in ("script", "img", "iframe", "source", "video", "embed", "object"):
            self.loads += [named[name] for name in ("src", "srcset", "data") if name in named]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site as MkDocs makes it, with every warning an error."""
    for name in ("mkdocs", "material", "mkdocstrings", "math_core"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {path: Parsed(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


@pytest.mark.slow
def test_the_built_site_is_whole_and_asks_the_net_for_nothing(built, found):
    folder = next(path.parent for path in built if path.name == "404.html")
    assert {str(path.relative_to(folder).with_suffix(".md")) for path in built} == {*found, "404.md"}
    for path, page in built.items():
        if path.name == "404.html":
            continue  # has absolute addresses, of a server
        for target in (*page.loads, *page.links):
            address, _, anchor = target.partition("#")
            if re.match(r"\w+:", address):
                assert target in page.links, f"{path} loads {target}"
                continue
            there = (path.parent / unquote(address)).resolve() if address else path
            assert there.exists(), f"{path} refers to {target}"
            if anchor and there in built:
                assert unquote(anchor) in built[there].ids, f"{path} refers to {target}"
    for style in folder.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style
    text = (folder / "operators" / "lstm_backward.html").read_text(encoding="utf-8")
    assert "<math" in text and "\\begin{aligned}" not in text


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize(
    "page", ["index", "operators/lstm_backward", "families/linear_cross_entropy", "guides/precision"]
)
def test_a_browser_shows_it_at_any_width(built, tmp_path, page):
    folder = next(path.parent for path in built if path.name == "404.html")
    text = (folder / f"{page}.html").read_text(encoding="utf-8")
    based = tmp_path / "page.html"  # shown in a frame, it still finds its style sheets
    based.write_text(text.replace("<head>", f'<head><base href="{(folder / page).as_uri()}.html">'), encoding="utf-8")
    for width in (1280, 390):
        shown = seen(based, tmp_path, width)
        assert shown["width"] == shown["room"], f"{page} is wider than a window of {width}"
