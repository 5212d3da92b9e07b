/* The model of a federation between rounds: what is trained, the outer optimiser's momentum, control variates, what a
 * codec left out, and which round comes next. On disk it is one safetensors file that is replaced whole: NAME,
 * momentum/NAME, variance/NAME, control/NAME and remainder/NAME, so that skycc export and predict take it as it is. */
#ifndef FEDERATION_GLOBAL_MODEL_H
#define FEDERATION_GLOBAL_MODEL_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "federation/fragments.h"
#include "federation/outer_optimizer.h"

typedef struct GlobalTensor {
    const char *name;
    Shape shape;
    size_t first, elements; /* in values, momentum and variance */
} GlobalTensor;

typedef struct GlobalModel {
    Arena arena;
    int64_t round;    /* which is next; as many have been */
    int64_t branch;   /* how often the coordinator went back to an earlier round before this one */
    int64_t spent;    /* rounds made in all, with those that it went back over */
    int64_t averaged; /* of how many rounds' models this is the mean; 0: it is the model of one */
    int64_t step;     /* of a site: how many steps it had made when it took this model */
    Hash identity;    /* what the federation is called (federation/federation.h); another one is not read */
    size_t tensor_count, elements;
    GlobalTensor *tensors;
    size_t *tensor_elements;             /* of each, for fragments */
    float *values, *momentum, *variance; /* malloc'ed; the moments are NULL where they are not kept */
    float *control;   /* SCAFFOLD's: as many elements, after `values` in one piece of memory; NULL: not kept */
    float *remainder; /* malloc'ed: what model_codec left out of `values` (coded_model.h); NULL: not kept */
    bool *met;        /* malloc'ed: of a site, the tensors whose values are new since its last step; NULL: all */
    int64_t *counted; /* malloc'ed: of every site, how many rounds there were when it last was in one; NULL: nobody
                                 needs to know */
    size_t counted_count;
    /* What readers of checkpoints want to know, as metadata of the same names; NULL: nothing. */
    const char *frozen;        /* names of parameters that are not trained, a line each */
    const char *frozen_checks; /* what is known of their values, a line each: the low word of hash_bytes, or nothing */
    const char *lora;          /* the low-rank branches that are */
    const char *tied; /* other names of parameters, a line each: NAME, tab, what it is another name of, tab, 1 if that
                           is to be transposed, else 0 */
} GlobalModel;

/* Makes room for tensors of these names and shapes, all zero, with `moments` (outer_optimizer.h) for each. Names are
 * copied. */
void global_model_open(GlobalModel *model, Hash identity, const char *const *names, const Shape *shapes, size_t count,
                       int moments);
void global_model_free(GlobalModel *model);
/* Whether the file has something else of a parameter under such names. */
bool global_model_name_is_reserved(const char *name);
/* Keeps control variates from now on, zeros if there were none; or none. */
void global_model_keep_control(GlobalModel *model, bool keep);
/* Keeps what a codec leaves out from now on, zeros if there was nothing. */
void global_model_keep_remainder(GlobalModel *model);
/* Adds to `hash` the tensors' names, shapes and values, in this order. */
Hash global_model_hash(const GlobalModel *model, Hash hash);
const GlobalTensor *global_model_find(const GlobalModel *model, const char *name); /* NULL: it has none */
/* How many elements sites take: of the values, and of the control variates. */
size_t global_model_taken(const GlobalModel *model);

/* The same, with the tensors, values, moments, control variates, remainder and round of a file. Of a file of round 0
 * moments may be missing: they are zero then. Errors as those of global_model_read. Free the model in any case. */
bool global_model_open_file(GlobalModel *model, Hash identity, const char *path, int moments, Diagnostics *diagnostics);

/* Replaces the file at `path` or leaves it as it was: a full disk, or the end of the process at any point, loses
 * nothing. */
bool global_model_write(const GlobalModel *model, const char *path, Diagnostics *diagnostics);
/* Fills values, moments, round and step. Errors: a file of another federation, or with other tensors; values that are
 * not finite, or not those that global_model_write wrote, in their order. */
bool global_model_read(GlobalModel *model, const char *path, Diagnostics *diagnostics);

/* Whether there is a file whose metadata has this count under the key. */
bool global_model_file_says(const char *path, const char *key, int64_t count);

/* The elements, first and end, that meet in the round, with the model in `fragments` fragments; with control variates,
 * which exclude these, all of values and control. */
FragmentRange global_model_part(const GlobalModel *model, int64_t round, size_t fragments);
/* Of a site that takes this part: the tensors in it are new, and of the others those that were, unless it has made
 * steps since. */
void global_model_note_met(GlobalModel *model, FragmentRange part, bool has_steps);
/* The outer step on `count` elements from `first` on, whose mean pseudo-gradient this is; of control variates their
 * mean change, of which they take `share`. False: one is not finite. */
bool global_model_move(GlobalModel *model, const OuterRule *rule, size_t first, const float *mean, size_t count,
                       double share);

#endif
