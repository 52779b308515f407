"""aclgrad: the gradient operators of CANN's aclnn on every machine.

aclgrad.hardsigmoid_backward(grad_output, x)    the Python door: tensors in, tensors out, typed errors
aclgrad.aclnn                                   the documents' two-phase functions, verbatim
aclgrad.acl                                     the runtime under pyACL's names
"""

from ._version import __version__ as __version__
from .core.errors import AclgradError as AclgradError
from .core.errors import DeviceMemoryError as DeviceMemoryError
from .core.errors import InvalidArgument as InvalidArgument
from .core.errors import NoBackend as NoBackend
from .core.errors import NullArgument as NullArgument
from .core.errors import Unsupported as Unsupported
from .core.errors import WrongType as WrongType
from .ops.hardsigmoid import hardsigmoid_backward as hardsigmoid_backward
from .ops.linear_cross_entropy import linear_cross_entropy_backward as linear_cross_entropy_backward
from .ops.lstm import lstm_backward as lstm_backward
from .ops.lstm_cell import lstm_cell_backward as lstm_cell_backward
from .ops.sync_batch_norm import batch_norm_elemt_backward as batch_norm_elemt_backward

_LAZY = ("acl", "aclnn")  # doors that are imported when first used


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
