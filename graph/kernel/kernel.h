/* Kernel descriptions: what an operator computes, stated once. The interpreter runs them (constant folding, oracle in
 * tests); codegen compiles the same descriptions.
 *
 * A kernel is a nest of axes: outer axes, which are parallel (no two outer iterations write the same element), around
 * one inner axis, the last. Its body is a list of instructions in SSA form, grouped into phases that run one after
 * another for every outer iteration:
 *
 *   inner phase   its instructions run for every index of the inner axis, in ascending order;
 *   scalar phase  its instructions run once; operands are read and written at inner index 0.
 *
 * What an inner phase computes is seen in the same phase only, except the results of reductions (KERNEL_SUM ...), which
 * are scalars that every later phase may use. What a scalar phase computes is seen in every later phase. An operand
 * written in one phase may be read back in a later phase, or later in the same phase, at the same element.
 *
 * Softmax is three inner phases (max; exponential and sum; scale), LayerNormalization two reductions and a map. A
 * matrix product is a sum over the inner axis of a product of two loads, then a scalar phase, its epilogue. */
#ifndef GRAPH_KERNEL_KERNEL_H
#define GRAPH_KERNEL_KERNEL_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/codec.h"
#include "base/dtype.h"
#include "base/hash.h"

enum { KERNEL_MAX_AXES = 8, KERNEL_MAX_OPERANDS = 32, KERNEL_MAX_PHASES = 8, KERNEL_MAX_INSTRUCTIONS = 256 };

typedef enum KernelOp {
    /* Sources. */
    KERNEL_CONSTANT, /* .constant, of the instruction's type */
    KERNEL_AXIS,     /* the iteration index of axis `operand`; DTYPE_I64 */
    KERNEL_LOAD,   /* element of `operand`, at its strided position plus (if a is set) register a elements; converted to
                      the instruction's type, which is F32 for f32/f16/bf16, F64, I64 for every integer type, BOOL */
    KERNEL_RANDOM, /* BOOL: whether random_element of base/random.h, of key a and position b + the strided position of
                      `operand`, is below c (registers of type I64; c in 0 ... RANDOM_ELEMENT_RANGE - 1). That operand
                      is not accessed, it only says by its strides where the element stands */
    /* Effects; no result. */
    KERNEL_STORE, /* register a into `operand`, converted to its dtype (to integers as KERNEL_CONVERT, then wrapping; a
                     subnormal float32 may become a bf16 of 0); at plus register b elements if b is set */
    KERNEL_STORE_ADD, /* operand += register a; plus register b elements if b is set. With b set, inner iterations may
                         hit the same element: they add in ascending order of the inner index */
    /* Codings (base/codec_rows.h): effects that take the whole inner axis, of stride 1 in `operand`, a float32 tensor,
     * at once. Operand kernel_coding_bytes, of U8, holds the row's bytes one after another; its `elements` say how many
     * they are, and its inner stride is 0. They stand in an inner phase of their own. */
    KERNEL_ENCODE, /* the row of `operand` into bytes; stochastically if a is set: key a, first number b (I64) */
    KERNEL_DECODE, /* bytes into the row of `operand` */
    /* Reductions over the inner axis; inner phases only. */
    KERNEL_SUM,
    KERNEL_PRODUCT,
    KERNEL_MAXIMUM_OF, /* NaN wins; -infinity (least integer) of nothing */
    KERNEL_MINIMUM_OF,
    /* Unary: result type = type of a unless said otherwise. */
    KERNEL_CONVERT, /* to the instruction's type; float to integer truncates, saturates, and turns NaN into 0; to BOOL:
                       a != 0 */
    KERNEL_NEGATE,
    KERNEL_ABSOLUTE,
    KERNEL_SIGN, /* -1, 0, 1; NaN stays */
    KERNEL_EXP,
    KERNEL_LOG,
    KERNEL_SQRT,
    KERNEL_RECIPROCAL,
    KERNEL_SIN,
    KERNEL_COS,
    KERNEL_ERF,
    KERNEL_TANH,
    KERNEL_SIGMOID,
    KERNEL_NORMAL_BELOW,   /* the probability that a standard normal variable is below a; float32: to 1.2e-7 */
    KERNEL_NORMAL_DENSITY, /* exp(-a^2 / 2) / sqrt(2 pi); float32: as exactly, and 0 where |a| > 13 */
    KERNEL_NOT,            /* BOOL */
    KERNEL_IS_NAN,         /* result BOOL */
    /* Binary: a and b of one type. */
    KERNEL_ADD,
    KERNEL_SUBTRACT,
    KERNEL_MULTIPLY,
    KERNEL_MULTIPLY_BF16,   /* F32: of a and b, each rounded to bf16 (nearest, ties to even) before; a bf16 result that
                             would be subnormal may count as 0 */
    KERNEL_MULTIPLY_BF16X3, /* F32: of a and b, to 3 * 2^-16 |a b| or better: three products of the two bf16 that
                               make up most of each, or all of a and b */
    KERNEL_DIVIDE,          /* integers truncate towards zero; division by zero gives 0, INT64_MIN / -1 wraps */
    KERNEL_REMAINDER,       /* floats: fmod; integers: sign of the divisor (Python); by zero gives 0 */
    KERNEL_POWER,           /* integers by repeated multiplication, wrapping */
    KERNEL_MINIMUM,         /* NaN wins */
    KERNEL_MAXIMUM,
    KERNEL_EQUAL, /* comparisons: result BOOL */
    KERNEL_LESS,
    KERNEL_LESS_EQUAL,
    KERNEL_AND, /* BOOL */
    KERNEL_OR,
    /* Ternary. */
    KERNEL_SELECT, /* a (BOOL) ? b : c */
    KERNEL_OP_COUNT
} KernelOp;

