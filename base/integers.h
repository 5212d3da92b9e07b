/* Arithmetic of integers that is needed everywhere. */
#ifndef BASE_INTEGERS_H
#define BASE_INTEGERS_H

#include <stdint.h>

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static inline int64_t round_up(int64_t value, int64_t multiple) { return divide_up(value, multiple) * multiple; }

#endif
