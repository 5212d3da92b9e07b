/* costs.json, written. */
#include <stdlib.h>

#include "base/json.h"
#include "profiler/costs/costs.h"

static void print_member(Buffer *buffer, const char *key, double value)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_number(buffer, value);
}

static void print_numbers(Buffer *buffer, const double *numbers, int count)
{
    buffer_print(buffer, "[");
    for (int i = 0; i < count; i++) {
        if (i) buffer_print(buffer, ",");
        json_print_number(buffer, numbers[i]);
    }
    buffer_print(buffer, "]");
}

static void print_codec_pairs(Buffer *buffer, const char *key, const double pairs[CODEC_COUNT][2])
{
    bool any = false;
    for (int codec = 1; codec < CODEC_COUNT; codec++) {
        if (pairs[codec][0] == 0 && pairs[codec][1] == 0) continue;
        buffer_print(buffer, any ? ",\"%s\":" : ",\"%s\":{\"%s\":", any ? codec_name((Codec)codec) : key,
                     codec_name((Codec)codec));
        print_numbers(buffer, pairs[codec], 2);
        any = true;
    }
    if (any) buffer_print(buffer, "}");
}

static void print_crossing_bytes(Buffer *buffer, const LayerCost *layer)
{
    double pairs[CODEC_COUNT][2];
    for (int codec = 0; codec < CODEC_COUNT; codec++)
        for (int direction = 0; direction < 2; direction++)
            pairs[codec][direction] = (double)layer->wire_bytes[direction][codec];
    buffer_print(buffer, ",\"output_bytes\":%lld", (long long)layer->output_bytes);
    if (layer->output_backward_bytes)
        buffer_print(buffer, ",\"output_backward_bytes\":%lld", (long long)layer->output_backward_bytes);
    print_codec_pairs(buffer, "wire_bytes", pairs);
}

static void print_layer(Buffer *buffer, const LayerCost *layer)
{
    buffer_print(buffer, "{\"name\":");
    json_print_string(buffer, layer->name);
    print_member(buffer, "forward_s", layer->forward_s);
    print_member(buffer, "backward_s", layer->backward_s);
    print_member(buffer, "update_s", layer->update_s);
    if (layer->weight_gradient_s > 0) print_member(buffer, "weight_gradient_s", layer->weight_gradient_s);
    if (layer->resident)
        buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)layer->memory_bytes);
    else
        buffer_print(buffer, ",\"state_bytes\":%lld,\"stash_bytes\":%lld,\"scratch_bytes\":%lld",
                     (long long)layer->state_bytes, (long long)layer->stash_bytes, (long long)layer->scratch_bytes);
    if (layer->shared_bytes > 0) buffer_print(buffer, ",\"shared_bytes\":%lld", (long long)layer->shared_bytes);
    if (layer->kept_bytes > 0) buffer_print(buffer, ",\"kept_bytes\":%lld", (long long)layer->kept_bytes);
    if (layer->split_bytes > 0) buffer_print(buffer, ",\"split_bytes\":%lld", (long long)layer->split_bytes);
    print_crossing_bytes(buffer, layer);
    if (layer->output) {
        buffer_print(buffer, ",\"output\":");
        json_print_string(buffer, layer->output);
    }
    for (int i = 0; i < layer->input_count; i++) {
        buffer_print(buffer, i ? ",{\"name\":" : ",\"inputs\":[{\"name\":");
        json_print_string(buffer, layer->inputs[i].name);
        buffer_print(buffer, ",\"bytes\":%lld}", (long long)layer->inputs[i].bytes);
    }
    buffer_print(buffer, layer->input_count ? "]}" : "}");
}

static void print_own_times(Buffer *buffer, const char *key, const double *times, int count)
{
    if (!times) return;
    buffer_print(buffer, ",\"%s\":", key);
    print_numbers(buffer, times, count);
}

static void print_device(Buffer *buffer, const Costs *costs, const DeviceCost *device)
{
    buffer_print(buffer, "{\"name\":");
    json_print_string(buffer, device->name);
    print_member(buffer, "slowdown", device->slowdown);
    if (device->memory_bytes != COSTS_NO_LIMIT)
        buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)device->memory_bytes);
    if (device->process_bytes > 0) buffer_print(buffer, ",\"process_bytes\":%lld", (long long)device->process_bytes);
    if (costs->region_count > 0) {
        buffer_print(buffer, ",\"region\":");
        json_print_string(buffer, costs->region_names[device->region]);
    }
    print_own_times(buffer, "forward_s", device->forward_s, costs->layer_count);
    print_own_times(buffer, "backward_s", device->backward_s, costs->layer_count);
    print_own_times(buffer, "update_s", device->update_s, costs->layer_count);
    print_codec_pairs(buffer, "coding_s", device->coding_s);
    buffer_print(buffer, "}");
}

