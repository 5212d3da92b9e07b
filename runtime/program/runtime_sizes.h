/* Sizes at which programs run something otherwise. None of them changes a result. */
#ifndef RUNTIME_PROGRAM_RUNTIME_SIZES_H
#define RUNTIME_PROGRAM_RUNTIME_SIZES_H

enum {
    /* Of work, by SkyCall.nanoseconds: to wake a thread for less, or hand it less at once, costs more than it saves. */
    SIZE_THREAD_NS = 15000,
    SIZE_PIECE_NS = 7500,
    SIZE_ZEROED_TOGETHER = 1 << 18, /* bytes that are worth a region of all threads to zero */
    SIZE_SPINS = 1 << 14,           /* of a thread at a meeting: about a millisecond, longer than most kernels take */
    SIZE_PASSIVE_SPINS = 16         /* the same where threads share cores */
};

#endif
