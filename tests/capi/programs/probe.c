/* Runs one operator and says whether the process is as it was before: signals, locale, working directory. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardsigmoid_backward.h"

enum { LAST_SIGNAL = 64, FLAGS = SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_NODEFER | SA_NOCLDWAIT };

static void on_user_signal(int number)
{
    (void)number;
}

static int check(aclError code, const char *what)
{
    if (code != ACL_SUCCESS) {
        const char *message = aclGetRecentErrMsg();
        printf("%s: %d %s\n", what, code, message ? message : "(no message)");
        exit(2);
    }
    return 0;
}

int main(int count, char **arguments)
{
    struct sigaction before[LAST_SIGNAL + 1], after;
    char folder[4096], folder_after[4096], locale_name[512];
    setlocale(LC_ALL, "C.UTF-8");
    snprintf(locale_name, sizeof locale_name, "%s", setlocale(LC_ALL, NULL));
    signal(SIGUSR1, on_user_signal);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_DFL); /* a job in a shell's background is started with it ignored */
    memset(before, 0, sizeof before);
    for (int number = 1; number <= LAST_SIGNAL; number++) {
        sigaction(number, NULL, &before[number]);
    }
    if (!getcwd(folder, sizeof folder)) {
        return 3;
    }

    float grad[4] = {6, 6, 6, 6}, x[4] = {-4, 0, 1, 4}, result[4] = {9, 9, 9, 9};
    int64_t shape[1] = {4}, stride[1] = {1};
    void *memory[3];
    aclTensor *tensors[3];
    aclrtStream stream;
    uint64_t size = 99;
    aclOpExecutor *executor = NULL;
    check(aclInit(NULL), "aclInit");
    check(aclrtSetDevice(0), "aclrtSetDevice");
    check(aclrtCreateStream(&stream), "aclrtCreateStream");
    for (int k = 0; k < 3; k++) {
        check(aclrtMalloc(&memory[k], sizeof x, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        tensors[k] = aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, shape, 1, memory[k]);
    }
    check(aclrtMemcpy(memory[0], sizeof x, grad, sizeof x, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    check(aclrtMemcpy(memory[1], sizeof x, x, sizeof x, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    check(aclnnHardsigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor), "phase one");
    check(aclnnHardsigmoidBackward(NULL, size, executor, stream), "phase two");
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    check(aclrtMemcpy(result, sizeof x, memory[2], sizeof x, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    for (int k = 0; k < 3; k++) {
        check(aclDestroyTensor(tensors[k]), "aclDestroyTensor");
        check(aclrtFree(memory[k]), "aclrtFree");
    }
    check(aclrtDestroyStream(stream), "aclrtDestroyStream");
    check(aclrtResetDevice(0), "aclrtResetDevice");
    check(aclFinalize(), "aclFinalize");

    int faults = !(result[0] == 0 && result[1] == 1 && result[2] == 1 && result[3] == 0);
    if (faults) {
        printf("wrong result %g %g %g %g\n", result[0], result[1], result[2], result[3]);
    }
    for (int number = 1; number <= LAST_SIGNAL; number++) {
        memset(&after, 0, sizeof after);
        sigaction(number, NULL, &after);
        if (after.sa_handler != before[number].sa_handler || (after.sa_flags ^ before[number].sa_flags) & FLAGS) {
            printf("signal %d has another handler\n", number);
            faults++;
        }
    }
    if (strcmp(setlocale(LC_ALL, NULL), locale_name) != 0) {
        printf("the locale was %s and is %s\n", locale_name, setlocale(LC_ALL, NULL));
        faults++;
    }
    if (!getcwd(folder_after, sizeof folder_after) || strcmp(folder, folder_after) != 0) {
        printf("the working directory was %s and is %s\n", folder, folder_after);
        faults++;
    }
    if (count > 1 && strcmp(arguments[1], "interrupt") == 0) {
        raise(SIGINT);
        printf("SIGINT did not end the program\n");
        faults++;
    }
    printf("%d faults\n", faults);
    return faults;
}
