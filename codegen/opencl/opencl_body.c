#include "codegen/opencl/opencl_body.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Types and constants ---- */

const char *opencl_register_type(DType type)
{
    switch (type) {
    case DTYPE_F32: return "float";
    case DTYPE_F64: return "double";
    case DTYPE_I64: return "long";
    default: return "int"; /* truth values */
    }
}

/* What an element is in memory. */
static const char *opencl_memory_type(DType dtype)
{
    static const char *const names[DTYPE_COUNT] = {
        [DTYPE_F32] = "float", [DTYPE_F64] = "double", [DTYPE_F16] = "half",   [DTYPE_BF16] = "ushort",
        [DTYPE_I32] = "int",   [DTYPE_I64] = "long",   [DTYPE_BOOL] = "uchar", [DTYPE_I8] = "char",
        [DTYPE_U8] = "uchar",  [DTYPE_I16] = "short",  [DTYPE_U16] = "ushort", [DTYPE_U32] = "uint",
        [DTYPE_U64] = "ulong"};
    if (!names[dtype]) bug("%s in OpenCL", dtype_name(dtype));
    return names[dtype];
}

static void print_number(Buffer *text, double number, DType type)
{
    const char *suffix = type == DTYPE_F32 ? "f" : "";
    if (isnan(number))
        buffer_print(text, type == DTYPE_F32 ? "as_float(0x7fc00000)" : "as_double(0x7ff8000000000000L)");
    else if (isinf(number))
        buffer_print(text, type == DTYPE_F32 ? "%sINFINITY" : "%s(double)INFINITY", number < 0 ? "-" : "");
    else
        buffer_print(text, "%a%s", type == DTYPE_F32 ? (double)(float)number : number, suffix);
}

static void print_integer(Buffer *text, int64_t integer)
{
    if (integer == INT64_MIN)
        buffer_print(text, "LONG_MIN");
    else
        buffer_print(text, "%" PRId64 "L", integer);
}

static void print_constant(const OpenClBody *body, const KernelInstruction *instruction)
{
    DType type = (DType)instruction->type;
    if (dtype_is_float(type))
        print_number(body->text, instruction->constant.number, type);
    else if (type == DTYPE_BOOL)
        buffer_print(body->text, "%d", instruction->constant.integer != 0);
    else
        print_integer(body->text, instruction->constant.integer);
}

/* Register a, converted as KERNEL_CONVERT does. */
static void print_converted(const OpenClBody *body, DType to, Register a)
{
    DType from = kernel_type(body->kernel, a);
    if (from == to)
        buffer_print(body->text, "r%d", a);
    else if (to == DTYPE_BOOL)
        buffer_print(body->text, "(r%d != 0)", a);
    else if (to == DTYPE_I64 && dtype_is_float(from))
        buffer_print(body->text, "%sto_long(r%d)", from == DTYPE_F64 ? "double_" : "", a);
    else
        buffer_print(body->text, "(%s)r%d", opencl_register_type(to), a);
}

/* ---- Memory ---- */

/* Elements from where the operand starts in this unit, as an expression. */
typedef char Elements[96];

static void print_elements(const OpenClBody *body, const KernelInstruction *access, Register offset, bool inner,
                           Elements text)
{
    int axis = body->kernel->axis_count - 1;
    int64_t stride = body->kernel->operands[access->operand].stride[axis];
    char strided[48] = "0", more[24] = "";
    if (inner && !body->map && stride) snprintf(strided, sizeof strided, "i%d * %" PRId64, axis, stride);
    if (offset) snprintf(more, sizeof more, " + r%d", offset);
    snprintf(text, sizeof(Elements), "%s%s", strided, more);
}

/* AT(type, buffer, byte) of an element. */
static void print_place(const OpenClBody *body, int operand, const char *elements)
{
    DType dtype = body->kernel->operands[operand].dtype;
    buffer_print(body->text, "AT(%s, b%d, q%d + %zu * (%s))", opencl_memory_type(dtype), operand, operand,
                 dtype_size(dtype), elements);
}

