/* Models that cut words into pieces of a vocabulary: WordPiece (Wu et al. 2016, arXiv 1609.08144), byte pair encoding
 * (Sennrich, Haddow, Birch, ACL 2016), unigram language models (Kudo, ACL 2018). Each gives exactly the results of
 * Hugging Face's tokenizers, including ties and unknown characters. */
#ifndef FRONTEND_TEXT_SUBWORDS_H
#define FRONTEND_TEXT_SUBWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "frontend/text/token_frame.h"

/* Strings of bytes with a number each. */
typedef struct Trie {
    uint64_t *slots; /* parent, byte and child of each edge, hashed; 0: free. The size is a power of two */
    size_t mask, edges;
    int32_t *values; /* of nodes; -1: none. Node 0 is the root */
    size_t nodes, capacity;
} Trie;

enum { TRIE_MOST_NODES = 1 << 24 };

/* False if there are too many nodes. A string that is there already gets the new number. */
bool trie_insert(Trie *trie, const char *text, size_t length, int32_t value);
uint32_t trie_step(const Trie *trie, uint32_t node, unsigned char byte); /* 0: no string goes on so */
int32_t trie_find(const Trie *trie, const char *text, size_t length);    /* -1: none */
/* Appends a string with that number, for messages and the like: looks through all of them. False if there is none. */
bool trie_string(const Trie *trie, int32_t value, Buffer *string);
void trie_free(Trie *trie);

typedef enum SubwordKind { SUBWORDS_WORDPIECE, SUBWORDS_BPE, SUBWORDS_UNIGRAM } SubwordKind;

/* For BPE: two pieces that join into one; lower ranks join first. */
typedef struct Merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    int32_t rank, piece;
} Merge;

typedef struct Subwords {
    SubwordKind kind;
    Trie vocabulary;
    int32_t size;    /* ids are below this */
    int32_t unknown; /* -1: none */
    bool fuse_unknown;
    int32_t bytes[256]; /* the pieces of bytes, for characters that no piece has; bytes[0] < 0: not done */
    /* WordPiece */
    size_t most_characters;
    uint32_t continuation; /* the node after the prefix of pieces inside words */
    bool has_continuation;
    /* BPE */
    Merge *merges; /* a hash table; the size is a power of two, more than there are */
    size_t merge_mask;
    bool whole_first; /* a word that is a piece is that piece */
    /* Unigram */
    double *scores, least_score;
} Subwords;

/* For WordPiece, when the vocabulary is complete: what pieces inside words begin with. */
void subwords_set_continuation(Subwords *model, const char *prefix);
/* Appends the pieces of a word, UTF-8 and not empty. */
void subwords_encode(const Subwords *model, const char *word, size_t length, TokenIds *ids);
Merge *subwords_merge(const Subwords *model, int32_t left, int32_t right); /* where it is, or goes */
void subwords_free(Subwords *model);

#endif
