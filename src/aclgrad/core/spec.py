"""The vocabulary of contracts: an operator is an `OpSpec`, a list of parameters in the document's order plus rules.

Everything else is derived from it: binding and validation, the Python function, the aclnn pair, tests and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

import torch

from .meta import Meta, Value, contiguous_strides

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
I32, I64, U8, BOOL = torch.int32, torch.int64, torch.uint8, torch.bool


REQUIRED: Any = object()
"""The default of an argument that has to be given."""


@dataclass(frozen=True)
class Param:
    """A parameter: its name in Python and its name in the document."""

    name: str
    aclnn: str


@dataclass(frozen=True)
class Argument(Param):
    """A parameter that the caller passes. Its default is that of the Python door; the document's functions have none.

    `optional` is what may be None and has no default.
    """

    default: Any = field(default=REQUIRED, kw_only=True)
    optional: bool = field(default=False, kw_only=True)

    @property
    def may_be_none(self) -> bool:
        """Whether None may be given for it."""
        return self.optional or self.default is None


@dataclass(frozen=True)
class Tensor(Argument):
    """An input tensor. `dtypes` are the document's; the Python door also takes those of `generous`.

    `const` says whether the C prototype promises not to write to it; only an `InOut` is written to.
    """

    dtypes: tuple[torch.dtype, ...]
    generous: tuple[torch.dtype, ...] = ()
    const: bool = True


@dataclass(frozen=True)
class InOut(Tensor):
    """An input tensor that is updated in place. A reference returns its new value after the outputs."""


@dataclass(frozen=True)
class TensorList(Tensor):
    """An input list of tensors."""


@dataclass(frozen=True)
class Flag(Argument):
    """A bool attribute."""


@dataclass(frozen=True)
class Int(Argument):
    """An int64_t attribute."""


@dataclass(frozen=True)
class Float(Argument):
    """A floating-point attribute; `c_type` is its type in the C prototype."""

    c_type: str = "double"


@dataclass(frozen=True)
class BoolArray(Argument):
    """An optional aclBoolArray."""


Shape: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class Produced(Param):
    """What an output tensor and a list of them have in common: the dtypes, and when it is produced at all.

    The document's caller asks for some outputs by giving them memory; in Python a flag of the name `asked_by` does.
    """

    dtypes: tuple[torch.dtype, ...]
    generous: tuple[torch.dtype, ...] = field(default=(), kw_only=True)
    wanted: Callable[[Call], bool] = field(default=lambda call: True, kw_only=True)
    asked_by: str | None = field(default=None, kw_only=True)

    def is_produced(self, call: Call, asked: bool) -> bool:
        """Whether a call produces it."""
        return self.wanted(call) if self.asked_by is None else asked or call[self.name] is not None


@dataclass(frozen=True)
class Out(Produced):
    """An output tensor: how its shape, dtype and layout follow from the inputs."""

    shape: Callable[[Call], Shape]
    dtype: Callable[[Call], torch.dtype]
    like: str | None = None  # keep the memory layout of this input when the output is allocated here
    rounded_as: str | None = None  # the contract rounds intermediate results to the dtype of this input

    def meta(self, call: Call) -> Meta | tuple[Meta, ...]:
        """Metadata of a freshly allocated output."""
        shape, dtype = self.shape(call), self.dtype(call)
        strides = contiguous_strides(shape)
        if self.like is not None:
            model = call.tensor(self.like)
            if model.shape == shape and model.is_dense():
                strides = model.strides
        return Meta(shape, strides, dtype, call.device)


@dataclass(frozen=True)
class OutList(Produced):
    """An output list of tensors."""

    shapes: Callable[[Call], Sequence[Shape]]
    dtype: Callable[[Call], torch.dtype]

    def meta(self, call: Call) -> Meta | tuple[Meta, ...]:
        """Metadata of freshly allocated outputs."""
        dtype = self.dtype(call)
        return tuple(Meta(s, contiguous_strides(s), dtype, call.device) for s in self.shapes(call))


Rule: TypeAlias = "Callable[[Call], None]"


@dataclass(frozen=True)
class Difference:
    """Where CANN's document of an operator and its code differ, in words. What is not `imitated` is as documented."""

    question: str
    document: str
    binary: str
    imitated: bool = True