void opencl_print_element(const OpenClBody *body, int operand, const char *elements)
{
    DType dtype = body->kernel->operands[operand].dtype;
    Buffer *text = body->text;
    if (dtype_in_blocks(dtype)) {
        buffer_print(text, "block_load(b%d, o%d, q%d + %s, %d)", operand, operand, operand, elements,
                     dtype == DTYPE_Q8 ? 8 : 4);
        return;
    }
    const char *open = dtype == DTYPE_F16 ? "vload_half(0, &" : dtype == DTYPE_BF16 ? "bf16_load(" : NULL;
    if (open)
        buffer_print(text, "%s", open);
    else
        buffer_print(text, "(%s)", opencl_register_type(kernel_register_type(dtype)));
    print_place(body, operand, elements);
    if (open) buffer_print(text, ")");
}

static void print_store(const OpenClBody *body, const KernelInstruction *store, bool inner)
{
    DType dtype = body->kernel->operands[store->operand].dtype, wide = kernel_register_type(dtype);
    Buffer *text = body->text;
    Elements elements;
    print_elements(body, store, store->b, inner, elements);
    buffer_print(text, "{ %s x = ", opencl_register_type(wide));
    print_converted(body, wide, store->a);
    if (store->op == KERNEL_STORE_ADD) {
        buffer_print(text, "; x = ");
        opencl_print_element(body, store->operand, elements);
        buffer_print(text, wide == DTYPE_BOOL ? " | x" : " + x");
    }
    buffer_print(text, dtype == DTYPE_F16 ? "; vstore_half_rte(x, 0, &" : "; ");
    print_place(body, store->operand, elements);
    if (dtype == DTYPE_F16)
        buffer_print(text, ")");
    else
        buffer_print(text, dtype == DTYPE_BF16 ? " = bf16_store(x)" : " = (%s)x", opencl_memory_type(dtype));
    buffer_print(text, "; }");
}

/* ---- Instructions ---- */

/* What an instruction computes, by the type of its argument. $ is the first argument, # the second, ~ the type. */
typedef struct Meaning {
    const char *of_floats, *of_integers, *of_truths;
} Meaning;

static const Meaning meanings[KERNEL_OP_COUNT] = {
    [KERNEL_NEGATE] = {"-$", "(long)(0 - (ulong)$)", NULL},
    [KERNEL_ABSOLUTE] = {"fabs($)", "(long)abs($)", NULL},
    [KERNEL_SIGN] = {"(isnan($) ? $ : (~)(($ > 0) - ($ < 0)))", "(long)(($ > 0) - ($ < 0))", NULL},
    [KERNEL_EXP] = {"exp($)", NULL, NULL},
    [KERNEL_LOG] = {"log($)", NULL, NULL},
    [KERNEL_SQRT] = {"sqrt($)", NULL, NULL},
    [KERNEL_RECIPROCAL] = {"(~)1 / $", NULL, NULL},
    [KERNEL_SIN] = {"sin($)", NULL, NULL},
    [KERNEL_COS] = {"cos($)", NULL, NULL},
    [KERNEL_ERF] = {"erf($)", NULL, NULL},
    [KERNEL_TANH] = {"tanh($)", NULL, NULL},
    [KERNEL_SIGMOID] = {"(~)1 / ((~)1 + exp(-$))", NULL, NULL},
    [KERNEL_NORMAL_BELOW] = {"(~)0.5f * erfc((~)-0x1.6a09e667f3bcdp-1 * $)", NULL, NULL},
    [KERNEL_NORMAL_DENSITY] = {"(~)0x1.9884533d43651p-2 * exp((~)-0.5f * $ * $)", NULL, NULL},
    [KERNEL_NOT] = {NULL, NULL, "!$"},
    [KERNEL_IS_NAN] = {"(isnan($) != 0)", "0", "0"},
    [KERNEL_ADD] = {"$ + #", "(long)((ulong)$ + (ulong)#)", NULL},
    [KERNEL_SUBTRACT] = {"$ - #", "(long)((ulong)$ - (ulong)#)", NULL},
    [KERNEL_MULTIPLY] = {"$ * #", "(long)((ulong)$ * (ulong)#)", NULL},
    [KERNEL_MULTIPLY_BF16] = {"bf16_round($) * bf16_round(#)", NULL, NULL},
    [KERNEL_MULTIPLY_BF16X3] = {"$ * #", NULL, NULL},
    [KERNEL_DIVIDE] = {"$ / #", "divide($, #)", NULL},
    [KERNEL_REMAINDER] = {"fmod($, #)", "remainder_of($, #)", NULL},
    [KERNEL_POWER] = {"pow($, #)", "power($, #)", NULL},
    [KERNEL_MINIMUM] = {"(isnan($) || $ < # ? $ : #)", "min($, #)", NULL},
    [KERNEL_MAXIMUM] = {"(isnan($) || $ > # ? $ : #)", "max($, #)", NULL},
    [KERNEL_EQUAL] = {"($ == #)", "($ == #)", "($ == #)"},
    [KERNEL_LESS] = {"($ < #)", "($ < #)", NULL},
    [KERNEL_LESS_EQUAL] = {"($ <= #)", "($ <= #)", NULL},
    [KERNEL_AND] = {NULL, NULL, "($ && #)"},
    [KERNEL_OR] = {NULL, NULL, "($ || #)"},
    /* $ is the result so far. */
    [KERNEL_SUM] = {"$ + #", "(long)((ulong)$ + (ulong)#)", NULL},
    [KERNEL_PRODUCT] = {"$ * #", "(long)((ulong)$ * (ulong)#)", NULL},
    [KERNEL_MAXIMUM_OF] = {"(isnan($) || $ > # ? $ : #)", "max($, #)", NULL},
    [KERNEL_MINIMUM_OF] = {"(isnan($) || $ < # ? $ : #)", "min($, #)", NULL},
};

