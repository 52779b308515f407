#ifndef ACLGRAD_OPDEV_BFLOAT16_H
#define ACLGRAD_OPDEV_BFLOAT16_H

#include "fp16_t.h"

namespace op {

struct bfloat16 {
    struct from_bits_t {};
    static constexpr from_bits_t from_bits() { return from_bits_t(); }

    uint16_t value;

    bfloat16() : value(0) {}
    constexpr bfloat16(uint16_t bits, from_bits_t) : value(bits) {}
    template <typename T> bfloat16(const T &number) : value(round_to_bfloat16(static_cast<float>(number)).value) {}
    template <typename T> bfloat16 &operator=(const T &number)
    {
        value = round_to_bfloat16(static_cast<float>(number)).value;
        return *this;
    }
    operator float() const { return aclgrad::float_of(static_cast<uint32_t>(value) << 16); }
    static bfloat16 round_to_bfloat16(float number)
    {
        const uint32_t bits = aclgrad::bits_of(number);
        const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
        return bfloat16(static_cast<uint16_t>(is_nan ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16),
                        from_bits());
    }
    static constexpr bfloat16 epsilon() { return bfloat16(0x3C00, from_bits()); }
    static constexpr bfloat16 highest() { return bfloat16(0x7F7F, from_bits()); }
    static constexpr bfloat16 lowest() { return bfloat16(0xFF7F, from_bits()); }
    static constexpr bfloat16 min_positive_normal() { return bfloat16(0x0080, from_bits()); }
    bool IsZero() const { return (value & 0x7FFF) == 0; }
};

} /* namespace op */

ACLGRAD_ARITHMETIC(bfloat16)

namespace std {
template <> class numeric_limits<op::bfloat16> {
public:
    static constexpr bool is_specialized = true, is_signed = true, has_infinity = true, has_quiet_NaN = true;
    static op::bfloat16 min() { return op::bfloat16::min_positive_normal(); }
    static op::bfloat16 lowest() { return op::bfloat16::lowest(); }
    static op::bfloat16 max() { return op::bfloat16::highest(); }
    static op::bfloat16 epsilon() { return op::bfloat16::epsilon(); }
    static op::bfloat16 infinity() { return op::bfloat16(0x7F80, op::bfloat16::from_bits()); }
    static op::bfloat16 quiet_NaN() { return op::bfloat16(0x7FC0, op::bfloat16::from_bits()); }
};
} /* namespace std */

#endif
