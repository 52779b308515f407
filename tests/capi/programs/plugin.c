/* Loads the library like a plug-in host: at run time, locally, twice. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*init_function)(const char *);
typedef const char *(*text_function)(void);

union function {
    void *address;
    init_function init;
    text_function text;
};

static union function find(void *library, const char *name)
{
    union function found;
    found.address = dlsym(library, name);
    return found;
}

int main(int count, char **arguments)
{
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    int code = find(library, "aclInit").init(NULL);
    const char *name = find(library, "aclrtGetSocName").text();
    printf("%d %s\n", code, name ? name : find(library, "aclGetRecentErrMsg").text());
    dlclose(library);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    int again = library ? find(library, "aclInit").init(NULL) : -1;
    printf("%d\n", again);
    return !(code == 0 && name && again == 100002);
}
