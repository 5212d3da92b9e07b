/* The arithmetic of the interpreter: one instruction over `count` lanes. */
#ifndef GRAPH_KERNEL_INTERPRET_ARITHMETIC_H
#define GRAPH_KERNEL_INTERPRET_ARITHMETIC_H

#include "graph/kernel/kernel.h"

enum { STRIP = 256 }; /* lanes of a register */

typedef union InterpreterLanes {
    double number[STRIP];   /* F32 and F64 */
    int64_t integer[STRIP]; /* I64 and BOOL */
} InterpreterLanes;

/* As compiled code converts: towards 0, NaN to 0, and what is out of range to the nearest. */
int64_t interpret_integer_of(double value);
void interpret_convert(InterpreterLanes *to, DType type, const InterpreterLanes *from, DType from_type, int count);
/* `is_float`: the operands are; comparisons leave integers. */
void interpret_unary(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *from, int count);
void interpret_binary(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *a,
                      const InterpreterLanes *b, int count);
void interpret_choose(InterpreterLanes *to, DType type, const InterpreterLanes *condition, const InterpreterLanes *a,
                      const InterpreterLanes *b, int count);
/* Lane 0 of the register accumulates over the strips. */
void interpret_reduction_start(const KernelInstruction *instruction, InterpreterLanes *lanes);
void interpret_reduce(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *from, int count);

#endif