@dataclass(frozen=True)
class OpSpec:
    """The contract of one operator.

    An operator that no document knows has an empty `aclnn`: the doors of aclnn and C, and the command line, leave it
    out. Its parameters have their Python name twice.

    `args` and `outs` stand in the document's order. `rules` run in order and raise; the first that fails names the
    fault, so their order is the documented order of checks. `dims` derives the named sizes the rules, the outputs and
    the kernels share. `pointwise` allows an output to be exactly the same view as an input. What metadata cannot tell,
    `value_rule` finds in the arguments' values; only a CPU's are looked at, since nobody waits for a device. Where
    `betrays` tells from outputs whether they may come of values that are refused, and nobody has given these outputs,
    it is asked first, since it takes less time. What is legal and probably not meant, `remark` puts into words for the
    aclnn door. `unread` names the tensors that are given and whose elements nobody looks at. `rows` names those, single
    and in lists, whose one number of rows launches depend on only as `core.rows` rounds it. `differences` are those
    between the document and the vendor's code, which writes nothing in calls that are `skipped`.
    """

    name: str
    aclnn: str
    args: tuple[Argument, ...]
    outs: tuple[Out | OutList, ...]
    rules: tuple[Rule, ...]
    dims: Callable[[Call], Any] = lambda call: None
    pointwise: bool = False
    value_rule: Callable[[Sequence[Any]], None] | None = None
    betrays: Callable[[Sequence[Any]], bool] | None = None
    remark: Callable[[Call], str | None] = lambda call: None
    unread: Callable[[Call], Sequence[str]] = lambda call: ()
    rows: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    skipped: Callable[[Call], bool] = lambda call: False
    reference_options: Callable[[Call], dict[str, Any]] = lambda call: {}
    package: str = ""
    summary: str = ""
    header: str = ""  # where C programs find it, if not in a header of its own name
    flops: Callable[[Call], int] | None = None  # 2·m·n·k of every matrix product, as torch counts them, if it has any

    @cached_property
    def params(self) -> dict[str, Param]:
        """Every parameter by its Python name."""
        return {param.name: param for param in (*self.args, *self.outs)}

    @cached_property
    def defaults(self) -> tuple[Any, ...]:
        """The defaults of the arguments, `REQUIRED` for those that have none."""
        return tuple(arg.default for arg in self.args)

    def completed(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with the defaults of those left out at the end; as they are if one of these has none."""
        left_out = self.defaults[len(args) :]
        return args if not left_out or left_out[0] is REQUIRED else (*args, *left_out)

    @cached_property
    def updated(self) -> tuple[int, ...]:
        """Positions of the arguments that are updated in place."""
        return tuple(k for k, arg in enumerate(self.args) if isinstance(arg, InOut))

    @cached_property
    def written_names(self) -> tuple[str, ...]:
        """Python names of everything a call writes to: the outputs, then what is updated in place."""
        return (*self.out_names, *(self.args[k].name for k in self.updated))

    def written(self, args: Sequence[Any], outs: Sequence[Any]) -> tuple[Any, ...]:
        """What a call writes to, in the order of `written_names`."""
        return (*outs, *(args[k] for k in self.updated))

    @cached_property
    def asked_by(self) -> tuple[str, ...]:
        """The Python flags that ask for outputs."""
        return tuple(out.asked_by for out in self.outs if out.asked_by is not None)

    @cached_property
    def out_names(self) -> tuple[str, ...]:
        """Python names of the outputs."""
        return tuple(out.name for out in self.outs)


@dataclass(frozen=True)
class Call:
    """The values of one call seen through one door: metadata for tensors, the values themselves for attributes.

    `strict` is the aclnn door, which holds to the document; the Python door is generous. `soc` names the chip the
    aclnn door imitates; `binary` says that it does what the vendor's code does, and not what the document says.
    Outputs that the caller did not supply are absent until the plan derives them.
    """

    spec: OpSpec
    values: Mapping[str, Value]
    strict: bool
    soc: str | None = None
    binary: bool = False
    _dims: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __getitem__(self, name: str) -> Any:
        """The value of a parameter; None when absent."""
        return self.values.get(name)

    def tensor(self, name: str) -> Meta:
        """The metadata of a tensor that the rules have shown to be present."""
        return cast(Meta, self.values[name])

    def metas(self, *names: str) -> list[tuple[str, Meta]]:
        """(label, metadata) of every tensor given for these parameters, lists flattened, absent ones left out."""
        found: list[tuple[str, Meta]] = []
        for name in names:
            value = self.values.get(name)
            if isinstance(value, Meta):
                found.append((self.label(name), value))
            elif isinstance(value, tuple):
                found += [(f"{self.label(name)}[{k}]", item) for k, item in enumerate(value) if isinstance(item, Meta)]
        return found

    def label(self, name: str) -> str:
        """The parameter's name as this door's user knows it."""
        return self.spec.params[name].aclnn if self.strict else name

    @property
    def dims(self) -> Any:
        """The named sizes of the call; computed once, first asked for by the rules that make them meaningful."""
        if not self._dims:
            self._dims.append(self.spec.dims(self))
        return self._dims[0]

    @property
    def device(self) -> torch.device:
        """The device of the first tensor given."""
        for name in self.spec.params:
            value = self.values.get(name)
            for item in value if type(value) is tuple else (value,):
                if isinstance(item, Meta):
                    return item.device
        return torch.device("cpu")
