/* What `skycc check` does to a model, for tests of what it refuses; and a folder to try things in. */
#ifndef TESTS_IMPORT_CHECK_H
#define TESTS_IMPORT_CHECK_H

#include <ftw.h>
#include <sys/stat.h>

#include "frontend/import.h"
#include "graph/fusion.h"
#include "graph/layers.h"
#include "tests/scratch.h"

/* The exit code; *report, if wanted, is what would be printed: free it. */
static inline int check_model(const char *path, char **report)
{
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics = {0};
    graph_init(&graph, path);
    ImportOptions options = {.default_dimension = 8};
    if (import_onnx(&graph, &model, path, &options, &diagnostics)) {
        graph_verify(&graph);
        graph_remove_dead(&graph);
        fuse_composites(&graph, &diagnostics);
        layers_assign(&graph, &diagnostics);
        graph_verify(&graph);
    }
    int code = diagnostics.exit_code;
    if (report) *report = diagnostics_text(&diagnostics);
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&diagnostics);
    return code;
}

static char folder[64];

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/skycc-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* One of four buffers in turn. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) abort();
}

static inline void copy_file(const char *from, const char *to)
{
    MappedFile file;
    Diagnostics diagnostics = {0};
    if (!file_map(&file, from, &diagnostics)) abort();
    write_file(to, file.bytes, file.size);
    file_unmap(&file);
}

#endif
