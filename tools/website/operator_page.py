"""An operator's page: all of it from the contract, the named calls of its tests, the docstring and the README."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import aclgrad
from aclgrad.core.meta import dtype_name
from aclgrad.core.plan import Operator
from aclgrad.core.registry import part
from aclgrad.core.spec import REQUIRED, Argument, InOut, OpSpec, Param, Produced, Tensor
from aclgrad.frontends.capi.prototypes import pair

from . import family
from .examples import aclnn_example, c_example, torch_example
from .places import REPOSITORY, places, relative, relocated
from .refusals import Refusal, refusals
from .sample import sample, shape_of


def path(spec: OpSpec) -> str:
    """Where an operator's page stands on the site."""
    return f"operators/{spec.name}.md"


def page(operator: Operator) -> str:
    """The Markdown of an operator's page."""
    spec = operator.spec
    text = family.readme(spec).read_text(encoding="utf-8")
    sections = {
        "": _head(operator),
        "Formula": _formula(spec, text),
        "Arguments": _arguments(operator, text),
        "Examples": _examples(operator),
        "In Python": _function(spec),
        "What is refused, in this order": _refused(operator),
        "Numerics": _numerics(spec, text),
        family.CHOICES: _moved(spec, family.choices(spec, text)) if spec.aclnn else "",
    }
    return "\n\n".join(f"## {title}\n\n{body}" if title else body for title, body in sections.items() if body) + "\n"


def _head(operator: Operator) -> str:
    spec = operator.spec
    readme = family.readme(spec)
    source = f"{REPOSITORY}/tree/main/src/{spec.package.replace('.', '/')}"
    if spec.aclnn:
        known = f"`{spec.aclnn}` of CANN, in `{pair(spec)[0].header}`"
    else:
        known = f"No document knows it: it is `torch.ops.aclgrad.{spec.name}` alone"
    folder = spec.package.rpartition(".")[2]
    return (
        f"# {spec.name}\n\n{spec.summary[:1].upper()}{spec.summary[1:]}. {known}. Its family, with derivation and "
        f"kernels: [{folder}]({relative(places()[readme], path(spec))}); [the code]({source})."
    )


def _moved(spec: OpSpec, text: str) -> str:
    """A part of the README as it stands on the operator's page."""
    there = relative(places()[family.readme(spec)], path(spec))
    return relocated(text, family.readme(spec), path(spec)).replace("](#", f"]({there}#")


def _formula(spec: OpSpec, text: str) -> str:
    """In the README's words; and as the reference has it, which every kernel is compared with."""
    written = _moved(spec, family.formulas(spec, text))
    function = getattr(part(spec.package, "reference"), spec.name)
    code = inspect.getsource(function).rstrip()
    folded = "???" if written else "???+"
    title = "The reference, which every kernel is compared with in float64"
    reference = f'{folded} abstract "{title}"\n\n    ```python {{.source}}\n'
    return "\n\n".join(filter(None, [written, reference + _indented(code) + "\n    ```"]))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _arguments(operator: Operator, text: str) -> str:
    spec, (arguments, outs) = operator.spec, sample(operator)
    prototypes = pair(spec)[0].params if spec.aclnn else [None] * (len(arguments) + len(outs))
    rows = []
    for param, value, c in zip((*spec.args, *spec.outs), (*arguments, *outs), prototypes, strict=False):
        in_c = [f"`{c.name}`", f"`{c.type}`"] if c is not None else []
        rows.append([f"`{param.name}`", *in_c, _kind(param), *_dtypes(param), shape_of(value) or _said(value)])
    names = ["Python", "aclnn", "C type"] if spec.aclnn else ["Python"]
    dtypes = ["dtypes", "in Python also"]
    shapes = (
        "The last column is of one call, that of the examples. Any strides are welcome. An output that is asked for is "
        "asked for by its flag in Python, in aclnn by giving its memory."
    )
    said = _moved(spec, family.section(text, *family.SHAPES))
    return "\n\n".join(filter(None, [table([*names, "what", *dtypes, "for example"], rows), shapes, said]))


