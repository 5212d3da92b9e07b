/* Reads federation.yaml, written by a person or by skycc federate. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "federation/aggregate/sum_messages.h"
#include "federation/evaluations.h"
#include "federation/federation.h"
#include "federation/site_read.h"
#include "runtime/wire/address.h"

enum { MOST_FRAGMENTS = 1 << 16 };
#define MOST_COUNT ((int64_t)1 << 40)

typedef struct Reader {
    YamlFile yaml;
    Federation *federation;
    const FederationWishes *wishes; /* never NULL */
    bool compiled;
} Reader;

/* ---- Values ---- */

static bool read_text(Reader *reader, YamlNode *node, const char *object, const char *what, const char **text)
{
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, object, what, text)) return false;
    *text = arena_string(&reader->federation->arena, *text);
    return true;
}

static bool read_integer(Reader *reader, YamlNode *node, const char *object, const char *what, int64_t most,
                         int64_t *value)
{
    return !node || yaml_integer(&reader->yaml, node, object, what, 1, most, value);
}

/* Greater than 0 and at most `most`. */
static bool read_positive(Reader *reader, YamlNode *node, const char *object, const char *what, double most,
                          double *value)
{
    if (!node) return true;
    if (!yaml_number(&reader->yaml, node, object, what, 0, value)) return false;
    return (*value > 0 && *value <= most) ||
           yaml_error(&reader->yaml, node, object, NULL, "%s must be greater than 0 and at most %g", what, most);
}

static bool read_choice(Reader *reader, YamlNode *node, const char *what, const char *no, const char *yes, bool *value)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, NULL, what, &text)) return false;
    *value = strcmp(text, yes) == 0;
    return *value || strcmp(text, no) == 0 ||
           yaml_error(&reader->yaml, node, NULL, NULL, "%s is %s or %s, not '%s'", what, yes, no, text);
}

/* ---- Sites and the coordinator ---- */

/* Two sites may not have the same name or key. */
static bool check_former_sites(Reader *reader, YamlNode *node, YamlNode *key, const FederationSite *site)
{
    for (const FederationSite *former = reader->federation->sites; former < site; former++) {
        if (former->name && site->name && strcmp(former->name, site->name) == 0)
            return yaml_error(&reader->yaml, node, NULL, NULL, "two sites are named '%s'", site->name);
        if (former->key && site->key && strcmp(former->key, site->key) == 0)
            return yaml_error(&reader->yaml, key, NULL, "every site makes a key of its own with skycc key NAME",
                              "the key of site '%s' is that of site '%s', too", site->name, former->name);
    }
    return true;
}

static bool read_site(Reader *reader, YamlNode *node)
{
    Federation *federation = reader->federation;
    FederationSite *site = &federation->sites[federation->site_count++];
    SiteForm form = reader->compiled ? SITE_COMPILED : SITE_WRITTEN;
    YamlNode *key = NULL;
    return site_read(&reader->yaml, &federation->arena, node, form, site, &key) &&
           check_former_sites(reader, node, key, site);
}

static bool read_sites(Reader *reader, YamlNode *node)
{
    size_t count;
    if (!node || !yaml_sequence(&reader->yaml, node, "sites", &count)) return false;
    if (count < 1 || count > SUM_MOST_SITES)
        return yaml_error(&reader->yaml, node, NULL, NULL, "a federation has 1 to %d sites", SUM_MOST_SITES);
    reader->federation->sites = arena_new_array(&reader->federation->arena, FederationSite, count);
    bool ok = true;
    for (size_t s = 0; s < count; s++) ok &= read_site(reader, yaml_item(&reader->yaml, node, s));
    return ok;
}

static bool read_bandwidth(Reader *reader, YamlNode *node, const char *object)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, object, "bandwidth", &text)) return false;
    return units_parse_bandwidth(text, &reader->federation->coordinator_Bps) ||
           yaml_error(&reader->yaml, node, object, UNITS_BANDWIDTH_HINT, "bandwidth '%s' is not a rate", text);
}

