/* Passes on texts of graphs. Each file of ir/ is one test:
 *
 *   # why
 *   passes: fusion prune           in this order; lines like the next ones set their options:
 *   loss: cross-entropy            optimizer: sgd           dropout: 0.1           logits: sliced
 *   recompute: layers              precision: bf16
 *   packing: 2 lines of 4 tokens with 3 slots for 5 rows of at most 3 tokens   (by default, of a line's 4 tokens)
 *   --- before
 *   a graph (tests/graph/parse.h)
 *   --- after
 *   what becomes of it
 *   --- reported
 *   errors and warnings, if there are any; an error ends the passes, and there is no graph after it
 *
 *   test_ir [--rewrite] FILE...    --rewrite: puts into the files what becomes of the graphs now */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "graph/ops/add_node.h"
#include "graph/passes/passes.h"
#include "tests/graph/parse.h"

typedef struct Test {
    Graph graph;
    Diagnostics diagnostics;
    PassOptions options;
    OptimizerSpec optimizer;
} Test;

static void read_packing(SkyPacking *packing, const char *text)
{
    int found = sscanf(text, "%u lines of %u tokens with %u slots for %u rows of at most %u tokens", &packing->lines,
                       &packing->length, &packing->slots, &packing->rows, &packing->longest);
    if (found < 5) packing->longest = packing->length;
}

static void read_option(Test *test, const char *name, const char *value)
{
    if (strcmp(name, "loss") == 0)
        test->options.loss = value;
    else if (strcmp(name, "dropout") == 0)
        test->options.dropout = atof(value);
    else if (strcmp(name, "logits") == 0)
        test->options.logits = strcmp(value, "sliced") == 0 ? LOGITS_SLICED : LOGITS_AUTO;
    else if (strcmp(name, "precision") == 0)
        test->options.bf16 = strcmp(value, "bf16") == 0;
    else if (strcmp(name, "recompute") == 0)
        test->options.recompute_layers = strcmp(value, "layers") == 0;
    else if (strcmp(name, "packing") == 0)
        read_packing(&test->options.packing, value);
    else if (strcmp(name, "optimizer") == 0 && optimizer_parse(&test->optimizer, value, &test->diagnostics))
        test->options.optimizer = &test->optimizer;
}

/* Runs the passes named in `names`; false after reporting. */
static bool run_passes(Test *test, char *names)
{
    Folding folding = {0};
    for (char *name; (name = strsep(&names, " "));) {
        const Pass *pass = *name ? pass_find(name, &test->diagnostics) : NULL;
        if (!pass && *name) return false;
        if (pass && !pass_run(pass, &test->graph, &test->options, &folding, &test->diagnostics)) return false;
    }
    return true;
}

/* The head of a file, the graph in it, and what becomes of that. */
static void run(Test *test, const char *path, const char *head, const char *before, Buffer *result)
{
    char *lines = arena_string(&test->diagnostics.arena, head), *names = NULL;
    test->options = (PassOptions){.want_loss = true, .differentiate = true};
    graph_init(&test->graph, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    for (char *line; (line = strsep(&lines, "\n"));) {
        char *name = *line == '#' ? NULL : strsep(&line, ":");
        if (!name || !line) continue;
        line += *line == ' ';
        read_option(test, name, line);
        if (strcmp(name, "passes") == 0) names = line;
    }
    bool ok = names && graph_parse(&test->graph, before, &test->diagnostics) &&
              graph_check_types(&test->graph, &test->diagnostics) && run_passes(test, names);
    if (ok) graph_print(&test->graph, result);
    if (!test->diagnostics.first) return;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&test->diagnostics, stream);
    fclose(stream);
    buffer_print(result, "--- reported\n%s", text);
    free(text);
}

static bool test_file(const char *path, bool rewrite)
{
    static const char before[] = "--- before\n", after[] = "--- after\n";
    Test test = {0};
    Buffer result = {0};
    MappedFile file;
    if (!file_map(&file, path, &test.diagnostics)) return diagnostics_print(&test.diagnostics, stderr), false;
    Arena *arena = &test.diagnostics.arena;
    char *text = arena_string_n(arena, (const char *)file.bytes, file.size);
    file_unmap(&file);
    char *begin = strstr(text, before), *end = begin ? strstr(begin, after) : NULL;
    if (!end) return fprintf(stderr, "%s: lacks '--- before' or '--- after'\n", path), false;
    const char *head = arena_string_n(arena, text, (size_t)(begin - text));
    begin += strlen(before);
    run(&test, path, head, arena_string_n(arena, begin, (size_t)(end - begin)), &result);
    end += strlen(after);
    bool same = strcmp(buffer_text(&result), end) == 0;
    if (!same && rewrite) {
        *end = 0;
        FILE *out = fopen(path, "w");
        same = out && fprintf(out, "%s%s", text, buffer_text(&result)) >= 0;
        if (out) fclose(out);
    }
    if (!same) fprintf(stderr, "%s: became\n%s", path, buffer_text(&result));
    buffer_free(&result);
    graph_free(&test.graph);
    diagnostics_free(&test.diagnostics);
    return same;
}

int main(int argc, char **argv)
{
    bool rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0;
    int failures = 0;
    for (int i = 1 + rewrite; i < argc; i++) failures += !test_file(argv[i], rewrite);
    printf("%d texts, %d of them differ\n", argc - 1 - rewrite, failures);
    return failures || argc < 2 + rewrite;
}
