// What the examples of docs/findings and the programs of bugs.cpp use beside the interface itself.
#ifndef FINDINGS_H
#define FINDINGS_H

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_fused_linear_online_max_sum.h"
#include "aclnnop/aclnn_hardsigmoid.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

// Device memory, set to zero.
inline void *device(size_t size)
{
    void *memory = nullptr;
    aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemset(memory, size, 0, size);
    return memory;
}

// A tensor of eight floats at an address.
inline aclTensor *floats(void *memory)
{
    const int64_t dims[] = {8};
    return aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 1, memory);
}

// Phase one of aclnnHardsigmoidBackward.
inline aclOpExecutor *plan(aclTensor *grad, aclTensor *x, aclTensor *out)
{
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, out, &size, &executor);
    return executor;
}

// Both phases.
inline int run(aclTensor *grad, aclTensor *x, aclTensor *out, aclrtStream stream)
{
    return aclnnHardsigmoidBackward(nullptr, 0, plan(grad, x, out), stream);
}

// Three tensors of eight floats and their memory.
struct Operands {
    void *memory[3];
    aclTensor *tensors[3];

    Operands()
    {
        for (int k = 0; k < 3; k++) {
            memory[k] = device(32);
            tensors[k] = floats(memory[k]);
        }
    }
    ~Operands()
    {
        for (int k = 0; k < 3; k++) {
            aclDestroyTensor(tensors[k]);
            aclrtFree(memory[k]);
        }
    }
    int run(aclrtStream stream) { return ::run(tensors[0], tensors[1], tensors[2], stream); }
    aclOpExecutor *plan() { return ::plan(tensors[0], tensors[1], tensors[2]); }
};

// The head of a language model on one shard of its vocabulary: `tokens` rows of `features`, `rows` of the vocabulary.
struct Head {
    std::vector<void *> memory;
    std::vector<aclTensor *> tensors;

    Head(int64_t tokens, int64_t features, int64_t rows)
    {
        add({tokens, features}, ACL_FLOAT16, 2);
        add({rows, features}, ACL_FLOAT16, 2);
        add({tokens}, ACL_INT64, 8);
        for (int k = 0; k < 3; k++) {
            add({tokens}, ACL_FLOAT, 4);
        }
        add({(tokens + 7) / 8}, ACL_UINT8, 1);
        add({tokens}, ACL_INT64, 8);
    }
    ~Head()
    {
        for (size_t k = 0; k < memory.size(); k++) {
            aclDestroyTensor(tensors[k]);
            aclrtFree(memory[k]);
        }
    }
    void add(std::vector<int64_t> dims, aclDataType type, size_t size)
    {
        for (int64_t extent : dims) {
            size *= extent;
        }
        memory.push_back(device(size));
        tensors.push_back(aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                                          dims.size(), memory.back()));
    }
    void statistics(int64_t start, int64_t end)
    {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(tensors[0], tensors[1], tensors[2], start, end, tensors[3],
                                                     tensors[4], tensors[5], tensors[6], tensors[7], nullptr, &size,
                                                     &executor);
        aclDestroyAclOpExecutor(executor);
    }
};

struct Program {
    const char *name;
    void (*function)(aclrtStream stream);
    bool whole;  // brings the runtime up and down by itself
};

// Each program in a life of the runtime of its own, all in this process.
inline int all(const std::vector<Program> &programs)
{
    for (const Program &program : programs) {
        aclrtStream stream = nullptr;
        if (!program.whole) {
            aclInit(nullptr);
            aclrtSetDevice(0);
            aclrtCreateStream(&stream);
        }
        program.function(stream);
        if (!program.whole) {
            aclrtSynchronizeDevice();
            aclrtDestroyStream(stream);
            aclrtResetDevice(0);
            aclFinalize();
        }
        uint32_t flags = 0;
        int32_t active = 0;
        aclInit(nullptr);
        aclrtGetPrimaryCtxState(0, &flags, &active);
        if (active) {
            aclrtResetDeviceForce(0);
        }
        if (std::strcmp(program.name, "wrong_not-finalised") != 0) {
            aclFinalize();
        }
        while (aclGetRecentErrMsg()) {
        }
    }
    return 0;
}

#endif
