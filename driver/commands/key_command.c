/* skycc key: the pair of keys by which the other sites of a run know one. */
#include "base/text.h"
#include "driver/commands/commands.h"
#include "runtime/wire/keys.h"

int key_command(const Options *options, Diagnostics *diagnostics)
{
    WireKeys keys;
    if (!wire_keys_write(&keys, options->key, diagnostics)) return diagnostics->exit_code;
    text_print(stdout, "%s\n", keys.public_key);
    wire_keys_forget(&keys);
    return EXIT_OK;
}
