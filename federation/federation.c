#include "federation/federation.h"

#include <string.h>

#include "base/json.h"

const char *const robust_names[ROBUST_RULE_COUNT] = {"none", "median", "trimmed"};

void federation_free(Federation *federation)
{
    arena_free(&federation->arena);
    *federation = (Federation){0};
}

int federation_present(const Federation *federation)
{
    int present = 0;
    for (int s = 0; s < federation->site_count; s++) present += !federation->sites[s].left;
    return present;
}

int federation_find_site(const Federation *federation, const char *name)
{
    for (int s = 0; s < federation->site_count; s++)
        if (strcmp(federation->sites[s].name, name) == 0) return s;
    return -1;
}

bool federation_settle_overlap(Federation *federation, Diagnostics *diagnostics)
{
    if (federation->overlap == FEDERATION_OVERLAP_ALL) federation->overlap = federation->local_steps;
    return federation->overlap <= federation->local_steps ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, "overlap: all takes as many as there are",
                             "overlap: %lld is more than the %lld local steps between two meetings",
                             (long long)federation->overlap, (long long)federation->local_steps);
}

/* JSON's strings and numbers are YAML's, too. */
static void print_text(Buffer *text, const char *key, const char *value)
{
    buffer_print(text, "%s: ", key);
    json_print_string(text, value);
}

static void print_number(Buffer *text, const char *key, double value)
{
    buffer_print(text, "%s: ", key);
    json_print_number(text, value);
}

static void print_sites(const Federation *federation, Buffer *text)
{
    buffer_print(text, "sites:\n");
    for (int s = 0; s < federation->site_count; s++) {
        const FederationSite *site = &federation->sites[s];
        print_text(text, "  - {name", site->name);
        print_text(text, ", key", site->key);
        buffer_print(text, ", rows_per_step: %lld%s", (long long)site->rows_per_step,
                     site->own_options ? ", own_options: true" : "");
        if (site->joined) buffer_print(text, ", joined: %lld", (long long)site->joined);
        if (site->left) buffer_print(text, ", left: %lld", (long long)site->left);
        if (site->rekeyed) buffer_print(text, ", rekeyed: %lld", (long long)site->rekeyed);
        if (site->former_key) print_text(text, ", former_key", site->former_key);
        buffer_print(text, "}\n");
    }
}

static void print_rules(const Federation *federation, Buffer *text)
{
    buffer_print(text, "rounds: %lld\nlocal_steps: %lld\nouter: {optimizer: %s", (long long)federation->rounds,
                 (long long)federation->local_steps, outer_names[federation->outer.kind]);
    if (federation->outer.kind != OUTER_AVERAGE) print_number(text, ", lr", federation->outer.rate);
    if (outer_moments(federation->outer.kind))
        print_number(text, federation->outer.kind == OUTER_NESTEROV ? ", momentum" : ", beta1",
                     federation->outer.momentum);
    if (outer_moments(federation->outer.kind) == 2) {
        print_number(text, ", beta2", federation->outer.beta2);
        print_number(text, ", eps", federation->outer.epsilon);
    }
    buffer_print(text, "}\naggregate: %s\nmin_sites: %d\n", federation->secure ? "secure" : "plain", federation->least);
    print_number(text, "round_timeout", federation->round_timeout_s);
    buffer_print(text, "s\nfragments: %lld\n", (long long)federation->fragments);
    if (federation->overlap) buffer_print(text, "overlap: %lld\n", (long long)federation->overlap);
    if (federation->drop_after != 1) buffer_print(text, "drop_after: %lld\n", (long long)federation->drop_after);
    if (federation->sample) buffer_print(text, "sample: %d\n", federation->sample);
    if (federation->robust) buffer_print(text, "robust: %s\n", robust_names[federation->robust]);
    if (federation->proximal > 0) {
        print_number(text, "proximal", federation->proximal);
        buffer_print(text, "\n");
    }
    if (federation->control_variates) buffer_print(text, "control_variates: true\n");
    if (federation->deadline_s > 0) {
        print_number(text, "deadline", federation->deadline_s);
        buffer_print(text, "s\n");
    }
    if (federation->codec != CODEC_NONE) buffer_print(text, "codec: %s\n", codec_name(federation->codec));
    if (federation->model_codec != CODEC_NONE)
        buffer_print(text, "model_codec: %s\n", codec_name(federation->model_codec));
    if (federation->least_change > 0) {
        print_number(text, "least_change", federation->least_change);
        buffer_print(text, "\n");
    }
    if (federation->clip_update > 0) {
        print_number(text, "clip_update", federation->clip_update);
        buffer_print(text, "\n");
    }
    if (federation->privacy.clip > 0) {
        print_number(text, "dp: {clip", federation->privacy.clip);
        print_number(text, ", noise", federation->privacy.noise);
        print_number(text, ", delta", federation->privacy.delta);
        buffer_print(text, "}\n");
    }
    if (federation->hide_metrics) buffer_print(text, "hide_metrics: true\n");
}

static void print_steering(const FederationSteering *steering, Buffer *text)
{
    if (steering->data) {
        print_text(text, "evaluate: {data", steering->data);
        buffer_print(text, ", every: %lld}\n", (long long)steering->every);
    }
    if (steering->best) buffer_print(text, "keep_best: %s\n", steering->best);
    if (steering->patience) buffer_print(text, "patience: %lld\n", (long long)steering->patience);
    if (steering->average) buffer_print(text, "average: %lld\n", (long long)steering->average);
    if (steering->keep != FEDERATION_KEEP) buffer_print(text, "keep: %lld\n", (long long)steering->keep);
}

void federation_print(const Federation *federation, Buffer *text)
{
    const FederationCompiled *compiled = &federation->compiled;
    char hash[33];
    print_sites(federation, text);
    print_text(text, "coordinator: {address", federation->address);
    print_text(text, ", key", federation->key);
    buffer_print(text, "}\n");
    print_rules(federation, text);
    if (compiled->site < 0) print_steering(&federation->steering, text);
    buffer_print(text, "compiled:\n  federation: \"%s\"\n", hash_format(compiled->identity, hash));
    if (compiled->site >= 0) {
        print_text(text, "  site", federation->sites[compiled->site].name);
        buffer_print(text, "\n");
    }
    print_text(text, "  model", compiled->model_hash);
    buffer_print(text, "\n  optimizer: %lld\n  states: %lld\n", (long long)compiled->optimizer,
                 (long long)compiled->states);
    if (*compiled->low_rank) {
        print_text(text, "  lora", compiled->low_rank);
        buffer_print(text, "\n");
    }
    if (compiled->recipe) {
        print_text(text, "  recipe", compiled->recipe);
        buffer_print(text, "\n");
    }
    if (!hash_equal(compiled->follows, (Hash){0, 0}))
        buffer_print(text, "  follows: \"%s\"\n", hash_format(compiled->follows, hash));
    if (compiled->owner) buffer_print(text, "  owner: \"%s\"\n", compiled->owner);
    if (compiled->amended) buffer_print(text, "  amended: %lld\n", (long long)compiled->amended);
    if (compiled->why_steps) {
        print_text(text, "  local_steps", compiled->why_steps);
        buffer_print(text, "\n");
    }
}

Hash federation_hash(const Federation *federation, Hash model)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    print_sites(federation, &text);
    print_rules(federation, &text);
    return hash_extend(model, text.bytes, text.size);
}
