/* Makes mistakes that the checker names with their place: two blocks never freed, a copy past the end, a foreign free. */
#include <stdlib.h>
#include "acl/acl.h"
#include "aclnn/acl_meta.h"

static void *forgotten(void)
{
    void *memory = NULL;
    aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_HUGE_FIRST);
    return memory;
}

int main(void)
{
    aclInit(NULL);
    aclrtSetDevice(0);
    char host[400];
    void *a = forgotten();
    forgotten();
    aclrtMemcpy(host, sizeof host, a, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST);
    aclrtFree(host);
    return 0;
}
