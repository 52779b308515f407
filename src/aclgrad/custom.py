"""What a contract from outside is written with: the vocabulary, the rules, and functions in a shared library.

docs/custom-operators.md tells how; named inputs (`Case`, `Suite`) are in `aclgrad.testing.cases`.

>>> from aclgrad.custom import F16, F32, OpSpec, Out, Tensor, dtype_of, required, same_shape, shape_of
>>> OpSpec(
...     name="triple", aclnn="aclnnTriple", summary="three times x", package="triple",
...     args=(Tensor("x", "self", (F16, F32)),),
...     outs=(Out("out", "out", (F16, F32), shape_of("x"), dtype_of("x")),),
...     rules=(required("x", "out"), same_shape("x", "out")),
... ).out_names
('out',)
"""

from .core.errors import InvalidArgument as InvalidArgument
from .core.errors import NullArgument as NullArgument
from .core.errors import Unsupported as Unsupported
from .core.meta import Meta as Meta
from .core.registry import register as register
from .core.rules import MAX_RANK as MAX_RANK
from .core.rules import ND as ND
from .core.rules import dtype_of as dtype_of
from .core.rules import length as length
from .core.rules import nd_format as nd_format
from .core.rules import no_null_members as no_null_members
from .core.rules import no_private_format as no_private_format
from .core.rules import one_format as one_format
from .core.rules import promoted as promoted
from .core.rules import rank as rank
from .core.rules import require_shape as require_shape
from .core.rules import required as required
from .core.rules import same_dtype as same_dtype
from .core.rules import same_shape as same_shape
from .core.rules import shape as shape
from .core.rules import shape_of as shape_of
from .core.rules import size_of as size_of
from .core.rules import strictly as strictly
from .core.rules import supported_dtypes as supported_dtypes
from .core.spec import BF16 as BF16
from .core.spec import BOOL as BOOL
from .core.spec import F16 as F16
from .core.spec import F32 as F32
from .core.spec import F64 as F64
from .core.spec import I32 as I32
from .core.spec import I64 as I64
from .core.spec import U8 as U8
from .core.spec import BoolArray as BoolArray
from .core.spec import Call as Call
from .core.spec import Flag as Flag
from .core.spec import Float as Float
from .core.spec import InOut as InOut
from .core.spec import Int as Int
from .core.spec import OpSpec as OpSpec
from .core.spec import Out as Out
from .core.spec import OutList as OutList
from .core.spec import Tensor as Tensor
from .core.spec import TensorList as TensorList
from .frontends.custom.shared_library import SharedLibrary as SharedLibrary
