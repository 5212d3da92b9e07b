#include "driver/predict/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "driver/predict/worst_rows.h"
#include "runtime/program/label_names.h"
#include "runtime/train/answers.h"
#include "runtime/train/entities.h"

enum { MOST_LISTED = 256 }; /* classes: more are words */

/* Of its windows: the largest loss, and the byte of the text where the right answer begins; -1: not known. */
typedef struct AskedQuestion {
    double loss;
    int32_t begin;
} AskedQuestion;

typedef struct Scores {
    Predictions *predictions;
    const SafeTensor *labels, *ends; /* `ends`: where answers end */
    int64_t classes, labels_per_row;
    int64_t *numbers;        /* of the data set's labels in the model, which may number the same names otherwise */
    double loss;             /* summed */
    int64_t counted;         /* labels, or rows */
    int64_t compared, right; /* of pairs: that have others in their batch; nearest to their own partners */
    AnswerTexts texts;
    BestAnswer *answers; /* of questions */
    AskedQuestion *questions;
    int64_t *found; /* what is predicted for the tokens of a row; -1: they have no label */
    ClassCounts each;
    EntityTags tags;
    EntityCounter entities; /* where labels are tags */
    int64_t *confusion;     /* [label][prediction]; NULL: too many classes */
    LabelSets sets;
    NumberPairs pairs;
    WorstRows worst;
    Buffer *text;
    JsonWriter json;
} Scores;

/* ---- Rows ---- */

static const char *label_name(const Scores *scores, int64_t label)
{
    const Predictions *predictions = scores->predictions;
    return label < (int64_t)predictions->label_count ? predictions->labels[label]
                                                     : arena_format(predictions->arena, "%lld", (long long)label);
}

/* Whether a row of that loss is told about, with its text. */
static bool is_bad(const Scores *scores, double loss)
{
    return scores->predictions->tokenizer && worst_rows_take(&scores->worst, loss);
}

/* Moves the text into the arena. */
static const char *kept(const Scores *scores, Buffer *text)
{
    const char *copy = arena_format(scores->predictions->arena, "%s", buffer_text(text));
    buffer_free(text);
    return copy;
}

static void list(Buffer *names, const char *name) { buffer_print(names, "%s%s", names->size ? ", " : "", name); }

/* Turns scores into probabilities and returns cross-entropy, which is exact where the label's probability is 0, too.
 * `best`, unless NULL, becomes the one with the largest score. */
static double cross_entropy(double *values, int64_t count, int64_t label, int64_t *best)
{
    double own = values[label], largest = own;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, values[i]);
    int64_t found = predictions_softmax(values, count);
    if (best) *best = found;
    return largest - own - log(values[found]);
}

/* One label and the scores of all classes, which become probabilities. `row`: -1 for a token of one. Returns the class
 * that is predicted; -1: there is no label. */
static int64_t count_class(Scores *scores, int64_t row, int64_t label, double *values)
{
    if (label < 0 || label >= scores->classes) return -1;
    label = scores->numbers[label];
    int64_t best;
    double loss = cross_entropy(values, scores->classes, label, &best);
    scores->loss += loss;
    scores->counted++;
    if (row >= 0 && best != label && is_bad(scores, loss))
        worst_rows_add(&scores->worst, (WorstRow){row, loss, values[best], .label = label_name(scores, label),
                                                  .predicted = label_name(scores, best)});
    class_counts_add(&scores->each, label, best);
    if (row < 0 && scores->tags.count) entity_counter_add(&scores->entities, label, best);
    if (scores->confusion) scores->confusion[label * scores->classes + best]++;
    return best;
}

