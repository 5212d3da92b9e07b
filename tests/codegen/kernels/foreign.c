#include "tests/codegen/kernels/foreign.h"

#include <stdlib.h>
#include <string.h>

#include "tests/codegen/kernels/foreign_runner.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

#define COMPILER "aarch64-linux-gnu-gcc"
#define EMULATOR "qemu-aarch64-static"

typedef struct Case {
    ForeignCase header;
    uint64_t bytes[FOREIGN_MAX_OPERANDS];
} Case;

static Case *cases;
static size_t case_count, case_capacity;
static char (*symbols)[40];
static size_t symbol_count, symbol_capacity;
static FILE *input;

const char *foreign_missing(void)
{
    if (run("command -v " COMPILER) != 0) return COMPILER " is not installed (package gcc-aarch64-linux-gnu)";
    if (run("command -v " EMULATOR) != 0) return EMULATOR " is not installed (package qemu-user-static)";
    return NULL;
}

static void open_input(void)
{
    if (input) return;
    if (scratch_folder_enter(NULL) != 0 || !(input = fopen("input", "wb"))) bug("no temporary folder");
}

static void put(const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, input) != bytes) bug("the disk is full");
}

/* The object's number; each kernel is written once. */
static size_t add_object(const CompiledKernel *code)
{
    for (size_t i = 0; i < symbol_count; i++)
        if (strcmp(symbols[i], code->symbol) == 0) return i;
    char path[32];
    snprintf(path, sizeof path, "%zu.o", symbol_count);
    write_bytes(path, code->object.bytes, code->object.size);
    if (symbol_count == symbol_capacity) {
        symbol_capacity = symbol_capacity * 2 + 16;
        symbols = realloc(symbols, symbol_capacity * sizeof *symbols);
        if (!symbols) bug("out of memory");
    }
    memcpy(symbols[symbol_count], code->symbol, sizeof *symbols);
    return symbol_count++;
}

void foreign_add(const CompiledKernel *code, int operand_count, const size_t *bytes, void *const *data)
{
    open_input();
    Case added = {.header = {.kernel = add_object(code),
                             .units = code->units,
                             .scratch_bytes = code->scratch_bytes,
                             .operands = (uint64_t)operand_count}};
    for (int i = 0; i < operand_count; i++) added.bytes[i] = bytes[i];
    put(&added.header, sizeof added.header);
    put(added.bytes, (size_t)operand_count * sizeof added.bytes[0]);
    for (int i = 0; i < operand_count; i++) put(data[i], bytes[i]);
    array_push(cases, case_count, case_capacity, added);
}

static void write_table(void)
{
    FILE *file = fopen("table.c", "w");
    if (!file) bug("table.c cannot be written");
    for (size_t i = 0; i < symbol_count; i++) fprintf(file, "void %s(void);\n", symbols[i]);
    fprintf(file, "void (*const foreign_kernels[])(void) = {\n");
    for (size_t i = 0; i < symbol_count; i++) fprintf(file, "    %s,\n", symbols[i]);
    fprintf(file, "};\n");
    fclose(file);
}

static bool check_output(ForeignCheck *check)
{
    FILE *output = fopen("output", "rb");
    bool ok = output != NULL;
    for (size_t c = 0; c < case_count && ok; c++) {
        void *data[FOREIGN_MAX_OPERANDS];
        for (uint64_t i = 0; i < cases[c].header.operands; i++) {
            data[i] = memory_allocate(cases[c].bytes[i] + 1);
            ok = ok && fread(data[i], 1, cases[c].bytes[i], output) == cases[c].bytes[i];
        }
        if (ok) check(c, data);
        for (uint64_t i = 0; i < cases[c].header.operands; i++) free(data[i]);
    }
    if (output) fclose(output);
    return ok;
}

bool foreign_run(ForeignCheck *check)
{
    open_input();
    fclose(input);
    input = NULL;
    write_table();
    must_run(COMPILER " -O1 -static -I" SKY_SOURCE_DIRECTORY " -o program " //
             SKY_SOURCE_DIRECTORY "/tests/codegen/kernels/foreign_runner.c table.c *.o -lm");
    must_run(EMULATOR " program <input >output");
    bool ok = check_output(check);
    ok = scratch_folder_leave(NULL) == 0 && ok;
    free(cases);
    free(symbols);
    cases = NULL;
    symbols = NULL;
    case_count = case_capacity = symbol_count = symbol_capacity = 0;
    return ok;
}
