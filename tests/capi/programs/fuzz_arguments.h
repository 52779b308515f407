// Arguments for random calls: right, null, wild, stale, foreign, and so that they end where memory ends.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

constexpr size_t PAGE = 4096, GAP = 32 * PAGE, ROOM = 16 * PAGE, CELL = 64, BLOCK = 1 << 17;
constexpr unsigned char UNTOUCHED = 0xa5;

inline void *wild(uint64_t value) { return reinterpret_cast<void *>(static_cast<uintptr_t>(value)); }
inline void *moved(void *value, uint64_t by) { return wild(reinterpret_cast<uintptr_t>(value) + by); }

// Handles and addresses by their kind, of all threads. Those destroyed stay among them.
struct Pools {
    std::mutex lock;
    std::map<std::string, std::vector<void *>> of;
    void *device_block = nullptr, *host_block = nullptr;  // BLOCK bytes, never freed
};

// Forbidden, writable, forbidden, writable, read-only, forbidden pages, and room for arguments. None is ever unmapped.
struct Pages {
    char *first, *second, *constant, *forbidden, *arguments;
    Pages()
    {
        size_t size = GAP + ROOM + GAP + ROOM + PAGE + GAP + ROOM + PAGE;
        auto *start = static_cast<char *>(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        forbidden = start + PAGE;
        first = start + GAP;
        second = first + ROOM + GAP;
        constant = second + ROOM;
        arguments = constant + PAGE + GAP;
        mprotect(first, ROOM, PROT_READ | PROT_WRITE);
        mprotect(second, ROOM, PROT_READ | PROT_WRITE);
        mprotect(constant, PAGE, PROT_READ);
        mprotect(arguments, ROOM, PROT_READ | PROT_WRITE);
    }
};

class Arguments {
public:
    Arguments(uint64_t seed, Pools &pools) : pools_(pools), random_(seed) {}

    uint64_t below(uint64_t limit) { return random_() % limit; }
    bool once_in(uint64_t times) { return below(times) == 0; }
    template <class T> T one_of(std::initializer_list<T> values) { return values.begin()[below(values.size())]; }

    // An address that nothing may follow.
    void *nowhere()
    {
        return one_of({wild(1), wild(8), wild(0x41414141), wild(0xdeadbeefdeadbeef), wild(0xffff800000000000),
                       wild(UINT64_MAX), wild(UINT64_MAX - 7), wild(uint64_t{1} << 63),
                       static_cast<void *>(pages_.forbidden + below(PAGE))});
    }

    void *from_pool(const std::string &kind)
    {
        std::lock_guard<std::mutex> hold(pools_.lock);
        auto &pool = pools_.of[kind];
        return pool.empty() ? nullptr : pool[below(pool.size())];
    }

    void *handle(const std::string &kind)
    {
        switch (below(12)) {
        case 0: return nullptr;
        case 1: return nowhere();
        case 2:
            return from_pool(one_of<const char *>({"aclTensor", "aclTensorList", "aclScalar", "aclBoolArray", "device",
                                                   "aclrtStream", "aclrtEvent", "aclrtContext", "aclOpExecutor"}));
        case 3: return moved(from_pool(kind), one_of<uint64_t>({1, UINT64_MAX, 8, 1 << 20}));
        default: return from_pool(kind);
        }
    }

    // An address for calls that write to live blocks only, whatever they are given.
    void *address()
    {
        switch (below(10)) {
        case 0: return nullptr;
        case 1: return nowhere();
        case 2: return pages_.first + below(ROOM);
        case 3: return static_cast<char *>(pools_.host_block) + 1 + below(BLOCK);
        case 4: return static_cast<char *>(pools_.device_block) + 32 * (1 + below(BLOCK / 32));
        case 5: return moved(from_pool("device"), below(70));
        case 6: return from_pool("host");
        default: return from_pool("device");
        }
    }

    // An address for the host side of a copy: memory that stays, or that must be refused.
    void *host_side()
    {
        switch (below(10)) {
        case 0: return nullptr;
        case 1: return nowhere();
        case 2: return pages_.constant + below(PAGE);
        case 3: return static_cast<char *>(pools_.device_block) + below(BLOCK);
        case 4: return static_cast<char *>(pools_.host_block) + below(BLOCK);
        default: return (once_in(2) ? pages_.first : pages_.second) + below(ROOM);
        }
    }