/* The words of a row, or the pieces under its masks, for which something else was predicted. */
static void note_tokens(Scores *scores, int64_t row, double loss)
{
    enum { MOST_NAMED = 8 };
    const Predictions *predictions = scores->predictions;
    const int32_t *labels = (const int32_t *)scores->labels->data + row * scores->labels_per_row;
    RowTokens tokens = row_tokens(predictions->rows, row, predictions->tokenizer);
    int64_t width = tokens.count < predictions->predictor->width ? tokens.count : predictions->predictor->width;
    bool masked = predictions->head == HEAD_MASKED;
    Buffer names[2] = {0};
    int wrong = 0;
    for (int64_t t = 0, after; t < width && wrong <= MOST_NAMED; t++) {
        if (scores->found[t] < 0 || scores->found[t] == scores->numbers[labels[t]]) continue;
        int64_t classes[2] = {scores->numbers[labels[t]], scores->found[t]};
        for (after = t + 1; after < width && labels[after] < 0;) after++;
        for (int k = 0; k < 2; k++) {
            FREED_WITH(buffer_free) Buffer name = {0};
            int32_t id = masked ? (int32_t)classes[k] : tokens.ids[t];
            tokens_text(&name, &tokens, masked ? &id : tokens.ids + t, masked ? 1 : after - t);
            if (!name.size) tokenizer_piece(predictions->tokenizer, id, &name); /* such as [UNK] */
            if (!masked) buffer_print(&name, " %s", label_name(scores, classes[k]));
            const char *text = buffer_text(&name);
            list(&names[k], wrong < MOST_NAMED ? text + strspn(text, " ") : "...");
        }
        wrong++;
    }
    WorstRow worst = {row, loss, NAN, .label = kept(scores, &names[0]), .predicted = kept(scores, &names[1])};
    if (wrong) worst_rows_add(&scores->worst, worst);
}

/* Each label by its token, or, of HEAD_NEXT, by the token before. */
static void count_tokens(Scores *scores, int64_t row, double *values)
{
    const int32_t *labels = (const int32_t *)scores->labels->data + row * scores->labels_per_row;
    int64_t before = scores->predictions->head == HEAD_NEXT, counted = scores->counted;
    double loss = scores->loss;
    for (int64_t t = before; t < scores->predictions->predictor->width; t++)
        scores->found[t] = count_class(scores, -1, labels[t], values + (t - before) * scores->classes);
    if (scores->tags.count) entity_counter_end_row(&scores->entities);
    if (scores->counted == counted) return;
    loss = (scores->loss - loss) / (double)(scores->counted - counted);
    if (!is_bad(scores, loss)) return;
    if (before)
        worst_rows_add(&scores->worst, (WorstRow){row, loss, NAN, .values = {NAN, NAN}});
    else
        note_tokens(scores, row, loss);
}

static void count_set(Scores *scores, int64_t row, const double *values)
{
    const float *labels = (const float *)scores->labels->data + row * scores->classes;
    bool right = true;
    double loss = 0;
    Buffer names[2] = {0};
    for (int64_t i = 0; i < scores->classes; i++) {
        int64_t c = scores->numbers[i];
        bool has = labels[i] > 0.5f, predicted = values[c] > 0;
        double wrong = has ? -values[c] : values[c];
        loss += (wrong > 0 ? wrong : 0) + log1p(exp(-fabs(wrong)));
        scores->counted++;
        right &= has == predicted;
        label_sets_add(&scores->sets, c, has, predicted);
        if (has) list(&names[0], label_name(scores, c));
        if (predicted) list(&names[1], label_name(scores, c));
    }
    label_sets_end_row(&scores->sets, true, right);
    scores->loss += loss;
    loss /= (double)scores->classes;
    if (!right && is_bad(scores, loss))
        worst_rows_add(&scores->worst, (WorstRow){row, loss, NAN, .label = kept(scores, &names[0]),
                                                  .predicted = kept(scores, &names[1])});
    for (int k = 0; k < 2; k++) buffer_free(&names[k]);
}

static void count_number(Scores *scores, int64_t row, double value)
{
    double label = ((const float *)scores->labels->data)[row];
    double loss = (value - label) * (value - label);
    scores->loss += loss;
    worst_rows_add(&scores->worst, (WorstRow){row, loss, NAN, .values = {label, value}});
    scores->counted++;
    number_pairs_add(&scores->pairs, value, label);
}

static void count_answer(Scores *scores, int64_t row, double *begins, double *ends)
{
    int64_t width = scores->predictions->predictor->width;
    int32_t first = ((const int32_t *)scores->labels->data)[row], last = ((const int32_t *)scores->ends->data)[row];
    if (scores->texts.count && width <= scores->texts.width)
        best_answer_take(scores->answers, &scores->texts, row, begins, ends, width);
    if (first < 0 || first >= width || last < 0 || last >= width) return;
    double loss = 0.5 * (cross_entropy(begins, width, first, NULL) + cross_entropy(ends, width, last, NULL));
    scores->loss += loss;
    scores->counted++;
    if (!scores->texts.count) return;
    AskedQuestion *question = &scores->questions[scores->texts.questions[row]];
    question->loss = fmax(question->loss, loss);
    int32_t begin = first < scores->texts.width ? scores->texts.begins[row * scores->texts.width + first] : -1;
    if (begin >= 0) question->begin = begin;
}

