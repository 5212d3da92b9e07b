/* skycc key: makes the keys of a site. */
#include "base/text.h"
#include "driver/commands/commands.h"
#include "runtime/wire/keys.h"

bool key_command(const Options *options, Diagnostics *diagnostics)
{
    WireKeys keys;
    if (!wire_keys_write(&keys, options->key, diagnostics)) return false;
    text_print(stdout, "%s\n", keys.public_key);
    wire_keys_forget(&keys);
    return true;
}