static bool read_coordinator(Reader *reader, YamlNode *node)
{
    enum { ADDRESS, KEY, BANDWIDTH, COUNT };
    YamlMember members[] = {
        [ADDRESS] = {"address", true, NULL}, [KEY] = {"key", true, NULL}, [BANDWIDTH] = {"bandwidth", false, NULL}};
    Federation *federation = reader->federation;
    const char *object = "coordinator";
    if (!node) return false;
    bool ok = yaml_members(&reader->yaml, node, object, members, reader->compiled ? BANDWIDTH : COUNT);
    ok &= read_text(reader, members[ADDRESS].value, object, "address", &federation->address);
    ok &= read_bandwidth(reader, members[BANDWIDTH].value, object);
    ok &= site_key_read(&reader->yaml, &federation->arena, members[KEY].value, object, &federation->key);
    if (federation->address && !wire_address_is_valid(federation->address))
        ok = yaml_error(&reader->yaml, members[ADDRESS].value, object, NULL,
                        "address '%s' is not HOST:PORT, with a port from 1 to 65535", federation->address);
    for (int s = 0; s < federation->site_count && ok; s++)
        if (federation->sites[s].key && strcmp(federation->sites[s].key, federation->key) == 0)
            ok = yaml_error(&reader->yaml, members[KEY].value, object,
                            "the coordinator has a key of its own, also where it runs next to a site",
                            "its key is that of site '%s', too", federation->sites[s].name);
    return ok;
}

/* ---- Rules ---- */

static bool read_outer(Reader *reader, YamlNode *node)
{
    enum { OPTIMIZER, RATE, MOMENTUM, BETA1, BETA2, EPSILON, COUNT };
    YamlMember members[] = {[OPTIMIZER] = {"optimizer", true, NULL}, [RATE] = {"lr", false, NULL},
                            [MOMENTUM] = {"momentum", false, NULL},  [BETA1] = {"beta1", false, NULL},
                            [BETA2] = {"beta2", false, NULL},        [EPSILON] = {"eps", false, NULL}};
    OuterRule *rule = &reader->federation->outer;
    const char *object = "outer", *name;
    *rule = outer_rule_default(OUTER_NESTEROV);
    if (!node) return true;
    if (!yaml_members(&reader->yaml, node, object, members, COUNT) ||
        !yaml_text(&reader->yaml, members[OPTIMIZER].value, object, "optimizer", &name))
        return false;
    OuterKind kind = 0;
    while (kind < OUTER_KIND_COUNT && strcmp(name, outer_names[kind]) != 0) kind++;
    if (kind == OUTER_KIND_COUNT)
        return yaml_error(&reader->yaml, members[OPTIMIZER].value, object, "average, sgd, nesterov, adam or yogi",
                          "unknown outer optimiser '%s'", name);
    *rule = outer_rule_default(kind);
    if (members[RATE].value && kind == OUTER_AVERAGE)
        return yaml_error(&reader->yaml, members[RATE].value, object, "sgd has one", "plain averaging has no lr");
    if (members[MOMENTUM].value && kind != OUTER_NESTEROV)
        return yaml_error(&reader->yaml, members[MOMENTUM].value, object,
                          outer_moments(kind) ? "they call it beta1" : "nesterov has one", "%s has no momentum", name);
    for (int m = BETA1; m <= EPSILON; m++)
        if (members[m].value && outer_moments(kind) < 2)
            return yaml_error(&reader->yaml, members[m].value, object, "adam and yogi have one", "%s has no %s", name,
                              members[m].key);
    bool ok = read_positive(reader, members[RATE].value, object, "lr", 1000, &rule->rate);
    ok &= read_positive(reader, members[MOMENTUM].value, object, "momentum", 0.9999, &rule->momentum);
    ok &= read_positive(reader, members[BETA1].value, object, "beta1", 0.9999, &rule->momentum);
    ok &= read_positive(reader, members[BETA2].value, object, "beta2", 0.99999, &rule->beta2);
    return read_positive(reader, members[EPSILON].value, object, "eps", 1, &rule->epsilon) && ok;
}