static void print_meaning(const OpenClBody *body, int op, DType type, Register a, Register b)
{
    const Meaning *meaning = &meanings[op];
    const char *form = type == DTYPE_BOOL     ? meaning->of_truths
                       : dtype_is_float(type) ? meaning->of_floats
                                              : meaning->of_integers;
    if (!form) bug("kernel %s: instruction %d on %s in OpenCL", body->kernel->label, op, dtype_name(type));
    for (; *form; form++)
        if (*form == '$')
            buffer_print(body->text, "r%d", a);
        else if (*form == '#')
            buffer_print(body->text, "r%d", b);
        else if (*form == '~')
            buffer_print(body->text, "%s", opencl_register_type(type));
        else
            buffer_append(body->text, form, 1);
}

/* Small whole exponents are products, as on the CPU. */
static bool print_power(const OpenClBody *body, const KernelInstruction *power)
{
    if (power->op != KERNEL_POWER || !dtype_is_float((DType)power->type)) return false;
    const KernelInstruction *exponent = kernel_instruction(body->kernel, power->b);
    if (exponent->op != KERNEL_CONSTANT) return false;
    double number = exponent->constant.number;
    if (number != 1 && number != 2 && number != 3) return false;
    for (int i = 0; i < (int)number; i++) buffer_print(body->text, "%sr%d", i ? " * " : "", power->a);
    return true;
}

static void print_random(const OpenClBody *body, const KernelInstruction *random)
{
    const KernelOperand *at = &body->kernel->operands[random->operand];
    buffer_print(body->text, "below(r%d, r%d", random->a, random->b);
    for (int axis = 0; axis < body->kernel->axis_count; axis++)
        if (at->stride[axis]) buffer_print(body->text, " + i%d * %" PRId64, axis, at->stride[axis]);
    buffer_print(body->text, ", r%d)", random->c);
}

static void print_value(const OpenClBody *body, Register r, bool inner)
{
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    Buffer *text = body->text;
    Elements elements;
    switch (instruction->op) {
    case KERNEL_CONSTANT: print_constant(body, instruction); break;
    case KERNEL_AXIS: buffer_print(text, "i%d", instruction->operand); break;
    case KERNEL_LOAD:
        print_elements(body, instruction, instruction->a, inner, elements);
        opencl_print_element(body, instruction->operand, elements);
        break;
    case KERNEL_RANDOM: print_random(body, instruction); break;
    case KERNEL_CONVERT: print_converted(body, (DType)instruction->type, instruction->a); break;
    case KERNEL_SELECT: buffer_print(text, "r%d ? r%d : r%d", instruction->a, instruction->b, instruction->c); break;
    default:
        if (kernel_op_is_reduction(instruction->op))
            print_meaning(body, instruction->op, (DType)instruction->type, r, instruction->a);
        else if (!print_power(body, instruction))
            print_meaning(body, instruction->op, kernel_type(body->kernel, instruction->a), instruction->a,
                          instruction->b);
    }
}

