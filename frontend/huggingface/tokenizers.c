#include "frontend/huggingface/tokenizers.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/parts.h"
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
    FREED_WITH(diagnostics_free) Diagnostics unused = {0}; /* a model is of use without its tokenizer */
    const char *hashes = "", *path = arena_format(arena, "%s/tokenizer.json", folder);
    if (folder_find(folder, "tokenizer.json", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        hashes = add_hash(arena, hashes, tokenizer_open_json(path, &unused));
    json_auto_t *config = NULL;
    if (folder_find(folder, "tokenizer_config.json", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        config = json_read_reals(arena_format(arena, "%s/tokenizer_config.json", folder), &unused);
    const json_t *lower = json_object_get(config, "do_lower_case");
    path = arena_format(arena, "%s/vocab.txt", folder);
    if (folder_find(folder, "vocab.txt", MOST_TOKENIZER_BYTES, &unused) == FOLDER_PRESENT)
        for (int lowercase = 0; lowercase < 2; lowercase++)
            if (!json_is_boolean(lower) || json_is_true(lower) == lowercase)
                hashes = add_hash(arena, hashes, tokenizer_open(path, lowercase, &unused));
    return hashes;
}

/* ---- Copies ---- */

/* The files that the library's fast and slow tokenizers read. */
static const char *const files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "spiece.model",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
    "sentencepiece.bpe.model",
};

bool tokenizer_copy(const char *source, const char *to, size_t *copied, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof files / sizeof *files; i++) {
        FolderEntry entry = folder_find(source, files[i], MOST_TOKENIZER_BYTES, diagnostics);
        MappedFile file;
        ok = entry != FOLDER_REFUSED;
        if (entry != FOLDER_PRESENT) continue;
        ok = file_map(&file, arena_format(&arena, "%s/%s", source, files[i]), diagnostics);
        if (!ok) break;
        ok = file_write_part(arena_format(&arena, "%s/%s", to, files[i]), file.bytes, file.size, diagnostics);
        file_unmap(&file);
        ++*copied;
    }
    return ok;
}

/* model.onnx has its tokenizer in model.tokenizer. */
static const char *place_of_copy(const char *model, Arena *arena)
{
    return arena_format(arena, "%.*s.tokenizer", (int)text_stem(model, ".onnx"), model);
}

static bool keep(const char *source, const char *path, Diagnostics *diagnostics)
{
    size_t copied = 0;
    OutputDirectory directory;
    if (!directory_create(&directory, path, false, diagnostics)) return false;
    bool ok = tokenizer_copy(source, directory.temporary, &copied, diagnostics);
    if (ok && (copied || access(path, F_OK) == 0)) return directory_commit(&directory, diagnostics);
    directory_abandon(&directory);
    return ok;
}

void tokenizer_keep(const char *source, const char *model, Diagnostics *diagnostics)
{
    struct stat status;
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    const char *path = place_of_copy(model, &arena);
    if (strcmp(model, "-") != 0 && stat(model, &status) == 0 && S_ISREG(status.st_mode) && !keep(source, path, &found))
        diagnostics_warning(diagnostics, PLACE_FILE(path), "give it with --tokenizer, or keep the folder",
                            "cannot take the model's tokenizer: %s", found.first->message);
}

const char *tokenizer_folder(const char *model, const char *recorded, Arena *arena)
{
    const char *slash = strrchr(model, '/');
    const char *own = slash ? arena_format(arena, "%.*s", (int)(slash - model), model) : ".";
    const char *const places[] = {place_of_copy(model, arena), recorded, own};
    for (int i = 0; i < 6; i++)
        if (places[i / 2] &&
            access(arena_format(arena, "%s/%s", places[i / 2], i % 2 ? "vocab.txt" : "tokenizer.json"), F_OK) == 0)
            return arena_string(arena, places[i / 2]);
    return recorded ? arena_string(arena, recorded) : NULL;
}