static bool read_privacy(Reader *reader, YamlNode *node)
{
    enum { CLIP, NOISE, DELTA, COUNT };
    YamlMember members[] = {
        [CLIP] = {"clip", true, NULL}, [NOISE] = {"noise", true, NULL}, [DELTA] = {"delta", false, NULL}};
    FederationPrivacy *privacy = &reader->federation->privacy;
    if (!node) return true;
    privacy->delta = 1e-5;
    bool ok = yaml_members(&reader->yaml, node, "dp", members, COUNT);
    ok &= read_positive(reader, members[CLIP].value, "dp", "clip", 1e30, &privacy->clip);
    ok &= read_positive(reader, members[NOISE].value, "dp", "noise", 1e6, &privacy->noise);
    return read_positive(reader, members[DELTA].value, "dp", "delta", 0.5, &privacy->delta) && ok;
}

static bool read_seconds(Reader *reader, YamlNode *node, const char *what, double *seconds)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, NULL, what, &text)) return false;
    return (units_parse_seconds(text, seconds) && *seconds > 0 && *seconds <= 1e9) ||
           yaml_error(&reader->yaml, node, NULL, UNITS_SECONDS_HINT, "%s '%s' is no time", what, text);
}

enum { SITES, COORDINATOR, ROUNDS, LOCAL_STEPS, OUTER, AGGREGATE, THRESHOLD, MIN_SITES, ROUND_TIMEOUT, DROP_AFTER };
enum { DEADLINE = DROP_AFTER + 1, OVERLAP, FRAGMENTS, CODEC, MODEL_CODEC, LEAST_CHANGE, CLIP_UPDATE, DP, HIDE_METRICS };
enum { SAMPLE = HIDE_METRICS + 1, ROBUST, PROXIMAL, CONTROL_VARIATES, EVALUATE, KEEP_BEST, PATIENCE, KEEP, AVERAGE };
enum { DEFAULT_LINK = AVERAGE + 1, LINKS, COMPILED, MEMBERS };

/* The least number of sites in a sum. */
static bool read_least(Reader *reader, YamlNode *threshold, YamlNode *min_sites, YamlNode *sample)
{
    Federation *federation = reader->federation;
    int sites = federation_present(federation), needed = federation->secure ? sum_threshold(sites) : 1;
    int64_t drawn = 0, given = needed;
    if (!read_integer(reader, sample, NULL, "sample", sites, &drawn)) return false;
    int64_t least = sum_threshold(drawn && !federation->secure ? (int)drawn : sites);
    if (drawn && drawn < needed)
        return yaml_error(&reader->yaml, sample, NULL, "draw more, or aggregate: plain, which needs no threshold",
                          "sample: %lld is below the %d of %d sites that a secure sum needs", (long long)drawn, needed,
                          sites);
    if (federation->secure && sites < SUM_FEWEST_SITES)
        return yaml_error(&reader->yaml, reader->yaml.root, NULL, "aggregate: plain shows updates to the coordinator",
                          "secure aggregation needs at least %d sites", SUM_FEWEST_SITES);
    if (!read_integer(reader, threshold, NULL, "threshold", sites, &given) ||
        !read_integer(reader, min_sites, NULL, "min_sites", sites, &least))
        return false;
    if (threshold && !min_sites) least = given; /* the user asks for a smaller sum */
    if (given < needed)
        return yaml_error(&reader->yaml, threshold, NULL, "two thirds of the sites, and one",
                          "threshold must be at least %d for %d sites", needed, sites);
    if (least < given && !reader->compiled) /* sites that amendments add raise what a sum needs */
        return yaml_error(&reader->yaml, min_sites, NULL,
                          threshold ? "leave one of them out" : "leave it out, or aggregate: plain, which needs fewer",
                          threshold ? "min_sites: %lld is below threshold: %lld"
                                    : "min_sites: %lld is below the %lld sites that a secure sum needs",
                          (long long)least, (long long)given);
    federation->least = (int)(given > least ? given : least);
    if (drawn && drawn < federation->least)
        return yaml_error(&reader->yaml, sample, NULL, "draw more, or lower min_sites and threshold",
                          "sample: %lld is fewer than the %d sites that a round needs", (long long)drawn,
                          federation->least);
    federation->sample = drawn < sites ? (int)drawn : 0;
    YamlNode *few = min_sites ? min_sites : threshold ? threshold : sample;
    return !few || !federation->robust || federation->least >= ROBUST_FEWEST_SITES || reader->compiled ||
           yaml_error(&reader->yaml, few, NULL, "leave it out",
                      "robust: %s needs %d updates in every round, and this allows rounds of %d",
                      robust_names[federation->robust], ROBUST_FEWEST_SITES, federation->least);
}

