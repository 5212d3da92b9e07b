/* Sizes at which programs run something otherwise. None of them but the blocks of squares changes a result, and those
 * do not depend on threads. */
#ifndef RUNTIME_PROGRAM_RUNTIME_SIZES_H
#define RUNTIME_PROGRAM_RUNTIME_SIZES_H

enum {
    /* Of work, by SkyCall.nanoseconds: to wake a thread for less, or hand it less at once, costs more than it saves. */
    SIZE_THREAD_NS = 15000,
    SIZE_PIECE_NS = 7500,
    SIZE_ZEROED_TOGETHER = 1 << 18, /* bytes that are worth a region of all threads to zero */
    SIZE_SQUARE_BLOCK = 1 << 14,    /* elements of a gradient, whose squares one thread adds up */
    SIZE_SQUARE_BLOCKS = 1 << 10,   /* of larger gradients the blocks grow */
    SIZE_SPINS = 1 << 14,           /* of a thread at a meeting: about a millisecond, longer than most kernels take */
    SIZE_PASSIVE_SPINS = 16         /* the same where threads share cores */
};

#endif
