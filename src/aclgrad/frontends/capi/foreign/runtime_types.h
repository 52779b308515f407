typedef void *aclrtNotify, *aclrtCntNotify, *aclrtLabel, *aclrtLabelList, *aclrtMbuf, *aclrtTaskGrp;
typedef void *aclrtBinary, *aclrtBinHandle, *aclrtFuncHandle, *aclrtArgsHandle, *aclrtParamHandle, *aclrtDrvMemHandle;
typedef void *aclrtAllocatorDesc, *aclrtAllocator, *aclrtAllocatorBlock, *aclrtAllocatorAddr, *aclrtMemPool;
typedef void *aclmdlRI, *aclmdlRITask, *aclmdlRICondHandle;

typedef struct rtExceptionInfo aclrtExceptionInfo;
typedef struct tagRtGroupInfo aclrtGroupInfo;
typedef struct aclrtUtilizationExtendInfo aclrtUtilizationExtendInfo;
typedef struct { void *startAddr, *endAddr; } aclrtAddrRange;

typedef void (*aclrtExceptionInfoCallback)(aclrtExceptionInfo *exceptionInfo);
typedef void (*aclrtOpExceptionCallback)(aclrtExceptionInfo *exceptionInfo, void *userData);
typedef uint32_t (*aclrtSnapShotCallBack)(int32_t deviceId, void *args);
typedef void *(*aclrtAllocatorAllocFunc)(aclrtAllocator object, size_t size);
typedef void (*aclrtAllocatorFreeFunc)(aclrtAllocator object, aclrtAllocatorBlock block);
typedef void *(*aclrtAllocatorAllocAdviseFunc)(aclrtAllocator object, size_t size, aclrtAllocatorAddr address);
typedef void *(*aclrtAllocatorGetAddrFromBlockFunc)(aclrtAllocatorBlock block);
typedef aclError (*aclInitCallbackFunc)(const char *configString, size_t length, void *userData);
typedef aclError (*aclFinalizeCallbackFunc)(void *userData);
typedef int (*aclrtApiFunc)(void);

typedef enum { ACL_REG_TYPE_ACL_MODEL, ACL_REG_TYPE_ACL_OP_EXECUTOR, ACL_REG_TYPE_ACL_OP_CBLAS,
               ACL_REG_TYPE_ACL_OP_COMPILER, ACL_REG_TYPE_ACL_TDT_CHANNEL, ACL_REG_TYPE_ACL_TDT_QUEUE,
               ACL_REG_TYPE_ACL_DVPP, ACL_REG_TYPE_ACL_RETR, ACL_REG_TYPE_OTHER = 0xFFFF } aclRegisterCallbackType;
typedef enum { ACL_TS_ID_AICORE, ACL_TS_ID_AIVECTOR, ACL_TS_ID_RESERVED } aclrtTsId;
typedef enum { ACL_HOST_REGISTER_MAPPED = 0, ACL_HOST_REGISTER_IOMEMORY = 4, ACL_HOST_REGISTER_READONLY = 8
} aclrtHostRegisterType;
typedef enum { ACL_RT_IPC_MEM_ATTR_ACCESS_LINK } aclrtIpcMemAttrType;
typedef enum { ACL_GROUP_AICORE_INT, ACL_GROUP_AIV_INT, ACL_GROUP_AIC_INT, ACL_GROUP_SDMANUM_INT,
               ACL_GROUP_ASQNUM_INT, ACL_GROUP_GROUPID_INT } aclrtGroupAttr;
typedef enum { ACL_RT_OVERFLOW_MODE_SATURATION, ACL_RT_OVERFLOW_MODE_INFNAN, ACL_RT_OVERFLOW_MODE_UNDEF
} aclrtFloatOverflowMode;
typedef enum { ACL_MEM_ALLOCATION_TYPE_PINNED } aclrtMemAllocationType;
typedef enum { ACL_MEM_HANDLE_TYPE_NONE = 0, ACL_MEM_HANDLE_TYPE_POSIX = 2 } aclrtMemHandleType;
typedef enum { ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT = 1, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC = 2 } aclrtMemSharedHandleType;
typedef enum { ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED,
               ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF = 0xFFFF } aclrtMemGranularityOptions;
typedef enum { ACL_RT_MEM_ACCESS_FLAGS_NONE = 0, ACL_RT_MEM_ACCESS_FLAGS_READ = 1,
               ACL_RT_MEM_ACCESS_FLAGS_READWRITE = 3 } aclrtMemAccessFlags;
