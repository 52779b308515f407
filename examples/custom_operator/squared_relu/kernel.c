/* The gradient on a CPU. Values are gradOutput, self, gradInput, as in the contract. */
#include <stddef.h>

#include "aclgrad/kernel.h"

#define COMPUTE(type)                                                             \
    do {                                                                          \
        const type *grad = values[0].tensors->data, *x = values[1].tensors->data; \
        type *out = values[2].tensors->data;                                      \
        for (int64_t k = 0; k < count; k++) {                                     \
            out[k] = 2 * (x[k] <= 0 ? 0 : x[k]) * grad[k];                        \
        }                                                                         \
    } while (0)

int squared_relu_backward(const aclgradValue *values)
{
    const aclgradTensor *self = values[1].tensors;
    int64_t count = 1;
    for (uint32_t k = 0; k < self->dimNum; k++) {
        count *= self->dims[k];
    }
    switch (self->dataType) {
    case ACL_FLOAT:
        COMPUTE(float);
        return 0;
    case ACL_DOUBLE:
        COMPUTE(double);
        return 0;
    default:
        return 1;
    }
}
