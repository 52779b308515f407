// 100,000 calls, right and wrong ones, and 1,000 threads leave the resident memory where it was.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

static long resident_kib()
{
    long pages = 0;
    if (FILE *file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%*d %ld", &pages) != 1) {
            pages = 0;
        }
        std::fclose(file);
    }
    return pages * 4;
}

static void visit(int threads)
{
    for (int number = 0; number < threads; number++) {
        std::thread([] {
            aclrtSetDevice(0);
            aclrtSetDevice(9);
            aclrtResetDevice(0);
        }).join();
    }
}

int main(int count, char **arguments)
{
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 10000, settling = 5000;
    long before = 0;
    const int64_t shape[2] = {4, 2};
    aclInit(nullptr);
    aclrtSetDevice(0);
    aclrtStream stream;
    aclrtCreateStream(&stream);
    for (int round = 0; round < settling + rounds; round++) {
        if (round == settling) {
            visit(50);
            before = resident_kib();
            visit(1000);
        }
        void *memory = nullptr;
        aclrtMalloc(&memory, 96, ACL_MEM_MALLOC_HUGE_FIRST);
        aclTensor *tensors[3];
        for (int k = 0; k < 3; k++) {
            tensors[k] = aclCreateTensor(shape, 2, ACL_FLOAT, nullptr, 8 * k, ACL_FORMAT_ND, shape, 2, memory);
        }
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        int code = aclnnHardsigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor);
        code += aclnnHardsigmoidBackward(nullptr, size, executor, stream);
        int64_t *dims = nullptr;
        uint64_t rank = 0;
        code += aclGetViewShape(tensors[0], &dims, &rank);
        delete[] dims;
        for (aclTensor *tensor : tensors) {
            code += aclDestroyTensor(tensor);
        }
        if (code != 0 || aclDestroyTensor(tensors[0]) != ACLNN_ERR_PARAM_INVALID || !aclGetRecentErrMsg()) {
            std::printf("code %d in round %d\n", code, round);
            return 1;
        }
        aclrtFree(memory);
    }
    std::printf("%ld KiB\n", resident_kib() - before);
    return 0;
}
