#include "graph/passes/pack_internal.h"

void layout_add(Layout *layout, Atom atom)
{
    if (atom.kind == ATOM_PLAIN && atom.extent == 1) return;
    Atom *last = layout->count ? &layout->atoms[layout->count - 1] : NULL;
    if (last && atom.kind == ATOM_PLAIN && last->kind == ATOM_PLAIN && last->axis == atom.axis) {
        last->extent *= atom.extent;
        last->before *= atom.before;
        return;
    }
    if (layout->count == LAYOUT_MOST_ATOMS) bug("a value of rank %d has too many factors", layout->rank);
    layout->atoms[layout->count++] = atom;
}

void layout_add_plain(Layout *layout, int64_t extent, int axis)
{
    layout_add(layout, (Atom){ATOM_PLAIN, extent, extent, axis});
}

void layout_add_slots(Layout *layout, int64_t slots, int axis)
{
    layout_add(layout, (Atom){ATOM_SLOT, slots, 1, axis});
}

static void add_at(Layout *layout, Atom atom, int axis)
{
    atom.axis = axis;
    layout_add(layout, atom);
}

int layout_find_kind(const Layout *layout, AtomKind kind)
{
    for (int i = 0; i < layout->count; i++)
        if (layout->atoms[i].kind == kind) return i;
    return -1;
}

int layout_count_kind(const Layout *layout, AtomKind kind)
{
    int count = 0;
    for (int i = 0; i < layout->count; i++) count += layout->atoms[i].kind == kind;
    return count;
}

int layout_find(const Layout *layout, int axis, AtomKind kind)
{
    int found = -1;
    for (int i = 0; i < layout->count; i++) {
        if (layout->atoms[i].axis != axis) continue;
        if (found >= 0 || layout->atoms[i].kind != kind) return -1;
        found = i;
    }
    return found;
}

bool layout_labelled(const Layout *layout, int axis)
{
    for (int i = 0; i < layout->count; i++)
        if (layout->atoms[i].axis == axis && layout->atoms[i].kind != ATOM_PLAIN) return true;
    return false;
}

/* The atoms of one axis follow each other. */
static int first_of_axis(const Layout *layout, int axis, int *count)
{
    int first = 0;
    while (first < layout->count && layout->atoms[first].axis != axis) first++;
    for (*count = 0; first + *count < layout->count && layout->atoms[first + *count].axis == axis;) ++*count;
    return first;
}

bool layout_same_axis(const Layout *a, int axis_of_a, const Layout *b, int axis_of_b)
{
    int count, count_of_b, first = first_of_axis(a, axis_of_a, &count);
    int first_of_b = first_of_axis(b, axis_of_b, &count_of_b);
    for (int i = 0; i < count && count == count_of_b; i++)
        if (a->atoms[first + i].kind != b->atoms[first_of_b + i].kind ||
            a->atoms[first + i].extent != b->atoms[first_of_b + i].extent)
            return false;
    return count == count_of_b;
}

void layout_copy_axis(Layout *to, int axis, const Layout *from, int from_axis)
{
    int count, first = first_of_axis(from, from_axis, &count);
    for (int i = 0; i < count; i++) add_at(to, from->atoms[first + i], axis);
}

Shape layout_shape(const Layout *layout)
{
    Shape shape = {.rank = layout->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = 1;
    for (int i = 0; i < layout->count; i++) shape.dim[layout->atoms[i].axis] *= layout->atoms[i].extent;
    return shape;
}

int layout_line_axis(const Layout *layout)
{
    int line = layout_find_kind(layout, ATOM_LINE);
    if (line < 0) return 0;
    bool first = line == 0 || layout->atoms[line - 1].axis != layout->atoms[line].axis;
    return first ? 1 + layout->atoms[line].axis : LINES_SPREAD;
}

bool layout_by_token(const Layout *layout, int64_t length)
{
    const Atom *atoms = layout->atoms;
    return layout->count > 1 && atoms[0].kind == ATOM_LINE && atoms[1].kind == ATOM_TOKEN && atoms[1].extent == length;
}

bool layout_is_merged(const Layout *layout)
{
    int slot = layout_find_kind(layout, ATOM_SLOT), line = layout_find_kind(layout, ATOM_LINE);
    return slot >= 0 && line >= 0 && layout->atoms[slot].axis == layout->atoms[line].axis;
}

/* ---- Reshaping ---- */

/* Where the atoms go: `left` elements of dimension `axis` of the shape have none yet. */
typedef struct Regrouping {
    const Shape *shape;
    Layout *to;
    int axis;
    int64_t left;
} Regrouping;

/* Past dimensions that are full. */
static bool find_room(Regrouping *r)
{
    while (r->left == 1 && r->axis + 1 < r->shape->rank) r->left = r->shape->dim[++r->axis];
    return r->left > 1;
}

static bool place_plain(Regrouping *r, int64_t extent)
{
    while (extent > 1) {
        if (!find_room(r)) return false;
        int64_t part = extent < r->left ? extent : r->left;
        if (extent % part || r->left % part) return false;
        layout_add_plain(r->to, part, r->axis);
        extent /= part;
        r->left /= part;
    }
    return true;
}

static bool place_whole(Regrouping *r, const Atom *atom)
{
    if (!find_room(r) || r->left % atom->before) return false;
    add_at(r->to, *atom, r->axis);
    r->left /= atom->before;
    return true;
}

/* Slots that stood with the lines stay there; others take a dimension of 1, or else join the lines. */
static bool place_slots(Regrouping *r, const Layout *from, int i)
{
    const Atom *atom = &from->atoms[i];
    const Atom *last = r->to->count ? &r->to->atoms[r->to->count - 1] : NULL;
    bool behind_lines = last && last->kind == ATOM_LINE;
    int next = r->axis + (last && last->axis == r->axis);
    bool free_dimension = (!last || r->left == 1) && next < r->shape->rank && r->shape->dim[next] == 1;
    if (free_dimension && !(behind_lines && layout_is_merged(from))) {
        r->axis = next;
        r->left = 1;
        add_at(r->to, *atom, next);
        return true;
    }
    if (behind_lines) add_at(r->to, *atom, last->axis);
    return behind_lines;
}

bool layout_reshape(const Layout *from, const Shape *shape, Layout *to, bool *parts_slots)
{
    *to = (Layout){.of_data = from->of_data, .in_blocks = from->in_blocks, .rank = shape->rank};
    *parts_slots = false;
    Regrouping r = {shape, to, 0, shape->rank ? shape->dim[0] : 1};
    for (int i = 0; i < from->count; i++) {
        const Atom *atom = &from->atoms[i];
        if (atom->kind == ATOM_SLOT
                ? !place_slots(&r, from, i)
                : !(atom->kind == ATOM_PLAIN ? place_plain(&r, atom->extent) : place_whole(&r, atom))) {
            *parts_slots = atom->kind == ATOM_SLOT;
            return false;
        }
    }
    return true;
}
