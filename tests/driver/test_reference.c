/* skycc run against PyTorch: every export of tests/data/bert, outputs, loss, every gradient, ten steps of AdamW and
 * SGD.
 *
 *     test_reference interpreted|compiled [EXPORT]
 *
 * Prints the largest errors: of outputs and gradients relative to the tensor's largest element, of losses relative, of
 * trained parameters absolute; each followed by the largest share of what is allowed.
 * tests/frontend/onnx/make_references.py describes the reference files and what is allowed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "tests/common/limits.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

typedef struct Export {
    const char *name, *reference;
    json_t *options, *names;
    bool interpreted;
} Export;

/* What was compared, under one heading. */
typedef struct Comparison {
    const char *what;
    double error, share; /* the largest: relative or absolute; of what is allowed */
    char worst[256];     /* where the largest share is */
} Comparison;

typedef struct Results {
    const Export *export;
    SafeTensors reference, output;
    Buffer failures;
} Results;

static const double *find_doubles(const SafeTensors *file, const char *name, size_t count)
{
    const SafeTensor *tensor = safetensors_find(file, name);
    if (!tensor || tensor->dtype != DTYPE_F64 || tensor->bytes != count * sizeof(double))
        fail_msg("tensor %s is missing or not %zu doubles", name, count);
    return tensor->data;
}

static void note(Comparison *comparison, Results *results, const char *name, double error, double scale, double allowed)
{
    double share = error / allowed;
    if (!(error / scale <= comparison->error)) comparison->error = error / scale;
    if (!(share <= comparison->share)) {
        comparison->share = share;
        snprintf(comparison->worst, sizeof comparison->worst, "%s", name);
    }
    if (!(error <= allowed))
        buffer_print(&results->failures, "%s of %s: error %g, allowed %g\n", comparison->what, name, error, allowed);
}

static void print(const Comparison *comparison)
{
    printf("    %-12s %.1e  (%.3f of what is allowed: %s)\n", comparison->what, comparison->error, comparison->share,
           comparison->worst);
}

/* The parameter's element that stands at `index` in PyTorch's layout. */
static double element(const SafeTensor *tensor, bool transposed, int64_t index)
{
    if (transposed) {
        int64_t rows = tensor->shape.dim[1], columns = tensor->shape.dim[0]; /* PyTorch's */
        index = index % columns * rows + index / columns;
    }
    return element_as_double(tensor->dtype, tensor->data, index);
}

typedef struct ParameterName {
    const char *pytorch;
    bool transposed;
} ParameterName;

static ParameterName pytorch_name(const Export *export, const char *name)
{
    const json_t *entry = json_object_get(export->names, name);
    if (entry)
        return (ParameterName){json_string_value(json_array_get(entry, 0)),
                               strcmp(json_string_value(json_array_get(entry, 1)), "T") == 0};
    assert_memory_equal(name, "m.", 2);
    return (ParameterName){name + 2, false};
}

/* Whether the gradient of the parameter, by its PyTorch name, is rounding noise. */
static bool is_noise(const Results *results, const char *name)
{
    const char *rest = safetensors_metadata(&results->reference, "noise");
    for (size_t length; *rest; rest += length + (rest[length] == ' ')) {
        length = strcspn(rest, " ");
        if (length == strlen(name) && memcmp(rest, name, length) == 0) return true;
    }
    return false;
}

static void compare_parameter(Comparison *comparison, Results *results, const SafeTensor *found,
                              const SafeTensor *wanted, bool transposed, double allowed)
{
    int64_t count = shape_elements(&found->shape), kept = shape_elements(&wanted->shape), stride = 1;
    if (kept != count) stride = strtol(safetensors_metadata(&results->reference, "stride"), NULL, 10);
    assert_true((count + stride - 1) / stride == kept);
    double largest = 0, error = 0;
    for (int64_t i = 0; i < kept; i++) {
        double expected = element_as_double(wanted->dtype, wanted->data, i);
        double difference = fabs(element(found, transposed, i * stride) - expected);
        largest = fmax(largest, fabs(expected));
        if (!(difference <= error)) error = difference;
    }
    bool relative = strcmp(comparison->what, "gradients") == 0 && !is_noise(results, wanted->name + strlen("grad/"));
    note(comparison, results, found->name, error, relative && largest > 0 ? largest : 1, allowed);
}

