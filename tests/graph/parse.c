#include "tests/graph/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/string_map.h"

/* What a text may ask for. */
enum { MAX_VALUES = 1 << 20, MAX_CONSTANT_BYTES = 1 << 28 };

typedef struct Parser {
    Graph *graph;
    Diagnostics *diagnostics;
    const char *at, *line_start;
    int line;
    Phase phase;
    size_t constant_bytes;
    StringMap layers; /* the first of each name -> its number */
    const char **layer_names;
    size_t layer_count, layer_capacity;
} Parser;

static bool refuse_text(const Parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse_text(const Parser *parser, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    Place place = {
        .file = parser->graph->file, .line = parser->line, .column = (int)(parser->at - parser->line_start) + 1};
    return diagnostics_error(parser->diagnostics, EXIT_BAD_INPUT, place, NULL, "%s", text);
}

/* ---- Words ---- */

static void skip_spaces(Parser *parser) { parser->at += strspn(parser->at, " "); }

static bool take(Parser *parser, const char *literal)
{
    skip_spaces(parser);
    size_t length = strlen(literal);
    if (strncmp(parser->at, literal, length) != 0) return false;
    parser->at += length;
    return true;
}

static bool expect(Parser *parser, const char *literal)
{
    return take(parser, literal) || refuse_text(parser, "expected '%s'", literal);
}

/* Letters, digits, - and _; NULL after reporting that there are none. */
static const char *read_word(Parser *parser)
{
    skip_spaces(parser);
    size_t length = 0;
    while (isalnum((unsigned char)parser->at[length]) || (parser->at[length] && strchr("-_", parser->at[length])))
        length++;
    if (!length) return refuse_text(parser, "expected a word"), NULL;
    const char *word = arena_string_n(&parser->graph->arena, parser->at, length);
    parser->at += length;
    return word;
}

/* The text up to one of the bytes `stops`, or the end of the line; NULL after reporting a wrong \xHH. */
static const char *read_name(Parser *parser, const char *stops)
{
    size_t length = strcspn(parser->at, stops), count = 0;
    char *name = arena_string_n(&parser->graph->arena, parser->at, length);
    for (const char *end = parser->at + length; parser->at < end; parser->at++) {
        if (*parser->at != '\\') {
            name[count++] = *parser->at;
            continue;
        }
        char digits[3] = {0};
        bool whole = end - parser->at >= 4 && parser->at[1] == 'x' && isxdigit((unsigned char)parser->at[2]) &&
                     isxdigit((unsigned char)parser->at[3]);
        if (whole) memcpy(digits, parser->at + 2, 2);
        if (!strtol(digits, NULL, 16)) return refuse_text(parser, "expected a byte as \\xHH"), NULL;
        name[count++] = (char)strtol(digits, NULL, 16);
        parser->at += 3;
    }
    name[count] = 0;
    return name;
}

static bool read_integer(Parser *parser, int64_t *number)
{
    skip_spaces(parser);
    char *end = NULL;
    errno = 0;
    bool begins = isdigit((unsigned char)*parser->at) || *parser->at == '-';
    if (begins) *number = strtoll(parser->at, &end, 10);
    if (!begins || end == parser->at || errno) return refuse_text(parser, "expected an integer");
    parser->at = end;
    return true;
}

static bool read_double(Parser *parser, double *number)
{
    skip_spaces(parser);
    char *end = NULL;
    bool begins = isalnum((unsigned char)*parser->at) || (*parser->at && strchr("-.", *parser->at));
    if (begins) *number = strtod(parser->at, &end);
    if (!begins || end == parser->at) return refuse_text(parser, "expected a number");
    parser->at = end;
    return true;
}

/* [1,2,3] */
static bool read_integers(Parser *parser, int64_t **list, size_t *count)
{
    size_t capacity = *count = 0;
    *list = NULL;
    if (!expect(parser, "[")) return false;
    while (!take(parser, "]")) {
        int64_t number;
        if ((*count && !expect(parser, ",")) || !read_integer(parser, &number)) return false;
        array_push(*list, *count, capacity, number);
    }
    return true;
}

/* f32[2,3]; with `optional`, a scalar may go without its []. */
static bool read_type(Parser *parser, bool optional, DType *dtype, Shape *shape)
{
    const char *word = read_word(parser);
    *dtype = DTYPE_NONE;
    *shape = (Shape){0};
    for (int i = 1; word && i < DTYPE_COUNT; i++)
        if (strcmp(word, dtype_name((DType)i)) == 0) *dtype = (DType)i;
    if (*dtype == DTYPE_NONE) return word && refuse_text(parser, "'%.40s' is no type of elements", word);
    if (optional && *parser->at != '[') return true;
    int64_t *list;
    size_t count;
    bool ok = read_integers(parser, &list, &count);
    if (ok && count > MAX_RANK) ok = refuse_text(parser, "more than %d dimensions", MAX_RANK);
    for (size_t i = 0; ok && i < count; i++) shape->dim[shape->rank++] = list[i];
    free(list);
    return ok && (shape_elements(shape) >= 0 || refuse_text(parser, "an impossible shape"));
}

/* ---- Values ---- */

/* False, and no value, if there is none. */
static bool read_number_of_value(Parser *parser, ValueId *id)
{
    int64_t number;
    *id = 0;
    if (!expect(parser, "%") || !read_integer(parser, &number)) return false;
    if (number <= 0 || number >= MAX_VALUES || number >= (int64_t)parser->graph->value_count)
        return refuse_text(parser, "values have numbers from 1 to %d", MAX_VALUES - 1);
    *id = (ValueId)number;
    return true;
}

/* %N, which is there already. */
static bool read_known(Parser *parser, ValueId *id)
{
    if (!read_number_of_value(parser, id)) return false;
    return graph_value(parser->graph, *id)->dtype != DTYPE_NONE ||
           refuse_text(parser, "there is no value %%%u yet", *id);
}

/* %N, which is not. */
static bool read_new(Parser *parser, ValueId *id)
{
    if (!read_number_of_value(parser, id)) return false;
    return graph_value(parser->graph, *id)->dtype == DTYPE_NONE || refuse_text(parser, "a second value %%%u", *id);
}

static bool read_parameter(Parser *parser, ValueId *id)
{
    if (!read_known(parser, id)) return false;
    return graph_value(parser->graph, *id)->role == ROLE_PARAMETER || refuse_text(parser, "%%%u is no parameter", *id);
}

static bool read_element(Parser *parser, DType dtype, void *data, int64_t i)
{
    double number;
    int64_t integer;
    if (dtype_is_float(dtype) ? !read_double(parser, &number) : !read_integer(parser, &integer)) return false;
    if (dtype_is_float(dtype))
        element_store_double(dtype, data, i, number);
    else
        element_store_integer(dtype, data, i, integer);
    return true;
}

/* An element more may be claimed than there are: where none are given, none are needed. */
static void *claim_data(Parser *parser, DType dtype, const Shape *shape)
{
    size_t elements = (size_t)shape_elements(shape), size = dtype_size(dtype);
    if (elements > (MAX_CONSTANT_BYTES - parser->constant_bytes) / size)
        return refuse_text(parser, "the constants of the graph are too large"), NULL;
    parser->constant_bytes += elements * size;
    return arena_allocate(&parser->graph->arena, (elements + !elements) * size);
}

static bool read_elements(Parser *parser, Value *value)
{
    char *data = claim_data(parser, value->dtype, &value->shape);
    int64_t elements = shape_elements(&value->shape), count = 0;
    size_t size = dtype_size(value->dtype);
    if (!data || !expect(parser, "=") || !expect(parser, "[")) return false;
    value->data = data;
    while (!take(parser, "]")) {
        int64_t times = 1;
        if (count && !expect(parser, ",")) return false;
        if (count == elements) return refuse_text(parser, "more than %lld elements", (long long)elements);
        if (!read_element(parser, value->dtype, data, count)) return false;
        if (take(parser, "*") && !read_integer(parser, &times)) return false;
        if (times < 1 || times > elements - count) return refuse_text(parser, "not so many elements are left");
        for (int64_t i = 1; i < times; i++)
            memcpy(data + (size_t)(count + i) * size, data + (size_t)count * size, size);
        count += times;
    }
    return count == elements || refuse_text(parser, "%lld elements are missing", (long long)(elements - count));
}

/* %N, or a constant of one element. */
static bool read_value(Parser *parser, ValueId *id)
{
    skip_spaces(parser);
    if (*parser->at == '%') return read_known(parser, id);
    DType dtype;
    Shape shape;
    if (!read_type(parser, true, &dtype, &shape)) return false;
    if (shape_elements(&shape) != 1) return refuse_text(parser, "such a constant has one element");
    void *data = claim_data(parser, dtype, &shape);
    if (!data || !read_element(parser, dtype, data, 0)) return false;
    *id = graph_add_constant(parser->graph, NULL, dtype, &shape, data);
    return true;
}

static bool register_source(Parser *parser, ValueId id)
{
    Graph *graph = parser->graph;
    if (graph_value(graph, id)->role == ROLE_INPUT)
        array_push(graph->inputs, graph->input_count, graph->input_capacity, id);
    if (graph_value(graph, id)->role != ROLE_SCALARS) return true;
    if (graph->scalars) return refuse_text(parser, "a second value that holds the scalars of the step");
    graph->scalars = id;
    return true;
}

static bool read_source(Parser *parser, ValueRole role)
{
    ValueId id;
    Value value = {.role = role};
    if (!read_new(parser, &id) || !expect(parser, ":") || !read_type(parser, false, &value.dtype, &value.shape))
        return false;
    if (role == ROLE_CONSTANT && !read_elements(parser, &value)) return false;
    value.frozen = role == ROLE_PARAMETER && take(parser, "frozen");
    if (take(parser, "of") && !read_parameter(parser, &value.parameter)) return false;
    if (role == ROLE_STATE && !value.parameter)
        return refuse_text(parser, "expected the parameter that this is state of");
    if (take(parser, "used as \"") && (!(value.use = read_name(parser, "\"\n")) || !expect(parser, "\""))) return false;
    bool named = take(parser, "# ");
    if (!named && role != ROLE_CONSTANT) return refuse_text(parser, "expected '# ' and a name");
    if (named && !(value.name = read_name(parser, "\n"))) return false;
    *graph_value(parser->graph, id) = value;
    return register_source(parser, id);
}

/* ---- Nodes ---- */

static bool read_attribute_value(Parser *parser, Attribute *attribute)
{
    skip_spaces(parser);
    if (take(parser, "\"")) {
        attribute->kind = ATTRIBUTE_STRING;
        return (attribute->string = read_name(parser, "\"\n")) && expect(parser, "\"");
    }
    if (*parser->at == '[') {
        int64_t *list;
        size_t count;
        bool ok = read_integers(parser, &list, &count);
        attribute->kind = ATTRIBUTE_INTEGERS;
        attribute->count = (int)count;
        attribute->integers = arena_copy(&parser->graph->arena, list, count * sizeof *list);
        free(list);
        return ok;
    }
    size_t length = strcspn(parser->at, ",} \n"), point = strcspn(parser->at, ".ein");
    attribute->kind = point < length ? ATTRIBUTE_FLOAT : ATTRIBUTE_INTEGER;
    if (point < length) return read_double(parser, &attribute->number);
    return read_integer(parser, &attribute->integer);
}

/* {name=value, ...}, or nothing. */
static bool read_attributes(Parser *parser, Node *node)
{
    Attribute *list = NULL;
    size_t count = 0, capacity = 0;
    bool ok = true;
    for (bool open = take(parser, "{"); open && ok; open = ok && !take(parser, "}")) {
        Attribute attribute = {0};
        ok = (!count || expect(parser, ",")) && (attribute.name = read_word(parser)) && expect(parser, "=") &&
             read_attribute_value(parser, &attribute);
        array_push(list, count, capacity, attribute);
    }
    node->attributes = arena_copy(&parser->graph->arena, list, count * sizeof *list);
    node->attribute_count = (int)count;
    free(list);
    return ok;
}

static bool read_inputs(Parser *parser, Node *node)
{
    ValueId *list = NULL;
    size_t count = 0, capacity = 0;
    bool ok = expect(parser, "(");
    while (ok && !take(parser, ")")) {
        ValueId id = 0;
        ok = (!count || expect(parser, ",")) && (take(parser, "_") || read_value(parser, &id));
        NodeId producer = ok ? graph_value(parser->graph, id)->producer : 0;
        if (producer && graph_node(parser->graph, producer)->phase > parser->phase)
            ok = refuse_text(parser, "reads what a later phase makes");
        array_push(list, count, capacity, id);
    }
    node->inputs = arena_copy(&parser->graph->arena, list, count * sizeof *list);
    node->input_count = (int)count;
    free(list);
    return ok;
}

static bool read_outputs(Parser *parser, ValueId ids[static 4], int *count)
{
    *count = 0;
    skip_spaces(parser);
    if (*parser->at != '%') return true;
    do {
        if (*count == 4) return refuse_text(parser, "too many outputs");
        if (!read_new(parser, &ids[(*count)++])) return false;
    } while (take(parser, ","));
    return expect(parser, "=");
}

static bool read_operator(Parser *parser, Node *node, int outputs)
{
    const char *name = read_word(parser);
    if (!name) return false;
    for (int op = 1; op < OP_COUNT && node->op == OP_NONE; op++)
        if (strcmp(name, opcodes[op].name) == 0) node->op = (Opcode)op;
    if (node->op == OP_NONE) return refuse_text(parser, "there is no operator '%.40s'", name);
    if (outputs != opcodes[node->op].outputs)
        return refuse_text(parser, "%s has %d outputs, not %d", name, opcodes[node->op].outputs, outputs);
    if (!read_inputs(parser, node)) return false;
    int least = opcodes[node->op].least_inputs, most = opcodes[node->op].most_inputs;
    if (node->input_count < least || (most >= 0 && node->input_count > most))
        return refuse_text(parser, "%s does not take %d inputs", name, node->input_count);
    for (int i = 0; i < least; i++)
        if (!node->inputs[i]) return refuse_text(parser, "input %d of %s is missing", i, name);
    return read_attributes(parser, node);
}

/* NAME, or NAME:NUMBER where an earlier layer has the name, too. */
static bool read_layer(Parser *parser, int *layer)
{
    const char *name = read_name(parser, " :\n");
    const uint32_t *first = name ? string_map_find(&parser->layers, name) : NULL;
    if (!first) return name && refuse_text(parser, "there is no layer '%.100s'", name);
    int64_t number = *first;
    if (take(parser, ":") && !read_integer(parser, &number)) return false;
    if (number < 0 || number >= (int64_t)parser->layer_count)
        return refuse_text(parser, "there is no layer %lld", (long long)number);
    *layer = (int)number;
    return true;
}

static bool read_node(Parser *parser)
{
    Graph *graph = parser->graph;
    Node node = {.phase = parser->phase, .layer = LAYER_NONE};
    ValueId ids[4], differentiated = 0;
    if (!read_outputs(parser, ids, &node.output_count) || !read_operator(parser, &node, node.output_count))
        return false;
    for (int i = 0; i < node.output_count; i++) {
        Value value = {.role = ROLE_ACTIVATION, .producer = (NodeId)graph->node_count};
        if (!expect(parser, ":") || !read_type(parser, false, &value.dtype, &value.shape)) return false;
        if (graph_value(graph, ids[i])->dtype != DTYPE_NONE) return refuse_text(parser, "two outputs %%%u", ids[i]);
        *graph_value(graph, ids[i]) = value;
    }
    if (take(parser, "@") && !read_layer(parser, &node.layer)) return false;
    if (take(parser, "^") && !read_known(parser, &differentiated)) return false;
    node.differentiates = graph_value(graph, differentiated)->producer;
    if (differentiated && (!node.differentiates || node.differentiates == graph->node_count))
        return refuse_text(parser, "%%%u is not made by a node before", differentiated);
    if (!expect(parser, "# ") || !(node.name = read_name(parser, "\n"))) return false;
    node.outputs = arena_copy(&graph->arena, ids, (size_t)node.output_count * sizeof *ids);
    array_push(graph->nodes, graph->node_count, graph->node_capacity, node);
    return true;
}

/* ---- Lines ---- */

static bool add_layer(Parser *parser)
{
    skip_spaces(parser);
    const char *name = read_name(parser, " :\n");
    if (!name) return false;
    string_map_add(&parser->layers, name, (uint32_t)parser->layer_count);
    array_push(parser->layer_names, parser->layer_count, parser->layer_capacity, name);
    return true;
}

static bool read_output(Parser *parser)
{
    ValueId value;
    if (!read_value(parser, &value) || !expect(parser, "# ")) return false;
    const char *name = read_name(parser, "\n");
    if (name) graph_add_output(parser->graph, name, value);
    return name;
}

static bool read_labels(Parser *parser)
{
    Graph *graph = parser->graph;
    Labels labels = {.kind = SKY_LABELS_CLASSES};
    if (!read_known(parser, &labels.input)) return false;
    if (take(parser, "numbers"))
        labels.kind = SKY_LABELS_NUMBERS;
    else if (!expect(parser, "ignoring") || !read_integer(parser, &labels.ignore_index))
        return false;
    if (take(parser, "probabilities")) labels.kind = SKY_LABELS_PROBABILITIES;
    if (take(parser, "weighted") && !read_known(parser, &labels.weights)) return false;
    labels.shifted = take(parser, "shifted");
    if (graph_value(graph, labels.input)->role != ROLE_INPUT)
        return refuse_text(parser, "%%%u is no input", labels.input);
    const Value *weights = graph_value(graph, labels.weights);
    if (labels.weights && (weights->role != ROLE_CONSTANT || weights->dtype != DTYPE_F32))
        return refuse_text(parser, "%%%u cannot be weights of labels", labels.weights);
    int number = graph->label_count;
    return graph_label_number(graph, &labels) == number || refuse_text(parser, "too many labels");
}

static bool read_loss(Parser *parser)
{
    if (parser->graph->loss) return refuse_text(parser, "a second loss");
    if (!read_value(parser, &parser->graph->loss)) return false;
    parser->graph->loss_is_summed = take(parser, "summed");
    parser->graph->whole_batches = take(parser, "whole");
    return true;
}

static bool read_gradient(Parser *parser)
{
    Graph *graph = parser->graph;
    ValueId gradient, parameter;
    if (!read_known(parser, &gradient) || !expect(parser, "of") || !read_parameter(parser, &parameter)) return false;
    Value *value = graph_value(graph, gradient);
    if (!value->producer || value->parameter) return refuse_text(parser, "%%%u cannot be a gradient of this", gradient);
    if (!graph->gradients) graph->gradients = arena_new_array(&graph->arena, ValueId, graph->value_count);
    if (!graph->gradient_count) graph->gradient_count = graph->value_count;
    if (graph->gradients[parameter]) return refuse_text(parser, "a second gradient of %%%u", parameter);
    graph->gradients[parameter] = gradient;
    value->parameter = parameter;
    value->name = arena_format(&graph->arena, "grad/%s", graph_value(graph, parameter)->name);
    return true;
}

static bool read_line(Parser *parser)
{
    static const char *const roles[] = {
        [ROLE_INPUT] = "input ", [ROLE_PARAMETER] = "parameter ", [ROLE_CONSTANT] = "constant ",
        [ROLE_STATE] = "state ", [ROLE_SCALARS] = "scalars ",
    };
    static const char *const phases[] = {"forward:", "backward:", "update:"};
    if (*parser->at == ' ') return read_node(parser);
    for (int i = ROLE_INPUT; i <= ROLE_SCALARS; i++)
        if (take(parser, roles[i])) return read_source(parser, (ValueRole)i);
    for (int i = PHASE_FORWARD; i <= PHASE_UPDATE; i++)
        if (take(parser, phases[i])) return parser->phase = (Phase)i, true;
    if (take(parser, "layer ")) return add_layer(parser);
    if (take(parser, "output ")) return read_output(parser);
    if (take(parser, "labels ")) return read_labels(parser);
    if (take(parser, "loss ")) return read_loss(parser);
    if (take(parser, "gradient ")) return read_gradient(parser);
    return refuse_text(parser, "expected a value, a phase, a node or an output");
}

/* Room for the greatest number of a value in the text; constants without one come after it. */
static void make_room(Graph *graph, const char *text)
{
    unsigned long greatest = 0;
    for (; (text = strchr(text, '%')); text++) {
        unsigned long number = isdigit((unsigned char)text[1]) ? strtoul(text + 1, NULL, 10) : 0;
        if (number < MAX_VALUES && number > greatest) greatest = number;
    }
    while (graph->value_count <= greatest)
        array_push(graph->values, graph->value_count, graph->value_capacity, (Value){0});
}

bool graph_parse(Graph *graph, const char *text, Diagnostics *diagnostics)
{
    Parser parser = {.graph = graph, .diagnostics = diagnostics, .at = text, .line = 1};
    make_room(graph, text);
    bool ok = true;
    for (; ok && *parser.at; parser.line++) {
        parser.line_start = parser.at;
        ok = *parser.at == '\n' || read_line(&parser);
        if (ok && *parser.at && *parser.at != '\n') ok = refuse_text(&parser, "unexpected text");
        if (ok && *parser.at) parser.at++;
    }
    graph->layer_count = (int)parser.layer_count;
    if (parser.layer_count)
        graph->layer_names =
            arena_copy(&graph->arena, parser.layer_names, parser.layer_count * sizeof *parser.layer_names);
    free(parser.layer_names);
    string_map_free(&parser.layers);
    return ok;
}
