#include "runtime/storage/data_origin.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parts.h"
#include "base/string_map.h"
#include "base/text.h"
#include "runtime/program/label_names.h"

enum { FOREIGN = -1 };

typedef struct Names {
    const char *const *items;
    size_t count;
    StringMap numbers;
} Names;

typedef struct Matching {
    const DataOrigin *known_origin;
    Place place;
    Names own, known;
    SafeTensor *labels;
    int32_t *to; /* for each of the set's numbers, the known one, or FOREIGN */
    Arena arena;
    Diagnostics *diagnostics;
} Matching;

DataOrigin data_origin(const SafeTensors *file, const char *path)
{
    return (DataOrigin){path, safetensors_metadata(file, "labels"), safetensors_metadata(file, "vocabulary_hash"),
                        false};
}

static bool match_tokenizer(const SafeTensors *file, const char *path, const DataOrigin *known,
                            Diagnostics *diagnostics)
{
    const char *own = safetensors_metadata(file, "vocabulary_hash");
    if (!own || !known->tokenizers || !*known->tokenizers || text_has_part(known->tokenizers, own, " ")) return true;
    return input_error(diagnostics, path,
                       known->is_model ? "tokenise it again with the tokenizer in the model's folder"
                                       : "tokenise both with the model's tokenizer",
                       "was made by another tokenizer than %s: the same numbers are other tokens", known->called);
}

static Names read_names(const char *list, Arena *arena)
{
    Names names = {0};
    names.items = label_names_read(list && *list ? list : NULL, arena, &names.count);
    for (size_t i = 0; i < names.count; i++) string_map_add(&names.numbers, names.items[i], (uint32_t)i);
    return names;
}

/* Models spell labels in capitals where data sets do not. */
static int32_t known_number(const Matching *m, const char *name)
{
    const uint32_t *found = string_map_find(&m->known.numbers, name);
    for (size_t i = 0; !found && m->known_origin->is_model && i < m->known.count; i++)
        if (strcasecmp(m->known.items[i], name) == 0) found = string_map_find(&m->known.numbers, m->known.items[i]);
    char *end;
    long number = !found && !m->known.count && *name ? strtol(name, &end, 10) : FOREIGN;
    if (found) return (int32_t)*found;
    return number >= 0 && number < INT32_MAX && !*end ? (int32_t)number : FOREIGN;
}

static bool per_column(const SafeTensor *labels) { return dtype_is_float(labels->dtype); }

/* What an element of the labels, or a column of several, is called. */
static const char *label_text(Matching *m, int64_t number)
{
    return (uint64_t)number < m->own.count ? m->own.items[number] : arena_format(&m->arena, "%lld", (long long)number);
}

static bool refuse_label(Matching *m, int64_t row, const char *label)
{
    const char *known = label_names_some(m->known.items, m->known.count, &m->arena),
               *nearest = text_nearest(label, m->known.items, m->known.count);
    const char *hint =
        m->known_origin->is_model
            ? arena_format(&m->arena, "the model's labels are %s; put a new head on it, or correct the data", known)
            : arena_format(&m->arena, "correct the table, then skycc tokenize ... --labels-of %s (its labels: %s)",
                           m->known_origin->called, m->known.count ? known : "numbers without names");
    const char *subject = row < 0 ? "has" : arena_format(&m->arena, "row %lld has", (long long)row);
    return diagnostics_error(m->diagnostics, EXIT_BAD_INPUT, m->place, hint, "%s the label '%s', which %s lacks%s%s%s",
                             subject, label, m->known_origin->called, nearest ? ": did you mean '" : "",
                             nearest ? nearest : "", nearest ? "'?" : "");
}

/* Rows with numbers alone are in the known numbering as far as anyone can say. */
static bool take_numbers(Matching *m)
{
    int64_t elements = shape_elements(&m->labels->shape), rows = m->labels->shape.dim[0];
    if (m->known_origin->is_model || per_column(m->labels)) return true;
    for (size_t i = 0; i < m->known.count; i++) {
        char *end;
        strtol(m->known.items[i], &end, 10);
        if (!*end)
            return diagnostics_error(
                m->diagnostics, EXIT_BAD_INPUT, m->place,
                arena_format(&m->arena, "skycc tokenize ... --labels-of %s", m->known_origin->called),
                "has numbers without names, but %s has the name '%s': it may be one of the numbers",
                m->known_origin->called, m->known.items[i]);
    }
    for (int64_t i = 0; i < elements; i++) {
        int64_t number = element_as_integer(m->labels->dtype, m->labels->data, i);
        if (number >= (int64_t)m->known.count) return refuse_label(m, i / (elements / rows), label_text(m, number));
    }
    diagnostics_warning(m->diagnostics, m->place, "skycc tokenize --labels-of compares names",
                        "has numbers without names: skycc takes them as %s numbers its labels: 0 is '%s'",
                        m->known_origin->called, m->known.items[0]);
    return true;
}