/* Compares the output's PREFIX/PARAMETER with the reference's KIND/PARAMETER; each parameter must be there, tied ones
 * under all their names. */
static void compare_parameters(Results *results, const char *what, const char *prefix, const char *kind)
{
    Comparison comparison = {.what = what};
    Buffer name = {0};
    char *names = strdup(safetensors_metadata(&results->reference, "parameters")), *rest;
    size_t count = 1;
    for (const char *c = names; *c; c++) count += *c == ' ';
    buffer_print(&name, "tolerance/%s", kind);
    const double *allowed = find_doubles(&results->reference, buffer_text(&name), count);
    for (char *pytorch = strtok_r(names, " ", &rest); pytorch; pytorch = strtok_r(NULL, " ", &rest), allowed++) {
        if (strcmp(kind, "grad") != 0 && is_noise(results, pytorch)) continue;
        name.size = 0;
        buffer_print(&name, "%s/%s", kind, pytorch);
        const SafeTensor *wanted = safetensors_find(&results->reference, buffer_text(&name));
        assert_non_null(wanted);
        bool there = false;
        for (size_t i = 0; i < results->output.count; i++) {
            const SafeTensor *found = &results->output.tensors[i];
            size_t length = strlen(prefix);
            if (strncmp(found->name, prefix, length) != 0 || found->name[length] != '/') continue;
            ParameterName own = pytorch_name(results->export, found->name + length + 1);
            if (strcmp(own.pytorch, pytorch) != 0) continue;
            there = true;
            compare_parameter(&comparison, results, found, wanted, own.transposed, *allowed);
        }
        if (!there) buffer_print(&results->failures, "%s: there is no %s\n", what, pytorch);
    }
    print(&comparison);
    buffer_free(&name);
    free(names);
}

static void compare_output(Comparison *comparison, Results *results, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "out/%s", name);
    const SafeTensor *found = safetensors_find(&results->output, full);
    const SafeTensor *wanted = safetensors_find(&results->reference, name);
    assert_non_null(found);
    assert_true(shape_equal(&found->shape, &wanted->shape));
    double largest = 0, error = 0;
    for (int64_t i = 0; i < shape_elements(&wanted->shape); i++) {
        double expected = element_as_double(wanted->dtype, wanted->data, i);
        double difference = fabs(element_as_double(found->dtype, found->data, i) - expected);
        largest = fmax(largest, fabs(expected));
        if (!(difference <= error)) error = difference;
    }
    snprintf(full, sizeof full, "tolerance/%s", name);
    note(comparison, results, name, error, largest, *find_doubles(&results->reference, full, 1));
}

static void compare_outputs(Results *results)
{
    Comparison comparison = {.what = "outputs"};
    char *names = strdup(safetensors_metadata(&results->reference, "outputs")), *rest;
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        compare_output(&comparison, results, name);
    print(&comparison);
    free(names);
}

static void compare_losses(Results *results, const char *what, const char *kind)
{
    enum { LOSSES = 11 };
    Comparison comparison = {.what = what};
    char name[64], step[32];
    snprintf(name, sizeof name, "%s/loss", kind);
    const double *wanted = find_doubles(&results->reference, name, LOSSES);
    snprintf(name, sizeof name, "tolerance/%s/loss", kind);
    const double *allowed = find_doubles(&results->reference, name, LOSSES);
    const SafeTensor *found = safetensors_find(&results->output, "train/loss");
    assert_non_null(found);
    assert_int_equal(shape_elements(&found->shape), LOSSES);
    for (int64_t i = 0; i < LOSSES; i++) {
        double error = fabs(element_as_double(found->dtype, found->data, i) - wanted[i]);
        snprintf(step, sizeof step, "step %d", (int)i);
        note(&comparison, results, step, error, wanted[i], allowed[i]);
    }
    const SafeTensor *loss = safetensors_find(&results->output, "loss");
    assert_non_null(loss);
    note(&comparison, results, "loss itself", fabs(element_as_double(loss->dtype, loss->data, 0) - wanted[0]),
         wanted[0], allowed[0]);
    print(&comparison);
}