    // Writable memory, followed at once by forbidden memory, GAP bytes of it, and then by writable memory again.
    void *edge() { return pages_.first + ROOM - 100; }

    // Memory for a call to read.
    void *readable() { return once_in(4) ? pages_.first + ROOM - below(20) : host_side(); }

    uint64_t size()
    {
        if (once_in(6)) {
            return one_of<uint64_t>({ROOM, GAP, GAP + 200, BLOCK, BLOCK + 1, 1 << 20, uint64_t{1} << 50,
                                     uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX - 31, UINT64_MAX});
        }
        return one_of<uint64_t>({0, 1, 2, 3, 4, 31, 32, 33, 64, 100, 4095, 4096, below(10), below(5000)});
    }
    uint64_t count() { return once_in(8) ? size() : below(5); }
    int64_t extent()
    {
        return once_in(8) ? one_of<int64_t>({-1, INT64_MIN, INT64_MAX, int64_t{1} << 31, int64_t{1} << 62, 1000})
                          : static_cast<int64_t>(below(5));
    }
    int64_t number()
    {
        return once_in(6) ? one_of<int64_t>({-1, INT32_MIN, INT32_MAX, 77, INT64_MAX, INT64_MIN})
                          : static_cast<int64_t>(below(3));
    }
    double real() { return one_of({0.0, 0.5, -1.0, 1e308, HUGE_VAL, -HUGE_VAL, double(NAN), 65504.0, 1e-8}); }
    bool flag() { return once_in(2); }
    int enumerator(std::initializer_list<int> values)
    {
        return once_in(8) ? one_of({-2, 5, 99, 255, INT32_MAX, INT32_MIN}) : values.begin()[below(values.size())];
    }

    const char *text()
    {
        static const std::string endless(1 << 17, 'a');
        switch (below(9)) {
        case 0: return static_cast<const char *>(nowhere());
        case 1: return static_cast<const char *>(std::memset(pages_.first + ROOM - 5, 'x', 5));  // and no zero
        default:
            return one_of<const char *>({nullptr, nullptr, "", "/", "/nowhere/acl.json", "/dev/null", "/dev/zero",
                                         "/proc/self/mem", "/proc/self/status", "\xff\xfe\x80", endless.c_str()});
        }
    }

    // Elements for a call to read: a dozen, or a few that end where memory ends.
    template <class T> T *array(const std::string &kind)
    {
        if (once_in(6)) {
            return static_cast<T *>(once_in(2) ? nullptr : nowhere());
        }
        const size_t few = below(4), dozen = 12, made = once_in(4) ? few : dozen, size = made * sizeof(T);
        auto *place = reinterpret_cast<T *>(made == few ? pages_.first + ROOM - size : cell(size));
        for (size_t k = 0; k < made; k++) {
            fill(place[k], kind);
        }
        return place;
    }

    // Room for a result; null, wild and read-only room, and room that is too small, are counted as bad.
    template <class T> T *room(bool nullable)
    {
        const uint64_t choice = below(14);
        bad_rooms += choice < 4 && !(choice == 0 && nullable);
        switch (choice) {
        case 0: return nullptr;
        case 1: return static_cast<T *>(nowhere());
        case 2: return reinterpret_cast<T *>(pages_.constant + 8 * below(16));
        case 3: return reinterpret_cast<T *>(pages_.first + ROOM - sizeof(T) / 2);
        default: break;
        }
        rooms.push_back({reinterpret_cast<unsigned char *>(cell(CELL)), sizeof(T), nullptr});
        return static_cast<T *>(std::memset(rooms.back().cell, UNTOUCHED, CELL));
    }

protected:
    struct Room {
        unsigned char *cell;
        size_t size;
        const char *kind;
    };
    std::vector<Room> rooms;  // of the present call
    int bad_rooms = 0;
    Pools &pools_;

private:
    char *cell(size_t size)
    {
        size_t start = next_ + size > ROOM ? 0 : next_;
        next_ = start + (size + CELL - 1) / CELL * CELL;
        return pages_.arguments + start;
    }

    void fill(int64_t &value, const std::string &) { value = extent(); }
    void fill(float &value, const std::string &) { value = static_cast<float>(real()); }
    void fill(bool &value, const std::string &) { std::memset(&value, static_cast<int>(below(3)), 1); }
    template <class T> void fill(T *&value, const std::string &kind) { value = static_cast<T *>(handle(kind)); }

    std::mt19937_64 random_;
    Pages pages_;
    size_t next_ = 0;
};
