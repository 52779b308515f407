# Written by `make generate`; edit tools/generate.py or the contracts instead.
from collections.abc import Sequence
from typing import TypeAlias

from torch import Tensor

from .frontends.acl.enums import AclDataType as AclDataType
from .frontends.acl.enums import AclFormat as AclFormat
from .frontends.acl.enums import AclnnStatus as AclnnStatus
from .frontends.acl.meta import aclCreateBoolArray as aclCreateBoolArray
from .frontends.acl.meta import aclCreateFloatArray as aclCreateFloatArray
from .frontends.acl.meta import aclCreateIntArray as aclCreateIntArray
from .frontends.acl.meta import aclCreateScalar as aclCreateScalar
from .frontends.acl.meta import aclCreateScalarList as aclCreateScalarList
from .frontends.acl.meta import aclCreateTensor as aclCreateTensor
from .frontends.acl.meta import aclCreateTensorList as aclCreateTensorList
from .frontends.acl.meta import aclDestroyBoolArray as aclDestroyBoolArray
from .frontends.acl.meta import aclDestroyFloatArray as aclDestroyFloatArray
from .frontends.acl.meta import aclDestroyIntArray as aclDestroyIntArray
from .frontends.acl.meta import aclDestroyScalar as aclDestroyScalar
from .frontends.acl.meta import aclDestroyScalarList as aclDestroyScalarList
from .frontends.acl.meta import aclDestroyTensor as aclDestroyTensor
from .frontends.acl.meta import aclDestroyTensorList as aclDestroyTensorList
from .frontends.acl.meta import aclGetBoolArraySize as aclGetBoolArraySize
from .frontends.acl.meta import aclGetDataType as aclGetDataType
from .frontends.acl.meta import aclGetFloatArraySize as aclGetFloatArraySize
from .frontends.acl.meta import aclGetFormat as aclGetFormat
from .frontends.acl.meta import aclGetIntArraySize as aclGetIntArraySize
from .frontends.acl.meta import aclGetRawTensorAddr as aclGetRawTensorAddr
from .frontends.acl.meta import aclGetScalarListSize as aclGetScalarListSize
from .frontends.acl.meta import aclGetStorageShape as aclGetStorageShape
from .frontends.acl.meta import aclGetTensorListSize as aclGetTensorListSize
from .frontends.acl.meta import aclGetViewOffset as aclGetViewOffset
from .frontends.acl.meta import aclGetViewShape as aclGetViewShape
from .frontends.acl.meta import aclGetViewStrides as aclGetViewStrides
from .frontends.acl.meta import aclInitTensor as aclInitTensor
from .frontends.acl.meta import aclnnFinalize as aclnnFinalize
from .frontends.acl.meta import aclnnInit as aclnnInit
from .frontends.acl.meta import aclSetRawTensorAddr as aclSetRawTensorAddr
from .frontends.aclnn.dumps import aclDumpOpTensors as aclDumpOpTensors
from .frontends.aclnn.rebinding import aclDestroyAclOpExecutor as aclDestroyAclOpExecutor
from .frontends.aclnn.rebinding import aclSetAclOpExecutorRepeatable as aclSetAclOpExecutorRepeatable
from .frontends.aclnn.rebinding import aclSetDynamicInputTensorAddr as aclSetDynamicInputTensorAddr
from .frontends.aclnn.rebinding import aclSetDynamicOutputTensorAddr as aclSetDynamicOutputTensorAddr
from .frontends.aclnn.rebinding import aclSetDynamicTensorAddr as aclSetDynamicTensorAddr
from .frontends.aclnn.rebinding import aclSetInputTensorAddr as aclSetInputTensorAddr
from .frontends.aclnn.rebinding import aclSetOutputTensorAddr as aclSetOutputTensorAddr
from .frontends.aclnn.rebinding import aclSetTensorAddr as aclSetTensorAddr

