// Random sequences of calls of every C function, with arguments that are right, null, wild, freed, stale or foreign.
//
//     fuzz SEED STEPS [THREADS]
//
// Nothing may crash or hang; every code must be a documented one and come with a message; nothing is written for a
// refused call, nor beside an out-parameter; a right call succeeds. fuzz_calls.h, made from the prototypes, has one
// caller for each function. Memory that a call may rightly write to is never freed, so whatever AddressSanitizer
// reports is a fault.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fuzz_arguments.h"
#include "fuzz_headers.h"

namespace {

constexpr unsigned HANG_SECONDS = 300;
constexpr size_t MOST_OBJECTS = 200;
constexpr int FAULTS_SHOWN = 20;

std::atomic<long> calls{0}, refusals{0}, faults{0}, completed{0};
std::map<std::string, long> called;
Pools pools;

class Fuzzer : public Arguments {
public:
    Fuzzer(uint64_t seed, bool alone) : Arguments(seed, pools), alone_(alone) {}

    void begin(const char *function)
    {
        calls++;
        rooms.clear();
        bad_rooms = 0;
        std::lock_guard<std::mutex> hold(pools.lock);
        called[function]++;
    }

    // Room for a result that goes to the pool `kind`; "array" is for arrays to be released.
    template <class T> T *out(const char *kind, bool nullable)
    {
        const size_t before = rooms.size();
        T *place = room<T>(nullable);
        if (rooms.size() > before) {
            rooms.back().kind = kind;
        }
        return place;
    }

    void fault(const char *function, const std::string &what)
    {
        if (faults++ < FAULTS_SHOWN) {
            std::printf("FAULT %s: %s\n", function, what.c_str());
        }
    }

    // What a function that returns an aclError or an aclnnStatus has returned.
    int acl_code(const char *function, int code);
    int aclnn_status(const char *function, int status);

    // What a function that makes something has returned.
    void made(const char *function, void *handle, const char *kind)
    {
        explained(function, handle == nullptr);
        if (handle) {
            add(kind, handle);
        }
    }

    void fact(const char *text) { seen_ += text ? std::strlen(text) : 0; }
    void fact(const void *) {}
    void fact(double) {}

    using Function = void (*)(void *);
    Function callback()
    {
        return once_in(3) ? reinterpret_cast<Function>(once_in(3) ? nullptr : nowhere()) : [](void *) {};
    }

    // Whether a call of which everything is right was refused; with other threads about, nothing is right for sure.
    void outcome(const char *function, int code, bool right)
    {
        if (alone_ && right && code != 0) {
            fault(function, "refused a right call with " + std::to_string(code));
        }
    }

    void add(const std::string &kind, void *value)
    {
        {
            std::lock_guard<std::mutex> hold(pools.lock);
            auto &pool = pools.of[kind];
            if (pool.size() < MOST_OBJECTS) {
                pool.push_back(value);
                return;
            }
            std::swap(value, pool[below(pool.size())]);
        }
        if (kind == "device") {
            aclrtFree(value);
        } else if (kind == "host") {
            aclrtFreeHost(value);
        } else if (kind == "aclrtStream") {
            aclrtDestroyStream(value);
        }
        aclGetRecentErrMsg();
    }

    // Copies, whose host side must be memory that stays.
    void copy(bool asynchronous)
    {
        const char *function = asynchronous ? "aclrtMemcpyAsync" : "aclrtMemcpy";
        begin(function);
        const int kind = enumerator({0, 1, 2, 3, 4, 5, 6, 7});
        const bool to_device = kind == 1 || kind == 3 || kind == 5, from_device = kind == 2 || kind == 3;
        void *dst = to_device ? address() : host_side(), *src = from_device ? address() : host_side();
        uint64_t room = size(), amount = once_in(3) ? room : size();
        if (once_in(10)) {
            (once_in(2) ? dst : src) = edge();
            amount = GAP + 200;
            room = UINT64_MAX;
        }
        const auto direction = static_cast<aclrtMemcpyKind>(kind);
        acl_code(function, asynchronous ? aclrtMemcpyAsync(dst, room, src, amount, direction, handle("aclrtStream"))
                                        : aclrtMemcpy(dst, room, src, amount, direction));
    }

    void copy_rows(bool asynchronous)
    {
        const char *function = asynchronous ? "aclrtMemcpy2dAsync" : "aclrtMemcpy2d";
        begin(function);
        const bool to_device = once_in(2);
        void *dst = to_device ? address() : host_side(), *src = to_device ? host_side() : address();
        const uint64_t width = size(), height = size();
        const uint64_t dpitch = once_in(3) ? size() : width, spitch = once_in(3) ? size() : width;
        const auto kind = to_device ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST;
        acl_code(function, asynchronous ? aclrtMemcpy2dAsync(dst, dpitch, src, spitch, width, height, kind,
                                                             handle("aclrtStream"))
                                        : aclrtMemcpy2d(dst, dpitch, src, spitch, width, height, kind));
    }

