/* The tables of options are sound, and command lines are read as they say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "driver/options/options.h"
#include "runtime/program/step.h"
#include "runtime/train/training_options.h"

/* ---- The tables ---- */

static void expect_fitting_field(const Option *option)
{
    bool text = option->kind == OPTION_TEXT || option->kind == OPTION_FILE || option->kind == OPTION_DIRECTORY;
    size_t size = option->size;
    bool fits = option->read != NULL;
    if (option->kind == OPTION_FLAG) fits = size == sizeof(bool) && !option->argument;
    if (option->kind == OPTION_INTEGER && !option->read) fits = size == sizeof(int) || size == sizeof(int64_t);
    if (option->kind == OPTION_NUMBER) fits = size == sizeof(double);
    if (option->kind == OPTION_CHOICE)
        fits = option->choices && (size == sizeof(bool) || size == sizeof(int) || size == sizeof(char *));
    if (text && !option->read) fits = size == (option->repeated ? sizeof(TextList) : sizeof(char *));
    if (!fits) fail_msg("the field of --%s does not suit its kind", option->name);
    if (option->kind == OPTION_INTEGER && size == sizeof(int) && option->greatest > INT32_MAX)
        fail_msg("--%s may be more than its field holds", option->name);
    if (option->kind != OPTION_FLAG && !option->argument) fail_msg("--%s does not say what it takes", option->name);
    if (!option->positional && !option->help) fail_msg("--%s is not explained", option->name);
}

static void expect_sound(const OptionSet *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const Option *option = &set->rows[i];
        if (!option_taken(set, option)) continue;
        expect_fitting_field(option);
        for (size_t k = 0; k < i; k++) {
            const Option *other = &set->rows[k];
            if (!option_taken(set, other) || other->positional || option->positional) continue;
            if (strcmp(option->name, other->name) == 0) fail_msg("--%s has two rows", option->name);
            if (option->letter && option->letter == other->letter) fail_msg("-%c has two rows", option->letter);
        }
    }
}

static void every_row_suits_its_field(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    for (Command command = 0; command < COMMAND_COUNT; command++) {
        OptionSet set = command_options(command, &arena);
        expect_sound(&set);
    }
    expect_sound(&training_option_set);
}

static const Option *find(const OptionSet *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++)
        if (option_taken(set, &set->rows[i]) && strcmp(set->rows[i].name, name) == 0) return &set->rows[i];
    fail_msg("there is no --%s", name);
    return NULL;
}

/* The number of a word is that of the enumerator. */
static void choices_are_in_the_order_of_their_enumerators(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    OptionSet set = command_options(COMMAND_COMPILE, &arena), tokenize = command_options(COMMAND_TOKENIZE, &arena);
    for (int i = 0; i < PLAN_ALLOCATOR_COUNT; i++)
        assert_string_equal(find(&set, "allocate")->choices[i], plan_allocator_name((PlanAllocator)i));
    for (int i = 0; i < PLAN_SCHEDULE_COUNT; i++)
        assert_string_equal(find(&set, "schedule")->choices[i], plan_schedule_name((PlanSchedule)i));
    for (int i = 0; i < PLAN_RECOMPUTE_COUNT; i++)
        assert_string_equal(find(&set, "recompute")->choices[i], plan_recompute_name((PlanRecompute)i));
    for (int i = 0; i <= PLAN_OBJECTIVE_PERIOD; i++)
        assert_string_equal(find(&set, "objective")->choices[i], plan_objective_name((PlanObjective)i));
    for (int i = 0; i < DATASET_COLUMNS; i++) {
        DatasetTask task;
        assert_true(dataset_find_task(find(&tokenize, "task")->choices[i], &task));
        assert_int_equal(task, i);
    }
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        assert_string_equal(find(&training_option_set, "schedule-lr")->choices[i], schedule_name((ScheduleKind)i));
}

/* ---- Command lines ---- */

typedef struct Read {
    Options options;
    Diagnostics diagnostics;
    bool ok;
    char words[512];
} Read;

/* `line`: words with a blank between. */
static void read_line(Read *read, Command command, const char *line)
{
    char *arguments[32] = {"skycc"};
    int count = 1;
    *read = (Read){0};
    snprintf(read->words, sizeof read->words, "%s", line);
    for (char *word = strtok(read->words, " "); word; word = strtok(NULL, " ")) arguments[count++] = word;
    read->ok = command_options_read(&read->options, command, count, arguments, &read->diagnostics);
}

static void read_free(Read *read)
{
    arena_free(&read->options.arena);
    diagnostics_free(&read->diagnostics);
}