/* Labels that no row has may be foreign. */
static bool renumber(Matching *m, Arena *arena)
{
    SafeTensor *labels = m->labels;
    bool columns = per_column(labels);
    int64_t elements = shape_elements(&labels->shape), per_row = elements / labels->shape.dim[0];
    void *copy = arena_copy(arena, labels->data, labels->bytes);
    for (int64_t i = 0; i < elements; i++) {
        int64_t number = columns ? i % per_row : element_as_integer(labels->dtype, labels->data, i);
        if (number < 0 || number >= (int64_t)m->own.count) continue;
        if (m->to[number] < 0) return refuse_label(m, columns ? -1 : i / per_row, m->own.items[number]);
        if (columns)
            element_store_double(labels->dtype, copy, i - number + m->to[number],
                                 element_as_double(labels->dtype, labels->data, i));
        else
            element_store_integer(labels->dtype, copy, i, m->to[number]);
    }
    labels->data = copy;
    return true;
}

static bool match_names(Matching *m, Arena *arena, bool *adopted)
{
    bool same = true, any = false, columns = per_column(m->labels);
    m->to = arena_new_array(&m->arena, int32_t, m->own.count);
    for (size_t i = 0; i < m->own.count; i++) {
        m->to[i] = known_number(m, m->own.items[i]);
        same &= m->to[i] == (int32_t)i;
        any |= m->to[i] >= 0;
    }
    const char *known = label_names_some(m->known.items, m->known.count, &m->arena);
    if (!any && m->known_origin->is_model) {
        *adopted = false;
        diagnostics_warning(m->diagnostics, m->place, "export and predict take the new names from --labels",
                            "has none of the labels that %s has (%s): its head learns other labels",
                            m->known_origin->called, known);
        return true;
    }
    if (columns && (m->own.count != m->known.count || m->labels->shape.rank != 2 ||
                    m->labels->shape.dim[1] != (int64_t)m->own.count))
        return diagnostics_error(m->diagnostics, EXIT_BAD_INPUT, m->place,
                                 arena_format(&m->arena, "tokenise it with the same columns: --label %s", known),
                                 "has %zu labels a row, but %s has %zu", m->own.count, m->known_origin->called,
                                 m->known.count);
    if (same) return true;
    if (!renumber(m, arena)) return false;
    diagnostics_warning(m->diagnostics, m->place, NULL,
                        "its labels are numbered otherwise than those of %s: skycc takes them by their names (%s)",
                        m->known_origin->called, m->known.count ? known : "numbers");
    return true;
}

bool data_origin_match(SafeTensors *file, const char *path, const DataOrigin *known, bool *adopted,
                       Diagnostics *diagnostics)
{
    bool unused;
    if (!adopted) adopted = &unused;
    *adopted = true;
    if (!match_tokenizer(file, path, known, diagnostics)) return false;
    Matching m = {
        .known_origin = known, .place = {.file = path, .object = "tensor 'labels'"}, .diagnostics = diagnostics};
    const SafeTensor *labels = safetensors_find(file, "labels");
    m.own = read_names(safetensors_metadata(file, "labels"), &m.arena);
    m.known = read_names(known->labels, &m.arena);
    bool ok = true, nothing = !labels || !shape_elements(&labels->shape) || labels->shape.rank < 1;
    if (known->is_model && !m.known.count)
        *adopted = false;
    else if (!nothing && (m.own.count || m.known.count)) {
        m.labels = &file->tensors[labels - file->tensors];
        ok = m.own.count ? match_names(&m, &file->arena, adopted) : take_numbers(&m);
    }
    string_map_free(&m.own.numbers);
    string_map_free(&m.known.numbers);
    arena_free(&m.arena);
    return ok;
}
