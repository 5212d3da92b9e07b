/* Emission of a kernel's instructions for a block of iterations at once.
 *
 * A block is `copies` vectors of `lanes` iterations: lane l of copy c stands for index[vector_axis] + l and
 * index[copy_axis] + c * copy_step. Registers that do not vary with the vector axis stay scalars and those that do not
 * vary with the copy axis are computed once; both are found by body_analyse. Copies are emitted instruction by
 * instruction, so that loads of all copies stand before their stores and independent work is interleaved. */
#ifndef CODEGEN_BODY_H
#define CODEGEN_BODY_H

#include "codegen/emit.h"
#include "graph/kernel.h"

enum { BODY_MAX_COPIES = 8 };

typedef struct Body {
    Emit *emit;
    const Kernel *kernel;
    int lanes;
    int vector_axis; /* -1 when lanes is 1 */
    int copies;
    int copy_axis; /* -1 when nothing is copied */
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

/* Emits what is the same for the whole call, of registers `first` on, where the function begins: loads of scalars and
 * what follows from them. */
void body_emit_constant_part(Body *body, Register first);
/* Emits instruction r at index[inner] (scalar phases: body_analyse ignored the inner axis, set index[inner] to 0). Not
 * for reductions. */
void body_emit(Body *body, Register r);
/* Elements from the operand's address to copy `copy`'s lane 0. `inner`: index[inner] counts. */
Ir body_position(Body *body, int operand, int copy, bool inner);
/* The value of register r in copy c, broadcast if the block is vectorised and `vector` is set. */
Ir body_value(Body *body, Register r, int copy, bool vector);
bool body_is_vector(const Body *body, Register r);
int body_copies(const Body *body, Register r); /* 1 if shared by all copies */

bool kernel_op_is_reduction(int op);
bool kernel_op_is_store(int op);
/* The neutral element of reduction r, and one step of it. */
Ir body_reduction_identity(Body *body, Register r, int lanes);
Ir body_reduction_step(Body *body, Register r, Ir accumulated, Ir value);
/* All lanes into one, halving. */
Ir body_reduction_across(Body *body, Register r, Ir accumulated);

#endif