static void all_spellings_mean_the_same(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "m.onnx -d c -o out --time-limit 5 -vq", "-dc -oout m.onnx --time-limit=5 -v -q",
        "--cluster c --out out --time 5 --verb --qui -- m.onnx", "-vqo out -d c --time-l=5 m.onnx"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Read read;
        read_line(&read, COMMAND_COMPILE, lines[i]);
        assert_true(read.ok);
        assert_string_equal(read.options.model, "m.onnx");
        assert_string_equal(read.options.plan.cluster, "c");
        assert_string_equal(read.options.output, "out");
        assert_true(read.options.plan.request.time_limit_s == 5);
        assert_true(read.options.verbose && read.options.quiet);
        read_free(&read);
    }
}

static void values_reach_their_fields(void **state)
{
    (void)state;
    Read read;
    read_line(&read, COMMAND_RUN,
              "m.onnx --inputs a b -o - --dim batch=2 --dim seq=16 --precision bf16 --seed 18446744073709551615 "
              "--train 3 --init normal:0.5 c");
    assert_true(read.ok);
    assert_int_equal(read.options.inputs.count, 3);
    assert_string_equal(read.options.inputs.items[2], "c");
    assert_int_equal(read.options.load.import.dimension_count, 2);
    assert_string_equal(read.options.load.import.dimensions[1].name, "seq");
    assert_int_equal(read.options.load.import.dimensions[1].value, 16);
    assert_int_equal(read.options.load.precision, PRODUCTS_BF16);
    assert_true(read.options.seed == UINT64_MAX);
    assert_int_equal(read.options.steps, 3);
    assert_true(read.options.init.drawn && read.options.init.deviation == 0.5f);
    read_free(&read);
    read_line(&read, COMMAND_PLAN,
              "--costs c --allocate sky --microbatches auto --without a --without b --report json");
    assert_true(read.ok);
    assert_int_equal(read.options.plan.request.allocate, PLAN_SKY);
    assert_int_equal(read.options.plan.request.microbatches, PLAN_MICROBATCHES_AUTO);
    assert_int_equal(read.options.plan.without.count, 2);
    assert_string_equal(read.options.report, "json");
    read_free(&read);
}

static void defaults_are_those_of_the_table(void **state)
{
    (void)state;
    Read read;
    read_line(&read, COMMAND_BERT, "--layers 1 --hidden 8 --heads 2 -o m");
    assert_true(read.ok && read.options.bert.weights && read.options.bert.head == BERT_SEQUENCE_CLASSIFIER);
    assert_int_equal(read.options.bert.vocabulary, 30522);
    read_free(&read);
    read_line(&read, COMMAND_PLAN, "--costs c");
    const PlanRequest *request = &read.options.plan.request, usual = PLAN_REQUEST_DEFAULT;
    assert_true(read.ok && isinf(read.options.fail_above));
    assert_true(request->allocate == usual.allocate && request->objective == usual.objective);
    assert_true(request->schedule == usual.schedule && request->recompute == usual.recompute);
    assert_true(request->microbatches == usual.microbatches && request->time_limit_s == usual.time_limit_s);
    read_free(&read);
}

static void misuse_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
        int errors;
    } cases[] = {
        {"m -d c -o out --what", "unrecognized option '--what'", 1},
        {"m -d c -o out --what 3", "unrecognized option '--what'", 1}, /* 3 may be its value */
        {"m -d c -o out -x", "unrecognized option '-x'", 1},
        {"m -d c -o out --pr f32", "option '--pr' is ambiguous", 1},
        {"m -d c -o out --verbose=yes", "--verbose takes no argument", 1},
        {"m -d c -o", "-o needs an argument", 1},
        {"m n -d c -o out", "unexpected argument 'n'", 1},
        {"-d c -o out", "no model is named", 1},
        {"m", "no cluster: --cluster FILE is missing", 2},
        {"m -d c -o out --time-limit -1", "--time-limit takes a number from 0 to 1000000000, not '-1'", 1},
        {"m -d c -o out --seed -1", "--seed takes an integer of at least 0, not '-1'", 1},
        {"m -d c -o out --microbatches 2x", "--microbatches takes auto or an integer from 1 to 1048576, not '2x'", 1},
        {"m -d c -o out --objective speed", "--objective takes step or period, not 'speed'", 1},
        {"m -d c -o out --dim batch=0", "--dim batch= takes an integer from 1 to 2147483647, not '0'", 1},
        {"m -d c -o out --dim batch", "malformed dimension 'batch'", 1},
        {"m -d c -o out --dim b=auto:2 --dim c=auto:2", "only one dimension may have several lengths", 1},
        {"m -d c -o out --dropout 1", "--dropout takes off or a number from 0 to below 1, not '1'", 1},
        {"m -d c -o out --init zero", "--init takes none or, for example, normal:0.02, not 'zero'", 1},
        {"--time-limit x --emit x m -d c -o out", "--time-limit takes a number", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Read read;
        read_line(&read, COMMAND_COMPILE, cases[i].line);
        if (read.ok || read.diagnostics.errors != cases[i].errors || read.diagnostics.exit_code != EXIT_USAGE)
            fail_msg("%s: %d errors", cases[i].line, read.diagnostics.errors);
        if (!strstr(read.diagnostics.first->message, cases[i].message))
            fail_msg("%s: %s", cases[i].line, read.diagnostics.first->message);
        read_free(&read);
    }
}

