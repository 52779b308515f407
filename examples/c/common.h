/* What the examples share: one macro for return codes, random numbers with a fixed seed, and the final comparison. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

/* Stop the program unless an acl or aclnn call has returned 0. */
#define CHECK(call)                                                                            \
    do {                                                                                       \
        int code_ = (int)(call);                                                               \
        if (code_ != 0) {                                                                      \
            const char *message_ = aclGetRecentErrMsg();                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, message_ ? message_ : #call); \
            exit(EXIT_FAILURE);                                                                \
        }                                                                                      \
    } while (0)

/* The next number of a fixed sequence that looks random, between low and high. */
static inline double uniform(double low, double high)
{
    static uint64_t state = 20240229;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return low + (high - low) * ((double)(z >> 40) / (double)(1 << 24));
}

/* How a result compares with what was expected: errors are counted in shares of what is allowed. */
struct verdict {
    size_t count, wrong;
    double worst;
};

static inline void judge(struct verdict *verdict, double result, double expected, double allowed)
{
    double error = fabs(result - expected);
    double share = error == 0 ? 0 : error / allowed;
    verdict->count++;
    verdict->wrong += !(share <= 1); /* NaN is wrong */
    if (share > verdict->worst) {
        verdict->worst = share;
    }
}

/* Print one line about a result; true if it is right. */
static inline bool passed(const char *name, const struct verdict *verdict)
{
    printf("  %-16s %5zu numbers, %zu wrong, largest error %5.1f %% of the allowed one\n", name, verdict->count,
           verdict->wrong, 100 * verdict->worst);
    return verdict->count > 0 && verdict->wrong == 0;
}

#endif
