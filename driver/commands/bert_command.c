/* skycc bert: a BERT graph of any size. */
#include <string.h>

#include "driver/commands/commands.h"
#include "models/bert.h"

static bool check(const BertConfig *config, Diagnostics *diagnostics)
{
    if (config->hidden % config->heads)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                                 "a hidden size of %lld does not divide into %lld heads", (long long)config->hidden,
                                 (long long)config->heads);
    if (config->sequence > config->positions)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "raise --positions",
                                 "a sequence of %lld is longer than the %lld positions", (long long)config->sequence,
                                 (long long)config->positions);
    return true;
}

int bert_command(const Options *options, Diagnostics *diagnostics)
{
    BertConfig config = options->bert;
    config.seed = options->seed;
    if (!config.intermediate) config.intermediate = 4 * config.hidden;
    bool ok = check(&config, diagnostics) && bert_write(&config, options->output, diagnostics);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
