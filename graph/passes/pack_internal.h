/* The parts of pack_rows.c. */
#ifndef GRAPH_PASSES_PACK_INTERNAL_H
#define GRAPH_PASSES_PACK_INTERNAL_H

#include "graph/ops/add_node.h"

/* What a dimension, or a factor of one, counts. */
typedef enum AtomKind {
    ATOM_PLAIN, /* anything else: heads, features, classes */
    ATOM_LINE,  /* lines; rows, before packing */
    ATOM_TOKEN, /* places in a line */
    ATOM_SLOT   /* rows of a line; 1 before packing */
} AtomKind;

typedef struct Atom {
    AtomKind kind;
    int64_t extent; /* after packing */
    int64_t before; /* packing */
    int axis;
} Atom;

enum { LAYOUT_MOST_ATOMS = 2 * MAX_RANK, PACK_MOST_INPUTS = 64, PACK_MOST_OUTPUTS = 4 };

/* The dimensions of a value taken apart into factors, outermost first; PLAIN ones of extent 1 are left out. */
typedef struct Layout {
    bool of_data;   /* depends on a graph input: other values are the same for all rows */
    bool in_blocks; /* of two token dimensions: 0 wherever the two are not of one row */
    int rank, count;
    Atom atoms[LAYOUT_MOST_ATOMS];
} Layout;

/* A value on its way into the packed graph. */
typedef struct Packed {
    ValueId value;
    Layout layout;
} Packed;

typedef struct Packer {
    Graph *graph;
    Diagnostics *diagnostics;
    SkyPacking form;
    Graph before;    /* the values of the graph as it came, and what was noted since, with the shapes before packing */
    Layout *layouts; /* of these */
    ValueId made[SKY_FILL_COUNT]; /* inputs that say where rows stand; 0: not needed yet */
    Node node;                    /* that is being packed */
    Builder b;                    /* of nodes that do its work; what it refuses is a bug */
} Packer;

/* ---- pack_layout.c: no graph ---- */

/* After those that there are. */
void layout_add(Layout *layout, Atom atom);
void layout_add_plain(Layout *layout, int64_t extent, int axis);
void layout_add_slots(Layout *layout, int64_t slots, int axis);
/* The only atom of the axis if it is of that kind, else -1. */
int layout_find(const Layout *layout, int axis, AtomKind kind);
int layout_find_kind(const Layout *layout, AtomKind kind); /* the first atom of that kind; -1: none */
int layout_count_kind(const Layout *layout, AtomKind kind);
bool layout_labelled(const Layout *layout, int axis); /* an atom of the axis is not plain */
bool layout_same_axis(const Layout *a, int axis_of_a, const Layout *b, int axis_of_b);
void layout_copy_axis(Layout *to, int axis, const Layout *from, int from_axis); /* after what `to` has */
Shape layout_shape(const Layout *layout);
int layout_line_axis(const Layout *layout);                 /* Value.line_axis */
bool layout_by_token(const Layout *layout, int64_t length); /* Value.by_token, of lines of so many tokens */
bool layout_is_merged(const Layout *layout); /* slots are counted through all lines, in one dimension with them */
/* The same atoms in the dimensions of `shape`, as it was before packing. False if it parts lines or tokens;
 * *parts_slots then says whether moving the slots next to the lines first would help. */
bool layout_reshape(const Layout *from, const Shape *shape, Layout *to, bool *parts_slots);

static inline const Layout *pack_layout_of(const Packer *packer, int input)
{
    return &packer->layouts[packer->node.inputs[input]];
}
static inline const Shape *pack_shape_before(const Packer *packer, int input)
{
    return &packer->before.values[packer->node.inputs[input]].shape;
}

/* ---- pack_values.c: the node that is being packed, layouts, and nodes that packing needs ---- */

bool pack_refuse(Packer *packer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* packer->node gets a layout for an output, and its shape. */
void pack_set_layout(Packer *packer, int output, const Layout *layout);
/* The node's first output is what the last node that was added made. */
void pack_become(Packer *packer, const Packed *result);
/* Appends packer->node, whose output has that layout. */
bool pack_finish(Packer *packer, const Layout *layout);
/* The node reads this value in place of its input. */
void pack_replace_input(Packer *packer, int input, const Packed *by);

/* Notes which dimension counts lines. */
void pack_set_lines(Packer *packer, ValueId value, const Layout *layout);
/* The value is the same for all rows. */
void pack_set_plain(Packer *packer, ValueId value);

/* One of the inputs that say where rows stand. */
ValueId pack_input(Packer *packer, SkyFill fill);
/* Its elements for the first tokens of rows: [lines, slots]. */
ValueId pack_input_of_slots(Packer *packer, SkyFill fill);

/* Slots from a dimension of their own into that of the lines. */
Packed pack_merge_slots(Packer *packer, const Packed *x);
/* The tokens of atom `token` become the first ones of rows. */
Packed pack_take_first(Packer *packer, const Packed *x, int token);
/* Sums over the tokens of atom `token`, row by row; slots are merged. With `keep` the dimension stays, of 1. */
Packed pack_sum_rows(Packer *packer, const Packed *x, int token, bool keep);
/* `number` where the tokens, or slot and token, that atoms `query` and `key` count are of different rows. */
ValueId pack_mask_pairs(Packer *packer, const Packed *x, int query, int key, double number);
/* A value that is the same for all rows, read along `axis` at every token's position; its rank is that of `layout`, in
 * which the tokens stand at that axis. 0 if the layout is too intricate. */
ValueId pack_gather_positions(Packer *packer, ValueId value, int axis, const Layout *layout);
/* A value that depends, of places along two axes, on their difference alone: as many places as lines have. */
ValueId pack_widen_pairs(Packer *packer, ValueId value, int query, int key);
/* The same with a dimension for every atom, if one had several. Atoms keep their numbers. */
Packed pack_apart(Packer *packer, const Packed *x);
/* [lines, tokens or slots] in a shape that broadcasts to the layout's, in which every atom has a dimension; `query`:
 * the second atom. */
ValueId pack_spread(Packer *packer, ValueId value, const Layout *layout, int query);

/* ---- pack_nodes.c ---- */

/* Packs packer->node: it, or what does its work, is appended to the graph. */
bool pack_node(Packer *packer);

/* ---- pack_alike.c ---- */

/* An operator that takes elements in the same place. */
bool pack_map(Packer *packer);
/* The layout of what inputs first ... first + count - 1 broadcast to, along dimensions 0 ... axes - 1. */
bool pack_join(Packer *packer, int first, int count, int rank, int axes, Layout *joined);
/* Input `i`, where what it is joined with counts lines and tokens in dimensions 0 ... axes - 1: cut where it is the
 * same for all, and at the positions of the tokens where it depends on them. */
bool pack_fit(Packer *packer, int i, const Layout *joined, int axes);

/* ---- pack_dropout.c ---- */

bool pack_dropout(Packer *packer);

#endif
