#include "driver/compile/head_loss.h"

#include <string.h>

#include "frontend/huggingface/import_folder.h"
#include "graph/passes/loss.h"

static const char *loss_of(const Head *head)
{
    switch (head->kind) {
    case HEAD_SEQUENCE: return head->several ? "bce" : "cross-entropy";
    case HEAD_REGRESSION: return "mse";
    case HEAD_QUESTION: return LOSS_OF_ANSWERS;
    case HEAD_TOKENS:
    case HEAD_MASKED: return "cross-entropy";
    case HEAD_NEXT: return "cross-entropy,shift";
    case HEAD_MEAN:
    case HEAD_FIRST: return head->pairs ? "contrastive:embedding:embedding_2" : NULL;
    default: return NULL;
    }
}

void head_loss_check(const OnnxModel *model, const char *loss, Diagnostics *diagnostics)
{
    static const char kind[] = "cross-entropy";
    const char *text = onnx_model_property(model, PROPERTY_HEAD);
    Head head = {0};
    if (!text || !head_parse(text, &head) || head.kind != HEAD_NEXT) return;
    for (const char *term = loss; (term = strstr(term, kind)); term += strlen(kind)) {
        const char *end = term + strcspn(term, "+"), *shift = strstr(term, ",shift");
        if (shift && shift < end) continue;
        diagnostics_warning(diagnostics, PLACE_FILE(model->path),
                            "leave --loss out, or write cross-entropy,shift; data sets of skycc tokenize need it",
                            "is a decoder, which scores the next token, but --loss %.*s compares each token's scores "
                            "with its own label",
                            (int)(end - term), term);
    }
}

bool head_loss(const OnnxModel *model, const char **loss, Diagnostics *diagnostics)
{
    Head head = {0};
    const char *text = onnx_model_property(model, PROPERTY_HEAD);
    *loss = text && head_parse(text, &head) ? loss_of(&head) : NULL;
    return *loss || (head.kind != HEAD_MEAN && head.kind != HEAD_FIRST) ||
           diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(model->path),
                             "import it with --head pairs:mean, which embeds two texts a row",
                             "has an embedding as its output, and no loss is defined for an embedding alone");
}
