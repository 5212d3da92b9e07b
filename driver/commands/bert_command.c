/* skycc bert: a BERT graph of any size. */
#include <string.h>

#include "driver/commands/commands.h"
#include "models/bert.h"

static bool check(const BertConfig *config, Diagnostics *diagnostics)
{
    if (config->hidden % config->heads)
        return usage_error(diagnostics, NULL, "hidden size %lld is not a multiple of %lld heads",
                           (long long)config->hidden, (long long)config->heads);
    if (config->sequence > config->positions)
        return usage_error(diagnostics, "raise --positions", "sequence length %lld exceeds the %lld positions",
                           (long long)config->sequence, (long long)config->positions);
    return true;
}

bool bert_command(const Options *options, Diagnostics *diagnostics)
{
    BertConfig config = options->bert;
    config.seed = options->seed;
    if (!config.intermediate) config.intermediate = 4 * config.hidden;
    return check(&config, diagnostics) && bert_write(&config, options->output, diagnostics);
}
