/* aclnnHardsigmoidBackward in plain C: the gradient of a matrix whose input is a transposed view. */
#include "aclnnop/aclnn_hardsigmoid_backward.h"
#include "common.h"

enum { ROWS = 37, COLUMNS = 53, COUNT = ROWS * COLUMNS };

static const size_t BYTES = COUNT * sizeof(float);

/* Device memory with a copy of the values, or uninitialised without them. */
static void *upload(const float *values)
{
    void *memory = NULL;
    CHECK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    if (values) {
        CHECK(aclrtMemcpy(memory, BYTES, values, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    return memory;
}

/* A ROWS x COLUMNS matrix over memory that holds it row by row, or column by column if transposed. */
static aclTensor *matrix(void *memory, bool transposed)
{
    const int64_t shape[] = {ROWS, COLUMNS}, by_rows[] = {COLUMNS, 1}, by_columns[] = {1, ROWS}, storage[] = {COUNT};
    const int64_t *strides = transposed ? by_columns : by_rows;
    return aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, storage, 1, memory);
}

int main(void)
{
    static float grad[COUNT], x[COUNT], dx[COUNT];
    for (int k = 0; k < COUNT; k++) {
        grad[k] = (float)uniform(-1, 1);
        x[k] = (float)uniform(-5, 5);
    }
    x[0] = -3; /* both ends of the interval belong to the flat parts */
    x[1] = 3;

    aclrtStream stream = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    void *memory[] = {upload(grad), upload(x), upload(NULL)};
    aclTensor *grad_tensor = matrix(memory[0], false);
    aclTensor *x_tensor = matrix(memory[1], true);
    aclTensor *dx_tensor = matrix(memory[2], false);

    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    CHECK(aclnnHardsigmoidBackwardGetWorkspaceSize(grad_tensor, x_tensor, dx_tensor, &size, &executor));
    void *workspace = NULL;
    if (size > 0) {
        CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnHardsigmoidBackward(workspace, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(dx, BYTES, memory[2], BYTES, ACL_MEMCPY_DEVICE_TO_HOST));

    if (workspace) {
        CHECK(aclrtFree(workspace));
    }
    CHECK(aclDestroyTensor(grad_tensor));
    CHECK(aclDestroyTensor(x_tensor));
    CHECK(aclDestroyTensor(dx_tensor));
    for (int k = 0; k < 3; k++) {
        CHECK(aclrtFree(memory[k]));
    }
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());

    /* hardsigmoid rises by 1/6 between -3 and 3 and is flat elsewhere. */
    struct verdict verdict = {0, 0, 0};
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            double at = x[column * ROWS + row];
            double expected = -3 < at && at < 3 ? grad[row * COLUMNS + column] / 6.0 : 0.0;
            judge(&verdict, dx[row * COLUMNS + column], expected, FLT_EPSILON * fabs(expected));
        }
    }
    printf("aclnnHardsigmoidBackward, FLOAT [%d, %d], input transposed\n", ROWS, COLUMNS);
    return passed("out", &verdict) ? EXIT_SUCCESS : EXIT_FAILURE;
}
