#include "frontend/text/subwords.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* ---- strings ---- */

enum { CHILD_BITS = 24, FIRST_EDGES = 1 << 10 };

static size_t first_slot(const Trie *trie, uint64_t edge) { return (edge * 0x9e3779b97f4a7c15u >> 20) & trie->mask; }

static uint64_t edge_of(uint32_t node, unsigned char byte) { return (uint64_t)node << 8 | byte; }

/* The slot where the edge is or belongs. A child is never the root, so no used slot is 0. */
static uint64_t *find_edge(const Trie *trie, uint64_t edge)
{
    size_t i = first_slot(trie, edge);
    while (trie->slots[i] && trie->slots[i] >> CHILD_BITS != edge) i = (i + 1) & trie->mask;
    return &trie->slots[i];
}

static void grow(Trie *trie)
{
    FREED uint64_t *former = trie->slots;
    size_t slots = former ? trie->mask + 1 : 0;
    trie->mask = (slots ? 2 * slots : FIRST_EDGES) - 1;
    trie->slots = memory_allocate((trie->mask + 1) * sizeof *trie->slots);
    for (size_t i = 0; i < slots; i++)
        if (former[i]) *find_edge(trie, former[i] >> CHILD_BITS) = former[i];
}

bool trie_insert(Trie *trie, const char *text, size_t length, int32_t value)
{
    uint32_t node = 0;
    if (!trie->nodes) array_push(trie->values, trie->nodes, trie->capacity, -1);
    for (size_t i = 0; i < length; i++) {
        if (!trie->slots || 2 * trie->edges >= trie->mask) grow(trie);
        uint64_t edge = edge_of(node, (unsigned char)text[i]), *slot = find_edge(trie, edge);
        if (!*slot) {
            if (trie->nodes >= TRIE_MOST_NODES) return false;
            *slot = edge << CHILD_BITS | trie->nodes;
            trie->edges++;
            array_push(trie->values, trie->nodes, trie->capacity, -1);
        }
        node = (uint32_t)(*slot & (TRIE_MOST_NODES - 1));
    }
    trie->values[node] = value;
    return true;
}

uint32_t trie_step(const Trie *trie, uint32_t node, unsigned char byte)
{
    return trie->slots ? (uint32_t)(*find_edge(trie, edge_of(node, byte)) & (TRIE_MOST_NODES - 1)) : 0;
}

int32_t trie_find(const Trie *trie, const char *text, size_t length)
{
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if (!(node = trie_step(trie, node, (unsigned char)text[i]))) return -1;
    return trie->nodes ? trie->values[node] : -1;
}

/* The edge that leads to the node. */
static uint64_t edge_to(const Trie *trie, uint32_t node)
{
    size_t i = 0;
    while (!trie->slots[i] || (trie->slots[i] & (TRIE_MOST_NODES - 1)) != node) i++;
    return trie->slots[i] >> CHILD_BITS;
}

bool trie_string(const Trie *trie, int32_t value, Buffer *string)
{
    uint32_t node = 0;
    size_t start = string->size;
    while (node < trie->nodes && trie->values[node] != value) node++;
    if (node == trie->nodes) return false;
    while (node) {
        uint64_t edge = edge_to(trie, node);
        char byte = (char)(edge & 0xff);
        buffer_append(string, &byte, 1);
        node = (uint32_t)(edge >> 8);
    }
    for (size_t i = start, k = string->size; i + 1 < k; i++) { /* it was written from its end */
        char byte = string->bytes[i];
        string->bytes[i] = string->bytes[--k];
        string->bytes[k] = byte;
    }
    return true;
}

void trie_free(Trie *trie)
{
    free(trie->slots);
    free(trie->values);
}

static void push(TokenIds *ids, int32_t id) { array_push(ids->items, ids->count, ids->capacity, id); }

