"""aclgrad: the gradient operators of CANN's aclnn on every machine.

aclgrad.hardsigmoid_backward(grad_output, x)    the Python door: tensors in, tensors out, typed errors
aclgrad.aclnn                                   the documents' two-phase functions, verbatim
aclgrad.acl                                     the runtime under pyACL's names
aclgrad.nn, torch.ops.aclgrad                   modules and ops for PyTorch, differentiable
aclgrad.torch_npu                               the functions of torch_npu
aclgrad.testing                                 golden data, verdicts on precision, named cases, poisoned memory
aclgrad.custom                                  what contracts of one's own operators are written with
"""

from ._version import __version__ as __version__
from .core.errors import AclgradError as AclgradError
from .core.errors import BadDump as BadDump
from .core.errors import DeviceMemoryError as DeviceMemoryError
from .core.errors import InvalidArgument as InvalidArgument
from .core.errors import NoBackend as NoBackend
from .core.errors import NullArgument as NullArgument
from .core.errors import Unsupported as Unsupported
from .core.errors import WrongType as WrongType
from .cpu import backend as _cpu  # noqa: F401  the backends register themselves, the preferred one first
from .frontends.custom import discovery as _outside
from .frontends.torch_library import register as _register_ops
from .gpu import backend as _gpu  # noqa: F401
from .ops.hardsigmoid import *
from .ops.linear_cross_entropy import *
from .ops.lstm import *
from .ops.lstm_cell import *
from .ops.sync_batch_norm import *

_outside.load()
_register_ops()

_LAZY = ("acl", "aclnn", "custom", "nn", "npu", "testing", "torch_npu")  # doors that are imported when first used


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    try:
        return _outside.exported(name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_outside.names()})