static bool read_steps(Reader *reader, YamlNode *node)
{
    const char *text;
    if (!node) return reader->wishes->local_steps != 0;
    if (!reader->compiled && node->type == YAML_SCALAR_NODE &&
        yaml_text(&reader->yaml, node, NULL, "local_steps", &text) && strcmp(text, "auto") == 0) {
        reader->federation->local_steps = FEDERATION_STEPS_AUTO;
        return true;
    }
    return read_integer(reader, node, NULL, "local_steps", MOST_COUNT, &reader->federation->local_steps);
}

static bool read_overlap(Reader *reader, YamlNode *node)
{
    const char *text;
    if (!node) return true;
    if (node->type == YAML_SCALAR_NODE && yaml_text(&reader->yaml, node, NULL, "overlap", &text) &&
        strcmp(text, "all") == 0) {
        reader->federation->overlap = FEDERATION_OVERLAP_ALL;
        return true;
    }
    return yaml_integer(&reader->yaml, node, NULL, "overlap", 0, MOST_COUNT, &reader->federation->overlap);
}

static bool read_codec(Reader *reader, YamlNode *node, const char *name, Codec *codec)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, NULL, name, &text)) return false;
    return codec_from_name(text, codec) ||
           yaml_error(&reader->yaml, node, NULL, "none, bf16, q8, q6, q4 or q3", "unknown %s '%s'", name, text);
}

static bool read_robust(Reader *reader, YamlNode *node)
{
    const char *text;
    RobustRule rule = 0;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, NULL, "robust", &text)) return false;
    while (rule < ROBUST_RULE_COUNT && strcmp(text, robust_names[rule]) != 0) rule++;
    if (rule < ROBUST_RULE_COUNT) reader->federation->robust = rule;
    return rule < ROBUST_RULE_COUNT ||
           yaml_error(&reader->yaml, node, NULL, "median or trimmed", "unknown rule '%s'", text);
}

static bool check_robust(Reader *reader, const YamlMember *members)
{
    const Federation *federation = reader->federation;
    if (!federation->robust) return true;
    if (federation->secure)
        return yaml_error(
            &reader->yaml, members[ROBUST].value, NULL,
            "aggregate: plain; with secure sums, sites refuse a global model that is worse for their rows",
            "robust: %s needs to see every update, and aggregate: secure shows only their sum",
            robust_names[federation->robust]);
    return federation->site_count >= ROBUST_FEWEST_SITES ||
           yaml_error(&reader->yaml, members[ROBUST].value, NULL, "leave it out", "robust: %s needs at least %d sites",
                      robust_names[federation->robust], ROBUST_FEWEST_SITES);
}