static size_t character_bytes(const char *text)
{
    unsigned char c = (unsigned char)*text;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* ---- WordPiece ---- */

void subwords_set_continuation(Subwords *model, const char *prefix)
{
    model->continuation = 0;
    model->has_continuation = true;
    for (; *prefix && model->has_continuation; prefix++) {
        model->continuation = trie_step(&model->vocabulary, model->continuation, (unsigned char)*prefix);
        model->has_continuation = model->continuation > 0;
    }
}

static void encode_wordpiece(const Subwords *model, const char *word, size_t length, TokenIds *ids)
{
    size_t characters = 0, former = ids->count;
    for (size_t i = 0; i < length; i += character_bytes(word + i)) characters++;
    for (size_t start = 0, end; start < length && characters <= model->most_characters; start = end) {
        uint32_t node = start ? model->continuation : 0;
        int32_t best = -1;
        end = start;
        for (size_t i = start; i < length && (!start || model->has_continuation); i++) {
            if (!(node = trie_step(&model->vocabulary, node, (unsigned char)word[i]))) break;
            if (model->vocabulary.values[node] < 0) continue;
            best = model->vocabulary.values[node];
            end = i + 1;
        }
        if (best < 0) {
            characters = SIZE_MAX;
            break;
        }
        push(ids, best);
    }
    if (characters <= model->most_characters) return;
    ids->count = former; /* the whole word is unknown */
    push(ids, model->unknown);
}

/* ---- byte pair encoding ---- */

Merge *subwords_merge(const Subwords *model, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (pair * 0x9e3779b97f4a7c15u >> 20) & model->merge_mask;
    while (model->merges[i].pair != UINT64_MAX && model->merges[i].pair != pair) i = (i + 1) & model->merge_mask;
    return &model->merges[i];
}

typedef struct Symbol {
    int32_t piece;        /* -1: merged into the one before */
    int32_t former, next; /* -1: none */
} Symbol;

/* A possible merge of the symbol at `at` and the next, as they were. */
typedef struct Candidate {
    int32_t rank, at;
    uint64_t pair;
    int32_t piece;
} Candidate;

/* A heap with the lowest rank, of equal ones the leftmost, on top. */
typedef struct Heap {
    Candidate *items;
    size_t count, capacity;
} Heap;

static bool before(const Candidate *a, const Candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void heap_push(Heap *heap, Candidate candidate)
{
    array_push(heap->items, heap->count, heap->capacity, candidate);
    for (size_t i = heap->count - 1; i && before(&heap->items[i], &heap->items[(i - 1) / 2]); i = (i - 1) / 2) {
        Candidate kept = heap->items[i];
        heap->items[i] = heap->items[(i - 1) / 2];
        heap->items[(i - 1) / 2] = kept;
    }
}

static Candidate heap_pop(Heap *heap)
{
    Candidate top = heap->items[0], last = heap->items[--heap->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap->count; i = child) {
        if (child + 1 < heap->count && before(&heap->items[child + 1], &heap->items[child])) child++;
        if (!before(&heap->items[child], &last)) break;
        heap->items[i] = heap->items[child];
    }
    heap->items[i] = last;
    return top;
}

static void consider(const Subwords *model, const Symbol *symbols, int32_t at, Heap *heap)
{
    int32_t next = at < 0 ? -1 : symbols[at].next;
    if (next < 0) return;
    const Merge *merge = subwords_merge(model, symbols[at].piece, symbols[next].piece);
    if (merge->pair != UINT64_MAX) heap_push(heap, (Candidate){merge->rank, at, merge->pair, merge->piece});
}

static void merge_symbols(const Subwords *model, Symbol *symbols, size_t count)
{
    Heap heap = {0};
    for (size_t i = 0; i < count; i++) consider(model, symbols, (int32_t)i, &heap);
    while (heap.count) {
        Candidate top = heap_pop(&heap);
        Symbol *left = &symbols[top.at];
        if (left->piece < 0 || left->next < 0) continue;
        Symbol *right = &symbols[left->next];
        if (((uint64_t)(uint32_t)left->piece << 32 | (uint32_t)right->piece) != top.pair) continue;
        left->piece = top.piece;
        right->piece = -1;
        left->next = right->next;
        if (right->next >= 0) symbols[right->next].former = top.at;
        consider(model, symbols, left->former, &heap);
        consider(model, symbols, top.at, &heap);
    }
    free(heap.items);
}

/* The pieces of a character's bytes; false if it has none. */
static bool push_bytes(const Subwords *model, const char *text, size_t length, TokenIds *ids)
{
    if (model->bytes[0] < 0) return false;
    for (size_t i = 0; i < length; i++) push(ids, model->bytes[(unsigned char)text[i]]);
    return true;
}

static void encode_bpe(const Subwords *model, const char *word, size_t length, TokenIds *ids)
{
    int32_t whole = model->whole_first ? trie_find(&model->vocabulary, word, length) : -1;
    if (whole >= 0) {
        push(ids, whole);
        return;
    }
    TokenIds pieces = {0};
    bool unknown = false; /* the last one */
    for (size_t i = 0, used; i < length; i += used) {
        used = character_bytes(word + i);
        int32_t id = trie_find(&model->vocabulary, word + i, used);
        bool known = id >= 0 || push_bytes(model, word + i, used, &pieces);
        if (id >= 0)
            push(&pieces, id);
        else if (!known && model->unknown >= 0 && !(unknown && model->fuse_unknown))
            push(&pieces, model->unknown);
        unknown = !known && model->unknown >= 0;
    }
    FREED Symbol *symbols = memory_allocate((pieces.count + 1) * sizeof *symbols);
    for (size_t i = 0; i < pieces.count; i++)
        symbols[i] = (Symbol){pieces.items[i], (int32_t)i - 1, i + 1 < pieces.count ? (int32_t)i + 1 : -1};
    merge_symbols(model, symbols, pieces.count);
    for (size_t i = 0; i < pieces.count; i++)
        if (symbols[i].piece >= 0) push(ids, symbols[i].piece);
    free(pieces.items);
}

/* ---- unigram language models ---- */

typedef struct Node {
    double score; /* of the best way here */
    size_t start; /* of its last piece; SIZE_MAX: none yet */
    int32_t piece;
} Node;

static void improve(Node *node, double score, size_t start, int32_t piece)
{
    if (node->start == SIZE_MAX || score > node->score) *node = (Node){score, start, piece};
}

/* Best ways to every position (Viterbi). A character without a piece of its own may be unknown, at a penalty. */
static Node *best_ways(const Subwords *model, const char *word, size_t length)
{
    enum { PENALTY = 10 };
    Node *nodes = memory_allocate((length + 1) * sizeof *nodes);
    for (size_t i = 1; i <= length; i++) nodes[i].start = SIZE_MAX;
    for (size_t start = 0, used; start < length; start += used) {
        double here = nodes[start].score;
        bool alone = false;
        uint32_t node = 0;
        used = character_bytes(word + start);
        for (size_t i = start; i < length; i++) {
            if (!(node = trie_step(&model->vocabulary, node, (unsigned char)word[i]))) break;
            int32_t piece = model->vocabulary.values[node];
            if (piece < 0) continue;
            improve(&nodes[i + 1], model->scores[piece] + here, start, piece);
            alone |= i + 1 - start == used;
        }
        if (!alone) improve(&nodes[start + used], model->least_score - PENALTY + here, start, model->unknown);
    }
    return nodes;
}

static void encode_unigram(const Subwords *model, const char *word, size_t length, TokenIds *ids)
{
    FREED Node *nodes = best_ways(model, word, length);
    struct Part {
        size_t start, length;
    } *pieces = NULL; /* from the end */
    size_t count = 0, capacity = 0;
    for (size_t end = length; end;) {
        size_t start = nodes[end].start;
        bool fuse = nodes[end].piece == model->unknown;
        for (; fuse && start && nodes[start].piece == model->unknown; start = nodes[start].start) {}
        struct Part span = {start, end - start};
        array_push(pieces, count, capacity, span);
        end = start;
    }
    while (count--) {
        const char *text = word + pieces[count].start;
        int32_t id = trie_find(&model->vocabulary, text, pieces[count].length);
        if (id >= 0)
            push(ids, id);
        else if (!push_bytes(model, text, pieces[count].length, ids))
            push(ids, model->unknown);
    }
    free(pieces);
}

void subwords_encode(const Subwords *model, const char *word, size_t length, TokenIds *ids)
{
    switch (model->kind) {
    case SUBWORDS_WORDPIECE: encode_wordpiece(model, word, length, ids); break;
    case SUBWORDS_BPE: encode_bpe(model, word, length, ids); break;
    case SUBWORDS_UNIGRAM: encode_unigram(model, word, length, ids); break;
    }
}

void subwords_free(Subwords *model)
{
    trie_free(&model->vocabulary);
    free(model->merges);
    free(model->scores);
}
