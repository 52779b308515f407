/* What a function of a custom operator gets: see docs/custom-operators.md. */
#ifndef ACLGRAD_KERNEL_H
#define ACLGRAD_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "../acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclgradTensor {
    void *data;             /* of the first element; null of a tensor without elements, and of an absent one of a list */
    aclDataType dataType;
    uint32_t dimNum;
    const int64_t *dims;    /* null of an absent one of a list */
    const int64_t *strides; /* in elements */
} aclgradTensor;

typedef struct aclgradValue {
    uint64_t count;               /* of tensors: 1, or the length of a list; of flags; 0 for what is absent */
    const aclgradTensor *tensors;
    const bool *flags;            /* of a bool array */
    int64_t integer;              /* of an integer or a flag */
    double number;                /* of an integer, a flag or a floating-point number */
} aclgradValue;

/* Computes on `values`, the parameters in the contract's order, outputs last. Anything but 0 is a failure. */
typedef int (*aclgradFunction)(const aclgradValue *values);

#ifdef __cplusplus
}
#endif

#endif
