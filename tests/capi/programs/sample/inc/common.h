#ifndef COMMON_H
#define COMMON_H

#include <cstdio>

#define INFO_LOG(fmt, ...) fprintf(stdout, "[INFO]  " fmt "\n", __VA_ARGS__)
#define ERROR_LOG(fmt, ...) fprintf(stderr, "[ERROR] " fmt "\n", __VA_ARGS__)
#define REQUIRE(call)                                                                                              \
    do {                                                                                                           \
        auto _code = (call);                                                                                       \
        if (_code != 0) {                                                                                          \
            const char *_text = aclGetRecentErrMsg();                                                              \
            ERROR_LOG("%s: %d %s", #call, static_cast<int>(_code), _text ? _text : "");                            \
            return false;                                                                                          \
        }                                                                                                          \
    } while (0)

#endif
