// A program in the style of the vendor's samples: the runtime asked for its mode, half precision filled on the host, an
// operator by its two phases, copies through a stream, and one call of what aclgrad does not serve.
#include <vector>

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"
#include "aclnn/acl_meta.h"
#include "aclnn/opdev/bfloat16.h"
#include "aclnn/opdev/fp16_t.h"
#include "aclnn_add.h"
#include "aclnnop/aclnn_batch_norm_backward_reduce.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"
#include "common.h"

struct Operand {
    void *memory;
    aclTensor *tensor;
};

static bool Create(const std::vector<op::fp16_t> &values, aclrtStream stream, Operand *made)
{
    const int64_t dims[] = {static_cast<int64_t>(values.size())};
    const size_t size = values.size() * sizeof(op::fp16_t);
    REQUIRE(aclrtMalloc(&made->memory, size, ACL_MEM_MALLOC_HUGE_FIRST));
    REQUIRE(aclrtMemcpyAsync(made->memory, size, values.data(), size, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    made->tensor = aclCreateTensor(dims, 1, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, dims, 1, made->memory);
    return made->tensor != nullptr;
}

static bool Run()
{
    REQUIRE(aclInit(nullptr));
    REQUIRE(aclrtSetDevice(0));
    aclrtRunMode mode;
    REQUIRE(aclrtGetRunMode(&mode));
    INFO_LOG("run mode %s", mode == ACL_HOST ? "host" : "device");
    aclrtStream stream = nullptr;
    REQUIRE(aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));

    Operand operands[3];
    for (int k = 0; k < 3; k++) {
        std::vector<op::fp16_t> values;
        for (int n = 0; n < 8; n++) {
            values.push_back(k == 0 ? op::fp16_t(6) : op::fp16_t(n - 4));
        }
        if (!Create(values, stream, &operands[k])) {
            return false;
        }
    }
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    REQUIRE(aclnnHardsigmoidBackwardGetWorkspaceSize(operands[0].tensor, operands[1].tensor, operands[2].tensor, &size,
                                                     &executor));
    REQUIRE(aclnnHardsigmoidBackward(nullptr, size, executor, stream));
    REQUIRE(aclrtSynchronizeStream(stream));

    std::vector<op::fp16_t> result(8);
    REQUIRE(aclrtMemcpy(result.data(), 16, operands[2].memory, 16, ACL_MEMCPY_DEVICE_TO_HOST));
    for (const auto &value : result) {
        INFO_LOG("result %g", static_cast<float>(value));
    }
    const auto code = aclnnAddGetWorkspaceSize(operands[0].tensor, operands[1].tensor, nullptr, operands[2].tensor,
                                               &size, &executor);
    const char *message = aclGetRecentErrMsg();
    INFO_LOG("aclnnAdd %d: %s", code, message ? message : "no message");

    for (auto &operand : operands) {
        REQUIRE(aclDestroyTensor(operand.tensor));
        REQUIRE(aclrtFree(operand.memory));
    }
    REQUIRE(aclrtDestroyStreamForce(stream));
    REQUIRE(aclrtResetDevice(0));
    REQUIRE(aclFinalize());
    return true;
}

int main()
{
    return Run() ? 0 : 1;
}
