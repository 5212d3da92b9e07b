#include "cluster/device_spec.h"

#include "base/buffer.h"

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool device_spec_read(YamlFile *file, const char *spec, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    bool first_error = diagnostics->errors == 0;
    while (is_blank(*spec)) spec++;
    const char *text = spec;
    if (*spec != '{') { /* one to one, so that places stay what they are, but for the brace in front */
        FREED_WITH(buffer_free) Buffer yaml = {0};
        buffer_print(&yaml, "{");
        for (; *spec; spec++) buffer_print(&yaml, *spec == '=' ? ": " : "%c", *spec);
        buffer_print(&yaml, "}");
        text = arena_string(&arena, buffer_text(&yaml));
    }
    bool ok = yaml_read_text(file, "--add", text, diagnostics);
    if (!ok && first_error) diagnostics->exit_code = EXIT_USAGE;
    return ok;
}