typedef enum { ACL_RT_CMO_TYPE_PREFETCH, ACL_RT_CMO_TYPE_WRITEBACK, ACL_RT_CMO_TYPE_INVALID, ACL_RT_CMO_TYPE_FLUSH
} aclrtCmoType;
typedef enum { ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD = 1, ACL_RT_BINARY_LOAD_OPT_LAZY_MAGIC = 2,
               ACL_RT_BINARY_LOAD_OPT_MAGIC = 2, ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE = 3
} aclrtBinaryLoadOptionType;
typedef enum { ACL_RT_ENGINE_TYPE_AIC, ACL_RT_ENGINE_TYPE_AIV } aclrtEngineType;
typedef enum { ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE = 1, ACL_RT_LAUNCH_KERNEL_ATTR_LOCAL_MEMORY_SIZE = 2,
               ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE = 2, ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE = 3,
               ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET = 4, ACL_RT_LAUNCH_KERNEL_ATTR_NUMBLOCKS_OFFSET = 4,
               ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH = 5,
               ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP = 6, ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT = 7,
               ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US = 8, ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING = 9
} aclrtLaunchKernelAttrId;
typedef enum { ACL_STREAM_ATTR_FAILURE_MODE = 1, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK = 2,
               ACL_STREAM_ATTR_USER_CUSTOM_TAG = 3, ACL_STREAM_ATTR_CACHE_OP_INFO = 4, ACL_STREAM_ATTR_PRIORITY = 5
} aclrtStreamAttr;
typedef enum { ACL_DEV_ATTR_AICPU_CORE_NUM = 1, ACL_DEV_ATTR_AICORE_CORE_NUM = 101, ACL_DEV_ATTR_CUBE_CORE_NUM = 102,
               ACL_DEV_ATTR_VECTOR_CORE_NUM = 201, ACL_DEV_ATTR_WARP_SIZE, ACL_DEV_ATTR_MAX_THREAD_PER_VECTOR_CORE,
               ACL_DEV_ATTR_LOCAL_MEM_PER_VECTOR_CORE = 204, ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE = 204,
               ACL_DEV_ATTR_MAX_GRID_DIM_X, ACL_DEV_ATTR_MAX_GRID_DIM_Y, ACL_DEV_ATTR_MAX_GRID_DIM_Z,
               ACL_DEV_ATTR_MAX_BLOCK_PER_GRID, ACL_DEV_ATTR_MAX_THREADS_PER_BLOCK, ACL_DEV_ATTR_MAX_BLOCK_DIM_X,
               ACL_DEV_ATTR_MAX_BLOCK_DIM_Y, ACL_DEV_ATTR_MAX_BLOCK_DIM_Z, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE = 301,
               ACL_DEV_ATTR_L2_CACHE_SIZE, ACL_DEV_ATTR_SMP_ID = 401, ACL_DEV_ATTR_PHY_CHIP_ID,
               ACL_DEV_ATTR_SUPER_POD_DEVIDE_ID = 403, ACL_DEV_ATTR_SUPER_POD_DEVICE_ID = 403,
               ACL_DEV_ATTR_SUPER_POD_SERVER_ID, ACL_DEV_ATTR_SUPER_POD_ID, ACL_DEV_ATTR_CUST_OP_PRIVILEGE,
               ACL_DEV_ATTR_MAINBOARD_ID, ACL_DEV_ATTR_HD_CONNECT_TYPE, ACL_DEV_ATTR_DEVICE_FORM_FACTOR,
               ACL_DEV_ATTR_SUPER_POD_CHASSIS_ID, ACL_DEV_ATTR_IS_VIRTUAL = 501, ACL_DEV_ATTR_NPU_ARCH = 601
} aclrtDevAttr;
typedef enum { ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV = 1, ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV = 21
} aclrtDevFeatureType;
typedef enum { ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM = 10, ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX = 11,
               ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN = 12, ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL = 13 } aclrtReduceKind;
typedef enum { ACL_RT_DEV_RES_CUBE_CORE, ACL_RT_DEV_RES_VECTOR_CORE } aclrtDevResLimitType;
typedef enum { ACL_RT_EQUAL, ACL_RT_NOT_EQUAL, ACL_RT_GREATER, ACL_RT_GREATER_OR_EQUAL, ACL_RT_LESS,
               ACL_RT_LESS_OR_EQUAL } aclrtCondition;
