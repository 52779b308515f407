"""The chips the aclnn door can imitate: `ACLGRAD_SOC` names one, Ascend910B by default."""

from __future__ import annotations

import re
from functools import cache

from .errors import InvalidArgument, Unsupported
from .settings import setting
from .spec import BF16, Call, Rule

DEFAULT_SOC = "Ascend910B"
ATLAS_A2, ATLAS_A3, ATLAS_950 = "Ascend910B", "Ascend910_93", "Ascend950"

_named = setting("ACLGRAD_SOC")


def current_soc() -> str:
    """The name of the imitated chip."""
    return _checked(_named() or DEFAULT_SOC)


@cache
def _checked(name: str) -> str:
    if not re.fullmatch(r"Ascend\d{3}\w*", name):
        raise InvalidArgument(f"ACLGRAD_SOC is {name!r}, expected a chip's name such as {DEFAULT_SOC}", "ACLGRAD_SOC")
    return name


def is_one_of(soc: str | None, *families: str) -> bool:
    """True if the chip belongs to one of these families; the Python door imitates none and is never limited."""
    return soc is None or soc.startswith(families)


def available_on(*families: str) -> Rule:
    """The operator exists on these chips only."""

    def check(call: Call) -> None:
        if not is_one_of(call.soc, *families):
            raise Unsupported(f"{call.spec.aclnn} is not available on {call.soc}, expected {' or '.join(families)}")

    return check


def bf16_needs_a_chip_that_has_it(*names: str) -> Rule:
    """These tensors (all of the call, if none is named) are not bfloat16 on chips before Atlas A2, which lack it."""

    def check(call: Call) -> None:
        if is_one_of(call.soc, ATLAS_A2, ATLAS_A3, ATLAS_950):
            return
        for label, meta in call.metas(*(names or call.spec.params)):
            if meta.dtype == BF16:
                raise InvalidArgument(f"{label} is bfloat16, expected float32 or float16 on {call.soc}", label)

    return check