/* The questions to which all windows together give a wrong answer. */
static void note_answers(Scores *scores)
{
    const Predictions *predictions = scores->predictions;
    const AnswerTexts *texts = &scores->texts;
    for (int64_t w = 0, before = -1; w < texts->windows; w++) {
        int64_t q = texts->questions[w], asked = 0;
        double exact, f1, loss = scores->questions[q].loss;
        if (q == before) continue;
        before = q;
        best_answer_measure(&scores->answers[q], texts, q, &exact, &f1);
        if (exact > 0 || !is_bad(scores, loss)) continue;
        Buffer question = {0}, text = {0};
        RowTokens tokens = row_tokens(predictions->rows, w, predictions->tokenizer);
        while (asked < tokens.count && texts->begins[w * texts->width + asked] < 0) asked++;
        tokens_text(&question, &tokens, tokens.ids, asked);
        int32_t begin = scores->questions[q].begin, found = scores->answers[q].begin;
        size_t place = begin >= 0 ? (size_t)begin : found >= 0 ? (size_t)found : 0;
        shortened_text(&text, texts->contexts[q], place, place + (begin >= 0 ? strlen(texts->answers[q]) : 0));
        FREED char *predicted = best_answer_text(&scores->answers[q], texts, q);
        worst_rows_add(&scores->worst, (WorstRow){q, loss, NAN, .label = texts->answers[q],
                                                  .predicted = arena_format(predictions->arena, "%s", predicted),
                                                  .question = kept(scores, &question), .text = kept(scores, &text)});
    }
}

static bool count_row(Scores *scores, int64_t row, Diagnostics *diagnostics)
{
    Predictions *predictions = scores->predictions;
    double *values = predictions->values;
    if (!predictor_values(predictions->predictor, predictions->output, row, values, diagnostics)) return false;
    switch (predictions->head) {
    case HEAD_QUESTION:
        if (!predictor_values(predictions->predictor, predictions->end, row, predictions->end_values, diagnostics))
            return false;
        count_answer(scores, row, values, predictions->end_values);
        break;
    case HEAD_NEXT:
    case HEAD_TOKENS:
    case HEAD_MASKED: count_tokens(scores, row, values); break;
    default:
        if (predictions->several)
            count_set(scores, row, values);
        else if (scores->classes > 1)
            count_class(scores, row, ((const int32_t *)scores->labels->data)[row], values);
        else
            count_number(scores, row, values[0]);
    }
    return true;
}

/* ---- What came out ---- */

/* Also where a vocabulary is as small as that of proteins. */
static bool are_words(const Scores *scores)
{
    HeadKind head = scores->predictions->head;
    return scores->classes > MOST_LISTED || head == HEAD_NEXT || head == HEAD_MASKED;
}

static void report(Scores *scores, const char *name, double value, bool percent)
{
    if (!isfinite(value)) return;
    text_format(scores->text, percent ? "%-12s %.2f%%\n" : "%-12s %.4f\n", name, percent ? 100 * value : value);
    json_add_number(&scores->json, name, value);
}

/* Precision, recall and F1 of every class, or type of entities (`names`). */
static void report_each(Scores *scores, const ClassCounts *each, const char *const *names, const char *head)
{
    JsonWriter *json = &scores->json;
    text_format(scores->text, "\n%-20s %9s %9s %9s %7s\n", head, "precision", "recall", "f1", "rows");
    json_open(json, "classes", '[');
    for (int64_t c = 0; c < each->classes; c++) {
        double right = (double)each->correct[c], found = (double)each->predicted[c], there = (double)each->labelled[c];
        double values[] = {found > 0 ? right / found : 0, there > 0 ? right / there : 0,
                           found + there > 0 ? 2 * right / (found + there) : 0};
        static const char *const keys[] = {"precision", "recall", "f1"};
        const char *name = names ? names[c] : label_name(scores, c);
        text_format(scores->text, "%-20s %8.2f%% %8.2f%% %8.2f%% %7lld\n", name, 100 * values[0], 100 * values[1],
                    100 * values[2], (long long)each->labelled[c]);
        json_open(json, NULL, '{');
        json_add_string(json, "label", name);
        for (int i = 0; i < 3; i++) json_add_number(json, keys[i], values[i]);
        json_add_integer(json, "rows", each->labelled[c]);
        json_close(json, '}');
    }
    json_close(json, ']');
}