typedef enum { ACL_RT_SWITCH_INT32, ACL_RT_SWITCH_INT64 } aclrtCompareDataType;
typedef enum { ACL_RT_DEVICE_TASK_ABORT_PRE, ACL_RT_DEVICE_TASK_ABORT_POST } aclrtDeviceTaskAbortStage;
typedef enum { ACL_RT_DEVICE_STATE_SET_PRE, ACL_RT_DEVICE_STATE_SET_POST, ACL_RT_DEVICE_STATE_RESET_PRE,
               ACL_RT_DEVICE_STATE_RESET_POST } aclrtDeviceState;
typedef enum { ACL_RT_STREAM_STATE_CREATE_POST = 1, ACL_RT_STREAM_STATE_DESTROY_PRE } aclrtStreamState;
typedef enum { ACL_RT_SNAPSHOT_LOCK_PRE, ACL_RT_SNAPSHOT_BACKUP_PRE, ACL_RT_SNAPSHOT_BACKUP_POST,
               ACL_RT_SNAPSHOT_RESTORE_PRE, ACL_RT_SNAPSHOT_RESTORE_POST, ACL_RT_SNAPSHOT_UNLOCK_POST
} aclrtSnapShotStage;
typedef enum { ACL_FUNC_ATTR_KERNEL_TYPE = 1, ACL_FUNC_ATTR_KERNEL_RATIO = 2, ACL_FUNC_ATTR_KERNEL_SCHED_MODE = 3
} aclrtFuncAttribute;
typedef enum { ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE = 0, ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE = 1,
               ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE = 2, ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE = 4
} aclrtCntNotifyRecordMode;
typedef enum { ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE, ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE,
               ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE, ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE,
               ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE } aclrtCntNotifyWaitMode;
typedef enum { ACL_PKG_NAME_CANN, ACL_PKG_NAME_RUNTIME, ACL_PKG_NAME_COMPILER, ACL_PKG_NAME_HCCL,
               ACL_PKG_NAME_TOOLKIT, ACL_PKG_NAME_OPP, ACL_PKG_NAME_OPP_KERNEL, ACL_PKG_NAME_DRIVER
} aclCANNPackageName;
typedef enum { ACL_RT_HAC_TYPE_STARS, ACL_RT_HAC_TYPE_AICPU, ACL_RT_HAC_TYPE_AIC, ACL_RT_HAC_TYPE_AIV,
               ACL_RT_HAC_TYPE_PCIEDMA, ACL_RT_HAC_TYPE_RDMA, ACL_RT_HAC_TYPE_SDMA, ACL_RT_HAC_TYPE_DVPP,
               ACL_RT_HAC_TYPE_UDMA, ACL_RT_HAC_TYPE_CCU } aclrtHacType;
typedef enum { ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED, ACL_RT_HOST_MEM_MAP_SUPPORTED } aclrtHostMemMapCapability;
typedef enum { ACL_RT_MEM_ACCESS_LINK_SIO, ACL_RT_MEM_ACCESS_LINK_HCCS, ACL_RT_MEM_ACCESS_UB_ONE_PORT_PATH,
               ACL_RT_MEM_ACCESS_UB_MULTI_PORT_PATH } aclrtMemLinkType;
typedef enum { ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY = 1, ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
               ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
               ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
               ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID
} aclrtMemManagedRangeAttribute;
typedef enum { ACL_MEM_ADVISE_SET_READ_MOSTLY, ACL_MEM_ADVISE_UNSET_READ_MOSTLY, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION,
               ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION, ACL_MEM_ADVISE_SET_ACCESSED_BY,
               ACL_MEM_ADVISE_UNSET_ACCESSED_BY } aclrtMemManagedAdviseType;
typedef enum { ACL_MEM_LOCATIONTYPE_INVALID, ACL_MEM_LOCATIONTYPE_DEVICE, ACL_MEM_LOCATIONTYPE_HOST,
               ACL_MEM_LOCATIONTYPE_HOST_NUMA, ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT } aclrtMemManagedLocationType;