/* An option that may stand alone takes its value after =; a number after it is not taken for a file. */
static void a_value_apart_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
        int port;
    } cases[] = {
        {"m t --serve=18431", NULL, 18431},
        {"m --serve t", NULL, 0},
        {"m t --serve", NULL, 0},
        {"m --serve ./18431", NULL, 0},
        {"m t --serve 18431", "the value of --serve follows a =, not a space", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Read read;
        read_line(&read, COMMAND_FINETUNE, cases[i].line);
        if (read.ok != !cases[i].message || (read.ok && read.options.finetune.serve != cases[i].port))
            fail_msg("%s", cases[i].line);
        if (!read.ok) assert_string_equal(read.diagnostics.first->message, cases[i].message);
        read_free(&read);
    }
}

static void help_ends_whatever_stands_beside_it(void **state)
{
    (void)state;
    static const char *const lines[] = {"--help",     "-h",      "--what --help", "--time-limit x -vh m n",
                                        "--help-all", "--help-a"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Read read;
        read_line(&read, COMMAND_COMPILE, lines[i]);
        assert_true(read.ok && read.options.help && !read.diagnostics.first);
        read_free(&read);
    }
}

/* Words of a command line between blanks, single quotes taken off; how many. */
static int split_words(char *line, char *words[], int most)
{
    int count = 0;
    while (*line && count < most) {
        char end = *line == '\'' ? '\'' : ' ';
        if (end == '\'') line++;
        words[count++] = line;
        line += strcspn(line, (char[]){end, '\0'});
        if (*line) *line++ = '\0';
        line += strspn(line, " ");
    }
    return count;
}

static void examples_are_command_lines(void **state)
{
    (void)state;
    for (Command command = 0; command < COMMAND_COUNT; command++) {
        if (!command_texts[command].examples[0]) fail_msg("%s has no example", command_texts[command].name);
        for (int i = 0; command_texts[command].examples[i]; i++) {
            Diagnostics diagnostics = {0};
            Options options;
            char line[512], *words[64];
            snprintf(line, sizeof line, "%s", command_texts[command].examples[i]);
            int count = split_words(line, words, 64);
            assert_string_equal(words[0], "skycc");
            assert_string_equal(words[1], command_texts[command].name);
            if (!command_options_read(&options, command, count - 1, words + 1, &diagnostics))
                fail_msg("'%s': %s", command_texts[command].examples[i], diagnostics.first->message);
            diagnostics_free(&diagnostics);
            arena_free(&options.arena);
        }
    }
}

/* Of what a library says, as the command prints it. */
static void expect_hint(Command command, const char *hint, const char *printed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    diagnostics_warning(&diagnostics, PLACE_NONE, hint, "something");
    command_fit_hints(command, &diagnostics);
    if (strcmp(diagnostics.first->hint, printed) != 0)
        fail_msg("skycc %s says '%s', not '%s'", command_texts[command].name, diagnostics.first->hint, printed);
}

static void hints_name_options_that_the_command_takes(void **state)
{
    (void)state;
    expect_hint(COMMAND_CHECK, "give --keep-ties", "give --keep-ties");
    expect_hint(COMMAND_EXPORT, "name another, or give --force, which keeps them", "name another");
    expect_hint(COMMAND_FEDERATE, "name the labels in the model, or give --labels, which names them",
                "name the labels in the model");
    expect_hint(COMMAND_PREDICT, "give --keep-ties", "for skycc compile: give --keep-ties");
    expect_hint(COMMAND_EXPORT, "compile with the same --lora", "compile with the same --lora");
    expect_hint(COMMAND_EXPORT, "recompile with --lora", "for skycc compile: recompile with --lora");
    expect_hint(COMMAND_EXPLAIN, "--time-limit, or --pin", "for skycc compile: --time-limit, or --pin");
    expect_hint(COMMAND_CHECK, "give --text or --max-length", "for skycc tokenize: give --text or --max-length");
    expect_hint(COMMAND_PLAN, "see --schedule-steps, --help", "see --schedule-steps, --help");
    expect_hint(COMMAND_PLAN, "1 -- 2", "1 -- 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hints_name_options_that_the_command_takes),
        cmocka_unit_test(examples_are_command_lines),
        cmocka_unit_test(every_row_suits_its_field),
        cmocka_unit_test(choices_are_in_the_order_of_their_enumerators),
        cmocka_unit_test(all_spellings_mean_the_same),
        cmocka_unit_test(values_reach_their_fields),
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(misuse_is_explained),
        cmocka_unit_test(a_value_apart_is_refused),
        cmocka_unit_test(help_ends_whatever_stands_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