static void print_matrix(Buffer *buffer, const char *key, const double *matrix, int n)
{
    buffer_print(buffer, ",\n  \"%s\":[", key);
    for (int i = 0; i < n; i++) {
        buffer_print(buffer, i ? ",\n    " : "\n    ");
        print_numbers(buffer, matrix + (size_t)i * (size_t)n, n);
    }
    buffer_print(buffer, "]");
}

static void print_links(Buffer *buffer, const Costs *costs)
{
    buffer_print(buffer, ",\n \"links\":{\"regions\":[");
    for (int i = 0; i < costs->region_count; i++) {
        if (i) buffer_print(buffer, ",");
        json_print_string(buffer, costs->region_names[i]);
    }
    buffer_print(buffer, "]");
    print_matrix(buffer, "latency_s", costs->latency_s, costs->region_count);
    print_matrix(buffer, "bandwidth_Bps", costs->bandwidth_Bps, costs->region_count);
    if (costs->half_duplex) {
        size_t pairs = (size_t)costs->region_count * (size_t)costs->region_count;
        double *half = memory_allocate(pairs * sizeof *half);
        for (size_t i = 0; i < pairs; i++) half[i] = costs->half_duplex[i];
        print_matrix(buffer, "half_duplex", half, costs->region_count);
        free(half);
    }
    buffer_print(buffer, "}");
}

static void print_keep(Buffer *buffer, const Costs *costs)
{
    if (!costs->keep_inputs && !costs->keep_labels) return;
    buffer_print(buffer, ",\n \"keep\":{");
    if (costs->keep_inputs) {
        buffer_print(buffer, "\"inputs\":");
        json_print_string(buffer, costs->keep_inputs);
    }
    if (costs->keep_labels) {
        buffer_print(buffer, costs->keep_inputs ? ",\"labels\":" : "\"labels\":");
        json_print_string(buffer, costs->keep_labels);
    }
    buffer_print(buffer, "}");
}

static void print_sites(Buffer *buffer, const Costs *costs)
{
    Arena arena = {0};
    SitePlaces places = {costs->layer_count, costs->device_count,
                         arena_new_array(&arena, int, (size_t)costs->device_count)};
    for (int d = 0; d < costs->device_count; d++) places.site[d] = costs->devices[d].site;
    site_costs_print(&costs->sites, &places, buffer);
    arena_free(&arena);
}

void costs_print(const Costs *costs, Buffer *buffer)
{
    buffer_print(buffer, "{\"format\":\"skycc.costs/1\", \"name\":");
    json_print_string(buffer, costs->name);
    if (costs->model_hash && costs->model_hash[0]) {
        buffer_print(buffer, ", \"model_hash\":");
        json_print_string(buffer, costs->model_hash);
    }
    buffer_print(buffer, ", \"microbatches\":%d,\n \"layers\":[", costs->microbatches);
    for (int i = 0; i < costs->layer_count; i++) {
        buffer_print(buffer, i ? ",\n  " : "\n  ");
        print_layer(buffer, &costs->layers[i]);
    }
    buffer_print(buffer, "],\n \"devices\":[");
    for (int i = 0; i < costs->device_count; i++) {
        buffer_print(buffer, i ? ",\n  " : "\n  ");
        print_device(buffer, costs, &costs->devices[i]);
    }
    buffer_print(buffer, "]");
    if (costs->region_count > 0) print_links(buffer, costs);
    print_codec_pairs(buffer, "coding_s", costs->coding_s);
    if (costs->norm_bytes > 0) buffer_print(buffer, ",\n \"norm_bytes\":%lld", (long long)costs->norm_bytes);
    print_keep(buffer, costs);
    print_sites(buffer, costs);
    row_samples_print(&costs->rows, buffer);
    buffer_print(buffer, "}\n");
}

Hash costs_hash(const Costs *costs)
{
    Buffer buffer = {0};
    costs_print(costs, &buffer);
    Hash hash = hash_bytes(buffer.bytes, buffer.size);
    buffer_free(&buffer);
    return hash;
}
