/* Whether this thread computes with subnormal numbers or takes them for 0. Processors may take a hundred times as long
 * for one, even where it becomes 0 by rounding, and training makes them by the million: exp of what attention's mask
 * keeps apart, which made whole steps on real text a fifth longer, and a moment of a gradient that has become 0, as of
 * a word that is not seen any more, which decays until 0.9 times the least few of them rounds to themselves. */
#ifndef RUNTIME_PROGRAM_SUBNORMALS_H
#define RUNTIME_PROGRAM_SUBNORMALS_H

#include <stdint.h>

/* Takes subnormal operands and results for 0 from here on. Returns what subnormals_restore needs. */
static inline uint64_t subnormals_flush(void);
static inline void subnormals_restore(uint64_t before);

#if defined(__x86_64__)
static inline uint64_t subnormals_flush(void)
{
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZERO = 1 << 6 };
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return before;
}
static inline void subnormals_restore(uint64_t before) { __builtin_ia32_ldmxcsr((unsigned)before); }
#elif defined(__aarch64__)
static inline uint64_t subnormals_flush(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | 1u << 24) : "memory");
    return before;
}
static inline void subnormals_restore(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory"); }
#else
static inline uint64_t subnormals_flush(void) { return 0; }
static inline void subnormals_restore(uint64_t before) { (void)before; }
#endif

#endif