/* And how often each class was taken for each. */
static void report_classes(Scores *scores, const ClassCounts *each)
{
    JsonWriter *json = &scores->json;
    report_each(scores, each, NULL, "label");
    if (!scores->confusion || scores->predictions->several) return;
    json_open(json, "confusion", '[');
    for (int64_t c = 0; c < scores->classes; c++) {
        json_open(json, NULL, '[');
        for (int64_t p = 0; p < scores->classes; p++)
            json_add_integer(json, NULL, scores->confusion[c * scores->classes + p]);
        json_close(json, ']');
    }
    json_close(json, ']');
}

/* The texts of the rows that went most wrong, where a tokenizer is at hand. */
static void report_worst(Scores *scores)
{
    const Predictions *predictions = scores->predictions;
    JsonWriter *json = &scores->json;
    if (!predictions->tokenizer || !scores->worst.count) return;
    json_open(json, "worst", '[');
    for (int i = 0; i < scores->worst.count; i++) {
        const WorstRow *row = &scores->worst.items[i];
        RowTokens tokens = row_tokens(predictions->rows, row->row, predictions->tokenizer);
        FREED_WITH(buffer_free) Buffer text = {0}, start = {0};
        if (!row->text) tokens_text(&text, &tokens, tokens.ids, tokens.count);
        if (predictions->head == HEAD_NEXT) shortened_text(&start, buffer_text(&text), 0, 0);
        json_open(json, NULL, '{');
        json_add_integer(json, "row", row->row);
        if (row->question) json_add_string(json, "question", row->question);
        json_add_string(json, "text", row->text ? row->text : buffer_text(start.size ? &start : &text));
        for (int k = 0; k < 2; k++) {
            const char *name = k ? row->predicted : row->label, *key = k ? "predicted" : "label";
            if (name) json_add_string(json, key, name);
            if (!name && !isnan(row->values[k])) json_add_number(json, key, row->values[k]);
        }
        if (!isnan(row->score)) json_add_number(json, "score", row->score);
        json_add_number(json, "loss", row->loss);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void report_all(Scores *scores)
{
    const Predictions *predictions = scores->predictions;
    double loss = scores->counted ? scores->loss / (double)scores->counted : NAN;
    int64_t windows = predictions->rows->count, rows = scores->texts.count ? scores->texts.count : windows;
    text_format(scores->text, "%-12s %lld\n", "rows", (long long)rows);
    json_open(&scores->json, NULL, '{');
    json_add_integer(&scores->json, "rows", rows);
    if (scores->texts.count) json_add_integer(&scores->json, "windows", windows);
    report(scores, "loss", loss, false);
    if (predictions->head == HEAD_MEAN || predictions->head == HEAD_FIRST) {
        report(scores, "accuracy", (double)scores->right / (double)scores->compared, true);
    } else if (predictions->head == HEAD_QUESTION && scores->texts.count) {
        double exact, f1;
        best_answers_measure(scores->answers, &scores->texts, &exact, &f1);
        report(scores, "exact", exact, true);
        report(scores, "f1", f1, false);
    } else if (scores->tags.count) {
        report(scores, "accuracy", class_counts_accuracy(&scores->each), true);
        report(scores, "f1", entity_counter_f1(&scores->entities, F1_MICRO), false);
        report(scores, "f1-macro", entity_counter_f1(&scores->entities, F1_MACRO), false);
        report_each(scores, &scores->entities.each, scores->tags.names, "entity");
    } else if (scores->pairs.count) {
        report(scores, "pearson", number_pairs_pearson(&scores->pairs), false);
        report(scores, "spearman", number_pairs_spearman(&scores->pairs), false);
    } else if (predictions->several) {
        report(scores, "accuracy", label_sets_accuracy(&scores->sets), true);
        report(scores, "f1", label_sets_f1(&scores->sets, F1_BY_CLASSES), false);
        report(scores, "f1-macro", label_sets_f1(&scores->sets, F1_MACRO), false);
        if (scores->classes <= MOST_LISTED) report_classes(scores, &scores->sets.each);
    } else {
        report(scores, "accuracy", class_counts_accuracy(&scores->each), true);
        if (are_words(scores)) {
            report(scores, "perplexity", exp(loss), false);
        } else {
            report(scores, "f1", class_counts_f1(&scores->each, F1_BY_CLASSES), false);
            report(scores, "matthews", class_counts_matthews(&scores->each), false);
            report_classes(scores, &scores->each);
        }
    }
    if (scores->texts.count) note_answers(scores);
    report_worst(scores);
    json_close(&scores->json, '}');
}

/* ---- The whole ---- */

/* The labels, in the form that the head needs. */
static bool find_labels(Scores *scores, Diagnostics *diagnostics)
{
    const Predictions *predictions = scores->predictions;
    const TextRows *rows = predictions->rows;
    HeadKind head = predictions->head;
    bool answers = head == HEAD_QUESTION, tokens = head == HEAD_TOKENS || head == HEAD_MASKED || head == HEAD_NEXT;
    scores->labels = safetensors_find(&rows->data, answers ? "start_positions" : "labels");
    scores->ends = answers ? safetensors_find(&rows->data, "end_positions") : scores->labels;
    bool measured = !answers && !tokens && (predictions->several || scores->classes == 1);
    int rank = tokens || (predictions->several && scores->classes > 0) ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        const SafeTensor *tensor = i ? scores->ends : scores->labels;
        if (tensor && tensor->dtype == (measured ? DTYPE_F32 : DTYPE_I32) && tensor->shape.rank == rank &&
            tensor->shape.dim[0] == rows->count &&
            (rank == 1 || tensor->shape.dim[1] == (tokens ? rows->width : scores->classes)))
            continue;
        return input_error(diagnostics, rows->file, "make it with skycc tokenize and --label",
                           tensor ? "has labels of another kind than the model" : "has no labels to compare with");
    }
    scores->labels_per_row = rank == 2 ? scores->labels->shape.dim[1] : 1;
    const int32_t *labels = scores->labels->data;
    for (int64_t i = 0; !answers && !measured && i < rows->count * scores->labels_per_row; i++)
        if (labels[i] >= scores->classes)
            return input_error(diagnostics, rows->file, "make it with skycc tokenize --labels-of DATA",
                               "has the label %d in row %lld, and the model has labels 0 to %lld", labels[i],
                               (long long)(i / scores->labels_per_row), (long long)scores->classes - 1);
    return true;
}

/* By the names, where both sides have some. */
static bool number_labels(Scores *scores, Diagnostics *diagnostics)
{
    Predictions *predictions = scores->predictions;
    size_t count;
    const char *const *names =
        label_names_read(safetensors_metadata(&predictions->rows->data, "labels"), predictions->arena, &count);
    scores->numbers = arena_new_array(predictions->arena, int64_t, (size_t)scores->classes);
    for (int64_t i = 0; i < scores->classes; i++) {
        int64_t number = i;
        if (i < (int64_t)count && (int64_t)predictions->label_count == scores->classes)
            for (number = 0; number < scores->classes; number++)
                if (strcmp(predictions->labels[number], names[i]) == 0) break;
        if (number == scores->classes)
            return input_error(diagnostics, predictions->rows->file,
                               predictions->labels_of
                                   ? "make it with skycc tokenize --labels-of DATA"
                                   : "name the labels in the model with skycc import or skycc head, or give --labels "
                                     "and the training data, which names them",
                               "has the label '%s', which the model does not know", names[i]);
        scores->numbers[i] = number;
    }
    return true;
}

/* ---- Pairs ---- */

/* Makes rows of `count` numbers one long. */
static void normalise(double *rows, int64_t row_count, int64_t count)
{
    for (double *row = rows; row < rows + row_count * count; row += count) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) sum += row[i] * row[i];
        for (int64_t i = 0; i < count && sum > 0; i++) row[i] /= sqrt(sum);
    }
}