static void print_instruction(const OpenClBody *body, Register r, bool inner)
{
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    buffer_print(body->text, "    ");
    if (kernel_op_is_store(instruction->op)) {
        print_store(body, instruction, inner);
    } else {
        buffer_print(body->text, "r%d = ", r);
        print_value(body, r, inner);
        buffer_print(body->text, ";");
    }
    buffer_print(body->text, "\n");
}

/* What a reduction of nothing is. */
static void print_identity(const OpenClBody *body, Register r)
{
    const KernelInstruction *reduction = kernel_instruction(body->kernel, r);
    bool least = reduction->op == KERNEL_MAXIMUM_OF, most = reduction->op == KERNEL_MINIMUM_OF;
    DType type = (DType)reduction->type;
    buffer_print(body->text, "    r%d = ", r);
    if (dtype_is_float(type))
        print_number(body->text, least ? -INFINITY : most ? INFINITY : reduction->op == KERNEL_PRODUCT, type);
    else
        print_integer(body->text, least ? INT64_MIN : most ? INT64_MAX : reduction->op == KERNEL_PRODUCT);
    buffer_print(body->text, ";\n");
}

/* All items of the group get what they found together, in an order that the size of the group alone decides. */
static void print_combination(const OpenClBody *body, Register r)
{
    enum { LEFT = KERNEL_MAX_INSTRUCTIONS + 1, RIGHT };
    const KernelInstruction *reduction = kernel_instruction(body->kernel, r);
    DType type = (DType)reduction->type;
    const char *name = opencl_register_type(type);
    buffer_print(body->text,
                 "    all_%s[item] = r%d;\n    barrier(CLK_LOCAL_MEM_FENCE);\n"
                 "    for (int other = ROW_GROUP / 2; other > 0; other /= 2) {\n"
                 "        if (item < other) { %s r%d = all_%s[item], r%d = all_%s[item + other]; all_%s[item] = ",
                 name, r, name, LEFT, name, RIGHT, name, name);
    print_meaning(body, reduction->op, type, LEFT, RIGHT);
    buffer_print(body->text,
                 "; }\n        barrier(CLK_LOCAL_MEM_FENCE);\n    }\n    r%d = all_%s[0];\n"
                 "    barrier(CLK_LOCAL_MEM_FENCE);\n",
                 r, name);
}

static void print_instructions(const OpenClBody *body, const KernelPhase *phase)
{
    bool one = body->group && !phase->inner; /* all items compute a scalar, one of them stores it */
    for (int i = 0; i < phase->count; i++) {
        Register r = (Register)(phase->first + i);
        bool store = kernel_op_is_store(kernel_instruction(body->kernel, r)->op);
        if (one && store) buffer_print(body->text, "    barrier(CLK_GLOBAL_MEM_FENCE);\n    if (item == 0)");
        print_instruction(body, r, phase->inner);
    }
}

void opencl_print_phase(const OpenClBody *body, const KernelPhase *phase)
{
    bool loop = phase->inner && !body->map;
    Register first = (Register)phase->first, end = (Register)(phase->first + phase->count);
    int axis = body->kernel->axis_count - 1;
    Buffer *text = body->text;
    for (Register r = first; r < end; r++)
        if (kernel_op_is_reduction(kernel_instruction(body->kernel, r)->op)) print_identity(body, r);
    if (loop)
        buffer_print(text, "    for (i%d = %s; i%d < %" PRId64 "; i%d += %s) {\n", axis, body->group ? "item" : "0",
                     axis, kernel_inner_extent(body->kernel), axis, body->group ? "ROW_GROUP" : "1");
    else if (!body->map)
        buffer_print(text, "    i%d = 0;\n", axis);
    print_instructions(body, phase);
    if (loop) buffer_print(text, "    }\n");
    if (!body->group) return;
    for (Register r = first; r < end; r++)
        if (kernel_op_is_reduction(kernel_instruction(body->kernel, r)->op)) print_combination(body, r);
    buffer_print(text, "    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);\n");
}

void opencl_print_registers(const OpenClBody *body)
{
    for (Register r = 1; r <= body->kernel->instruction_count; r++) {
        KernelOp op = kernel_instruction(body->kernel, r)->op;
        if (!kernel_op_is_store(op) && !kernel_op_is_coding(op))
            buffer_print(body->text, "    %s r%d;\n", opencl_register_type(kernel_type(body->kernel, r)), r);
    }
}
