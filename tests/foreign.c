#include "tests/foreign.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/foreign_runner.h"

#define COMPILER "aarch64-linux-gnu-gcc"
#define EMULATOR "qemu-aarch64-static"

typedef struct Case {
    ForeignCase header;
    uint64_t bytes[FOREIGN_MAX_OPERANDS];
} Case;

static char directory[64];
static Case *cases;
static size_t case_count, case_capacity;
static char (*symbols)[40];
static size_t symbol_count, symbol_capacity;
static FILE *input;

const char *foreign_missing(void)
{
    if (system("command -v " COMPILER " >/dev/null") != 0)
        return COMPILER " is not installed (package gcc-aarch64-linux-gnu)";
    if (system("command -v " EMULATOR " >/dev/null") != 0)
        return EMULATOR " is not installed (package qemu-user-static)";
    return NULL;
}

static void open_directory(void)
{
    if (input) return;
    char path[96];
    strcpy(directory, "/tmp/skycc-foreign-XXXXXX");
    if (!mkdtemp(directory)) bug("no temporary directory");
    snprintf(path, sizeof path, "%s/input", directory);
    input = fopen(path, "wb");
    if (!input) bug("%s cannot be written", path);
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
    char path[96];
    snprintf(path, sizeof path, "%s/%zu.o", directory, symbol_count);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(code->object.bytes, 1, code->object.size, file) != code->object.size) bug("the disk is full");
    fclose(file);
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
    open_directory();
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
    char path[96];
    snprintf(path, sizeof path, "%s/table.c", directory);
    FILE *file = fopen(path, "w");
    if (!file) bug("%s cannot be written", path);
    for (size_t i = 0; i < symbol_count; i++) fprintf(file, "void %s(void);\n", symbols[i]);
    fprintf(file, "void (*const foreign_kernels[])(void) = {\n");
    for (size_t i = 0; i < symbol_count; i++) fprintf(file, "    %s,\n", symbols[i]);
    fprintf(file, "};\n");
    fclose(file);
}

static bool succeeds(const char *what, const char *format)
{
    char command[1024];
    snprintf(command, sizeof command, format, directory);
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    fprintf(stderr, "%s failed (%d): %s\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1, command);
    return false;
}

static bool check_output(ForeignCheck *check)
{
    char path[96];
    snprintf(path, sizeof path, "%s/output", directory);
    FILE *output = fopen(path, "rb");
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
    open_directory();
    fclose(input);
    input = NULL;
    write_table();
    bool ok = succeeds("linking", "cd %s && " COMPILER " -O1 -static -I" SKY_SOURCE_DIRECTORY " -o program " //
                       SKY_SOURCE_DIRECTORY "/tests/foreign_runner.c table.c *.o -lm") &&
              succeeds("running", "cd %s && " EMULATOR " program <input >output") && check_output(check);
    ok = succeeds("removing", "rm -rf %s") && ok;
    free(cases);
    free(symbols);
    cases = NULL;
    symbols = NULL;
    case_count = case_capacity = symbol_count = symbol_capacity = 0;
    return ok;
}