def _kind(param: Param) -> str:
    """What a parameter is for, and whether it may be left out."""
    if isinstance(param, Produced):
        return "output" if param.asked_by is None else f"output, asked for by `{param.asked_by}`"
    assert isinstance(param, Argument)  # a contract has nothing else
    kind = "updated in place" if isinstance(param, InOut) else "input" if isinstance(param, Tensor) else "attribute"
    if param.default is not REQUIRED:
        return f"{kind}, `{param.default!r}` if left out"
    return f"{kind}, may be None" if param.may_be_none else kind


def _dtypes(param: Param) -> tuple[str, str]:
    if not isinstance(param, Tensor | Produced):
        return "", ""
    return _listed(param.dtypes), _listed(param.generous)


def _listed(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(map(dtype_name, dtypes))


def _said(value: Any) -> str:
    return "" if isinstance(value, torch.Tensor) else f"`{value!r}`"


def _examples(operator: Operator) -> str:
    spec = operator.spec
    function = getattr(aclgrad, spec.name, None)
    doors = {"Python": ("pycon", examples_of(function))} if function is not None else {}
    doors["PyTorch"] = ("python", torch_example(operator))
    if spec.aclnn:
        doors |= {"aclnn": ("python", aclnn_example(operator)), "C": ("c", c_example(operator))}
    tabs = [f'=== "{door}"\n\n' + _indented(f"```{kind}\n{code}\n```") for door, (kind, code) in doors.items()]
    run = "`aclgrad cc example.c -o example && ./example` compiles and runs the C program."
    return "\n\n".join([*tabs, *([run] if spec.aclnn else [])])


def examples_of(function: Any) -> str:
    """The examples of a docstring, without the words between them."""
    found = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    return "\n".join(
        f">>> {example.source.rstrip().replace(chr(10), chr(10) + '... ')}\n{example.want}".rstrip()
        for example in found
    )


def _function(spec: OpSpec) -> str:
    """The docstring of the function that the family exports, if it does."""
    function = getattr(aclgrad, spec.name, None)
    return f"::: {function.__module__}.{function.__name__}" if function is not None else ""


def _refused(operator: Operator) -> str:
    spec = operator.spec
    found = refusals(operator)
    own = len(spec.rules)
    rows = [
        [_place(refusal, own), _words(refusal), str(refusal.error.status), _python(refusal, spec)] for refusal in found
    ]
    intro = (
        "The first check that fails decides the status. These are the checks' own words about the calls that the tests "
        "make; where several arguments stand together, the same is said of each."
    )
    places_ = "the document's names" if spec.aclnn else "names"
    shared = (
        f"Checks 1 to {own} are the contract's, under {places_} of arguments. Then come those of every operator: an "
        "output must have the dtype and shape that follow, everything must be on one device, and no output may share "
        "memory with itself, with another output or with an input"
        f"{' (an output may be exactly the same view as an input)' if spec.pointwise else ''}: 161002. "
        f"[The codes]({relative('codes.md', path(spec))})."
    )
    return "\n\n".join([intro, table(["Check", "Is refused", "aclnn", "Python"], rows), shared])


def _place(refusal: Refusal, own: int) -> str:
    return str(refusal.check) if 0 < refusal.check <= own else "every operator's" if refusal.check else "types"


def _words(refusal: Refusal) -> str:
    names = ", ".join(f"`{name}`" for name in refusal.arguments)
    return f"{names} {refusal.words}".strip()


def _python(refusal: Refusal, spec: OpSpec) -> str:
    if refusal.in_python:
        return f"`{type(refusal.error).__name__}`"
    outs = {out.aclnn for out in spec.outs}
    return "optional" if outs.issuperset(name.partition("[")[0] for name in refusal.arguments) else "accepted"


def _numerics(spec: OpSpec, text: str) -> str:
    """The README's words, and what holds for every operator."""
    rule = (
        "Every backend is held to the same bound: its error against the float64 reference is at most twice that of a "
        "naive run in the same dtype, plus 4 ulp, on every named case and on random ones. The bits are the same run "
        f"after run. `aclgrad selftest {spec.name}` judges this machine, and `aclgrad verify {spec.name}` your own "
        "kernel's output."
    )
    said = _moved(spec, family.section(text, *family.NUMBERS))
    return "\n\n".join(filter(None, [rule, said]))
