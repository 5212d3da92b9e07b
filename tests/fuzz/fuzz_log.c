/* The CSV log of a run, drawn. */
#include "driver/commands/commands.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    fuzz_file("log.csv", data, size);
    fuzz_end(plot_command(&(Options){.inputs = {.items = (const char *[]){"log.csv"}, .count = 1}}, &diagnostics),
             &diagnostics);
    return 0;
}