/* What would have to know of the second half of an update. */
static bool check_control(Reader *reader, const YamlMember *members)
{
    const Federation *federation = reader->federation;
    const struct {
        bool is_set;
        const char *name, *why;
    } others[] = {{federation->fragments > 1, "fragments", "the variates are those of whole rounds of the whole model"},
                  {federation->overlap != 0, "overlap", "steps made during a meeting would use variates of two rounds"},
                  {federation->codec != CODEC_NONE, "codec", "what it leaves out would stay in the variates"},
                  {federation->model_codec != CODEC_NONE, "model_codec", "the variates travel as they are"},
                  {federation->robust != ROBUST_NONE, "robust", "the variates sum up to zero only with means"},
                  {federation->clip_update > 0, "clip_update", "it bounds changes of the model, not of the variates"},
                  {federation->privacy.clip > 0, "dp", "it bounds changes of the model, not of the variates"}};
    for (size_t i = 0; federation->control_variates && i < sizeof others / sizeof *others; i++)
        if (others[i].is_set)
            return yaml_error(&reader->yaml, members[CONTROL_VARIATES].value, NULL, "leave one of them out",
                              "control_variates does not go with %s: %s", others[i].name, others[i].why);
    return true;
}

static bool read_steering(Reader *reader, const YamlMember *members)
{
    enum { DATA, EVERY, COUNT };
    YamlMember evaluate[] = {[DATA] = {"data", true, NULL}, [EVERY] = {"every", false, NULL}};
    FederationSteering *steering = &reader->federation->steering;
    YamlNode *node = members[EVALUATE].value;
    bool ok = true;
    *steering = (FederationSteering){.every = 1, .keep = FEDERATION_KEEP};
    if (node) ok = yaml_members(&reader->yaml, node, "evaluate", evaluate, COUNT);
    if (node && ok) ok = read_text(reader, evaluate[DATA].value, "evaluate", "data", &steering->data);
    if (node && ok) ok = read_integer(reader, evaluate[EVERY].value, "evaluate", "every", MOST_COUNT, &steering->every);
    ok &= read_text(reader, members[KEEP_BEST].value, NULL, "keep_best", &steering->best);
    ok &= read_integer(reader, members[PATIENCE].value, NULL, "patience", MOST_COUNT, &steering->patience);
    ok &= read_integer(reader, members[KEEP].value, NULL, "keep", MOST_COUNT, &steering->keep);
    ok &= read_integer(reader, members[AVERAGE].value, NULL, "average", MOST_COUNT, &steering->average);
    if (!members[KEEP].value && steering->keep < steering->average) steering->keep = steering->average;
    if (ok && steering->keep < steering->average)
        ok = yaml_error(&reader->yaml, members[KEEP].value, NULL, "leave it out",
                        "keep: %lld prunes models that average: %lld takes the mean of", (long long)steering->keep,
                        (long long)steering->average);
    if (ok && steering->best && evaluation_metric(steering->best) < 0)
        ok = yaml_error(&reader->yaml, members[KEEP_BEST].value, NULL, EVALUATION_METRIC_WORDS, "unknown metric '%s'",
                        steering->best);
    return ok;
}

/* Without data of the coordinator, keep_best and patience go by what sites measure on rows of theirs. */
static bool check_steering(Reader *reader, const YamlMember *members)
{
    const Federation *federation = reader->federation;
    const FederationSteering *steering = &federation->steering;
    YamlNode *node = members[KEEP_BEST].value ? members[KEEP_BEST].value : members[PATIENCE].value;
    if (!node || steering->data) return true;
    const char *why = federation->hide_metrics ? "with hide_metrics sites do not tell what they measure"
                      : federation->overlap    ? "with overlap sites do not measure the global model"
                      : steering->best && !evaluation_at_sites(evaluation_metric(steering->best))
                          ? "sites measure loss and accuracy alone"
                      : steering->keep < 2 ? "keep: 1 prunes a round's model before sites have measured it"
                                           : NULL;
    return !why || yaml_error(&reader->yaml, node, NULL, "add evaluate: {data: FILE}",
                              "keep_best and patience have nothing to go by: %s", why);
}

