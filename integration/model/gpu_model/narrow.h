// Floats of 16 bits, with the rounding of IEEE 754.
#pragma once
#include <stdint.h>

#include "machine.h"

namespace model {

// A float of 16 bits. What is computed is rounded once: sums, products and quotients of such numbers in float32 are so
// exact that rounding them again makes no difference.
template <int EXPONENT, int MANTISSA>
struct narrow {
  uint16_t bits;

  static constexpr int LOWEST = 2 - (1 << (EXPONENT - 1));  // exponent of the least normal number
  static constexpr unsigned INFINITE = ((1u << EXPONENT) - 1) << MANTISSA;

  narrow() = default;
  template <typename T>
  MODEL narrow(T value) : bits(encode(static_cast<long double>(value))) {}
  template <int E, int M>
  MODEL narrow(narrow<E, M> value) : bits(encode(static_cast<float>(value))) {}

  MODEL static uint16_t encode(long double value) {
    unsigned sign = __builtin_signbit(value) ? 1u << (EXPONENT + MANTISSA) : 0;
    if (value != value) return sign | INFINITE | (1u << (MANTISSA - 1));
    long double size = __builtin_fabsl(value);
    if (size == 0) return sign;
    if (size == __builtin_infl()) return sign | INFINITE;
    int exponent;
    __builtin_frexpl(size, &exponent);
    exponent = exponent - 1 < LOWEST ? LOWEST : exponent - 1;
    unsigned digits = static_cast<unsigned>(__builtin_rintl(__builtin_ldexpl(size, MANTISSA - exponent)));
    unsigned made = (static_cast<unsigned>(exponent - LOWEST) << MANTISSA) + digits;
    return sign | (exponent > -LOWEST + 1 || made > INFINITE ? INFINITE : made);
  }

  MODEL operator float() const {
    unsigned size = bits & ((1u << (EXPONENT + MANTISSA)) - 1), digits = size & ((1u << MANTISSA) - 1);
    int exponent = static_cast<int>(size >> MANTISSA);
    float value;
    if (size >= INFINITE)
      value = digits ? __builtin_nanf("") : __builtin_inff();
    else if (exponent == 0)
      value = static_cast<float>(__builtin_ldexpl(digits, LOWEST - MANTISSA));
    else
      value = static_cast<float>(__builtin_ldexpl(digits + (1u << MANTISSA), exponent - 1 + LOWEST - MANTISSA));
    return bits >> (EXPONENT + MANTISSA) ? -value : value;
  }
  narrow operator-() const { return from_bits(bits ^ (1u << (EXPONENT + MANTISSA))); }
  static narrow from_bits(unsigned bits) {
    narrow made;
    made.bits = bits;
    return made;
  }
};

// of equal types, and with an integer, which becomes one; anything else is ambiguous and does not compile
#define MODEL_OPERATOR(symbol, result)                                                                          \
  template <int E, int M>                                                                                       \
  result operator symbol(narrow<E, M> a, narrow<E, M> b) {                                                      \
    return static_cast<float>(a) symbol static_cast<float>(b);                                                  \
  }                                                                                                             \
  template <int E, int M>                                                                                       \
  result operator symbol(narrow<E, M> a, int b) {                                                               \
    return static_cast<float>(a) symbol static_cast<float>(narrow<E, M>(b));                                    \
  }
#define MODEL_SAME narrow<E, M>
MODEL_OPERATOR(+, MODEL_SAME)
MODEL_OPERATOR(-, MODEL_SAME)
MODEL_OPERATOR(*, MODEL_SAME)
MODEL_OPERATOR(/, MODEL_SAME)
MODEL_OPERATOR(<, bool)
MODEL_OPERATOR(>, bool)
MODEL_OPERATOR(<=, bool)
MODEL_OPERATOR(>=, bool)
MODEL_OPERATOR(==, bool)
MODEL_OPERATOR(!=, bool)
#undef MODEL_OPERATOR
#undef MODEL_SAME

}  // namespace model
