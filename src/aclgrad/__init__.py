"""aclgrad: the gradient operators of CANN's aclnn on every machine.

aclgrad.hardsigmoid_backward(grad_output, x)    the Python door: tensors in, tensors out, typed errors
aclgrad.aclnn                                   the documents' two-phase functions, verbatim
aclgrad.acl                                     the runtime under pyACL's names
aclgrad.nn, torch.ops.aclgrad                   modules and ops for PyTorch, differentiable
aclgrad.torch_npu                               the functions of torch_npu
aclgrad.testing                                 the tolerance rule, named cases, poisoned memory
"""

from ._version import __version__ as __version__
from .core.errors import AclgradError as AclgradError
from .core.errors import DeviceMemoryError as DeviceMemoryError
from .core.errors import InvalidArgument as InvalidArgument
from .core.errors import NoBackend as NoBackend
from .core.errors import NullArgument as NullArgument
from .core.errors import Unsupported as Unsupported
from .core.errors import WrongType as WrongType
from .frontends.torch_library import register as _register_ops
from .ops.hardsigmoid import hardsigmoid as hardsigmoid
from .ops.hardsigmoid import hardsigmoid_ as hardsigmoid_
from .ops.hardsigmoid import hardsigmoid_backward as hardsigmoid_backward
from .ops.linear_cross_entropy import cross_entropy_with_max_sum as cross_entropy_with_max_sum
from .ops.linear_cross_entropy import linear_cross_entropy_backward as linear_cross_entropy_backward
from .ops.linear_cross_entropy import linear_online_max_sum as linear_online_max_sum
from .ops.lstm import lstm as lstm
from .ops.lstm import lstm_backward as lstm_backward
from .ops.lstm_cell import lstm_cell as lstm_cell
from .ops.lstm_cell import lstm_cell_backward as lstm_cell_backward
from .ops.sync_batch_norm import batch_norm_elemt as batch_norm_elemt
from .ops.sync_batch_norm import batch_norm_elemt_backward as batch_norm_elemt_backward
from .ops.sync_batch_norm import batch_norm_gather_stats_with_counts as batch_norm_gather_stats_with_counts
from .ops.sync_batch_norm import batch_norm_reduce_backward as batch_norm_reduce_backward
from .ops.sync_batch_norm import batch_norm_stats as batch_norm_stats

_register_ops()

_LAZY = ("acl", "aclnn", "nn", "testing", "torch_npu")  # doors that are imported when first used


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
