#include "driver/options/option_readers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "driver/options/options.h"
#include "graph/passes/passes.h"

bool read_emit(const OptionValue *value)
{
    static const char after[] = "graph:after:";
    Options *options = value->values;
    options->emit = options->load.last_pass = NULL;
    options->form = EMIT_PROGRAMS;
    if (strncmp(value->text, after, strlen(after)) == 0) {
        options->emit = "graph";
        options->load.last_pass = value->text + strlen(after);
        return pass_find(options->load.last_pass, value->diagnostics);
    }
    static const char *const forms[] = {[EMIT_LLVM] = "llvm", [EMIT_ASSEMBLY] = "asm", [EMIT_OBJECTS] = "obj"};
    for (EmitForm form = EMIT_LLVM; form <= EMIT_OBJECTS; form++)
        if (strcmp(forms[form], value->text) == 0) return options->form = form, true;
    for (const char *const *choice = value->option->choices; *choice; choice++)
        if (strcmp(*choice, value->text) == 0) return options->emit = *choice, true;
    return option_refuse(value, "graph, graph:after:PASS, train, costs, plan, llvm, asm or obj");
}

static bool read_extent(const OptionValue *value, const char *name, const char *text, int64_t *extent)
{
    const Option number = {.name = arena_format(value->arena, "dim %s=", name),
                           .kind = OPTION_INTEGER,
                           .least = 1,
                           .greatest = INT32_MAX,
                           .size = sizeof(int64_t)};
    return option_read_integer(&(OptionValue){&number, text, NULL, value->arena, value->diagnostics}, extent);
}

/* 16,32,64 or auto:64. */
static bool read_lengths(const OptionValue *value, const char *name, const char *text, int64_t *longest)
{
    static const char automatic[] = "auto:";
    LengthOptions *lengths = &((Options *)value->values)->load.lengths;
    size_t room = 1;
    for (const char *c = text; *c; c++) room += *c == ',';
    int64_t *list = arena_new_array(value->arena, int64_t, room);
    if (lengths->dimension && strcmp(lengths->dimension, name) != 0)
        return usage_error(value->diagnostics, NULL, "only one dimension may have several lengths");
    *lengths = (LengthOptions){.dimension = name, .list = list, .data = lengths->data};
    bool is_auto = strncmp(text, automatic, strlen(automatic)) == 0;
    char *rest = arena_string(value->arena, is_auto ? text + strlen(automatic) : text);
    for (char *part; (part = strsep(&rest, ","));) {
        if (!read_extent(value, name, part, &list[lengths->count++])) return false;
        if (lengths->count > 1 && (is_auto || list[lengths->count - 1] <= list[lengths->count - 2]))
            return usage_error(value->diagnostics, "write, for example, --dim seq=16,32,64 or --dim seq=auto:64",
                               "malformed lengths '%s'", text);
    }
    *longest = list[lengths->count - 1];
    return true;
}

bool read_dimension(const OptionValue *value)
{
    Options *options = value->values;
    ImportOptions *import = &options->load.import;
    const char *equals = strchr(value->text, '=');
    if (!equals || equals == value->text)
        return usage_error(value->diagnostics, "write, for example, --dim batch=8", "malformed dimension '%s'",
                           value->text);
    char *name = arena_string_n(value->arena, value->text, (size_t)(equals - value->text));
    bool several = strpbrk(equals + 1, ",:");
    int64_t size;
    if (!(several ? read_lengths(value, name, equals + 1, &size) : read_extent(value, name, equals + 1, &size)))
        return false;
    LengthOptions *lengths = &options->load.lengths;
    if (!several && lengths->dimension && strcmp(lengths->dimension, name) == 0)
        *lengths = (LengthOptions){.data = lengths->data};
    size_t count = import->dimension_count, place = 0;
    DimensionBinding *all = arena_new_array(value->arena, DimensionBinding, count + 1);
    if (count) memcpy(all, import->dimensions, count * sizeof *all);
    while (place < count && strcmp(all[place].name, name) != 0) place++;
    all[place] = (DimensionBinding){name, size}; /* of two, the last one counts */
    import->dimension_count += place == count;
    import->dimensions = all;
    return true;
}

static bool add_rule(const OptionValue *value, bool train)
{
    ImportOptions *import = &((Options *)value->values)->load.import;
    TrainingRule *all = arena_new_array(value->arena, TrainingRule, import->rule_count + 1);
    if (import->rule_count) memcpy(all, import->rules, import->rule_count * sizeof *all);
    all[import->rule_count++] = (TrainingRule){value->text, train};
    import->rules = all;
    return true;
}

bool read_frozen_weights(const OptionValue *value)
{
    static const DType forms[] = {DTYPE_F32, DTYPE_BF16, DTYPE_Q8, DTYPE_Q4};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(dtype_name(forms[i]), value->text) == 0)
            return ((Options *)value->values)->load.frozen_weights = forms[i], true;
    return option_refuse(value, "f32, bf16, int8 or int4");
}

bool read_warmup_text(const OptionValue *value)
{
    char *end;
    double number = strtod(value->text, &end);
    bool percent = end > value->text && strcmp(end, "%") == 0;
    *(const char **)((char *)value->values + value->option->offset) = value->text;
    if (end > value->text && number >= 0 &&
        (percent ? number <= 100 : !*end && number == floor(number) && number < 1e9))
        return true;
    return option_refuse(value, "a number of steps, or a share of them such as 10%");
}

