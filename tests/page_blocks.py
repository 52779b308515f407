"""The blocks of code in the documentation: found in every page, and run as a reader would.

A comment above a block says what a reader does not need to see: `<!-- python: … -->` runs before it, `<!-- not run: …
-->` gives the reason why it is only looked at: it must parse, and what it names of aclgrad must be there.

    python tests/page_blocks.py [--kernels]     runs the Python of the site, by the reference unless told otherwise
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- (python|not run): ([^>]*) -->\n+)?^( *)```([\w+]*)(.*)\n((?:.*\n)*?)\3```$", re.MULTILINE)
RUN = ("python", "pycon")
SOURCE = re.compile(r"\.source\b")  # shown, not run: the code of the package itself


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language, what runs before it, why it is not run."""

    page: str
    line: int
    language: str
    text: str
    info: str = ""
    before: str = ""
    not_run: str = ""

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """The fenced blocks of a page, those inside tabs and boxes too."""
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(6)) + 1
        said = {"python": "before", "not run": "not_run"}.get(match[1])
        more = {said: match[2].strip()} if said else {}
        found.append(Block(page, line, match[4], textwrap.dedent(match[6]), match[5], **more))
    return found


def without_blocks(text):
    """A page without its fenced blocks: what may hold headings and links."""
    return BLOCK.sub("", text)


def anchors(text):
    """What a link into a page may name: its headings as Markdown viewers spell them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def statements(text):
    """Its lines; indented ones and closing brackets belong to the line above."""
    return re.split(r"\n(?![ \t\])}])", text)


def run_python(found):
    """Run blocks one after another in one namespace: what they promise in comments must come true.

    `# raises Error: words` promises an error, `# 161001` the status that the line leaves, and a comment below a print
    what it prints. A runtime call that leaves `ret` leaves 0.
    """
    import aclgrad

    namespace = {}
    for block in found:
        if block.not_run:
            look_at(block)
            continue
        exec(block.before, namespace)
        if block.language == "pycon":
            run_session(block, namespace)
            continue
        lines = statements(block.text)
        for k, line in enumerate(lines):
            if not line.strip() or line.startswith("#"):
                continue
            said = io.StringIO()
            promise = re.search(r"# raises (\w+): (.*)", line)
            try:
                with contextlib.redirect_stdout(said):
                    exec(line, namespace)
            except aclgrad.AclgradError as error:
                assert promise and type(error).__name__ == promise[1] and promise[2] in str(error), (
                    f"{block}: {error!r}"
                )
            else:
                assert promise is None, f"{block}: {line!r} raises nothing"
            if line.startswith("print(") and k + 1 < len(lines) and lines[k + 1].startswith("# "):
                assert said.getvalue().strip() == lines[k + 1].removeprefix("# "), f"{block}: {said.getvalue()}"
            elif expected := re.search(r"# (\d+)$", line):
                assert namespace["status"] == int(expected[1]), f"{block}: {line!r} leaves {namespace['status']}"
            if "ret" in namespace:
                assert namespace["ret"] == 0, f"{block}: {line}"


def run_session(block, namespace):
    """Run a block that shows a session: what is printed is what follows."""
    session = doctest.DocTestParser().get_doctest(block.text, namespace, str(block), None, block.line)
    said = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(session, out=said.append, clear_globs=False)
    assert not said, "".join(said)
    namespace.update(session.globs)


def look_at(block):
    """Parse a block that is not run; what it imports from aclgrad and names as aclgrad.… must be there."""
    import aclgrad

    for node in ast.walk(ast.parse(block.text)):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"aclgrad(\.\w+)+", dotted):
            eval(dotted, {"aclgrad": aclgrad})
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "aclgrad":
            exec(ast.unparse(node), {})


def site():
    """The blocks of every page by its name: those of files, and those of operators' pages."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    from website.operator_page import page, path
    from website.places import ROOT, places

    from aclgrad.core.registry import operators

    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in places()}
    texts |= {path(operator.spec): page(operator) for operator in operators()}
    return {name: blocks(name, text) for name, text in texts.items()}


def main(arguments):
    """Run the Python of every page in a namespace of its own, but that of the front page, which has its own test."""
    import warnings

    from aclgrad import acl
    from aclgrad.core.backends import BACKENDS

    if "--kernels" not in arguments:
        for name in [name for name in BACKENDS if name != "reference"]:
            BACKENDS[name] = refused
    warnings.simplefilter("error")
    for page, found in site().items():
        python = [block for block in found if block.language in RUN and not SOURCE.search(block.info)]
        if python and page != "README.md":
            run_python(python)
            acl.rt.reset_device_force(0)
            acl.finalize()
            if "aclgrad.npu" in sys.modules:
                sys.modules["aclgrad.npu"].uninstall()
            print(f"{page}: {len(python)}")


def refused(call):
    """A backend that runs nothing."""
    from aclgrad.core.errors import Unsupported

    raise Unsupported("is left out")


if __name__ == "__main__":
    main(sys.argv[1:])
