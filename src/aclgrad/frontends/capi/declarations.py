"""The table of C declarations: every function that is no operator, with its comment, by the header it lives in."""

from __future__ import annotations

DECLARATIONS = {
    "acl/acl_base.h": """
        /* Bytes of one element; 0 for what has no size. */
        size_t aclDataTypeSize(aclDataType dataType);
        /* The number that 16 bits mean; Inf and NaN are read like any other exponent. */
        float aclFloat16ToFloat(aclFloat16 value);
        /* The nearest 16 bits; what is too large, Inf or NaN becomes 65504 with its sign. */
        aclFloat16 aclFloatToFloat16(float value);
    """,
    "acl/acl_rt.h": """
        /* The name of the imitated chip. */
        const char *aclrtGetSocName(void);
        /* Make a device current in the calling thread. */
        aclError aclrtSetDevice(int32_t deviceId);
        /* Take back one aclrtSetDevice; the last one finishes all work and destroys the streams. */
        aclError aclrtResetDevice(int32_t deviceId);
        /* Take back every aclrtSetDevice at once. */
        aclError aclrtResetDeviceForce(int32_t deviceId);
        /* The current device of the calling thread. */
        aclError aclrtGetDevice(int32_t *deviceId);
        /* The number of devices. */
        aclError aclrtGetDeviceCount(uint32_t *count);
        /* Wait for all streams of the current device; the first failure among them is the code. */
        aclError aclrtSynchronizeDevice(void);
        /* A context besides the device's own; it becomes current in the calling thread. */
        aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);
        /* Finish a context's work and destroy it with its streams. */
        aclError aclrtDestroyContext(aclrtContext context);
        /* Make a context current in the calling thread. */
        aclError aclrtSetCurrentContext(aclrtContext context);
        /* The current context of the calling thread. */
        aclError aclrtGetCurrentContext(aclrtContext *context);
        /* A new stream in the current context. */
        aclError aclrtCreateStream(aclrtStream *stream);
        /* A new stream; priority and flag are hints. */
        aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag);
        /* Finish a stream's work and destroy it. */
        aclError aclrtDestroyStream(aclrtStream stream);
        /* Wait for all work of a stream; its first failure since the last time is the code. */
        aclError aclrtSynchronizeStream(aclrtStream stream);
        /* The same for at most timeout milliseconds; -1 waits for ever. */
        aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
        /* Whether all work of a stream is done. */
        aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);
        /* Let later work of a stream wait for an event as it is recorded by now. */
        aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
        /* A new event. */
        aclError aclrtCreateEvent(aclrtEvent *event);
        /* A new event; every event can do what the flags ask for. */
        aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag);
        /* Destroy an event. */
        aclError aclrtDestroyEvent(aclrtEvent event);
        /* Put an event at the end of a stream's work. */
        aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
        /* Forget that an event was recorded. */
        aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
        /* Wait until an event is reached. */
        aclError aclrtSynchronizeEvent(aclrtEvent event);
        /* Whether an event is recorded and reached. */
        aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);
        /* Milliseconds between two events that are reached. */
        aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent);
        /* New device memory, uninitialised. */
        aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
        /* Free device memory. */
        aclError aclrtFree(void *devPtr);
        /* New host memory, uninitialised. */
        aclError aclrtMallocHost(void **hostPtr, size_t size);
        /* Free memory of aclrtMallocHost. */
        aclError aclrtFreeHost(void *hostPtr);
        /* Copy count bytes, and return when it is done. */
        aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind);
        /* Copy count bytes as work of a stream; host memory stays valid until then. */
        aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                                  aclrtStream stream);
        /* Set count bytes to the low byte of value, and return when it is done. */
        aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);
        /* Set count bytes as work of a stream. */
        aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);
        /* Free and total bytes of the device's memory. */
        aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);
    """,
    "acl/acl.h": """
        /* Initialise the process; configPath names a JSON file or is null. */
        aclError aclInit(const char *configPath);
        /* End the runtime, however often it was initialised. */
        aclError aclFinalize(void);
        /* Take back one aclInit; the last one ends the runtime. refCount, how many are left, may be null. */
        aclError aclFinalizeReference(uint64_t *refCount);
        /* The newest message of the calling thread, once; null if there is none. Valid until the thread's next call. */
        const char *aclGetRecentErrMsg(void);
    """,
    "aclnn/acl_meta.h": """
        /* Initialise the operator library; configPath may be null. */
        aclnnStatus aclnnInit(const char *configPath);
        /* End the operator library. */
        aclnnStatus aclnnFinalize(void);
        /* A tensor over borrowed device memory. Strides and offset count elements; a null stride means contiguous. */
        aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                   const int64_t *stride, int64_t offset, aclFormat format,
                                   const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData);
        /* Describe a tensor anew. */
        aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum,
                                  aclDataType dataType, const int64_t *stride, int64_t offset, aclFormat format,
                                  const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData);
        /* The number of the given type that value points to. */
        aclScalar *aclCreateScalar(void *value, aclDataType dataType);
        /* A copy of integers. */
        aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);
        /* A copy of real numbers. */
        aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size);
        /* A copy of truth values. */
        aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size);
        /* A list that owns its tensors; a member may be null. */
        aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size);
        /* A list that owns its scalars; a member may be null. */
        aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size);
        /* Destroy a tensor, not its memory; null is none. */
        aclnnStatus aclDestroyTensor(const aclTensor *tensor);
        /* Destroy a scalar; null is none. */
        aclnnStatus aclDestroyScalar(const aclScalar *scalar);
        /* Destroy an array; null is none. */
        aclnnStatus aclDestroyIntArray(const aclIntArray *array);
        /* Destroy an array; null is none. */
        aclnnStatus aclDestroyFloatArray(const aclFloatArray *array);
        /* Destroy an array; null is none. */
        aclnnStatus aclDestroyBoolArray(const aclBoolArray *array);
        /* Destroy a list with its tensors; null is none. */
        aclnnStatus aclDestroyTensorList(const aclTensorList *array);
        /* Destroy a list with its scalars; null is none. */
        aclnnStatus aclDestroyScalarList(const aclScalarList *array);
        /* The sizes of a tensor's view. The caller releases the array: delete[] in C++, free in C. */
        aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum);
        /* The sizes of a tensor's storage. The caller releases the array: delete[] in C++, free in C. */
        aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum);
        /* The strides of a tensor's view. The caller releases the array: delete[] in C++, free in C. */
        aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum);
        /* Elements before the first one of a tensor's view. */
        aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset);
        /* A tensor's format. */
        aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);
        /* A tensor's element type. */
        aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType);
        /* Where a tensor's memory begins. */
        aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr);
        /* Point a tensor to other memory. */
        aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr);
        /* The number of elements. */
        aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size);
        /* The number of elements. */
        aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size);
        /* The number of elements. */
        aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size);
        /* The number of members. */
        aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size);
        /* The number of members. */
        aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size);
        /* Let phase two run any number of times; the caller then destroys the executor. */
        aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);
        /* Destroy a repeatable executor. */
        aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);
        /* Bind an input of a repeatable executor to another address. */
        aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
        /* Bind an output of a repeatable executor to another address. */
        aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
        /* Bind an operand of a repeatable executor, inputs counted before outputs, to another address. */
        aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr);
        /* Bind one member of an input list of a repeatable executor to another address. */
        aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex,
                                                 aclTensorList *tensors, void *addr);
        /* Bind one member of an output list of a repeatable executor to another address. */
        aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex,
                                                  aclTensorList *tensors, void *addr);
        /* Bind one member of a list, input lists counted before output lists, to another address. */
        aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex,
                                            aclTensorList *tensors, void *addr);
    """,
}