enum aclrtMemPgType { NORMAL_PAGE_TYPE, HUGE_PAGE_TYPE, HUGE1G_PAGE_TYPE };
enum aclrtMemType { HBM_TYPE, DDR_TYPE, P2P_HBM_TYPE, P2P_DDR_TYPE };
struct MemAttrMapping { uint32_t pgType, memType; bool isHostAlloc; aclrtMemAttr memAttr; };
typedef enum { ACL_RT_STREAM_WORK_ADDR_PTR, ACL_RT_STREAM_WORK_SIZE, ACL_RT_STREAM_FLAG, ACL_RT_STREAM_PRIORITY
} aclrtStreamConfigAttr;
typedef struct aclrtStreamConfigHandle { void *workptr; size_t workSize, flag; uint32_t priority;
} aclrtStreamConfigHandle;
typedef enum { ACL_RT_NO_ERROR, ACL_RT_ERROR_MEMORY, ACL_RT_ERROR_L2, ACL_RT_ERROR_AICORE, ACL_RT_ERROR_LINK,
               ACL_RT_ERROR_L3_PORT, ACL_RT_ERROR_OTHERS = 0xFFFF } aclrtErrorType;
typedef enum { ACL_RT_AICORE_ERROR_UNKNOWN, ACL_RT_AICORE_ERROR_SW, ACL_RT_AICORE_ERROR_HW_LOCAL
} aclrtAicoreErrorType;
typedef enum { ACL_KERNEL_TYPE_AICORE, ACL_KERNEL_TYPE_CUBE, ACL_KERNEL_TYPE_VECTOR, ACL_KERNEL_TYPE_MIX,
               ACL_KERNEL_TYPE_AICPU = 100 } aclrtKernelType;
typedef enum { ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK, ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS,
               ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS, ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS
} aclrtRandomNumFuncType;
typedef enum { ACL_RT_UPDATE_RANDOM_TASK = 1, ACL_RT_UPDATE_AIC_AIV_TASK } aclrtUpdateTaskAttrId;
typedef enum { ACL_RT_PROCESS_STATE_RUNNING, ACL_RT_PROCESS_STATE_LOCKED } aclrtProcessState;
typedef enum { ACL_RT_DEV_LIMIT_SIMT_STACK_SIZE, ACL_RT_DEV_LIMIT_SIMT_DVG_WARP_STACK_SIZE,
               ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE,
               ACL_RT_DEV_LIMIT_SIMT_PRINTF_FIFO_SIZE } aclrtDeviceLimit;
typedef enum { ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC,
               ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD,
               ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH,
               ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH } aclrtMemPoolAttr;
typedef enum { ACL_RT_ATOMIC_CAPABILITY_SIGNED = 1, ACL_RT_ATOMIC_CAPABILITY_UNSIGNED = 2,
               ACL_RT_ATOMIC_CAPABILITY_REDUCATION = 4, ACL_RT_ATOMIC_CAPABILITY_REDUCTION = 4,
               ACL_RT_ATOMIC_CAPABILITY_SCALAR8 = 8, ACL_RT_ATOMIC_CAPABILITY_SCALAR16 = 16,
               ACL_RT_ATOMIC_CAPABILITY_SCALAR32 = 32, ACL_RT_ATOMIC_CAPABILITY_SCALAR64 = 64,
               ACL_RT_ATOMIC_CAPABILITY_SCALAR128 = 128, ACL_RT_ATOMIC_CAPABILITY_VECTOR32X4 = 256
} aclrtAtomicOperationCapability;
typedef enum { ACL_RT_ATOMIC_OPERATION_INTEGER_ADD, ACL_RT_ATOMIC_OPERATION_INTEGER_MIN,
               ACL_RT_ATOMIC_OPERATION_INTEGER_MAX, ACL_RT_ATOMIC_OPERATION_INTEGER_INCREMENT,
               ACL_RT_ATOMIC_OPERATION_INTEGER_DECREMENT, ACL_RT_ATOMIC_OPERATION_AND, ACL_RT_ATOMIC_OPERATION_OR,
               ACL_RT_ATOMIC_OPERATION_XOR, ACL_RT_ATOMIC_OPERATION_EXCHANGE, ACL_RT_ATOMIC_OPERATION_CAS,
               ACL_RT_ATOMIC_OPERATION_FLOAT_ADD, ACL_RT_ATOMIC_OPERATION_FLOAT_MIN, ACL_RT_ATOMIC_OPERATION_FLOAT_MAX,
               ACL_RT_ATOMIC_OPERATION_DMA_ADD = 30, ACL_RT_ATOMIC_OPERATION_DMA_MIN, ACL_RT_ATOMIC_OPERATION_DMA_MAX,
               ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_ADD = 40, ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_MIN,
               ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_MAX, ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_CAS,
               ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_EXCH } aclrtAtomicOperation;
