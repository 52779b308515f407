// Eight threads race on the very first call; later ones come and go. Messages and devices are each thread's own.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

static std::atomic<int> faults{0}, waiting{8};

static void expect(bool holds, const char *what, long number)
{
    if (!holds) {
        const char *message = aclGetRecentErrMsg();
        std::printf("thread %ld: %s (%s)\n", number, what, message ? message : "no message");
        faults++;
    }
}

static void work(long number, bool race)
{
    if (race) {
        waiting--;
        while (waiting > 0) {
        }
    }
    int code = aclInit(nullptr);
    expect(code == ACL_SUCCESS || code == ACL_ERROR_REPEAT_INITIALIZE, "aclInit", number);
    aclGetRecentErrMsg();
    int32_t device = 77;
    expect(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL && device == 77, "a device before aclrtSetDevice", number);
    aclGetRecentErrMsg();
    expect(aclrtSetDevice(0) == 0, "aclrtSetDevice", number);
    aclrtStream stream = nullptr;
    expect(aclrtCreateStream(&stream) == 0, "aclrtCreateStream", number);
    const int64_t n = 100 + number;
    std::vector<float> grad(n, 6), x(n, 1), result(n, -1);
    void *memory[3];
    aclTensor *tensors[3];
    for (int k = 0; k < 3; k++) {
        expect(aclrtMalloc(&memory[k], n * 4, ACL_MEM_MALLOC_HUGE_FIRST) == 0, "aclrtMalloc", number);
        tensors[k] = aclCreateTensor(&n, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &n, 1, memory[k]);
        expect(tensors[k] != nullptr, "aclCreateTensor", number);
    }
    aclrtMemcpy(memory[0], n * 4, grad.data(), n * 4, ACL_MEMCPY_HOST_TO_DEVICE);
    aclrtMemcpy(memory[1], n * 4, x.data(), n * 4, ACL_MEMCPY_HOST_TO_DEVICE);
    for (int round = 0; round < 20; round++) {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        expect(aclnnHardsigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor) == 0,
               "phase one", number);
        expect(aclnnHardsigmoidBackward(nullptr, size, executor, stream) == 0, "phase two", number);
    }
    expect(aclrtSynchronizeStream(stream) == 0, "aclrtSynchronizeStream", number);
    aclrtMemcpy(result.data(), n * 4, memory[2], n * 4, ACL_MEMCPY_DEVICE_TO_HOST);
    for (float value : result) {
        expect(value == 1.0f, "a wrong result", number);
    }
    expect(aclGetRecentErrMsg() == nullptr, "a message without an error", number);
    expect(aclrtSetDevice(static_cast<int32_t>(1000 + number)) == ACL_ERROR_RT_INVALID_DEVICEID, "a bad device", number);
    std::this_thread::yield();
    const char *message = aclGetRecentErrMsg();
    expect(message && std::strstr(message, std::to_string(1000 + number).c_str()), "another thread's message", number);
    for (int k = 0; k < 3; k++) {
        aclDestroyTensor(tensors[k]);
        aclrtFree(memory[k]);
    }
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
}

int main()
{
    std::vector<std::thread> racing;
    for (long number = 0; number < 8; number++) {
        racing.emplace_back(work, number, true);
    }
    for (auto &thread : racing) {
        thread.join();
    }
    for (long number = 8; number < 40; number++) {
        std::thread(work, number, false).join();
    }
    std::printf("%d faults\n", faults.load());
    return faults;
}
