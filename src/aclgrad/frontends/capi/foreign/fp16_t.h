#ifndef ACLGRAD_OPDEV_FP16_T_H
#define ACLGRAD_OPDEV_FP16_T_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

/* Half precision numbers for programs that fill tensors on the host: op::fp16_t and, in bfloat16.h, op::bfloat16.
 * Both round a float to the nearest, ties to even, and convert to every arithmetic type through float. */

namespace op {

namespace aclgrad {

inline uint32_t bits_of(float number)
{
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

inline uint16_t to_half(float number)
{
    const uint32_t bits = bits_of(number), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
        return static_cast<uint16_t>(sign | 0x7E00u);
    }
    if (magnitude >= 0x477FF000u) { /* 65520 and what lies beyond rounds to infinity */
        return static_cast<uint16_t>(sign | 0x7C00u);
    }
    if (magnitude < 0x38800000u) { /* below the smallest normal: adding 0.5 leaves the rounded digits at the end */
        return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float from_half(uint16_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1Fu, fraction = half & 0x3FFu;
    if (exponent == 0x1F) {
        return float_of(sign | 0x7F800000u | fraction << 13);
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) / 16777216.0f;
        return sign ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
}

} /* namespace aclgrad */

struct fp16_t {
    uint16_t val;

    fp16_t() : val(0) {}
    template <typename T> fp16_t(const T &number) : val(aclgrad::to_half(static_cast<float>(number))) {}
    static fp16_t from_bits(uint16_t bits)
    {
        fp16_t made;
        made.val = bits;
        return made;
    }
    template <typename T> fp16_t &operator=(const T &number)
    {
        val = aclgrad::to_half(static_cast<float>(number));
        return *this;
    }
    float toFloat() const { return aclgrad::from_half(val); }
    operator float() const { return toFloat(); }
};

} /* namespace op */

/* Arithmetic and comparison are those of float; the result is rounded when it is stored. */
#define ACLGRAD_ARITHMETIC(type)                                                                                    \
    namespace op {                                                                                                  \
    template <typename T> type &operator+=(type &a, const T &b) { return a = float(a) + float(b); }                 \
    template <typename T> type &operator-=(type &a, const T &b) { return a = float(a) - float(b); }                 \
    template <typename T> type &operator*=(type &a, const T &b) { return a = float(a) * float(b); }                 \
    template <typename T> type &operator/=(type &a, const T &b) { return a = float(a) / float(b); }                 \
    }

ACLGRAD_ARITHMETIC(fp16_t)

namespace std {
template <> class numeric_limits<op::fp16_t> {
public:
    static constexpr bool is_specialized = true, is_signed = true, has_infinity = true, has_quiet_NaN = true;
    static op::fp16_t min() { return op::fp16_t::from_bits(0x0400); }
    static op::fp16_t lowest() { return op::fp16_t::from_bits(0xFBFF); }
    static op::fp16_t max() { return op::fp16_t::from_bits(0x7BFF); }
    static op::fp16_t epsilon() { return op::fp16_t::from_bits(0x1400); }
    static op::fp16_t infinity() { return op::fp16_t::from_bits(0x7C00); }
    static op::fp16_t quiet_NaN() { return op::fp16_t::from_bits(0x7E00); }
};
} /* namespace std */

#endif
