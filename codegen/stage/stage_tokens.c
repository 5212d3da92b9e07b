/* Tokens after the last row of a micro-batch's last line (runtime/program/packing.h): calls that compute each token
 * apart from the others leave them out.
 *
 * Other calls, attention above all, read these tokens, in products with what masks make 0, or in sums of gradients. So
 * once the wave that leaves them out is done they become 0 (SkyCall.tails): what a gradient has there must add nothing.
 * A stage that might divide by such a 0 of its own computes all tokens; so do all stages where one might divide by what
 * another one sends. */
#include "codegen/stage/stage_builder.h"

/* Notes which values the call leaves tokens out of, and of which it reads all. */
static void mark_call(const LoweredCall *call, const LineCut *cut, bool *cut_short, bool *read_whole)
{
    for (int i = 0; i < call->kernel->operand_count; i++) {
        const KernelOperand *operand = &call->kernel->operands[i];
        cut_short[call->operands[i].value] |= operand->written && cut->token_extent && !cut->sum_extent;
        read_whole[call->operands[i].value] |= operand->read && !cut->token_extent;
    }
}

static void mark_all(const ValueList *list, bool *read_whole)
{
    for (size_t i = 0; i < list->count; i++) read_whole[list->values[i]] = true;
}

/* What other stages send may be 0, or computed of zeros, where they have left tokens out. */
static void expect_zeros(const ValueList *received, KernelZeros *zeros)
{
    for (size_t i = 0; i < received->count; i++) zeros[received->values[i]] = (KernelZeros){true, SIGN_ANY};
}

/* What becomes of zeros in the call, which reads whole values. */
static bool bears_zeros(const StageBuilder *builder, const LoweredCall *call, KernelZeros *zeros)
{
    KernelZeros operands[KERNEL_MAX_OPERANDS];
    int count = call->kernel->operand_count;
    for (int i = 0; i < count; i++) {
        ValueId value = call->operands[i].value;
        bool tail = builder->cuts_tokens && builder->needs_tail[value];
        operands[i] = tail ? (KernelZeros){true, SIGN_NOT_NEGATIVE} : zeros[value];
    }
    if (!kernel_bears_zeros(call->kernel, operands)) return false;
    for (int i = 0; i < count; i++)
        if (call->kernel->operands[i].written) zeros[call->operands[i].value] = operands[i];
    return true;
}

static LineCut cut_of(const StageBuilder *builder, size_t c)
{
    LineCut cut;
    Kernel kernel = *builder->lowering.calls[c].kernel;
    stage_cut_lines(builder, &builder->lowering.calls[c], builder->groups[c].blocks, &kernel, &cut);
    return cut;
}

/* Whether the stage's calls bear what it leaves out itself, and others where `received`. */
static bool stage_bears_zeros(const StageBuilder *builder, bool received)
{
    KernelZeros *zeros = value_array_new(builder->index->arrays, KernelZeros);
    bool bears = true;
    if (received) expect_zeros(&builder->receive_forward, zeros);
    if (received) expect_zeros(&builder->receive_backward, zeros);
    for (size_t c = 0; c < builder->end[SKY_LIST_WEIGHT_GRADIENT] && bears; c++) {
        const LoweredCall *call = &builder->lowering.calls[c];
        if (!call->dead && !cut_of(builder, c).token_extent) bears = bears_zeros(builder, call, zeros);
    }
    value_array_return(builder->index->arrays, zeros);
    return bears;
}

void stage_find_tails(StageBuilder *builder)
{
    ValueArrays *arrays = builder->index->arrays;
    size_t end = builder->end[SKY_LIST_WEIGHT_GRADIENT];
    const LoweredCall *calls = builder->lowering.calls;
    bool *read_whole = value_array_new(arrays, bool);
    builder->cuts_tokens = true;
    builder->needs_tail = value_array_new(arrays, bool);
    mark_all(&builder->send_forward, read_whole);
    mark_all(&builder->send_backward, read_whole);
    mark_all(&builder->outputs, read_whole);
    for (size_t c = 0; c < end; c++) {
        LineCut cut = cut_of(builder, c);
        if (!calls[c].dead) mark_call(&calls[c], &cut, builder->needs_tail, read_whole);
    }
    for (size_t c = 0; c < end; c++)
        for (int i = 0; i < calls[c].kernel->operand_count; i++)
            builder->needs_tail[calls[c].operands[i].value] &= read_whole[calls[c].operands[i].value];
    builder->cuts_tokens = stage_bears_zeros(builder, false);
    builder->code->tokens_vary = builder->cuts_tokens;
    builder->code->bears_zeros = stage_bears_zeros(builder, true);
    value_array_return(arrays, read_whole);
}
