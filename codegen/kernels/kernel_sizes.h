/* Sizes at which a kernel is compiled otherwise: all of them, so that who wonders why a product twice as large is cut
 * differently has one place to look. Each was chosen by measuring on both sides. The cache of
 * compiled kernels knows these sources, and so notices when one changes. */
#ifndef CODEGEN_KERNELS_KERNEL_SIZES_H
#define CODEGEN_KERNELS_KERNEL_SIZES_H

/* Products by fused multiply-adds (gemm_plan.c); rows, columns and k in elements. */
enum {
    GEMM_MOST_DEPTH = 1536,           /* of a block of k: a panel of B stays in the second-level cache */
    GEMM_MOST_DEPTH_BY_COLUMNS = 256, /* where every k takes another line of A: they must stay in the cache */
    GEMM_MOST_DEPTH_REORDERED = 192,  /* where A is reordered: unit_rows of it stay in the second-level cache */
    GEMM_LEAST_DEPTH_REORDERED = 64,  /* shorter sums read A in place: reordering would not pay */
    GEMM_LEAST_SIDE_REORDERED = 256,  /* and so do products of which neither side is as long */
    GEMM_REORDERED_ROWS = 384,        /* of a unit whose A is reordered */
    GEMM_REORDERED_PANELS = 24,       /* reordered A is used for so many panels */
    GEMM_FEW_PANELS = 8,              /* fewer only for the sake of a second thread */
    GEMM_WANTED_REORDERED_UNITS = 4,  /* for several threads */
    GEMM_ROW_GRANULE = 24,            /* a multiple of every tile's height: units begin with a whole tile */
    GEMM_WANTED_ROWS = 1024,          /* of a unit: reordering a panel of B is paid once for so many rows */
    GEMM_LEAST_ROWS = 384,            /* of a unit that is cut for the sake of parallelism */
    GEMM_WANTED_UNITS = 16,
    GEMM_DIRECT_ROWS = 256,         /* as few rows read a panel of B in place, if it stays in the nearest cache */
    GEMM_DIRECT_TILES = 4,          /* and whatever its size if there are no more tiles to use it */
    GEMM_LEAST_ROWS_BY_COLUMNS = 4, /* fewer, of a B that lies along k, are sums of a loop kernel */
    GEMM_ZERO_STEP = 16,            /* of k: it is a multiple where zeros are looked for and left out */
    GEMM_DIRECT_EPILOGUE = 4        /* instructions of an epilogue that is unrolled over the tile in registers */
};

/* Products over reordered blocks, on AMX tiles (amx_gemm_plan.c). */
enum {
    AMX_TILE_ROWS = 32, /* two tiles by two */
    AMX_TILE_VECTORS = 2,
    AMX_MOST_DEPTH = 1024,      /* of a block of k */
    AMX_MOST_DEPTH_SPLIT = 256, /* where factors are split, and take three times the room */
    AMX_LEAST_REUSE = 60,       /* products per element that pay for splitting it; else fused multiply-adds */
    AMX_LEAST_DEPTH_SPLIT = 64, /* and per sum */
    AMX_MOST_ROWS = 768,        /* of a unit: B is reordered once for so many */
    AMX_LEAST_ROWS = 128,       /* even where the second-level cache has room for fewer */
    AMX_LEAST_PANELS = 8,       /* of a unit: A is reordered once for so many */
    AMX_LEAST_PANELS_SPLIT = 16,
    AMX_WANTED_UNITS = 4
};

/* Products by VDPBF16PS (pair_gemm_plan.c). */
enum {
    PAIR_SUMS_IN_REGISTERS = 24, /* next to four vectors of B and a pair of A */
    PAIR_MOST_DEPTH = 1536,      /* of a block of k: two panels of B stay in the second-level cache */
    PAIR_BAD_PITCH = 512,        /* rows of A whose pitch is a multiple share places in the nearest cache */
    PAIR_MOST_A_BYTES = 4 << 20, /* reordered rows of a unit: they stay in the last cache */
    PAIR_LEAST_ROWS = 384,       /* of a unit, even if they take more */
    PAIR_LEAST_PANELS = 6,       /* of a unit: several threads reorder A for so many */
    PAIR_WANTED_UNITS = 4,
    PAIR_ZERO_STEP = 16 /* of k: zeros are looked for, and left out, in such steps */
};

/* Loops (loop_plan.c). */
enum {
    LOOP_ROWS_TOGETHER = 8,         /* of a column sum: as many streams of memory as a processor follows */
    LOOP_LEAST_COLUMNS = 128,       /* of a column sum, per unit: fewer do not pay for going along rows */
    LOOP_MOST_COLUMNS = 2048,       /* their sums stay in the nearest cache */
    LOOP_LONG_ROW = 512,            /* elements: memory is read fastest one such row after the other */
    LOOP_CHUNK_ELEMENTS = 4096,     /* of the inner axis of a map, per unit */
    LOOP_MOST_PREFETCHED_ROW = 1024 /* elements: the next rows must not push these ones out of the cache */
};

#endif
