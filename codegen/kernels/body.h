/* A block of iterations of a kernel, whose instructions are emitted at once: where its values and operands are.
 *
 * A block is `copies` vectors of `lanes` iterations: lane l of copy c stands for index[vector_axis] + l and
 * index[copy_axis] + c * copy_step. Registers that do not vary with the vector axis stay scalars and those that do not
 * vary with the copy axis are computed once; both are found by body_analyse. body_emit.h emits the instructions. */
#ifndef CODEGEN_KERNELS_BODY_H
#define CODEGEN_KERNELS_BODY_H

#include "codegen/kernels/emit.h"
#include "graph/kernel/kernel.h"

enum { BODY_MAX_COPIES = 8 };

typedef struct Body {
    Emit *emit;
    const Kernel *kernel;
    int lanes;
    int vector_axis; /* -1 when lanes is 1 */
    int copies;
    bool spares_stores; /* what stays as it is in memory is not written again */
    bool are_zero;      /* operands that often are, in the block being emitted: they are not loaded */
    int copy_axis;      /* -1 when nothing is copied */
    int64_t copy_step;
    Ir mask[BODY_MAX_COPIES];                     /* per copy; NULL: all lanes */
    Ir index[KERNEL_MAX_AXES];                    /* scalars */
    Ir operand[KERNEL_MAX_OPERANDS];              /* addresses, as the kernel gets them */
    Ir base[KERNEL_MAX_OPERANDS];                 /* moved along the outer axes */
    uint16_t varies[KERNEL_MAX_INSTRUCTIONS + 1]; /* per register: bit set of axes */
    bool known[KERNEL_MAX_INSTRUCTIONS + 1];      /* by body_emit_constant_part: body_emit does nothing */
    Ir value[KERNEL_MAX_INSTRUCTIONS + 1][BODY_MAX_COPIES];
} Body;

/* Finds what every register varies with. */
void body_analyse(Body *body);
/* Loads the operand addresses from the kernel function's first parameter. */
void body_load_operands(Body *body, Ir operand_array);
/* Recomputes `base` after the outer indices changed. */
void body_set_base(Body *body);

/* Elements from the operand's address to copy `copy`'s lane 0. `inner`: index[inner] counts. */
Ir body_position(Body *body, int operand, int copy, bool inner);
/* The address of copy `copy`'s lane 0 of operand `number`; the offset in a register, if not 0, is added if that is a
 * scalar. */
Ir body_address(Body *body, int number, Register offset_register, int copy, bool inner);
/* The value of register r in copy c, broadcast if the block is vectorised and `vector` is set. */
Ir body_value(Body *body, Register r, int copy, bool vector);
bool body_is_vector(const Body *body, Register r);
int body_copies(const Body *body, Register r); /* 1 if shared by all copies */

#endif