typedef enum { ACL_MODEL_RI_COND_TYPE_IF, ACL_MODEL_RI_COND_TYPE_WHILE, ACL_MODEL_RI_COND_TYPE_SWITCH
} aclmdlRICondTaskType;
typedef enum { ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
               ACL_MODEL_RI_CAPTURE_MODE_RELAXED } aclmdlRICaptureMode;
typedef enum { ACL_MODEL_RI_CAPTURE_STATUS_NONE, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE,
               ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED } aclmdlRICaptureStatus;
typedef enum { ACL_MODEL_RI_TASK_DEFAULT, ACL_MODEL_RI_TASK_KERNEL, ACL_MODEL_RI_TASK_EVENT_RECORD,
               ACL_MODEL_RI_TASK_EVENT_WAIT, ACL_MODEL_RI_TASK_EVENT_RESET, ACL_MODEL_RI_TASK_VALUE_WRITE,
               ACL_MODEL_RI_TASK_VALUE_WAIT } aclmdlRITaskType;
typedef enum { ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT = 1 } aclmdlRICondHandleFlag;

typedef void (*aclrtDeviceStateCallback)(int32_t deviceId, aclrtDeviceState state, void *args);
typedef void (*aclrtStreamStateCallback)(aclrtStream stream, aclrtStreamState state, void *args);
typedef int32_t (*aclrtDeviceTaskAbortCallback)(int32_t deviceId, aclrtDeviceTaskAbortStage stage, uint32_t timeout,
                                                void *args);