/* A register is the number of the instruction that computes it, counted from 1; 0 is none. */
typedef uint16_t Register;

typedef struct KernelInstruction {
    uint8_t op; /* KernelOp */
    uint8_t
        type; /* DType of the result: DTYPE_F32, DTYPE_F64, DTYPE_I64 or DTYPE_BOOL; of the stored value for stores */
    uint16_t operand;
    Register a, b, c;
    union {
        double number;   /* KERNEL_CONSTANT of a float type */
        int64_t integer; /* KERNEL_CONSTANT of I64 and BOOL */
    } constant;
} KernelInstruction;

/* constant.integer of a coding. */
static inline int64_t kernel_coding(Codec codec, int bytes) { return (int64_t)codec | (int64_t)bytes << 8; }
static inline Codec kernel_coding_codec(const KernelInstruction *coding)
{
    return (Codec)(coding->constant.integer & 0xff);
}
static inline int kernel_coding_bytes(const KernelInstruction *coding) { return (int)(coding->constant.integer >> 8); }

typedef struct KernelOperand {
    DType dtype;
    bool read, written;
    bool often_zero;                 /* in long stretches, which code may look for: it changes no result */
    int64_t stride[KERNEL_MAX_AXES]; /* elements per step of each axis, the inner axis last; 0 broadcasts */
    int64_t elements; /* of the buffer that register-indexed accesses may touch, from the operand's address on, or of a
                         coded row; 0 if all accesses are strided */
} KernelOperand;

typedef struct KernelPhase {
    bool inner;
    int first, count; /* instructions[first - 1 ...]: registers first ... first + count - 1 */
} KernelPhase;

typedef struct Kernel {
    const char *label; /* what it is for people: "MatMul+Add+Gelu"; not part of its identity */
    int axis_count;    /* at least 1 */
    int block_axes;    /* the first so many, all outer ones, number blocks: no work unit has a part of two. Mostly 0 */
    int64_t extent[KERNEL_MAX_AXES];
    bool keeps_b; /* the last two operands are compiled code's own (kernel_keep_b) */
    bool limited; /* a run may end the sum over the inner axis early (kernel_limit_sum) */
    int operand_count, phase_count, instruction_count;
    KernelOperand operands[KERNEL_MAX_OPERANDS];
    KernelPhase phases[KERNEL_MAX_PHASES];
    KernelInstruction instructions[KERNEL_MAX_INSTRUCTIONS]; /* register r is instructions[r - 1] */
} Kernel;

/* How exactly matrix products of float32 multiply. */
typedef enum ProductPrecision {
    PRODUCTS_F32,   /* KERNEL_MULTIPLY */
    PRODUCTS_BF16,  /* KERNEL_MULTIPLY_BF16 */
    PRODUCTS_BF16X3 /* KERNEL_MULTIPLY_BF16X3 */
} ProductPrecision;

typedef enum KernelClass {
    KERNEL_CLASS_LOOP,    /* maps and reductions */
    KERNEL_CLASS_GEMM,    /* C[m][n] = epilogue(sum over k of A[m][k] * B[k][n]), with batch axes */
    KERNEL_CLASS_SCATTER, /* register-indexed stores: the inner axis runs in order */
    KERNEL_CLASS_CODING,  /* codings of rows */
} KernelClass;

static inline int64_t kernel_inner_extent(const Kernel *kernel) { return kernel->extent[kernel->axis_count - 1]; }
static inline const KernelInstruction *kernel_instruction(const Kernel *kernel, Register r)
{
    return &kernel->instructions[r - 1];
}

/* ---- Building ---- */

/* Every function below that returns a register appends an instruction. C leaves the order of a call's arguments open,
 * so nest at most one such call in another: otherwise the kernel, and its hash, depend on the C compiler. */

