/* Which tokenizers make the tokens of the folder's model: data sets that others made are refused. */
#include <string.h>

#include "frontend/huggingface/folder.h"
#include "frontend/text/tokenizer.h"

enum { MOST_TOKENIZER_BYTES = 1 << 28 };

static const char *add_hash(Arena *arena, const char *hashes, Tokenizer *tokenizer)
{
    char text[33];
    if (!tokenizer) return hashes;
    hash_format(tokenizer_hash(tokenizer), text);
    tokenizer_free(tokenizer);
    return arena_format(arena, "%s%s%s", hashes, *hashes ? " " : "", text);
}

const char *folder_tokenizers(const char *folder, Arena *arena)
{
    Diagnostics unused = {0}; /* a model is of use without its tokenizer */
    const char *hashes = "", *path = arena_format(arena, "%s/tokenizer.json", folder);
    if (folder_find(folder, "tokenizer.json", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        hashes = add_hash(arena, hashes, tokenizer_open_json(path, &unused));
    json_t *config = NULL;
    if (folder_find(folder, "tokenizer_config.json", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        config = json_read(arena_format(arena, "%s/tokenizer_config.json", folder), &unused);
    const json_t *lower = json_object_get(config, "do_lower_case");
    path = arena_format(arena, "%s/vocab.txt", folder);
    if (folder_find(folder, "vocab.txt", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        for (int lowercase = 0; lowercase < 2; lowercase++)
            if (!json_is_boolean(lower) || json_is_true(lower) == lowercase)
                hashes = add_hash(arena, hashes, tokenizer_open(path, lowercase, &unused));
    json_decref(config);
    diagnostics_free(&unused);
    return hashes;
}
