/* A template, a zero byte, and its variables as JSON. */
#include "frontend/text/jinja.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    FuzzPart part = fuzz_part(&data, &size);
    json_t *variables = size ? json_loadb((const char *)data, size, 0, NULL) : NULL;
    JinjaText text = {.span_count = 0};
    Buffer problem = {0};
    JinjaTemplate *template = jinja_open((const char *)part.data, part.size, &problem);
    if (!json_is_object(variables)) json_decref(variables), variables = json_object();
    bool ok = template && jinja_render(template, variables, &text);
    const Buffer *said = template ? &text.problem : &problem;
    if (said->size) usage_error(&diagnostics, NULL, "%s", buffer_text(said));
    jinja_text_free(&text);
    jinja_free(template);
    buffer_free(&problem);
    json_decref(variables);
    fuzz_end(ok, &diagnostics);
    return 0;
}