bool read_freeze(const OptionValue *value) { return add_rule(value, false); }
bool read_train(const OptionValue *value) { return add_rule(value, true); }

bool read_low_rank(const OptionValue *value)
{
    ModelOptions *load = &((Options *)value->values)->load;
    load->import.adapters = true;
    return low_rank_parse(&load->low_rank, value->text, value->arena, value->diagnostics);
}

bool read_steps_or_train(const OptionValue *value)
{
    const Option number = {
        .name = "train", .kind = OPTION_INTEGER, .least = 0, .greatest = 1000000, .size = sizeof(int)};
    const char *digits = value->text + (*value->text == '-');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return read_train(value);
    return option_read_integer(&(OptionValue){&number, value->text, NULL, value->arena, value->diagnostics},
                               &((Options *)value->values)->steps);
}

bool read_dropout(const OptionValue *value)
{
    ImportOptions *import = &((Options *)value->values)->load.import;
    char *end;
    import->dropout_off = strcmp(value->text, "off") == 0;
    import->dropout_given = !import->dropout_off;
    if (import->dropout_off) return true;
    import->dropout = strtod(value->text, &end);
    if (end != value->text && !*end && import->dropout >= 0 && import->dropout < 1) return true;
    return option_refuse(value, "off or a number from 0 to below 1");
}

bool read_number_or_word(const OptionValue *value)
{
    const Option *option = value->option;
    char *field = (char *)value->values + option->offset;
    if (strcmp(value->text, option->choices[0]) != 0) return option_read_integer(value, field);
    if (option->size == sizeof(int))
        *(int *)field = -1;
    else
        *(int64_t *)field = -1;
    return true;
}

bool read_from_round(const OptionValue *value)
{
    Options *options = value->values;
    options->goes_back = true;
    return option_read_integer(value, &options->from_round);
}

bool read_privacy(const OptionValue *value)
{
    static const char wanted[] = "for example clip=1,noise=1.1, or with delta=1e-5 added";
    static const char *const keys[] = {"clip=", "noise=", "delta="};
    static const double most[] = {1e30, 1e6, 0.5};
    double numbers[] = {0, 0, 1e-5};
    char *rest = arena_string(value->arena, value->text);
    for (char *part; (part = strsep(&rest, ","));) {
        int k = 0;
        while (k < 3 && strncmp(part, keys[k], strlen(keys[k])) != 0) k++;
        if (k == 3 || !units_parse_number(part + strlen(keys[k]), &numbers[k]) || !(numbers[k] > 0) ||
            numbers[k] > most[k])
            return option_refuse(value, wanted);
    }
    if (!(numbers[0] > 0 && numbers[1] > 0)) return option_refuse(value, wanted);
    ((Options *)value->values)->federation_wishes.privacy = (FederationPrivacy){numbers[0], numbers[1], numbers[2]};
    return true;
}

bool read_codec(const OptionValue *value)
{
    return codecs_parse(value->text, &((Options *)value->values)->plan.request.codecs) ||
           option_refuse(value, "lossless, bf16, q8, q6, q4, q3, or, for example, auto:q6");
}

bool read_head(const OptionValue *value)
{
    return head_parse(value->text, &((Options *)value->values)->head) ||
           option_refuse(value,
                         "seqcls:N, multilabel:N, regression, tokcls:N, qa, mlm, lm, embedding:mean, embedding:cls, "
                         "pairs:mean or pairs:cls");
}

bool read_init(const OptionValue *value)
{
    static const char drawn[] = "normal:";
    Options *options = value->values;
    char *end = NULL;
    double deviation = 0;
    bool draws = strncmp(value->text, drawn, strlen(drawn)) == 0;
    if (draws) deviation = strtod(value->text + strlen(drawn), &end);
    if (draws ? end == value->text + strlen(drawn) || *end || !(deviation >= 0 && deviation <= 1e6)
              : strcmp(value->text, "none") != 0)
        return option_refuse(value, "none or, for example, normal:0.02");
    options->init = (WeightInit){draws, (float)deviation};
    options->load.import.no_weights = draws;
    return true;
}

bool read_holdout(const OptionValue *value)
{
    Options *options = value->values;
    char *end;
    double number = strtod(value->text, &end);
    bool percent = end > value->text && strcmp(end, "%") == 0;
    if (percent) number /= 100;
    bool share = number > 0 && number < 1, rows = !percent && number >= 1 && number < 1e9 && number == floor(number);
    if (end == value->text || (!percent && *end) || !(share || rows))
        return option_refuse(value, "a share of the rows, such as 10%, or a number of rows");
    options->dataset.holdout = number;
    return true;
}

/* Where the value is a run of skycc finetune, or what skycc compile made, it stands for the file `name` in there. */
static bool read_file_of(const OptionValue *value, const char *name)
{
    static const char *const places[] = {"%s/%s", "%s/programs/%s"};
    OptionValue found = *value;
    for (size_t i = 0; i < sizeof places / sizeof *places && found.text == value->text; i++) {
        const char *file = arena_format(value->arena, places[i], value->text, name);
        if (access(file, F_OK) == 0) found.text = file;
    }
    return option_read_text(&found);
}

bool read_plan_place(const OptionValue *value) { return read_file_of(value, "plan.json"); }
bool read_log_place(const OptionValue *value) { return read_file_of(value, "log.csv"); }
