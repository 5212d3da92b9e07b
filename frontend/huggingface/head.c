#include "frontend/huggingface/head.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 1 << 20 };

static const struct {
    const char *text; /* with a colon at the end: a number of labels follows */
    HeadKind kind;
    bool several, pairs;
} words[] = {
    {"seqcls:", HEAD_SEQUENCE, .pairs = false},
    {"multilabel:", HEAD_SEQUENCE, .several = true},
    {"regression", HEAD_REGRESSION, .pairs = false},
    {"tokcls:", HEAD_TOKENS, .pairs = false},
    {"qa", HEAD_QUESTION, .pairs = false},
    {"mlm", HEAD_MASKED, .pairs = false},
    {"lm", HEAD_NEXT, .pairs = false},
    {"embedding:mean", HEAD_MEAN, .pairs = false},
    {"embedding:cls", HEAD_FIRST, .pairs = false},
    {"pairs:mean", HEAD_MEAN, .pairs = true},
    {"pairs:cls", HEAD_FIRST, .pairs = true},
};

static const struct {
    const char *suffix;
    HeadKind kind;
} classes[] = {
    {"Model", HEAD_NONE},
    {"EncoderModel", HEAD_NONE},
    {"ForSequenceClassification", HEAD_SEQUENCE},
    {"ForTokenClassification", HEAD_TOKENS},
    {"ForQuestionAnswering", HEAD_QUESTION},
    {"ForMaskedLM", HEAD_MASKED},
    {"ForPreTraining", HEAD_MASKED},
    {"ForCausalLM", HEAD_NEXT},
};

bool head_parse(const char *text, Head *head)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].text);
        *head = (Head){.kind = words[i].kind,
                       .labels = words[i].kind == HEAD_REGRESSION,
                       .several = words[i].several,
                       .pairs = words[i].pairs};
        if (words[i].text[length - 1] != ':') {
            if (strcmp(text, words[i].text) == 0) return true;
            continue;
        }
        if (strncmp(text, words[i].text, length) != 0) continue;
        const char *digits = text + length;
        size_t count = strspn(digits, "0123456789");
        head->labels = strtol(digits, NULL, 10);
        return count > 0 && count < 9 && !digits[count] && head->labels >= 1 && head->labels <= MOST_LABELS;
    }
    return false;
}

const char *head_text(Arena *arena, const Head *head)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].kind != head->kind || words[i].several != head->several || words[i].pairs != head->pairs) continue;
        bool counts = words[i].text[strlen(words[i].text) - 1] == ':';
        return counts ? arena_format(arena, "%s%lld", words[i].text, (long long)head->labels) : words[i].text;
    }
    return "none";
}

const char *head_class(HeadKind kind)
{
    if (kind == HEAD_REGRESSION) kind = HEAD_SEQUENCE;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].kind == kind) return classes[i].suffix;
    return classes[0].suffix; /* embeddings are made of the encoder alone */
}

HeadKind head_of_class(const char *suffix)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(classes[i].suffix, suffix) == 0) return classes[i].kind;
    return HEAD_FROM_FOLDER;
}
