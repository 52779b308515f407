/* What samples ask of the runtime beyond operators: modes, flags, callbacks, peers, descriptions, rows. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "acl/acl.h"

static int faults;

static void expect(int holds, const char *what)
{
    if (!holds) {
        const char *message = aclGetRecentErrMsg();
        printf("%s (%s)\n", what, message ? message : "no message");
        faults++;
    }
}
#define CODE(call, code) expect((call) == (code), #call)

static int called;
static pthread_t caller;

static void callback(void *data)
{
    called += *(int *)data;
    caller = pthread_self();
}

static void *subscriber(void *stop)
{
    CODE(aclrtSetDevice(0), 0);
    while (!*(volatile int *)stop) {
        aclrtProcessReport(20);
    }
    CODE(aclrtResetDevice(0), 0);
    return NULL;
}

static void streams_and_events(void)
{
    aclrtStream stream = NULL, other = NULL;
    uint32_t flags = 9, priority = 9;
    int32_t id = -1, least = -1, greatest = -1;
    CODE(aclrtCreateStreamWithConfig(&stream, 3, ACL_STREAM_FAST_SYNC | ACL_STREAM_HUGE), 0);
    CODE(aclrtStreamGetFlags(stream, &flags), 0);
    CODE(aclrtStreamGetPriority(stream, &priority), 0);
    CODE(aclrtStreamGetId(stream, &id), 0);
    CODE(aclrtDeviceGetStreamPriorityRange(&least, &greatest), 0);
    expect(flags == (ACL_STREAM_FAST_SYNC | ACL_STREAM_HUGE) && priority == 3 && id >= 0, "stream attributes");
    expect(least == 7 && greatest == 0, "priorities");
    CODE(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE), 0);
    CODE(aclrtSetStreamFailureMode(stream, 7), ACL_ERROR_INVALID_PARAM);
    CODE(aclrtCtxGetCurrentDefaultStream(&other), 0);
    CODE(aclrtSynchronizeStream(other), 0);
    CODE(aclrtDestroyStream(other), ACL_ERROR_INVALID_PARAM);

    aclrtEvent event = NULL;
    aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
    aclrtEventWaitStatus waiting = ACL_EVENT_WAIT_STATUS_RESERVED;
    uint64_t first = 0, second = 0;
    CODE(aclrtCreateEventExWithFlag(&event, ACL_EVENT_TIME_LINE), 0);
    CODE(aclrtQueryEvent(event, &status), 0);
    expect(status == ACL_EVENT_STATUS_NOT_READY, "an event before its record");
    CODE(aclrtEventGetTimestamp(event, &first), ACL_ERROR_RT_PARAM_INVALID);
    CODE(aclrtRecordEvent(event, stream), 0);
    CODE(aclrtStreamWaitEventWithTimeout(stream, event, 1000), 0);
    CODE(aclrtSynchronizeEventWithTimeout(event, 1000), 0);
    CODE(aclrtQueryEventWaitStatus(event, &waiting), 0);
    CODE(aclrtEventGetTimestamp(event, &first), 0);
    CODE(aclrtRecordEvent(event, stream), 0);
    CODE(aclrtSynchronizeEvent(event), 0);
    CODE(aclrtEventGetTimestamp(event, &second), 0);
    expect(waiting == ACL_EVENT_WAIT_STATUS_COMPLETE && second >= first && first > 0, "events");
    CODE(aclrtDestroyEvent(event), 0);

    int one = 1, stop = 0;
    pthread_t thread;
    CODE(aclrtLaunchCallback(callback, &one, ACL_CALLBACK_BLOCK, stream), ACL_ERROR_RT_STREAM_NO_CB_REG);
    pthread_create(&thread, NULL, subscriber, &stop);
    CODE(aclrtSubscribeReport((uint64_t)thread, stream), 0);
    CODE(aclrtSubscribeReport((uint64_t)thread, stream), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CODE(aclrtLaunchCallback(callback, &one, ACL_CALLBACK_BLOCK, stream), 0);
    CODE(aclrtLaunchCallback(callback, &one, ACL_CALLBACK_NO_BLOCK, stream), 0);
    CODE(aclrtLaunchCallback(callback, &one, ACL_CALLBACK_BLOCK, stream), 0);
    CODE(aclrtSynchronizeStream(stream), 0);
    expect(called == 3 && pthread_equal(caller, thread), "callbacks");
    CODE(aclrtUnSubscribeReport((uint64_t)thread, stream), 0);
    CODE(aclrtUnSubscribeReport((uint64_t)thread, stream), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    CODE(aclrtProcessReport(10), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    stop = 1;
    pthread_join(thread, NULL);
    CODE(aclrtLaunchHostFunc(stream, callback, &one), 0);
    CODE(aclrtSynchronizeDeviceWithTimeout(1000), 0);
    expect(called == 4, "a host function");
    CODE(aclrtDestroyStreamForce(stream), 0);
}

static void memory(void)
{
    char source[4][8], target[4][8];
    void *device = NULL, *start = NULL;
    size_t size = 0;
    aclrtPtrAttributes about;
    for (int k = 0; k < 4; k++) {
        memset(source[k], 'a' + k, 8);
        memset(target[k], '.', 8);
    }
    CODE(aclrtMallocAlign32(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CODE(aclrtMemcpy2d(device, 16, source, 8, 5, 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CODE(aclrtMemcpy2dAsync(target, 8, device, 16, 5, 4, ACL_MEMCPY_DEVICE_TO_HOST, NULL), 0);
    CODE(aclrtMemcpy(device, 8, source, 8, (aclrtMemcpyKind)-1), ACL_ERROR_INVALID_PARAM);
    const char *told = aclGetRecentErrMsg();
    expect(told && strstr(told, "kind is -1"), "a negative kind");
    CODE(aclrtMemcpy2d(target, 4, device, 16, 5, 4, ACL_MEMCPY_DEVICE_TO_HOST), ACL_ERROR_INVALID_PARAM);
    expect(memcmp(target[2], "ccccc...", 8) == 0, "rows");
    CODE(aclrtPointerGetAttributes((char *)device + 5, &about), 0);
    expect(about.location.type == ACL_MEM_LOCATION_TYPE_DEVICE && about.pageSize > 0, "device memory");
    CODE(aclrtPointerGetAttributes(source, &about), 0);
    expect(about.location.type == ACL_MEM_LOCATION_TYPE_UNREGISTERED, "memory of the program");
    CODE(aclrtMemGetAddressRange((char *)device + 5, &start, &size), 0);
    expect(start == device && size == 64, "a block");
    CODE(aclrtMemFlush(device, 64), 0);
    CODE(aclrtMemInvalidate(device, 65), ACL_ERROR_RT_INVALID_MEMORY_TYPE);
    CODE(aclrtFreeWithDevSync(device), 0);
    aclrtMallocConfig config = {NULL, 0};
    CODE(aclrtMallocHostWithCfg(&device, 64, &config), 0);
    CODE(aclrtFreeHostWithDevSync(device), 0);

    aclDataBuffer *buffer = aclCreateDataBuffer(source, 32);
    expect(aclGetDataBufferAddr(buffer) == source && aclGetDataBufferSizeV2(buffer) == 32, "a buffer");
    CODE(aclUpdateDataBuffer(buffer, target, 16), 0);
    expect(aclGetDataBufferAddr(buffer) == target && aclGetDataBufferSize(buffer) == 16, "an updated buffer");
    CODE(aclDestroyDataBuffer(buffer), 0);
    expect(aclGetDataBufferAddr(buffer) == NULL, "a destroyed buffer");
    const int64_t dims[] = {2, 3, 4};
    int64_t dim = 0;
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT16, 3, dims, ACL_FORMAT_ND);
    expect(desc && aclGetTensorDescSize(desc) == 48 && aclGetTensorDescElementCount(desc) == 24, "a description");
    expect(aclGetTensorDescNumDims(desc) == 3 && aclGetTensorDescDim(desc, 1) == 3, "its sizes");
    CODE(aclGetTensorDescDimV2(desc, 2, &dim), 0);
    CODE(aclGetTensorDescDimV2(desc, 3, &dim), ACL_ERROR_INVALID_PARAM);
    expect(dim == 4 && aclGetTensorDescType(desc) == ACL_FLOAT16, "its type");
    aclSetTensorDescName(desc, "weight");
    expect(strcmp(aclGetTensorDescName(desc), "weight") == 0, "its name");
    CODE(aclSetTensorFormat(desc, ACL_FORMAT_NCL), 0);
    CODE(aclSetTensorShape(desc, 1, dims), 0);
    expect(aclGetTensorDescFormat(desc) == ACL_FORMAT_NCL && aclGetTensorDescNumDims(desc) == 1, "another format");
    aclDestroyTensorDesc(desc);
    expect(aclGetTensorDescFormat(desc) == ACL_FORMAT_UNDEFINED, "a destroyed description");
    expect(aclCreateTensorDesc(ACL_FLOAT, -1, dims, ACL_FORMAT_ND) == NULL, "a negative number of sizes");
}

int main(void)
{
    CODE(aclInit(NULL), 0);
    CODE(aclrtSetDevice(0), 0);
    int32_t major = 0, minor = 0, patch = -1, peer = -1, active = -1;
    uint32_t flags = 9;
    int64_t value = -1;
    aclrtDeviceStatus status = ACL_RT_DEVICE_STATUS_END;
    CODE(aclrtGetVersion(&major, &minor, &patch), 0);
    expect(major == 1 && minor > 0, "the version");
    CODE(aclrtDeviceCanAccessPeer(&peer, 0, 0), 0);
    expect(peer == 0, "a device is no peer of its own");
    CODE(aclrtDeviceEnablePeerAccess(0, 0), ACL_ERROR_INVALID_PARAM);
    CODE(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
    CODE(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
    CODE(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
    CODE(aclrtQueryDeviceStatus(0, &status), 0);
    CODE(aclrtGetPrimaryCtxState(0, &flags, &active), 0);
    expect(status == ACL_RT_DEVICE_STATUS_NORMAL && active == 1, "the device");
    CODE(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 0);
    CODE(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
    CODE(aclrtSetSysParamOpt(ACL_OPT_ENABLE_DEBUG_KERNEL, 1), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    expect(value == 1, "determinism");
    CODE(aclrtSetOpWaitTimeout(3), 0);
    streams_and_events();
    memory();
    CODE(aclrtResetDevice(0), 0);
    CODE(aclFinalize(), 0);
    printf("%d faults\n", faults);
    return faults != 0;
}
