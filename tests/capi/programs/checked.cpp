// What `aclgrad check` is tried on: the first argument says how the program ends.
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "acl/acl.h"

static void lose(void)
{
    void *memory = nullptr;
    aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);  // never freed
}

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "";
    if (aclInit(nullptr) || aclrtSetDevice(0))
        return 99;
    if (strcmp(end, "vanish") == 0)
        _exit(0);
    lose();
    if (strcmp(end, "crash") == 0) {
        aclrtMemset(nullptr, 8, 0, 8);  // a null pointer
        abort();
    }
    return aclrtResetDevice(0) || aclFinalize() ? 98 : 7;
}