typedef struct { uint32_t sdid; int32_t *pid; size_t num; } aclrtServerPid;
typedef struct { aclrtMemManagedLocationType type; int32_t id; } aclrtMemManagedLocation;
typedef struct aclrtMemFabricHandle { uint8_t data[128]; } aclrtMemFabricHandle;
typedef struct aclrtUtilizationInfo {
    int32_t cubeUtilization, vectorUtilization, aicpuUtilization, memoryUtilization;
    aclrtUtilizationExtendInfo *utilizationExtend;
} aclrtUtilizationInfo;
typedef struct { char name[32]; uint64_t curMemSize, memPeakSize; size_t reserved[8]; } aclrtMemUsageInfo;
typedef struct aclrtPhysicalMemProp {
    aclrtMemHandleType handleType;
    aclrtMemAllocationType allocationType;
    aclrtMemAttr memAttr;
    aclrtMemLocation location;
    uint64_t reserve;
} aclrtPhysicalMemProp;
typedef struct { aclrtMemAccessFlags flags; aclrtMemLocation location; uint8_t rsv[12]; } aclrtMemAccessDesc;
typedef struct {
    aclrtMemAllocationType allocType;
    aclrtMemHandleType handleType;
    aclrtMemLocation location;
    size_t maxSize;
    unsigned char reserved[32];
} aclrtMemPoolProps;
typedef struct aclrtMemUceInfo { void *addr; size_t len, reserved[UCE_INFO_RESERVED_SIZE]; } aclrtMemUceInfo;
typedef struct { size_t arraySize; aclrtMemUceInfo memUceInfoArray[ACL_RT_MEM_UCE_INFO_MAX_NUM];
} aclrtMemUceInfoArray;
typedef union aclrtErrorInfoDetail { aclrtMemUceInfoArray uceInfo; aclrtAicoreErrorType aicoreErrType;
} aclrtErrorInfoDetail;
typedef struct aclrtErrorInfo {
    uint8_t tryRepair, hasDetail, reserved[2];
    aclrtErrorType errorType;
    aclrtErrorInfoDetail detail;
} aclrtErrorInfo;
#if !defined(__BISHENG_CCEC__) && !defined(__VECTOR_TYPES_H__)
typedef struct dim3 {
    uint32_t x, y, z;
#if defined(__cplusplus) && __cplusplus >= 201103L
    constexpr dim3(uint32_t vx = 1, uint32_t vy = 1, uint32_t vz = 1) : x(vx), y(vy), z(vz) {}
#elif defined(__cplusplus)
    dim3(uint32_t vx = 1, uint32_t vy = 1, uint32_t vz = 1) : x(vx), y(vy), z(vz) {}
#endif
} dim3;
#endif
typedef union { uint32_t isLazyLoad, magic; int32_t cpuKernelMode; uint32_t rsv[4]; } aclrtBinaryLoadOptionValue;
typedef struct { aclrtBinaryLoadOptionType type; aclrtBinaryLoadOptionValue value; } aclrtBinaryLoadOption;
typedef struct { aclrtBinaryLoadOption *options; size_t numOpt; } aclrtBinaryLoadOptions;
typedef struct { uint32_t timeoutLow, timeoutHigh; } aclrtTimeoutUs;
typedef union {
    uint8_t schemMode;
    uint32_t localMemorySize, dynUBufSize;
    aclrtEngineType engineType;
    uint32_t blockDimOffset, numBlocksOffset;
    uint8_t isBlockTaskPrefetch, isDataDump;
    uint16_t timeout;
    aclrtTimeoutUs timeoutUs;
    uint8_t enableProfiling;
    uint32_t rsv[4];
} aclrtLaunchKernelAttrValue;
typedef struct { aclrtLaunchKernelAttrId id; aclrtLaunchKernelAttrValue value; } aclrtLaunchKernelAttr;
typedef struct { aclrtLaunchKernelAttr *attrs; size_t numAttrs; } aclrtLaunchKernelCfg;
typedef union {
    uint64_t failureMode;
    uint32_t overflowSwitch, userCustomTag, cacheOpInfoSwitch, streamPriority, reserve[4];
} aclrtStreamAttrValue;
typedef struct { aclrtCmoType cmoType; uint32_t barrierId; } aclrtBarrierCmoInfo;
typedef struct { size_t barrierNum; aclrtBarrierCmoInfo cmoInfo[ACL_RT_CMO_MAX_BARRIER_NUM]; } aclrtBarrierTaskInfo;
typedef struct { aclrtMemLocation dstLoc, srcLoc; uint8_t rsv[16]; } aclrtMemcpyBatchAttr;
typedef struct { uint32_t addrOffset, dataOffset; } aclrtPlaceHolderInfo;
typedef struct { uint8_t isAddr, valueOrAddr[8], size, rsv[6]; } aclrtRandomParaInfo;
typedef struct { aclrtRandomParaInfo dropoutRation; } aclrtDropoutBitmaskInfo;
typedef struct { aclrtRandomParaInfo min, max; } aclrtUniformDisInfo;
typedef struct { aclrtRandomParaInfo mean, stddev; } aclrtNormalDisInfo;
typedef struct {
    aclrtRandomNumFuncType funcType;
    union {
        aclrtDropoutBitmaskInfo dropoutBitmaskInfo;
        aclrtUniformDisInfo uniformDisInfo;
        aclrtNormalDisInfo normalDisInfo;
    } paramInfo;
} aclrtRandomNumFuncParaInfo;
typedef struct {
    aclDataType dataType;
    aclrtRandomNumFuncParaInfo randomNumFuncParaInfo;
    void *randomParaAddr, *randomResultAddr, *randomCounterAddr;
    aclrtRandomParaInfo randomSeed, randomNum;
    uint8_t rsv[8];
} aclrtRandomNumTaskInfo;
typedef struct { void *srcAddr; size_t size; uint32_t rsv[4]; } aclrtRandomTaskUpdateAttr;
typedef struct { void *binHandle, *funcEntryAddr, *blockDimAddr; uint32_t rsv[4]; } aclrtAicAivTaskUpdateAttr;
typedef union { aclrtRandomTaskUpdateAttr randomTaskAttr; aclrtAicAivTaskUpdateAttr aicAivTaskAttr;
} aclrtUpdateTaskAttrVal;
typedef struct { aclrtUpdateTaskAttrId id; aclrtUpdateTaskAttrVal val; } aclrtTaskUpdateInfo;
typedef struct { uint32_t backupFlags; char reserved[60]; } aclrtSnapShotBackupArgs;
typedef struct { uint32_t restoreFlags; char reserved[60]; } aclrtSnapShotRestoreArgs;
typedef struct { char bytes[16]; } aclrtUuid;
typedef struct { aclrtCntNotifyRecordMode mode; uint32_t value; } aclrtCntNotifyRecordInfo;
typedef struct { aclrtCntNotifyWaitMode mode; uint32_t value, timeout; uint8_t isClear, rsv[3]; } aclrtCntNotifyWaitInfo;
typedef struct aclrtIpcEventHandle { char reserved[ACL_IPC_EVENT_HANDLE_SIZE]; } aclrtIpcEventHandle;
typedef struct aclCANNPackageVersion {
    char version[ACL_PKG_VERSION_MAX_SIZE], majorVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char minorVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE], releaseVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char patchVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE], reserved[ACL_PKG_VERSION_MAX_SIZE];
} aclCANNPackageVersion;