    // A stream of this thread's own: whoever waits for a callback of another thread may wait for ever.
    void reports()
    {
        const auto self = static_cast<uint64_t>(pthread_self());
        const auto kind = static_cast<aclrtCallbackBlockType>(enumerator({ACL_CALLBACK_NO_BLOCK, ACL_CALLBACK_BLOCK}));
        aclrtStream stream = nullptr;
        if (aclrtCreateStream(&stream)) {
            stream = nullptr;
        }
        begin("aclrtSubscribeReport");
        const bool subscribed = acl_code("aclrtSubscribeReport", aclrtSubscribeReport(self, stream)) == 0;
        begin("aclrtLaunchCallback");
        const bool launched =
            acl_code("aclrtLaunchCallback", aclrtLaunchCallback(callback(), nullptr, kind, stream)) == 0;
        begin("aclrtProcessReport");
        const int code = acl_code("aclrtProcessReport", aclrtProcessReport(launched ? 60000 : 1));
        outcome("aclrtProcessReport", code, subscribed && launched);
        begin("aclrtUnSubscribeReport");
        acl_code("aclrtUnSubscribeReport", aclrtUnSubscribeReport(self, stream));
        aclrtDestroyStream(stream);
        aclGetRecentErrMsg();
    }

    void scene();

private:
    int judged(const char *function, int code, bool is_known, bool is_internal)
    {
        if (!is_known) {
            fault(function, "undocumented code " + std::to_string(code));
        }
        if (code == 0 && bad_rooms > 0) {
            fault(function, "success without room for its result");
        }
        look_at_rooms(function, code == 0);
        const std::string message = explained(function, code != 0);
        if (is_internal) {
            fault(function, "internal error: " + message);
        }
        return code;
    }

    void look_at_rooms(const char *function, bool success)
    {
        for (const Room &room : rooms) {
            const unsigned char *behind = room.cell + (success ? room.size : 0);
            if (std::any_of(behind, static_cast<const unsigned char *>(room.cell) + CELL,
                            [](unsigned char byte) { return byte != UNTOUCHED; })) {
                fault(function, success ? "wrote beside its result" : "wrote a result and refused");
            }
            if (!success || !room.kind) {
                continue;
            }
            void *value;
            std::memcpy(&value, room.cell, sizeof value);
            if (std::string(room.kind) == "array") {
                delete[] static_cast<int64_t *>(value);
            } else if (value) {
                add(room.kind, value);
            } else {
                fault(function, "success, and a null result");
            }
        }
    }

    std::string explained(const char *function, bool refused)
    {
        refusals += refused;
        const char *message = aclGetRecentErrMsg();
        if (refused && (!message || !std::strstr(message, function))) {
            fault(function, message ? std::string("not its own message: ") + message : "refused without a message");
        }
        return message ? message : "";
    }

    bool alone_;
    size_t seen_ = 0;
};

#include "fuzz_calls.h"

int Fuzzer::acl_code(const char *function, int code)
{
    return judged(function, code, std::count(std::begin(ACL_CODES), std::end(ACL_CODES), code),
                  code == ACL_ERROR_INTERNAL_ERROR);
}

int Fuzzer::aclnn_status(const char *function, int status)
{
    const bool of_executors = std::strstr(function, "AclOpExecutor");  // 561000 is an unknown handle there
    return judged(function, status, std::count(std::begin(ACLNN_STATUSES), std::end(ACLNN_STATUSES), status),
                  status == ACLNN_ERR_INNER && !of_executors);
}

#include "fuzz_scenes.h"

void run(uint64_t seed, long steps, bool alone)
{
    Fuzzer fuzzer(seed, alone);
    for (const Caller &caller : CALLERS) {  // each at least once
        caller.call(fuzzer);
    }
    for (bool asynchronous : {false, true}) {
        fuzzer.copy(asynchronous);
        fuzzer.copy_rows(asynchronous);
    }
    fuzzer.reports();
    for (long step = 0; step < steps; step++) {
        if (fuzzer.once_in(25)) {  // back to a state in which something can succeed
            aclInit(nullptr);
            aclrtSetDevice(0);
            aclGetRecentErrMsg();
        }
        if (fuzzer.once_in(20)) {
            fuzzer.scene();
        } else if (fuzzer.once_in(12)) {
            fuzzer.once_in(3) ? fuzzer.copy_rows(fuzzer.flag()) : fuzzer.copy(fuzzer.flag());
        } else if (fuzzer.once_in(20)) {
            fuzzer.reports();
        } else {
            const Caller &caller = CALLERS[fuzzer.below(std::size(CALLERS))];
            if (!caller.drastic || fuzzer.once_in(10)) {
                caller.call(fuzzer);
            }
        }
    }
}

}  // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s SEED STEPS [THREADS]\n", argv[0]);
        return 2;
    }
    const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
    const long steps = std::atol(argv[2]), threads = argc > 3 ? std::atol(argv[3]) : 1;
    alarm(HANG_SECONDS);
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtMallocHost(&pools.host_block, BLOCK) ||
        aclrtMalloc(&pools.device_block, BLOCK, ACL_MEM_MALLOC_HUGE_FIRST)) {
        std::printf("cannot start: %s\n", aclGetRecentErrMsg());
        return 2;
    }
    std::vector<std::thread> others;
    for (long k = 1; k < threads; k++) {
        others.emplace_back(run, seed * 1000 + static_cast<uint64_t>(k), steps, false);
    }
    run(seed * 1000, steps, threads == 1);
    for (std::thread &other : others) {
        other.join();
    }
    std::printf("%ld calls of %zu functions, %ld refused, %ld scenes completed, %ld faults\n", calls.load(),
                called.size(), refusals.load(), completed.load(), faults.load());
    return faults ? 1 : 0;
}
