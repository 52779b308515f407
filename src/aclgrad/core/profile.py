"""Whom the aclnn door behaves like where CANN's documents and its code differ: `ACLGRAD_PROFILE` says which.

    document    what the documents promise (the default)
    binary      what the vendor's public code does, and so the binaries made from it

A contract lists its differences (`OpSpec.differences`); docs/profiles.md is made from these lists.
"""

from __future__ import annotations

from .errors import AclgradError, InvalidArgument, NullArgument
from .settings import setting
from .spec import Call, Rule

NOTHING = "success; nothing is written"
"""What the vendor's code does with calls that are `skipped`."""

VARIABLE = "ACLGRAD_PROFILE"
DOCUMENT, BINARY = "document", "binary"

_asked = setting(VARIABLE)


def current_profile() -> str:
    """The profile that the environment asks for."""
    profile = _asked() or DOCUMENT
    if profile not in (DOCUMENT, BINARY):
        raise InvalidArgument(f"{VARIABLE} is {profile!r}, expected {DOCUMENT} or {BINARY}", VARIABLE)
    return profile


def documented(*rules: Rule) -> Rule:
    """These rules bind the aclnn door where it keeps to the documents."""

    def check(call: Call) -> None:
        if call.strict and not call.binary:
            for rule in rules:
                rule(call)

    return check


def coded(*rules: Rule) -> Rule:
    """These rules bind the aclnn door where it does what the vendor's code does."""

    def check(call: Call) -> None:
        if call.binary:
            for rule in rules:
                rule(call)

    return check


def null_where_coded(rule: Rule) -> Rule:
    """The vendor's code calls the fault of this rule a null pointer."""
    return _renamed(rule, InvalidArgument, NullArgument)


def invalid_where_coded(rule: Rule) -> Rule:
    """The vendor's code calls the fault of this rule, a null pointer, an invalid argument."""
    return _renamed(rule, NullArgument, InvalidArgument)


def _renamed(rule: Rule, documented: type[AclgradError], coded: type[AclgradError]) -> Rule:
    def check(call: Call) -> None:
        try:
            rule(call)
        except documented as fault:
            if not call.binary:
                raise
            raise coded(str(fault), fault.argument) from None

    return check