/* Each text and the partners of all rows of a batch: the loss that finetune trains with, and how often its own is the
 * nearest, and not all are equally near. */
static void count_pairs(Scores *scores, double *texts, double *partners, int64_t rows, int64_t count)
{
    static const double temperature = 0.05;
    FREED double *cosines = memory_allocate((size_t)rows * sizeof *cosines);
    normalise(texts, rows, count);
    normalise(partners, rows, count);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < rows; k++) {
            double sum = 0;
            for (int64_t i = 0; i < count; i++) sum += texts[r * count + i] * partners[k * count + i];
            cosines[k] = sum / temperature;
        }
        int64_t further = 0, as_near = 0;
        for (int64_t k = 0; k < rows; k++) further += cosines[k] < cosines[r], as_near += cosines[k] == cosines[r];
        scores->loss += cross_entropy(cosines, rows, r, NULL);
        scores->counted++;
        scores->compared += rows > 1;
        scores->right += further > 0 && further + as_near == rows;
    }
}

static bool measure_pairs(Scores *scores, Diagnostics *diagnostics)
{
    const Predictions *predictions = scores->predictions;
    Predictor *predictor = predictions->predictor;
    const SkyTensor *others = predictor_output(predictor, "embedding_2", 2);
    int64_t count = predictions->classes, batch = predictor->batch, all = predictions->rows->count;
    if (!others || others->dim[1] != count || !text_rows_find(predictions->rows, "input_ids_2"))
        return input_error(diagnostics, predictions->called,
                           "import it with --head pairs:mean, and tokenize --task pairs",
                           "embeds single texts: there is nothing to compare them with");
    if (all < 2)
        return input_error(diagnostics, predictions->rows->file, "give it at least two rows",
                           "has only one pair: there is no other to tell it from");
    FREED double *texts = memory_allocate(2 * (size_t)(batch * count) * sizeof *texts);
    double *partners = texts + batch * count;
    bool ok = true;
    for (int64_t first = 0; ok && first < all; first += batch) {
        int64_t rows = all - first < batch ? all - first : batch;
        ok = predictor_run(predictor, first, diagnostics);
        for (int64_t r = 0; ok && r < rows; r++)
            ok = predictor_values(predictor, predictions->output, first + r, texts + r * count, diagnostics) &&
                 predictor_values(predictor, others, first + r, partners + r * count, diagnostics);
        if (ok) count_pairs(scores, texts, partners, rows, count);
    }
    if (ok) report_all(scores);
    return ok;
}

