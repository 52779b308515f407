#define ACL_DIM_ENDPOINTS 2
#define ACL_MAX_DIM_CNT 128
#define ACL_MAX_TENSOR_NAME_LEN 128
#define ACL_MAX_BATCH_NUM 128
#define ACL_MAX_HW_NUM 128
#define ACL_MAX_SHAPE_COUNT 128
#define ACL_INVALID_NODE_INDEX 0xFFFFFFFF
#define ACL_MDL_LOAD_FROM_FILE 1
#define ACL_MDL_LOAD_FROM_FILE_WITH_MEM 2
#define ACL_MDL_LOAD_FROM_MEM 3
#define ACL_MDL_LOAD_FROM_MEM_WITH_MEM 4
#define ACL_MDL_LOAD_FROM_FILE_WITH_Q 5
#define ACL_MDL_LOAD_FROM_MEM_WITH_Q 6
#define ACL_DYNAMIC_TENSOR_NAME "ascend_mbatch_shape_data"
#define ACL_DYNAMIC_AIPP_NAME "ascend_dynamic_aipp_data"

typedef struct aclmdlDataset aclmdlDataset;
typedef struct aclmdlDesc aclmdlDesc;
typedef struct aclmdlAIPP aclmdlAIPP;
typedef struct aclAippExtendInfo aclAippExtendInfo;
typedef struct aclmdlConfigHandle aclmdlConfigHandle;
typedef struct aclmdlExecConfigHandle aclmdlExecConfigHandle;
typedef struct aclmdlBundleQueryInfo aclmdlBundleQueryInfo;

typedef enum { ACL_YUV420SP_U8 = 1, ACL_XRGB8888_U8, ACL_RGB888_U8, ACL_YUV400_U8, ACL_NC1HWC0DI_FP16,
               ACL_NC1HWC0DI_S8, ACL_ARGB8888_U8, ACL_YUYV_U8, ACL_YUV422SP_U8, ACL_AYUV444_U8, ACL_RAW10, ACL_RAW12,
               ACL_RAW16, ACL_RAW24, ACL_AIPP_RESERVED = 0xFFFF } aclAippInputFormat;
typedef enum { ACL_MDL_PRIORITY_INT32, ACL_MDL_LOAD_TYPE_SIZET, ACL_MDL_PATH_PTR, ACL_MDL_MEM_ADDR_PTR,
               ACL_MDL_MEM_SIZET, ACL_MDL_WEIGHT_ADDR_PTR, ACL_MDL_WEIGHT_SIZET, ACL_MDL_WORKSPACE_ADDR_PTR,
               ACL_MDL_WORKSPACE_SIZET, ACL_MDL_INPUTQ_NUM_SIZET, ACL_MDL_INPUTQ_ADDR_PTR, ACL_MDL_OUTPUTQ_NUM_SIZET,
               ACL_MDL_OUTPUTQ_ADDR_PTR, ACL_MDL_WORKSPACE_MEM_OPTIMIZE, ACL_MDL_WEIGHT_PATH_PTR,
               ACL_MDL_MODEL_DESC_PTR, ACL_MDL_MODEL_DESC_SIZET, ACL_MDL_KERNEL_PTR, ACL_MDL_KERNEL_SIZET,
               ACL_MDL_KERNEL_ARGS_PTR, ACL_MDL_KERNEL_ARGS_SIZET, ACL_MDL_STATIC_TASK_PTR, ACL_MDL_STATIC_TASK_SIZET,
               ACL_MDL_DYNAMIC_TASK_PTR, ACL_MDL_DYNAMIC_TASK_SIZET, ACL_MDL_MEM_MALLOC_POLICY_SIZET, ACL_MDL_FIFO_PTR,
               ACL_MDL_FIFO_SIZET, ACL_MDL_WITHOUT_GRAPH_INT32, ACL_NPU_PERF_MODE, ACL_MDL_RESERVED = 0xFFFF
} aclmdlConfigAttr;
typedef enum { ACL_MDL_STREAM_SYNC_TIMEOUT, ACL_MDL_EVENT_SYNC_TIMEOUT, ACL_MDL_WORK_ADDR_PTR, ACL_MDL_WORK_SIZET,
               ACL_MDL_MPAIMID_SIZET, ACL_MDL_AICQOS_SIZET, ACL_MDL_AICOST_SIZET, ACL_MDL_MEC_TIMETHR_SIZET,
               ACL_MDL_EXEC_PRIORITY_INT32, ACL_MDL_NPU_PERF_MODE } aclmdlExecConfigAttr;
typedef enum { ACL_DATA_WITHOUT_AIPP, ACL_DATA_WITH_STATIC_AIPP, ACL_DATA_WITH_DYNAMIC_AIPP, ACL_DYNAMIC_AIPP_NODE
} aclmdlInputAippType;

typedef struct aclmdlIODims {
    char name[ACL_MAX_TENSOR_NAME_LEN];
    size_t dimCount;
    int64_t dims[ACL_MAX_DIM_CNT];
} aclmdlIODims;
typedef struct aclmdlIODimsRange {
    size_t rangeCount;
    int64_t range[ACL_MAX_DIM_CNT][ACL_DIM_ENDPOINTS];
} aclmdlIODimsRange;
typedef struct aclAippDims { aclmdlIODims srcDims; size_t srcSize; aclmdlIODims aippOutdims; size_t aippOutSize; } aclAippDims;
typedef struct aclmdlBatch { size_t batchCount; uint64_t batch[ACL_MAX_BATCH_NUM]; } aclmdlBatch;
typedef struct aclmdlHW { size_t hwCount; uint64_t hw[ACL_MAX_HW_NUM][2]; } aclmdlHW;
typedef struct aclAippInfo {
    aclAippInputFormat inputFormat;
    int32_t srcImageSizeW, srcImageSizeH;
    int8_t cropSwitch;
    int32_t loadStartPosW, loadStartPosH, cropSizeW, cropSizeH;
    int8_t resizeSwitch;
    int32_t resizeOutputW, resizeOutputH;
    int8_t paddingSwitch;
    int32_t leftPaddingSize, rightPaddingSize, topPaddingSize, bottomPaddingSize;
    int8_t cscSwitch, rbuvSwapSwitch, axSwapSwitch, singleLineMode;
    int32_t matrixR0C0, matrixR0C1, matrixR0C2, matrixR1C0, matrixR1C1, matrixR1C2, matrixR2C0, matrixR2C1, matrixR2C2;
    int32_t outputBias0, outputBias1, outputBias2, inputBias0, inputBias1, inputBias2;
    int32_t meanChn0, meanChn1, meanChn2, meanChn3;
    float minChn0, minChn1, minChn2, minChn3, varReciChn0, varReciChn1, varReciChn2, varReciChn3;
    aclFormat srcFormat;
    aclDataType srcDatatype;
    size_t srcDimNum, shapeCount;
    aclAippDims outDims[ACL_MAX_SHAPE_COUNT];
    aclAippExtendInfo *aippExtend;
} aclAippInfo;
typedef struct aclmdlExeOMDesc {
    size_t workSize, weightSize, modelDescSize, kernelSize, kernelArgsSize, staticTaskSize, dynamicTaskSize;
    size_t fifoTaskSize, reserved[8];
} aclmdlExeOMDesc;