/* The command line overrides the file. */
static void take_wishes(Federation *federation, const FederationWishes *wishes)
{
    if (wishes->rounds) federation->rounds = wishes->rounds;
    if (wishes->local_steps) federation->local_steps = wishes->local_steps;
    if (wishes->overlap) federation->overlap = wishes->overlap;
    if (wishes->clip_update > 0) federation->clip_update = wishes->clip_update;
    if (wishes->privacy.clip > 0) federation->privacy = wishes->privacy;
    federation->hide_metrics |=
        wishes->hide_metrics || federation->privacy.clip > 0; /* metrics reveal private rows, too */
}

static bool read_codecs(Reader *reader, const YamlMember *members)
{
    Federation *federation = reader->federation;
    YamlNode *least = members[LEAST_CHANGE].value;
    bool ok = read_codec(reader, members[CODEC].value, "codec", &federation->codec);
    ok &= read_codec(reader, members[MODEL_CODEC].value, "model_codec", &federation->model_codec);
    ok &= read_positive(reader, least, NULL, "least_change", 0.5, &federation->least_change);
    return ok && (!least || codec_bits(federation->codec) || codec_bits(federation->model_codec) ||
                  yaml_error(&reader->yaml, least, NULL, "model_codec: q6, for instance",
                             "least_change needs a codec with tiles: q8, q6, q4 or q3 as codec or model_codec"));
}

static bool read_rules(Reader *reader, const YamlMember *members)
{
    Federation *federation = reader->federation;
    federation->secure = true;
    federation->fragments = 1;
    bool ok = read_integer(reader, members[ROUNDS].value, NULL, "rounds", MOST_COUNT, &federation->rounds);
    ok &= read_steps(reader, members[LOCAL_STEPS].value);
    ok &= read_outer(reader, members[OUTER].value);
    ok &= read_choice(reader, members[AGGREGATE].value, "aggregate", "plain", "secure", &federation->secure);
    federation->round_timeout_s = 600;
    ok &= read_seconds(reader, members[ROUND_TIMEOUT].value, "round_timeout", &federation->round_timeout_s);
    federation->drop_after = 1;
    ok &= read_integer(reader, members[DROP_AFTER].value, NULL, "drop_after", MOST_COUNT, &federation->drop_after);
    ok &= read_seconds(reader, members[DEADLINE].value, "deadline", &federation->deadline_s);
    ok &= read_integer(reader, members[FRAGMENTS].value, NULL, "fragments", MOST_FRAGMENTS, &federation->fragments);
    ok &= read_overlap(reader, members[OVERLAP].value);
    ok &= read_codecs(reader, members);
    ok &= read_positive(reader, members[CLIP_UPDATE].value, NULL, "clip_update", 1e30, &federation->clip_update);
    ok &= read_privacy(reader, members[DP].value);
    ok &= read_choice(reader, members[HIDE_METRICS].value, "hide_metrics", "false", "true", &federation->hide_metrics);
    ok &= read_robust(reader, members[ROBUST].value);
    ok &= read_positive(reader, members[PROXIMAL].value, NULL, "proximal", 1e6, &federation->proximal);
    ok &= read_choice(reader, members[CONTROL_VARIATES].value, "control_variates", "false", "true",
                      &federation->control_variates);
    ok &= read_steering(reader, members);
    ok &= federation_read_links(federation, &reader->yaml, members[DEFAULT_LINK].value, members[LINKS].value);
    bool shown = members[HIDE_METRICS].value && !federation->hide_metrics && !reader->compiled;
    take_wishes(federation, reader->wishes);
    if (shown && federation->privacy.clip > 0)
        ok = yaml_error(&reader->yaml, members[HIDE_METRICS].value, NULL, "leave it out, or leave dp out",
                        "with dp no site tells its rows and losses: noise protects the updates alone");
    if (ok && federation->overlap && federation->deadline_s > 0)
        ok =
            yaml_error(&reader->yaml, members[DEADLINE].value, NULL, "leave one of them out",
                       "with overlap a round's result is taken a number of steps later, which a deadline would change");
    if (ok && federation->local_steps > 0) ok = federation_settle_overlap(federation, reader->yaml.diagnostics);
    if (ok && federation->privacy.clip > 0 && !federation->secure)
        ok = yaml_error(&reader->yaml, members[DP].value ? members[DP].value : members[AGGREGATE].value, "dp",
                        "aggregate: secure adds it up unseen",
                        "each site adds a part of the noise, which protects sums only");
    if (ok && federation->codec != CODEC_NONE && federation->secure)
        ok = yaml_error(&reader->yaml, members[CODEC].value, NULL,
                        "aggregate: plain shows every update to the coordinator, which can decode it then",
                        "codec '%s' is not to be had with aggregate: secure: masks hide words of a sum, and what is "
                        "coded cannot be added up",
                        codec_name(federation->codec));
    if (ok && members[SAMPLE].value && federation->overlap)
        ok = yaml_error(&reader->yaml, members[SAMPLE].value, NULL, "leave one of them out",
                        "sample does not go with overlap: a site would train for a round before it is drawn for it");
    ok = ok && check_robust(reader, members) && check_control(reader, members) && check_steering(reader, members);
    return read_least(reader, members[THRESHOLD].value, members[MIN_SITES].value, members[SAMPLE].value) && ok;
}

