/* Subnormal numbers count as 0 in this thread. A processor may take a hundred times as long for one, and training makes
 * millions: exp of masked attention scores (a fifth of a step on real text), and moments of gradients that have become
 * 0. */
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