_Tensor: TypeAlias = Tensor | int | None  # used in place, a handle, or absent
_List: TypeAlias = Sequence[_Tensor] | int | None
_Bools: TypeAlias = Sequence[bool] | int | None

def aclnnHardsigmoidGetWorkspaceSize(
    self: _Tensor,
    out: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: a sigmoid made of three straight lines."""

def aclnnHardsigmoid(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: a sigmoid made of three straight lines."""

def aclnnInplaceHardsigmoidGetWorkspaceSize(
    self: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: hardsigmoid, written over its argument."""

def aclnnInplaceHardsigmoid(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: hardsigmoid, written over its argument."""

def aclnnHardsigmoidBackwardGetWorkspaceSize(
    gradOutput: _Tensor,
    self: _Tensor,
    out: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: gradient of hardsigmoid."""

def aclnnHardsigmoidBackward(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: gradient of hardsigmoid."""

def aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
    grad: _Tensor,
    input: _Tensor,
    weight: _Tensor,
    targetMask: _Tensor,
    maskedTarget: _Tensor,
    labelSmoothing: float,
    logitsMaxOptional: _Tensor,
    sumExpLogitsOptional: _Tensor,
    softmaxOptional: _Tensor,
    inputGradOut: _Tensor,
    weightGradOut: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: gradient of a vocabulary-parallel fused linear cross entropy."""

def aclnnFusedLinearCrossEntropyLossGrad(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: gradient of a vocabulary-parallel fused linear cross entropy."""

def aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(
    input: _Tensor,
    weight: _Tensor,
    target: _Tensor,
    vocabStartIndex: int,
    vocabEndIndex: int,
    logitsMaxLocalOut: _Tensor,
    sumExpLogitsLocalOut: _Tensor,
    predictedLogitsLocalOut: _Tensor,
    targetMaskOut: _Tensor,
    maskedTargetOut: _Tensor,
    vocabParallelLogitsOutOptional: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: statistics of a linear layer's softmax on one shard of the vocabulary."""

def aclnnFusedLinearOnlineMaxSum(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: statistics of a linear layer's softmax on one shard of the vocabulary."""

def aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize(
    logitsMax: _Tensor,
    sumExpLogits: _Tensor,
    predictedLogits: _Tensor,
    labelSmoothing: float,
    inputOptional: _Tensor,
    weightOptional: _Tensor,
    vocabParallelLogitsOptional: _Tensor,
    lossOut: _Tensor,
    softMaxOutOptional: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: cross entropy, and the softmax, from statistics of the whole vocabulary."""

def aclnnFusedCrossEntropyLossWithMaxSum(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: cross entropy, and the softmax, from statistics of the whole vocabulary."""

def aclnnLSTMGetWorkspaceSize(
    input: _Tensor,
    params: _List,
    hx: _List,
    batchSizes: _Tensor,
    hasBias: bool,
    numLayers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batchFirst: bool,
    output: _Tensor,
    hy: _Tensor,
    cy: _Tensor,
    iOut: _List,
    jOut: _List,
    fOut: _List,
    oOut: _List,
    hOut: _List,
    cOut: _List,
    tanhCOut: _List,
) -> tuple[int, int | None, int]:
    """Phase one: a whole LSTM."""

def aclnnLSTM(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: a whole LSTM."""

def aclnnLstmBackwardGetWorkspaceSize(
    input: _Tensor,
    hx: _List,
    params: _List,
    dy: _Tensor,
    dh: _Tensor,
    dc: _Tensor,
    i: _List,
    j: _List,
    f: _List,
    o: _List,
    h: _List,
    c: _List,
    tanhc: _List,
    batchSizesOptional: _Tensor,
    hasBias: bool,
    numLayers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batchFirst: bool,
    outputMask: _Bools,
    dxOut: _Tensor,
    dhPrevOut: _Tensor,
    dcPrevOut: _Tensor,
    dparamsOut: _List,
) -> tuple[int, int | None, int]:
    """Phase one: gradient of a whole LSTM."""

def aclnnLstmBackward(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: gradient of a whole LSTM."""

def aclnnThnnFusedLstmCellGetWorkspaceSize(
    inputGates: _Tensor,
    hiddenGates: _Tensor,
    cx: _Tensor,
    inputBiasOptional: _Tensor,
    hiddenBiasOptional: _Tensor,
    hyOut: _Tensor,
    cyOut: _Tensor,
    storageOut: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: the LSTM cell after its two matrix products."""

def aclnnThnnFusedLstmCell(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: the LSTM cell after its two matrix products."""

def aclnnThnnFusedLstmCellBackwardGetWorkspaceSize(
    gradHyOptional: _Tensor,
    gradCOptional: _Tensor,
    cx: _Tensor,
    cy: _Tensor,
    storage: _Tensor,
    hasBias: bool,
    gradGatesOut: _Tensor,
    gradCxOut: _Tensor,
    gradBiasOut: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: gradient of the fused LSTM cell."""

def aclnnThnnFusedLstmCellBackward(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: gradient of the fused LSTM cell."""

def aclnnBatchNormStatsGetWorkspaceSize(
    input: _Tensor,
    eps: float,
    mean: _Tensor,
    invstd: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: mean and inverse standard deviation of every channel."""

def aclnnBatchNormStats(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: mean and inverse standard deviation of every channel."""

def aclnnBatchNormGatherStatsWithCountsGetWorkspaceSize(
    input: _Tensor,
    mean: _Tensor,
    invstd: _Tensor,
    runningMean: _Tensor,
    runningVar: _Tensor,
    momentum: float,
    eps: float,
    counts: _Tensor,
    meanAll: _Tensor,
    invstdAll: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: statistics of the whole batch from those of all processes; updates the running ones."""

def aclnnBatchNormGatherStatsWithCounts(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: statistics of the whole batch from those of all processes; updates the running ones."""

def aclnnBatchNormElemtGetWorkspaceSize(
    input: _Tensor,
    weight: _Tensor,
    bias: _Tensor,
    mean: _Tensor,
    invstd: _Tensor,
    eps: float,
    output: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: batch norm with given statistics."""

def aclnnBatchNormElemt(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: batch norm with given statistics."""

def aclnnBatchNormReduceBackwardGetWorkspaceSize(
    gradOut: _Tensor,
    input: _Tensor,
    mean: _Tensor,
    invstd: _Tensor,
    weight: _Tensor,
    inputG: bool,
    weightG: bool,
    biasG: bool,
    sumDy: _Tensor,
    sumDyXmu: _Tensor,
    gradWeight: _Tensor,
    gradBias: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: sums over the batch that the gradient of synchronised batch norm needs."""

def aclnnBatchNormReduceBackward(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: sums over the batch that the gradient of synchronised batch norm needs."""

def aclnnBatchNormElemtBackwardGetWorkspaceSize(
    gradOut: _Tensor,
    input: _Tensor,
    mean: _Tensor,
    invstd: _Tensor,
    weight: _Tensor,
    sumDy: _Tensor,
    sumDyXmu: _Tensor,
    counter: _Tensor,
    gradInput: _Tensor,
) -> tuple[int, int | None, int]:
    """Phase one: element-wise part of the gradient of synchronised batch norm."""

def aclnnBatchNormElemtBackward(
    workspace: Tensor | int | None,
    workspaceSize: int,
    executor: int | None,
    stream: int | None,
) -> int:
    """Phase two: element-wise part of the gradient of synchronised batch norm."""

ACL_DT_UNDEFINED: AclDataType
ACL_FLOAT: AclDataType
ACL_FLOAT16: AclDataType
ACL_INT8: AclDataType
ACL_INT32: AclDataType
ACL_UINT8: AclDataType
ACL_INT16: AclDataType
ACL_UINT16: AclDataType
ACL_UINT32: AclDataType
ACL_INT64: AclDataType
ACL_UINT64: AclDataType
ACL_DOUBLE: AclDataType
ACL_BOOL: AclDataType
ACL_STRING: AclDataType
ACL_COMPLEX64: AclDataType
ACL_COMPLEX128: AclDataType
ACL_BF16: AclDataType
ACL_INT4: AclDataType
ACL_UINT1: AclDataType
ACL_COMPLEX32: AclDataType
ACL_HIFLOAT8: AclDataType
ACL_FLOAT8_E5M2: AclDataType
ACL_FLOAT8_E4M3FN: AclDataType
ACL_FLOAT8_E8M0: AclDataType
ACL_FLOAT6_E3M2: AclDataType
ACL_FLOAT6_E2M3: AclDataType
ACL_FLOAT4_E2M1: AclDataType
ACL_FLOAT4_E1M2: AclDataType
ACL_FORMAT_UNDEFINED: AclFormat
ACL_FORMAT_NCHW: AclFormat
ACL_FORMAT_NHWC: AclFormat
ACL_FORMAT_ND: AclFormat
ACL_FORMAT_NC1HWC0: AclFormat
ACL_FORMAT_FRACTAL_Z: AclFormat
ACL_FORMAT_NC1HWC0_C04: AclFormat
ACL_FORMAT_HWCN: AclFormat
ACL_FORMAT_NDHWC: AclFormat
ACL_FORMAT_FRACTAL_NZ: AclFormat
ACL_FORMAT_NCDHW: AclFormat
ACL_FORMAT_NDC1HWC0: AclFormat
ACL_FRACTAL_Z_3D: AclFormat
ACL_FORMAT_NC: AclFormat
ACL_FORMAT_NCL: AclFormat
ACL_FORMAT_FRACTAL_NZ_C0_16: AclFormat
ACL_FORMAT_FRACTAL_NZ_C0_32: AclFormat
ACL_FORMAT_FRACTAL_NZ_C0_2: AclFormat
ACL_FORMAT_FRACTAL_NZ_C0_4: AclFormat
ACL_FORMAT_FRACTAL_NZ_C0_8: AclFormat
ACLNN_SUCCESS: AclnnStatus
ACLNN_ERR_PARAM_NULLPTR: AclnnStatus
ACLNN_ERR_PARAM_INVALID: AclnnStatus
ACLNN_ERR_RUNTIME_ERROR: AclnnStatus
ACLNN_ERR_INNER: AclnnStatus
ACLNN_ERR_INNER_INFERSHAPE_ERROR: AclnnStatus
ACLNN_ERR_INNER_TILING_ERROR: AclnnStatus
ACLNN_ERR_INNER_FIND_KERNEL_ERROR: AclnnStatus
ACLNN_ERR_INNER_CREATE_EXECUTOR: AclnnStatus
ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR: AclnnStatus
ACLNN_ERR_INNER_NULLPTR: AclnnStatus
ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE: AclnnStatus
ACLNN_ERR_INNER_KEY_CONFLICT: AclnnStatus
ACLNN_ERR_INNER_INVALID_IMPL_MODE: AclnnStatus
ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND: AclnnStatus
ACLNN_ERR_INNER_LOAD_JSON_FAILED: AclnnStatus
ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND: AclnnStatus
ACLNN_ERR_INNER_JSON_FORMAT_INVALID: AclnnStatus
ACLNN_ERR_INNER_JSON_DTYPE_INVALID: AclnnStatus
ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND: AclnnStatus
ACLNN_ERR_INNER_OP_FILE_INVALID: AclnnStatus
ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND: AclnnStatus
ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH: AclnnStatus
ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE: AclnnStatus
ACLNN_ERR_INNER_INPUT_JSON_IS_NULL: AclnnStatus
ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID: AclnnStatus
ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID: AclnnStatus
