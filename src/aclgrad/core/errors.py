"""What can go wrong, as one tree. Every class carries the aclnn status its fault has in the C interface.

AclgradError                    561000  something failed inside aclgrad
├── NullArgument                161001  a mandatory argument is missing
├── InvalidArgument             161002  a dtype, shape, format, value or alias is not legal
│   ├── WrongType               161002  a Python object of the wrong kind
│   └── BadDump                 161002  a file or a folder of tensors is not what it should be
├── CommunicationError          561000  a rank of a process group died, hung or came with other sizes
├── DeviceMemoryError           361001  an address that is not (or no longer) device memory, or too small
└── Unsupported                 361001  legal, but not on this platform
    ├── Prevented               361001  a setting or a folder of the user's stands in the way
    └── NoBackend               561003  legal, but no backend can run it here
"""

from __future__ import annotations


class AclgradError(Exception):
    """Base of all errors of this package; `status` is the aclnn status code, `argument` the one at fault."""

    status = 561000

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class NullArgument(AclgradError, TypeError):
    """A mandatory argument is None, a null handle or a null address."""

    status = 161001


class InvalidArgument(AclgradError, ValueError):
    """An argument breaks the operator's contract."""

    status = 161002


class WrongType(InvalidArgument, TypeError):
    """An argument is not the kind of Python object the parameter takes."""


class BadDump(InvalidArgument):
    """A file or a folder does not hold the tensors it should; `argument` is the parameter concerned, if it is one."""


class CommunicationError(AclgradError, RuntimeError):
    """What ranks have to exchange did not arrive: one died, hung past the group's timeout, or sent another size."""


class DeviceMemoryError(AclgradError, RuntimeError):
    """A tensor or a workspace points to memory that is not a live device block of sufficient size."""

    status = 361001


class Unsupported(AclgradError, RuntimeError):
    """The call is legal but cannot be served on this platform."""

    status = 361001


class Prevented(Unsupported):
    """A backend could serve the call but for a setting or a folder; the user is told, and no other takes its place."""


class NoBackend(Unsupported):
    """No backend accepts the call; the message lists every backend with its reasons, and `reasons` has them alone."""

    status = 561003
    reasons = ""
