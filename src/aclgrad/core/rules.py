"""Reusable rules of contracts. Each returns a function of a `Call` that raises the fault it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from .errors import InvalidArgument, NullArgument
from .meta import Meta, dtype_name
from .spec import Call, Out, OutList, Rule, Tensor

MAX_RANK = 8  # of aclnn; torch and the kernels know no limit
ND = 2  # aclFormat
PRIVATE_FORMATS = frozenset({3, 4, 12, 29, 32, 33, 50, 51, 52, 53, 54})


def strictly(*rules: Rule) -> Rule:
    """These rules bind the aclnn door only."""

    def check(call: Call) -> None:
        if call.strict:
            for rule in rules:
                rule(call)

    return check


def required(*names: str) -> Rule:
    """None of these may be null. An output is supplied by the caller only in the aclnn door."""

    def check(call: Call) -> None:
        for name in names:
            if call[name] is None and (call.strict or name not in call.spec.out_names):
                label = call.label(name)
                raise NullArgument(f"{label} is null, a tensor or list is required", label)

    return check


def length(count: Callable[[Call], int], *names: str) -> Rule:
    """Each of these lists has `count(call)` members."""

    def check(call: Call) -> None:
        expected = count(call)
        for name in names:
            items = call[name]
            if items is not None and len(items) != expected:
                label = call.label(name)
                raise InvalidArgument(f"{label} has {len(items)} tensors, expected {expected}", label)

    return check


def no_null_members(*names: str) -> Rule:
    """No member of these lists is null."""

    def check(call: Call) -> None:
        for name in names:
            for k, item in enumerate(call[name] or ()):
                if item is None:
                    label = f"{call.label(name)}[{k}]"
                    raise NullArgument(f"{label} is null, a tensor is required", label)

    return check


def supported_dtypes(*names: str) -> Rule:
    """Each tensor given has one of the dtypes its parameter declares."""

    def check(call: Call) -> None:
        for name in names:
            param = call.spec.params[name]
            assert isinstance(param, Tensor | Out | OutList)  # our own contracts
            allowed = param.dtypes if call.strict else param.dtypes + param.generous
            for label, meta in call.metas(name):
                if meta.dtype not in allowed:
                    expected = ", ".join(dtype_name(dtype) for dtype in allowed)
                    raise InvalidArgument(f"{label} is {dtype_name(meta.dtype)}, expected one of {expected}", label)

    return check


def same_dtype(names: Sequence[str], base: str | None = None) -> Rule:
    """All tensors given have the dtype of `base` (default: of the first one given)."""

    def check(call: Call) -> None:
        given = call.metas(*([base] if base else []), *names)
        if not given:
            return
        base_label, base_meta = given[0]
        for label, meta in given[1:]:
            if meta.dtype != base_meta.dtype:
                raise InvalidArgument(
                    f"{label} is {dtype_name(meta.dtype)}, expected {dtype_name(base_meta.dtype)} like {base_label}",
                    label,
                )

    return check


def nd_format(*names: str, also: frozenset[int] = frozenset()) -> Rule:
    """Handles must have been created with format ND (or one of `also`)."""

    def check(call: Call) -> None:
        for label, meta in call.metas(*names):
            if meta.format is not None and meta.format != ND and meta.format not in also:
                expected = " or ".join(["ND (2)", *(str(number) for number in sorted(also))])
                raise InvalidArgument(f"{label} has format {int(meta.format)}, expected {expected}", label)

    return check


def one_format(base: str, *names: str) -> Rule:
    """Handles of all these tensors were created with one format, whichever."""

    def check(call: Call) -> None:
        (base_label, first), *others = call.metas(base, *names)
        for label, meta in others:
            if first.format is not None and meta.format is not None and meta.format != first.format:
                found, expected = int(meta.format), int(first.format)
                raise InvalidArgument(f"{label} has format {found}, expected {expected} like {base_label}", label)

    return check


def no_private_format(*names: str) -> Rule:
    """Handles must not have a device-private format."""

    def check(call: Call) -> None:
        for label, meta in call.metas(*names):
            if meta.format in PRIVATE_FORMATS:
                raise InvalidArgument(f"{label} has the private format {int(meta.format or 0)}, expected ND", label)

    return check


def rank(low: int, high: int, *names: str) -> Rule:
    """Each tensor given has between `low` and `high` dimensions; MAX_RANK binds the aclnn door only."""

    def check(call: Call) -> None:
        limited = call.strict or high != MAX_RANK
        wanted = f"{low}" if low == high else f"{low} to {high}" if limited else f"{low} or more"
        for label, meta in call.metas(*names):
            if meta.rank < low or (limited and meta.rank > high):
                raise InvalidArgument(f"{label} has rank {meta.rank} {list(meta.shape)}, expected rank {wanted}", label)

    return check


def shape(name: str, *symbols: str) -> Rule:
    """The tensor has the named sizes of `call.dims`, e.g. ("storage", "N", "4H").

    A symbol is a field of dims, optionally with an integer factor in front.
    """

    def check(call: Call) -> None:
        expected = tuple(size_of(call.dims, symbol) for symbol in symbols)
        for label, meta in call.metas(name):
            require_shape(label, meta, expected, f"[{', '.join(symbols)}]")

    return check


def size_of(dims: Any, symbol: str) -> int:
    """The size a symbol such as "H" or "4H" stands for."""
    digits = len(symbol) - len(symbol.lstrip("0123456789"))
    factor = int(symbol[:digits] or 1)
    return factor * cast(int, getattr(dims, symbol[digits:]))


def require_shape(label: str, meta: Meta, expected: tuple[int, ...], symbols: str = "") -> None:
    """Raise unless the tensor has exactly this shape."""
    if tuple(meta.shape) != expected:
        named = f" = {symbols}" if symbols else ""
        raise InvalidArgument(f"{label} has shape {list(meta.shape)}, expected {list(expected)}{named}", label)


def same_shape(base: str, *names: str) -> Rule:
    """Each tensor given has the shape of `base`."""

    def check(call: Call) -> None:
        base_label, base_meta = call.metas(base)[0]
        for label, meta in call.metas(*names):
            if meta.shape != base_meta.shape:
                raise InvalidArgument(
                    f"{label} has shape {list(meta.shape)}, expected {list(base_meta.shape)} like {base_label}", label
                )

    return check


def one_device(call: Call) -> None:
    """All tensors live on one device. Runs last in every contract."""
    given = call.metas(*call.spec.params)
    for label, meta in given[1:]:
        base_label, base_meta = given[0]
        if meta.device != base_meta.device:
            raise InvalidArgument(f"{label} is on {meta.device}, expected {base_meta.device} like {base_label}", label)


def outputs_are_as_derived(call: Call) -> None:
    """An output that is given is like one that would be made. Binds operators that no document knows."""
    if call.spec.aclnn:
        return
    for param in call.spec.outs:
        if call[param.name] is None:
            continue
        expected = param.meta(call)
        members = (expected,) if isinstance(expected, Meta) else expected
        for (label, meta), like in zip(call.metas(param.name), members, strict=True):
            require_shape(label, meta, like.shape)
            if meta.dtype != like.dtype:
                raise InvalidArgument(f"{label} is {dtype_name(meta.dtype)}, expected {dtype_name(like.dtype)}", label)


def outputs_do_not_overlap_themselves(call: Call) -> None:
    """An output whose elements share memory cannot hold a result. Runs last in every contract."""
    for label, meta in call.metas(*call.spec.written_names):
        if meta.overlaps_itself():
            raise InvalidArgument(
                f"{label} has shape {list(meta.shape)} with strides {list(meta.strides)}: its elements share memory, "
                "expected an output with one address per element",
                label,
            )


def promoted(*names: str) -> Callable[[Call], torch.dtype]:
    """The dtype torch promotes these tensors to."""

    def dtype(call: Call) -> torch.dtype:
        result = call.tensor(names[0]).dtype
        for name in names[1:]:
            result = torch.promote_types(result, call.tensor(name).dtype)
        return result

    return dtype


def dtype_of(name: str) -> Callable[[Call], torch.dtype]:
    """The dtype of one tensor."""
    return lambda call: call.tensor(name).dtype


def shape_of(name: str) -> Callable[[Call], tuple[int, ...]]:
    """The shape of one tensor."""
    return lambda call: tuple(call.tensor(name).shape)
