// Calls before aclInit, after aclFinalize, in a forked child, at exit and from destructors: codes, no crash, no hang.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

static int faults = 0;
static void *kept = nullptr;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        const char *message = aclGetRecentErrMsg();
        std::printf("%s (%s)\n", what, message ? message : "no message");
        faults++;
    }
}

struct AtTheEnd {
    ~AtTheEnd()
    {
        std::printf("destructor: free %d, finalize %d\n", aclrtFree(kept), aclFinalize());
        std::fflush(stdout);
    }
} at_the_end;

static void at_exit()
{
    std::printf("exit: device count %d\n", [] { uint32_t count = 0; return aclrtGetDeviceCount(&count); }());
}

int main()
{
    std::atexit(at_exit);
    expect(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE, "finalize before init");
    expect(aclrtMalloc(&kept, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL && !kept, "malloc without device");
    expect(aclrtSynchronizeStream(nullptr) == ACL_ERROR_RT_CONTEXT_NULL, "synchronize without device");
    for (int cycle = 0; cycle < 3; cycle++) {
        expect(aclInit(nullptr) == ACL_SUCCESS, "init");
        expect(aclInit(nullptr) == ACL_ERROR_REPEAT_INITIALIZE, "init twice");
        expect(aclFinalizeReference(nullptr) == ACL_SUCCESS, "finalize a reference, uncounted");
        expect(aclFinalize() == ACL_SUCCESS, "finalize");
        expect(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE, "finalize twice");
    }
    expect(aclInit("/nowhere/acl.json") == ACL_ERROR_INVALID_FILE, "a configuration that does not exist");
    expect(aclInit(nullptr) == ACL_SUCCESS && aclrtSetDevice(0) == ACL_SUCCESS, "init again");
    expect(aclrtMalloc(&kept, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS, "malloc");

    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool refused = aclrtFree(kept) == ACL_ERROR_INTERNAL_ERROR && aclGetRecentErrMsg() != nullptr &&
                       aclnnFinalize() == ACLNN_ERR_INNER && aclrtGetSocName() == nullptr;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child is refused");
    expect(aclrtGetSocName() != nullptr, "the parent goes on");
    std::printf("%d faults\n", faults);
    return faults;
}
