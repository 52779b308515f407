// The runtime's objects with C++ lifetimes: what a scope has made is gone at its end, in the right order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "aclnn/acl_meta.h"
#include "common.h"

using Shape = std::vector<int64_t>;
using Numbers = std::vector<double>;

inline int64_t elements(const Shape &shape)
{
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

inline Numbers random_numbers(int64_t count, double low, double high)
{
    Numbers numbers(count);
    for (double &number : numbers) {
        number = uniform(low, high);
    }
    return numbers;
}

// The 16-bit types: bits, and the nearest number they can hold.
struct Half {
    aclFloat16 bits = 0;
    Half() = default;
    Half(double value) : bits(aclFloatToFloat16(static_cast<float>(value))) {}
    operator double() const { return aclFloat16ToFloat(bits); }
};

struct Bfloat {
    uint16_t bits = 0;
    Bfloat() = default;
    Bfloat(double value)
    {
        auto single = static_cast<float>(value);
        uint32_t wide;
        std::memcpy(&wide, &single, sizeof wide);
        bits = static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
    }
    operator double() const
    {
        uint32_t wide = uint32_t{bits} << 16;
        float single;
        std::memcpy(&single, &wide, sizeof single);
        return single;
    }
};

// What a type is called in acl, and how far from a number the nearest one of the type can be: `unit` of its magnitude,
// or `tiny` where that is smaller than the type can tell apart.
template <class T> struct Type;
template <> struct Type<uint8_t> { static constexpr aclDataType code = ACL_UINT8; };
template <> struct Type<int32_t> { static constexpr aclDataType code = ACL_INT32; };
template <> struct Type<int64_t> { static constexpr aclDataType code = ACL_INT64; };
template <> struct Type<float> {
    static constexpr aclDataType code = ACL_FLOAT;
    static constexpr double unit = FLT_EPSILON / 2, tiny = FLT_TRUE_MIN / 2;
};
template <> struct Type<Half> {
    static constexpr aclDataType code = ACL_FLOAT16;
    static constexpr double unit = 1.0 / (1 << 11), tiny = 1.0 / (1 << 25);
};
template <> struct Type<Bfloat> {
    static constexpr aclDataType code = ACL_BF16;
    static constexpr double unit = 1.0 / (1 << 8), tiny = FLT_MIN / (1 << 8);
};

// An initialised runtime with device 0 and one stream.
class Session {
public:
    Session()
    {
        CHECK(aclInit(nullptr));
        CHECK(aclrtSetDevice(0));
        CHECK(aclrtCreateStream(&stream));
    }
    ~Session()
    {
        CHECK(aclrtDestroyStream(stream));
        CHECK(aclrtResetDevice(0));
        CHECK(aclFinalize());
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    aclrtStream stream = nullptr;
};

// Device memory; none for a size of 0.
class Buffer {
public:
    explicit Buffer(size_t size)
    {
        if (size > 0) {
            CHECK(aclrtMalloc(&address_, size, ACL_MEM_MALLOC_HUGE_FIRST));
        }
    }
    Buffer(Buffer &&other) noexcept : address_(std::exchange(other.address_, nullptr)) {}
    ~Buffer()
    {
        if (address_) {
            CHECK(aclrtFree(address_));
        }
    }
    void *get() const { return address_; }

private:
    void *address_ = nullptr;
};

// A contiguous tensor of T with memory of its own.
template <class T> class Tensor {
public:
    explicit Tensor(const Shape &shape) : count_(elements(shape)), buffer_(count_ * sizeof(T))
    {
        handle_ = aclCreateTensor(shape.data(), shape.size(), Type<T>::code, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                  shape.size(), buffer_.get());
        CHECK(handle_ == nullptr);
    }
    template <class Values> Tensor(const Shape &shape, const Values &values) : Tensor(shape)
    {
        std::vector<T> typed(values.begin(), values.end());
        size_t size = count_ * sizeof(T);
        CHECK(aclrtMemcpy(buffer_.get(), size, typed.data(), size, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    Tensor(Tensor &&other) noexcept
        : count_(other.count_), buffer_(std::move(other.buffer_)), handle_(other.release()) {}
    ~Tensor() { CHECK(aclDestroyTensor(handle_)); }

    aclTensor *get() const { return handle_; }
    aclTensor *release() { return std::exchange(handle_, nullptr); }

    // Its numbers, as exact as the type has them.
    Numbers numbers() const
    {
        std::vector<T> typed(count_);
        size_t size = count_ * sizeof(T);
        CHECK(aclrtMemcpy(typed.data(), size, buffer_.get(), size, ACL_MEMCPY_DEVICE_TO_HOST));
        return Numbers(typed.begin(), typed.end());
    }

private:
    int64_t count_;
    Buffer buffer_;
    aclTensor *handle_ = nullptr;
};

// A list of tensors. It takes over their handles, because destroying a list destroys its members.
template <class T> class TensorList {
public:
    explicit TensorList(std::vector<Tensor<T>> tensors) : tensors_(std::move(tensors))
    {
        std::vector<const aclTensor *> handles;
        for (Tensor<T> &tensor : tensors_) {
            handles.push_back(tensor.release());
        }
        handle_ = aclCreateTensorList(handles.data(), handles.size());
        CHECK(handle_ == nullptr);
    }
    ~TensorList() { CHECK(aclDestroyTensorList(handle_)); }
    TensorList(const TensorList &) = delete;

    aclTensorList *get() const { return handle_; }
    const Tensor<T> &operator[](size_t index) const { return tensors_[index]; }

private:
    std::vector<Tensor<T>> tensors_;
    aclTensorList *handle_ = nullptr;
};

// A sum in double precision, and the sum of its terms' magnitudes, by which rounding errors are measured.
struct Sum {
    double value = 0, scale = 0;
    void add(double term)
    {
        value += term;
        scale += std::fabs(term);
    }
    Sum times(double factor) const { return {value * factor, scale * std::fabs(factor)}; }
};
using Sums = std::vector<Sum>;

// Compare a tensor with sums, and print one line: each number may be off by the rounding to its type, and by `unit` of
// its scale for the roundings before that.
template <class T> bool agrees(const char *name, const Tensor<T> &tensor, const Sums &expected, double unit)
{
    Numbers result = tensor.numbers();
    verdict found = {};
    for (size_t k = 0; k < expected.size() && k < result.size(); k++) {
        double rounding = std::fmax(Type<T>::unit * std::fabs(expected[k].value), Type<T>::tiny);
        judge(&found, result[k], expected[k].value, rounding + unit * expected[k].scale);
    }
    return passed(name, &found) && result.size() == expected.size();
}