/* Starts a kernel with `axis_count` axes (the last is the inner one) and opens a first inner phase. */
void kernel_begin(Kernel *kernel, const char *label, int axis_count, const int64_t *extent);
/* Adds an operand and returns its number. `stride` has axis_count elements. */
int kernel_operand(Kernel *kernel, DType dtype, const int64_t *stride);
void kernel_begin_phase(Kernel *kernel, bool inner); /* replaces the current phase if that is still empty */

Register kernel_constant(Kernel *kernel, DType type, double number);
Register kernel_constant_like(Kernel *kernel, Register other, double number); /* of the type that this one has */
Register kernel_constant_integer(Kernel *kernel, int64_t integer);            /* DTYPE_I64 */
Register kernel_axis(Kernel *kernel, int axis);
Register kernel_load(Kernel *kernel, int operand);
Register kernel_load_at(Kernel *kernel, int operand, Register offset, int64_t elements);
void kernel_store(Kernel *kernel, int operand, Register value);
void kernel_store_at(Kernel *kernel, int operand, Register value, Register offset, int64_t elements);
void kernel_store_add(Kernel *kernel, int operand, Register value);
void kernel_store_add_at(Kernel *kernel, int operand, Register value, Register offset, int64_t elements);
Register kernel_reduce(Kernel *kernel, KernelOp op, Register a);
Register kernel_random(Kernel *kernel, int operand, Register key, Register first, Register bound);
/* Append a phase that codes rows of `operand`. key 0: to the nearest. */
void kernel_encode(Kernel *kernel, Codec codec, int operand, int bytes, Register key, Register first);
void kernel_decode(Kernel *kernel, Codec codec, int operand, int bytes);
Register kernel_unary(Kernel *kernel, KernelOp op, Register a);
Register kernel_binary(Kernel *kernel, KernelOp op, Register a, Register b);
#define kernel_add(kernel, a, b) kernel_binary(kernel, KERNEL_ADD, a, b)
#define kernel_subtract(kernel, a, b) kernel_binary(kernel, KERNEL_SUBTRACT, a, b)
#define kernel_multiply(kernel, a, b) kernel_binary(kernel, KERNEL_MULTIPLY, a, b)
Register kernel_select(Kernel *kernel, Register condition, Register a, Register b);
Register kernel_convert(Kernel *kernel, DType type, Register a); /* `a` itself when it has that type already */
static inline DType kernel_type(const Kernel *kernel, Register r) { return (DType)kernel->instructions[r - 1].type; }
/* The register type in which elements of `dtype` are computed. */
DType kernel_register_type(DType dtype);

/* ---- Predicates ---- */

static inline bool kernel_op_is_reduction(KernelOp op) { return op >= KERNEL_SUM && op <= KERNEL_MINIMUM_OF; }
static inline bool kernel_op_is_store(KernelOp op) { return op == KERNEL_STORE || op == KERNEL_STORE_ADD; }
static inline bool kernel_op_is_access(KernelOp op) { return op == KERNEL_LOAD || kernel_op_is_store(op); }
static inline bool kernel_op_is_coding(KernelOp op) { return op == KERNEL_ENCODE || op == KERNEL_DECODE; }
/* Whether instructions of that kind name an operand, if only to say where an element stands. */
static inline bool kernel_op_has_operand(KernelOp op)
{
    return kernel_op_is_access(op) || kernel_op_is_coding(op) || op == KERNEL_RANDOM;
}
/* The register that an access adds to its strided position; 0: none. */
static inline Register kernel_access_offset(const KernelInstruction *access)
{
    return access->op == KERNEL_LOAD ? access->a : access->b;
}

const KernelPhase *kernel_phase_of(const Kernel *kernel, Register r);
bool kernel_reads_axis(const Kernel *kernel, int axis); /* whether an instruction does */
/* Whether several inner iterations may store to one element, so that they must run in order. */
bool kernel_inner_axis_is_sequential(const Kernel *kernel);
/* Whether the inner axis is as parallel as the outer ones: no scalar phases, no reductions, not sequential. */
bool kernel_is_map(const Kernel *kernel);
/* A map in one phase that knows no positions and touches every operand at its strided place alone: whatever the order
 * of its axes and elements, it computes the same of them. */
bool kernel_is_elementwise(const Kernel *kernel);
KernelClass kernel_classify(const Kernel *kernel);
/* The coding of a kernel of class CODING; NULL: it has none. */
const KernelInstruction *kernel_coding_of(const Kernel *kernel);

/* The parts of a kernel of class GEMM. Axis numbers count in `extent`; row or column axis is -1 when that extent is 1
 * and was merged away. Every other outer axis is a batch axis. */