/* skycc run, with the results in `output`. */
static void run_export(const Export *export, const char *optimizer, const char *output)
{
    FREED_WITH(buffer_free) Buffer options = {0};
    for (size_t i = 0; i < json_array_size(export->options); i++)
        buffer_print(&options, " '%s'", json_string_value(json_array_get(export->options, i)));
    must_run(SKYCC_PROGRAM " run " SKY_TEST_DATA "/bert/%s.onnx --inputs " SKY_TEST_DATA
                           "/bert/%s.ref.safetensors -o %s --train 10 --optimizer %s%s%s%s",
             export->name, export->reference, output, optimizer, strncmp(optimizer, "adamw", 5) ? "" : " --grad",
             export->interpreted ? " --interpret" : "", buffer_text(&options));
}

static void expect_finite(const SafeTensors *output)
{
    for (size_t i = 0; i < output->count; i++)
        for (int64_t e = 0; e < shape_elements(&output->tensors[i].shape); e++)
            if (!isfinite(element_as_double(output->tensors[i].dtype, output->tensors[i].data, e)))
                fail_msg("%s is not finite", output->tensors[i].name);
}

static void compare_run(Results *results, const char *optimizer)
{
    bool adamw = strncmp(optimizer, "adamw", 5) == 0;
    Scratch output = scratch_text("");
    run_export(results->export, optimizer, output.path);
    open_tensors(&results->output, output.path);
    unlink(output.path);
    expect_finite(&results->output);
    if (adamw) {
        compare_outputs(results);
        compare_parameters(results, "gradients", "grad", "grad");
        compare_losses(results, "AdamW losses", "adamw");
        compare_parameters(results, "after AdamW", "param", "adamw");
    } else {
        compare_losses(results, "SGD losses", "sgd");
        if (safetensors_find(&results->reference, "tolerance/sgd"))
            compare_parameters(results, "after SGD", "param", "sgd");
    }
    safetensors_close(&results->output);
}

static void check_export(void **state)
{
    const Export *export = *state;
    char path[512];
    Results results = {.export = export};
    snprintf(path, sizeof path, SKY_TEST_DATA "/bert/%s.ref.safetensors", export->reference);
    open_tensors(&results.reference, path);
    printf("%s, %s\n", export->name, export->interpreted ? "interpreted" : "compiled");
    compare_run(&results, "adamw:lr=1e-3,beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01");
    compare_run(&results, "sgd:lr=0.05");
    safetensors_close(&results.reference);
    if (results.failures.size) fail_msg("%s", buffer_text(&results.failures));
    buffer_free(&results.failures);
}

int main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    json_t *index = json_read(SKY_TEST_DATA "/bert/exports.json", &diagnostics);
    if (!index || argc < 2) return fputs("usage: test_reference interpreted|compiled [EXPORT]\n", stderr), 2;
    enum { MOST = 64 };
    static Export exports[MOST];
    static struct CMUnitTest tests[MOST];
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(index) && count < MOST; i++) {
        const json_t *entry = json_array_get(index, i);
        const char *name = json_string_value(json_object_get(entry, "export"));
        if (argc > 2 && strcmp(argv[2], name) != 0) continue;
        bool interpreted = strcmp(argv[1], "interpreted") == 0;
        /* What the interpreter and the emitters do depends little on the export. */
        if (ADDRESS_SANITIZER && argc == 2 && (interpreted ? i % 16 != 0 : i % 4 != 1)) continue;
        exports[count] = (Export){.name = name,
                                  .reference = json_string_value(json_object_get(entry, "reference")),
                                  .options = json_object_get(entry, "options"),
                                  .names = json_object_get(entry, "names"),
                                  .interpreted = interpreted};
        tests[count] = (struct CMUnitTest){name, check_export, NULL, NULL, &exports[count]};
        count++;
    }
    int failed = _cmocka_run_group_tests("reference", tests, count, NULL, NULL);
    json_decref(index);
    return failed || count == 0;
}