/* ---- What is compiled ---- */

static bool read_identity(Reader *reader, YamlNode *node, const char *what, Hash *hash)
{
    const char *text;
    unsigned long long high, low;
    int used = 0;
    if (!node || !yaml_text(&reader->yaml, node, "compiled", what, &text)) return false;
    if (strlen(text) != 32 || sscanf(text, "%16llx%16llx%n", &high, &low, &used) != 2 || used != 32)
        return yaml_error(&reader->yaml, node, "compiled", NULL, "%s must be 32 hexadecimal digits", what);
    *hash = (Hash){high, low};
    return true;
}

static bool read_compiled(Reader *reader, YamlNode *node)
{
    enum { IDENTITY, MODEL, OPTIMIZER, STATES, SITE, LORA, RECIPE, WHY_STEPS, FOLLOWS, OWNER, AMENDED, COUNT };
    YamlMember members[] = {[IDENTITY] = {"federation", true, NULL}, [MODEL] = {"model", true, NULL},
                            [OPTIMIZER] = {"optimizer", true, NULL}, [STATES] = {"states", true, NULL},
                            [SITE] = {"site", false, NULL},          [LORA] = {"lora", false, NULL},
                            [RECIPE] = {"recipe", false, NULL},      [WHY_STEPS] = {"local_steps", false, NULL},
                            [FOLLOWS] = {"follows", false, NULL},    [OWNER] = {"owner", false, NULL},
                            [AMENDED] = {"amended", false, NULL}};
    FederationCompiled *compiled = &reader->federation->compiled;
    const char *object = "compiled", *site = NULL;
    compiled->site = -1;
    compiled->low_rank = "";
    if (!node || !yaml_members(&reader->yaml, node, object, members, COUNT)) return false;
    bool ok = read_identity(reader, members[IDENTITY].value, "federation", &compiled->identity);
    if (members[FOLLOWS].value) ok &= read_identity(reader, members[FOLLOWS].value, "follows", &compiled->follows);
    ok &= read_text(reader, members[MODEL].value, object, "model", &compiled->model_hash);
    ok &= read_text(reader, members[LORA].value, object, "lora", &compiled->low_rank);
    ok &= read_text(reader, members[RECIPE].value, object, "recipe", &compiled->recipe);
    ok &= read_text(reader, members[WHY_STEPS].value, object, "local_steps", &compiled->why_steps);
    ok &= read_text(reader, members[SITE].value, object, "site", &site);
    ok &= read_text(reader, members[OWNER].value, object, "owner", &compiled->owner);
    ok &= read_integer(reader, members[AMENDED].value, object, "amended", MOST_COUNT, &compiled->amended);
    ok &= yaml_integer(&reader->yaml, members[OPTIMIZER].value, object, "optimizer", 0, 4, &compiled->optimizer);
    ok &= yaml_integer(&reader->yaml, members[STATES].value, object, "states", 0, 2, &compiled->states);
    if (!ok || !site) return ok;
    compiled->site = federation_find_site(reader->federation, site);
    return compiled->site >= 0 ||
           yaml_error(&reader->yaml, members[SITE].value, object, NULL, "site '%s' is none of the sites", site);
}

