/* Functions whose loops use the widest vectors that the processor has. Products and sums are not joined, so the bits
 * do not depend on it. */
#ifndef BASE_WIDE_H
#define BASE_WIDE_H

#if defined(__x86_64__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

#endif
