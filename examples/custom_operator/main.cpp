// Calls both operators as any other of aclnn, and compares with what it works out by itself.
#include <cmath>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_squared_relu.h"
#include "aclnnop/aclnn_squared_relu_backward.h"

#define CHECK(call)                                                                      \
    do {                                                                                 \
        const int code = (call);                                                         \
        if (code != 0) {                                                                 \
            std::printf("%s: %d, %s\n", #call, code, aclGetRecentErrMsg());              \
            return 1;                                                                    \
        }                                                                                \
    } while (0)

static const int64_t COUNT = 6;
static const size_t BYTES = COUNT * sizeof(float);

struct Operand {
    void *memory = nullptr;
    aclTensor *tensor = nullptr;

    int make(const float *values)
    {
        CHECK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemcpy(memory, BYTES, values, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
        tensor = aclCreateTensor(&COUNT, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &COUNT, 1, memory);
        return tensor == nullptr;
    }
    ~Operand()
    {
        aclDestroyTensor(tensor);
        aclrtFree(memory);
    }
};

static int wrong(const Operand &operand, const float *expected)
{
    float found[COUNT];
    CHECK(aclrtMemcpy(found, BYTES, operand.memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    int differing = 0;
    for (int64_t k = 0; k < COUNT; k++) {
        std::printf(" %g", found[k]);
        differing += found[k] != expected[k];
    }
    std::printf("\n");
    return differing;
}

static int run(aclrtStream stream)
{
    const float values[COUNT] = {-2, -0.5f, 0, 0.5f, 1, 3}, ones[COUNT] = {1, 1, 1, 1, 1, 1};
    float square[COUNT], slope[COUNT];
    for (int64_t k = 0; k < COUNT; k++) {
        const float positive = std::fmax(values[k], 0.0f);
        square[k] = positive * positive;
        slope[k] = 2 * positive;
    }
    Operand x, grad, out;
    if (x.make(values) || grad.make(ones) || out.make(ones)) {
        return 1;
    }
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnSquaredReluGetWorkspaceSize(x.tensor, out.tensor, &size, &executor));
    CHECK(aclnnSquaredRelu(nullptr, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    int differing = wrong(out, square);
    CHECK(aclnnSquaredReluBackwardGetWorkspaceSize(grad.tensor, x.tensor, out.tensor, &size, &executor));
    CHECK(aclnnSquaredReluBackward(nullptr, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    differing += wrong(out, slope);
    std::printf("null: %d\n", aclnnSquaredReluGetWorkspaceSize(nullptr, out.tensor, &size, &executor));
    return differing;
}

int main()
{
    aclrtStream stream = nullptr;
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    const int differing = run(stream);
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return differing != 0;
}
