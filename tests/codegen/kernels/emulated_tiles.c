/* The functions are found by name in the test program, as those of the C library are (codegen/kernels/jit.c). */
#include "tests/codegen/kernels/emulated_tiles.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/TargetMachine.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, COLUMNS = ROW_BYTES / 4 };

static union {
    unsigned char bytes[ROWS][ROW_BYTES];
    float sums[ROWS][COLUMNS];
    uint16_t halves[ROWS][2 * COLUMNS];
} tiles[TILES];

void emulated_ldtilecfg(const unsigned char *configuration);
void emulated_tilerelease(void);
void emulated_tilezero(unsigned char tile);
void emulated_tileloadd64(unsigned char tile, const unsigned char *from, int64_t pitch);
void emulated_tilestored64(unsigned char tile, unsigned char *to, int64_t pitch);
void emulated_tdpbf16ps(unsigned char sum, unsigned char a, unsigned char b);

/* All kernels use all of every tile. */
void emulated_ldtilecfg(const unsigned char *configuration)
{
    for (int tile = 0; tile < TILES; tile++)
        if (configuration[0] != 1 || configuration[16 + 2 * tile] != ROW_BYTES || configuration[48 + tile] != ROWS)
            bug("tile %d is configured otherwise", tile);
}

void emulated_tilerelease(void) {}

void emulated_tilezero(unsigned char tile) { memset(&tiles[tile], 0, sizeof tiles[tile]); }

void emulated_tileloadd64(unsigned char tile, const unsigned char *from, int64_t pitch)
{
    for (int row = 0; row < ROWS; row++) memcpy(tiles[tile].bytes[row], from + row * pitch, ROW_BYTES);
}

void emulated_tilestored64(unsigned char tile, unsigned char *to, int64_t pitch)
{
    for (int row = 0; row < ROWS; row++) memcpy(to + row * pitch, tiles[tile].bytes[row], ROW_BYTES);
}

static float widen(uint16_t half)
{
    uint32_t bits = (half & 0x7f80) ? (uint32_t)half << 16 : (uint32_t)(half & 0x8000) << 16; /* subnormal: 0 */
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* As Intel defines it: what is added to a sum has been summed up before, products of first and second halves apart. */
void emulated_tdpbf16ps(unsigned char sum, unsigned char a, unsigned char b)
{
    float apart[ROWS][2 * COLUMNS] = {0}, factor[2 * COLUMNS];
    for (int pair = 0; pair < ROWS; pair++) {
        for (int n = 0; n < 2 * COLUMNS; n++) factor[n] = widen(tiles[b].halves[pair][n]);
        for (int row = 0; row < ROWS; row++) {
            float first = widen(tiles[a].halves[row][2 * pair]), second = widen(tiles[a].halves[row][2 * pair + 1]);
            for (int n = 0; n < COLUMNS; n++) {
                apart[row][2 * n] += first * factor[2 * n];
                apart[row][2 * n + 1] += second * factor[2 * n + 1];
            }
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int n = 0; n < COLUMNS; n++) tiles[sum].sums[row][n] += apart[row][2 * n] + apart[row][2 * n + 1];
}

/* Of the same length, so that texts can be changed in place; constant arguments are ordinary ones of functions. */
static void replace_all(char *text, const char *from, const char *to)
{
    for (char *at; (at = strstr(text, from));) memcpy(at, to, strlen(to));
}

static void compile_text(const Target *target, Buffer *text, Buffer *object)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMMemoryBufferRef source = LLVMCreateMemoryBufferWithMemoryRangeCopy(buffer_text(text), text->size, "emulated"),
                        code = NULL;
    LLVMModuleRef module = NULL;
    char *message = NULL;
    if (LLVMParseIRInContext(context, source, &module, &message)) bug("%s", message);
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) bug("%s", message);
    LLVMDisposeMessage(message);
    LLVMTargetMachineRef machine = target_machine(target);
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &code)) bug("%s", message);
    object->size = 0;
    buffer_append(object, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
    LLVMDisposeTargetMachine(machine);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
}

void emulate_tiles(CompiledKernels *compiled)
{
    static const char *const instructions[] = {"ldtilecfg",   "tilerelease",  "tilezero",
                                               "tileloadd64", "tilestored64", "tdpbf16ps"};
    if (compiled->count != 1) bug("one kernel at a time");
    CompiledKernel *kernel = &compiled->kernels[0];
    if (!kernel->uses_tiles) return;
    FREED_WITH(buffer_free) Buffer text = {0};
    kernels_print(compiled, KERNEL_TEXT_LLVM, &text);
    char *whole = (char *)text.bytes;
    buffer_text(&text);
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        char from[40], to[40];
        snprintf(from, sizeof from, "@llvm.x86.%s(", instructions[i]);
        snprintf(to, sizeof to, "@emulated_%s(", instructions[i]);
        replace_all(whole, from, to);
    }
    replace_all(whole, "immarg", "      ");
    compile_text(compiled->target, &text, &kernel->object);
    kernel->uses_tiles = false;
}
