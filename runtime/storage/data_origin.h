/* What data sets that meet must agree on, by their metadata: what the numbers of labels mean, and which tokenizer made
 * the tokens. They meet each other in a run (--data and --eval-data) and the model in every command. */
#ifndef RUNTIME_STORAGE_DATA_ORIGIN_H
#define RUNTIME_STORAGE_DATA_ORIGIN_H

#include "base/safetensors.h"

/* What is known before a data set is opened. */
typedef struct DataOrigin {
    const char *called; /* the file that it comes from, for messages */
    const char *labels; /* the names, as a JSON list; NULL or empty: there are none */
    const char
        *tokenizers; /* hashes of those that make the same tokens, with spaces between; NULL or empty: not known */
    bool is_model;   /* else a data set, whose labels without names are numbers in decimal */
} DataOrigin;

/* That of an open data set; it points into the file. */
DataOrigin data_origin(const SafeTensors *file, const char *path);

/* Brings the data set's labels into the known numbering, by their names. It warns if that changes numbers, and if
 * numbers have no names to compare. Errors: a tokenizer that is not among the known ones; a label in use that is not
 * among the known names. *adopted, which may be NULL: the known names hold for this set; they do not where a model's
 * names are all foreign to it, because then its head is trained anew. */
bool data_origin_match(SafeTensors *file, const char *path, const DataOrigin *known, bool *adopted,
                       Diagnostics *diagnostics);

#endif
