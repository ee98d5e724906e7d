/* PTX operations whose exact results are easier to say in C than in LLVM's language. */
#include "emulator.h"
#include <math.h>
#include <string.h>

#define OP PUBLIC

/* Division by zero does not trap on a GPU: the quotient is all ones, the remainder the dividend. */
OP int64_t emu_sdiv(int64_t a, int64_t b) { return b == 0 ? -1 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
OP int64_t emu_srem(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
OP uint64_t emu_udiv(uint64_t a, uint64_t b) { return b ? a / b : ~0ull; }
OP uint64_t emu_urem(uint64_t a, uint64_t b) { return b ? a % b : a; }

/* Of a number and NaN, the number; -0 is less than +0. */
#define EXTREMES(T, SUFFIX) \
    OP T emu_min_##SUFFIX(T a, T b) { return isnan(a) ? b : isnan(b) ? a : a < b ? a : b < a ? b : signbit(a) ? a : b; } \
    OP T emu_max_##SUFFIX(T a, T b) { return isnan(a) ? b : isnan(b) ? a : a > b ? a : b > a ? b : signbit(a) ? b : a; }
EXTREMES(float, f32)
EXTREMES(double, f64)

/* .ftz: denormal numbers become zeros of their sign. */
OP float emu_flush(float a) { return fpclassify(a) == FP_SUBNORMAL ? copysignf(0, a) : a; }

/* Not roundeven(): it came with a younger C library than CI may have. */
OP double emu_round(double a, uint32_t how) {
    switch (how) {
    case 0: return nearbyint(a);
    case 1: return trunc(a);
    case 2: return floor(a);
    default: return ceil(a);
    }
}

/* A rounded number → an integer of so many bits; out of range saturates, NaN is 0. */
OP int64_t emu_to_signed(double a, uint32_t bits) {
    double limit = ldexp(1, bits - 1);
    if (isnan(a)) return 0;
    if (a >= limit) return (int64_t)(~0ull >> 1 >> (64 - bits));
    return a < -limit ? -(int64_t)(~0ull >> 1 >> (64 - bits)) - 1 : (int64_t)a;
}
OP uint64_t emu_to_unsigned(double a, uint32_t bits) {
    if (isnan(a) || a <= 0) return 0;
    return a >= ldexp(1, bits) ? ~0ull >> (64 - bits) : (uint64_t)a;
}

OP uint32_t emu_prmt(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = a | (uint64_t)b << 32;
    uint32_t result = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t choice = selector >> 4 * k & 15, byte = bytes >> 8 * (choice & 7) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0; /* the sign, replicated */
        result |= byte << 8 * k;
    }
    return result;
}

OP uint64_t emu_bfe(uint64_t a, uint32_t start, uint32_t count, uint32_t bits, uint32_t is_signed) {
    start &= 255, count &= 255;
    uint64_t sign = 0, result = 0;
    uint32_t last = start + count - 1 < bits - 1 ? start + count - 1 : bits - 1;
    if (is_signed && count) sign = a >> last & 1;
    for (uint32_t k = 0; k < bits; k++) {
        uint64_t bit = k < count && start + k < bits ? a >> (start + k) & 1 : sign;
        result |= bit << k;
    }
    return result;
}
OP uint64_t emu_bfi(uint64_t a, uint64_t b, uint32_t start, uint32_t count, uint32_t bits) {
    start &= 255, count &= 255;
    for (uint32_t k = 0; k < count && start + k < bits; k++)
        b = (b & ~(1ull << (start + k))) | (a >> k & 1) << (start + k);
    return b;
}
OP uint32_t emu_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return result;
}

OP uint16_t emu_to_bf16(float a) {
    uint32_t bits;
    memcpy(&bits, &a, 4);
    if (isnan(a)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
