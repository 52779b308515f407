// The process ends while four threads go on calling: after as many milliseconds as the argument says.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

static void go_on()
{
    const int64_t n = 50;
    void *memory = nullptr;
    aclTensor *tensors[3];
    aclrtStream stream = nullptr;
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    aclrtMalloc(&memory, 1024, ACL_MEM_MALLOC_HUGE_FIRST);
    for (int k = 0; k < 3; k++) {
        tensors[k] = aclCreateTensor(&n, 1, ACL_FLOAT, nullptr, 64 * k, ACL_FORMAT_ND, &n, 1, memory);
    }
    for (;;) {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        if (aclnnHardsigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor) == 0) {
            aclnnHardsigmoidBackward(nullptr, size, executor, stream);
        }
    }
}

int main(int count, char **arguments)
{
    aclInit(nullptr);
    for (int number = 0; number < 4; number++) {
        std::thread(go_on).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(count > 1 ? std::atoi(arguments[1]) : 0));
    std::puts("leaving");
    return 0;
}