bool scores_measure(Predictions *predictions, Buffer *text, Buffer *json, Diagnostics *diagnostics)
{
    Predictor *predictor = predictions->predictor;
    Scores scores = {.predictions = predictions, .classes = predictions->classes, .text = text};
    scores.json = (JsonWriter){.buffer = json, .indent = 1};
    if (predictions->head == HEAD_MEAN || predictions->head == HEAD_FIRST) return measure_pairs(&scores, diagnostics);
    if (!find_labels(&scores, diagnostics) || !number_labels(&scores, diagnostics)) return false;
    if (predictions->head == HEAD_QUESTION) {
        answer_texts_open(&scores.texts, &predictions->rows->data, predictions->arena);
        scores.answers = arena_new_array(predictions->arena, BestAnswer, (size_t)scores.texts.count + 1);
        best_answers_begin(scores.answers, &scores.texts);
        scores.questions = arena_new_array(predictions->arena, AskedQuestion, (size_t)scores.texts.count + 1);
        for (int64_t q = 0; q < scores.texts.count; q++) scores.questions[q].begin = -1;
    }
    scores.found = arena_new_array(predictions->arena, int64_t, (size_t)predictor->width);
    if (predictions->head == HEAD_TOKENS && (int64_t)predictions->label_count == scores.classes)
        scores.tags = entity_tags(predictions->labels, predictions->label_count, predictions->arena);
    if (scores.tags.count) entity_counter_open(&scores.entities, &scores.tags);
    class_counts_open(&scores.each, scores.classes);
    label_sets_open(&scores.sets, scores.classes);
    if (scores.classes <= MOST_LISTED)
        scores.confusion = memory_allocate((size_t)(scores.classes * scores.classes) * sizeof *scores.confusion);
    bool ok = true;
    for (int64_t first = 0; ok && first < predictions->rows->count; first += predictor->batch) {
        ok = predictor_run(predictor, first, diagnostics);
        for (int64_t r = first; ok && r < first + predictor->batch && r < predictions->rows->count; r++)
            ok = count_row(&scores, r, diagnostics);
    }
    if (ok) report_all(&scores);
    class_counts_close(&scores.each);
    entity_counter_close(&scores.entities);
    label_sets_close(&scores.sets);
    number_pairs_free(&scores.pairs);
    free(scores.confusion);
    return ok;
}