static bool read_all(Reader *reader)
{
    YamlMember members[MEMBERS] = {[SITES] = {"sites", true, NULL},
                                   [COORDINATOR] = {"coordinator", true, NULL},
                                   [ROUNDS] = {"rounds", !reader->wishes->rounds, NULL},
                                   [LOCAL_STEPS] = {"local_steps", !reader->wishes->local_steps, NULL},
                                   [OUTER] = {"outer", false, NULL},
                                   [AGGREGATE] = {"aggregate", false, NULL},
                                   [THRESHOLD] = {"threshold", false, NULL},
                                   [MIN_SITES] = {"min_sites", false, NULL},
                                   [ROUND_TIMEOUT] = {"round_timeout", false, NULL},
                                   [DROP_AFTER] = {"drop_after", false, NULL},
                                   [DEADLINE] = {"deadline", false, NULL},
                                   [OVERLAP] = {"overlap", false, NULL},
                                   [FRAGMENTS] = {"fragments", false, NULL},
                                   [CODEC] = {"codec", false, NULL},
                                   [MODEL_CODEC] = {"model_codec", false, NULL},
                                   [LEAST_CHANGE] = {"least_change", false, NULL},
                                   [CLIP_UPDATE] = {"clip_update", false, NULL},
                                   [DP] = {"dp", false, NULL},
                                   [HIDE_METRICS] = {"hide_metrics", false, NULL},
                                   [SAMPLE] = {"sample", false, NULL},
                                   [ROBUST] = {"robust", false, NULL},
                                   [PROXIMAL] = {"proximal", false, NULL},
                                   [CONTROL_VARIATES] = {"control_variates", false, NULL},
                                   [EVALUATE] = {"evaluate", false, NULL},
                                   [KEEP_BEST] = {"keep_best", false, NULL},
                                   [PATIENCE] = {"patience", false, NULL},
                                   [KEEP] = {"keep", false, NULL},
                                   [AVERAGE] = {"average", false, NULL},
                                   [DEFAULT_LINK] = {"default_link", false, NULL},
                                   [LINKS] = {"links", false, NULL},
                                   [COMPILED] = {"compiled", true, NULL}};
    bool ok = yaml_members(&reader->yaml, reader->yaml.root, NULL, members, reader->compiled ? MEMBERS : COMPILED);
    if (!read_sites(reader, members[SITES].value)) return false;
    ok &= read_coordinator(reader, members[COORDINATOR].value);
    ok &= read_rules(reader, members);
    return (!reader->compiled || read_compiled(reader, members[COMPILED].value)) && ok;
}

static bool read(Federation *federation, const char *path, const FederationWishes *wishes, bool compiled,
                 Diagnostics *diagnostics)
{
    static const FederationWishes none;
    Reader reader = {.federation = federation, .wishes = wishes ? wishes : &none, .compiled = compiled};
    *federation = (Federation){.compiled.site = -1};
    if (!yaml_read(&reader.yaml, path, diagnostics)) return false;
    bool ok = read_all(&reader);
    yaml_close(&reader.yaml);
    if (!ok) federation_free(federation);
    return ok;
}

bool federation_read(Federation *federation, const char *path, const FederationWishes *wishes, Diagnostics *diagnostics)
{
    return read(federation, path, wishes, false, diagnostics);
}

bool federation_read_compiled(Federation *federation, const char *path, Diagnostics *diagnostics)
{
    return read(federation, path, NULL, true, diagnostics);
}
