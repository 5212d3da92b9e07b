/* Sizes at which a stage is laid out or its calls are cut otherwise. */
#ifndef CODEGEN_STAGE_STAGE_SIZES_H
#define CODEGEN_STAGE_STAGE_SIZES_H

enum {
    STAGE_GROUP_CALLS = 16, /* at most: more than attention has in any form, and what a thread hands on stays near */
    STAGE_PART_ROWS = 32,   /* at least, of a sum in parts: shorter parts cost more to add up than they share out */
    STAGE_LARGE_STATE = 512 << 10,     /* bytes: values of the state that must not stand a multiple of this apart ... */
    STAGE_STATE_GAP = (36 << 10) + 256 /* ... so this many are left free after each (stage_places.c) */
};

#endif