typedef struct KernelGemm {
    int row_axis, column_axis; /* m, n */
    int a, b;                  /* operands: a varies with m, b with n */
    Register sum;              /* what the epilogue starts from */
    ProductPrecision precision;
} KernelGemm;
bool kernel_match_gemm(const Kernel *kernel, KernelGemm *gemm);
/* A product of float32 that adds its sums to rows of memory and does nothing else, of a kind that code for every device
 * computes as a product. */
bool kernel_can_limit_sum(const Kernel *kernel);

/* ---- Zeros ---- */

typedef enum KernelSign { SIGN_ANY, SIGN_NOT_NEGATIVE, SIGN_POSITIVE } KernelSign;

/* What is known of some elements of an operand: whether they are computed from zeros that stand where nothing has been
 * computed, and their sign then. */
typedef struct KernelZeros {
    bool from_zeros;
    KernelSign sign;
} KernelZeros;

/* Whether the kernel divides by nothing that such zeros could make 0, nor takes its logarithm, nor a root of what they
 * could make negative. Fills what is known of operands that it writes. */
bool kernel_bears_zeros(const Kernel *kernel, KernelZeros *operands);

/* ---- Passes ---- */

/* Brings a finished kernel into its canonical form: outer axes of extent 1 dropped, neighbouring outer axes merged
 * where every operand's strides allow it and no instruction reads their index; in maps the inner axis
 * too. Operands keep their numbers. */
void kernel_canonicalize(Kernel *kernel);
/* Splits `axis`: the inner part keeps its place with extent `inner`, which divides the axis' extent; the outer part
 * comes right before it. False if there are too many axes; the axis must not be read by an instruction. */
bool kernel_split_axis(Kernel *kernel, int axis, int64_t inner);
/* Cuts the sum over the inner axis, of a kernel that adds just that to one operand, into `parts`, which divide its
 * extent: the parts are the first axis now, and stored, `stride` elements apart, where the sum had been added. False,
 * leaving the kernel as it is, if it is of another kind. */
bool kernel_cut_sum(Kernel *kernel, int64_t parts, int64_t stride);
/* Leaves of the inner axis, along which the kernel sums or scatters, the part that one of `lines` equal lines has: run
 * for one line after the other, each operand moved on by what the line has of it, it comes to the same but for
 * rounding. False if the kernel stores sums, or does something else with its inner axis. */
bool kernel_cut_lines(Kernel *kernel, int64_t lines);
/* Lets every run say how many iterations of the inner axis it sums, at least one: the first so many, and it does not
 * read the others. False, leaving the kernel as it is, unless kernel_can_limit_sum. */
bool kernel_limit_sum(Kernel *kernel);
/* Has the sums that the kernel stores added to an operand instead, whose number it returns, and makes of *fill a kernel
 * of one operand that makes 0 what the sums are added to. -1 if it stores something else. */
int kernel_add_sums(Kernel *kernel, Kernel *fill);
/* Sets block_axes so that there are so many blocks, splitting an axis if need be. False if the kernel is not so many
 * independent pieces, or a matrix product whose batch axes are not just these; it may have been changed then. */
bool kernel_cut_blocks(Kernel *kernel, int64_t blocks);

/* Has a matrix product of float32 multiply so; other kernels stay as they are. */
void kernel_set_precision(Kernel *kernel, ProductPrecision precision);

/* Lets compiled code of a matrix product of bf16 numbers keep its factor b in the order in which it multiplies it: adds
 * an operand for that and a float32, which is not 0 where b is there already, from a run of the same kernel with the
 * same b. Neither has a meaning; interpreters leave them alone, and so may compiled code. Returns the bytes of the
 * first; 0 if the kernel is of another kind, which leaves it as it is. */
int64_t kernel_keep_b(Kernel *kernel);

/* Identity: everything but the label. */
Hash kernel_hash(const Kernel *kernel);
/* Floating-point operations of one execution, a fused multiply-add counted as two; bytes read and written once. */
double kernel_flops(const Kernel *kernel);
double kernel_bytes(const Kernel *kernel);

void kernel_verify(const Kernel *kernel); /* bug() on the first violation of this header's rules */
void kernel_print(const Kernel *kernel, Buffer *buffer);

/* ---- Interpreter ---- */

/* Runs the kernel over `address`, one pointer per operand. Floats are computed in double and rounded when stored.
 * Returns false if a register-indexed access leaves its operand's elements (nothing is written there). */
bool kernel_interpret(const Kernel *kernel, void *const *address);
/* The same to a limit of its sum, if the kernel is `limited`; others run as a whole. */
bool kernel_interpret_until(const Kernel *kernel, void *const *address, int64_t limit);
/* The same of one block alone, counted in the order of the block axes. */
bool kernel_interpret_block(const Kernel *kernel, void *const *address, int64_t block);

#endif
