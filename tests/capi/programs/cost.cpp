// Microseconds of what programs repeat, in the best of several rounds: two phases, and a sample from malloc to free.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

static const int64_t DIMS[2] = {64, 64};
static const size_t BYTES = sizeof(float) * 64 * 64;

static aclTensor *tensor(void *memory)
{
    return aclCreateTensor(DIMS, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, DIMS, 2, memory);
}

static int pair(aclTensor *const *tensors, aclrtStream stream)
{
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    int code = aclnnHardsigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor);
    return code ? code : aclnnHardsigmoidBackward(nullptr, size, executor, stream);
}

static int sample(void *host, aclrtStream stream)
{
    void *memory[3];
    aclTensor *tensors[3];
    int code = 0;
    for (int k = 0; k < 3; k++) {
        code += aclrtMalloc(&memory[k], BYTES, ACL_MEM_MALLOC_HUGE_FIRST);
        if (k < 2)
            code += aclrtMemcpy(memory[k], BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
        tensors[k] = tensor(memory[k]);
    }
    code += pair(tensors, stream) + aclrtSynchronizeStream(stream);
    code += aclrtMemcpy(host, BYTES, memory[2], BYTES, ACL_MEMCPY_DEVICE_TO_HOST);
    for (int k = 0; k < 3; k++)
        code += aclDestroyTensor(tensors[k]) + aclrtFree(memory[k]);
    return code;
}

template <typename Work>
static double best(int rounds, int calls, const Work &work)
{
    double least = 1e9;
    for (int round = 0; round < rounds; round++) {
        const auto start = std::chrono::steady_clock::now();
        for (int call = 0; call < calls; call++)
            if (work())
                std::exit(1);
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        least = std::min(least, spent.count() / calls);
    }
    return least;
}

int main()
{
    aclrtStream stream;
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&stream))
        return 2;
    void *host = std::calloc(1, BYTES), *memory[3];
    aclTensor *tensors[3];
    for (int k = 0; k < 3; k++) {
        aclrtMalloc(&memory[k], BYTES, ACL_MEM_MALLOC_HUGE_FIRST);
        aclrtMemset(memory[k], BYTES, 0, BYTES);
        tensors[k] = tensor(memory[k]);
    }
    const double phases = best(20, 200, [&] { return pair(tensors, stream); });
    aclrtSynchronizeStream(stream);
    std::printf("%.2f %.2f\n", phases, best(20, 30, [&] { return sample(host, stream); }));
    return 0;
}
