#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "acl/acl.h"
#include "$header"

#define CHECK(call) \
    do { \
        if ((call) != 0) { \
            fprintf(stderr, "%s\n", aclGetRecentErrMsg()); \
            exit(EXIT_FAILURE); \
        } \
    } while (0)

static void *blocks[$count];
static int used;

/* Device memory that holds zeros; aclrtMemcpy brings values. */
static void *device(size_t bytes)
{
    CHECK(aclrtMalloc(&blocks[used], bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemset(blocks[used], bytes, 0, bytes));
    return blocks[used++];
}

static aclTensor *tensor(aclDataType type, size_t size, uint64_t rank, const int64_t *shape)
{
    for (uint64_t k = 0; k < rank; k++) {
        size *= (size_t)shape[k];
    }
    return aclCreateTensor(shape, rank, type, NULL, 0, ACL_FORMAT_ND, shape, rank, device(size));
}

int main(void)
{
    aclrtStream stream = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));

$made

    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
$first
    void *workspace = size > 0 ? device(size) : NULL;
    CHECK($function(workspace, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));

$destroyed
    while (used > 0) {
        CHECK(aclrtFree(blocks[--used]));
    }
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return EXIT_SUCCESS;
}
