#include "federation/amendment.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input_files.h"
#include "base/json.h"
#include "federation/aggregate/sum_messages.h"
#include "federation/site_read.h"

#define MOST_COUNT ((int64_t)1 << 40)
static const char signature_key[] = "signature: \"";
enum { SIGNATURE_TEXT = 2 * crypto_sign_BYTES };

/* ---- Keys ---- */

void owner_key_draw(char secret[static OWNER_SECRET_TEXT + 1], char public_key[static OWNER_PUBLIC_TEXT + 1])
{
    unsigned char seed[crypto_sign_SEEDBYTES], whole[crypto_sign_SECRETKEYBYTES],
        public_bytes[crypto_sign_PUBLICKEYBYTES];
    if (sodium_init() < 0) bug("libsodium finds no random numbers");
    randombytes_buf(seed, sizeof seed);
    crypto_sign_seed_keypair(public_bytes, whole, seed);
    sodium_bin2hex(secret, OWNER_SECRET_TEXT + 1, seed, sizeof seed);
    sodium_bin2hex(public_key, OWNER_PUBLIC_TEXT + 1, public_bytes, sizeof public_bytes);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(whole, sizeof whole);
}

static bool read_hex(const char *text, size_t characters, unsigned char *bytes)
{
    size_t size;
    return strlen(text) == characters &&
           sodium_hex2bin(bytes, characters / 2, text, characters, NULL, &size, NULL) == 0 && size == characters / 2;
}

/* The pair of a seed; false: the text is none. */
static bool expand(const char *secret, unsigned char *whole, unsigned char *public_bytes)
{
    unsigned char seed[crypto_sign_SEEDBYTES];
    bool ok = sodium_init() >= 0 && read_hex(secret, OWNER_SECRET_TEXT, seed);
    if (ok) crypto_sign_seed_keypair(public_bytes, whole, seed);
    sodium_memzero(seed, sizeof seed);
    return ok;
}

bool owner_key_read(char secret[static OWNER_SECRET_TEXT + 1], const char *path, const Federation *federation,
                    Diagnostics *diagnostics)
{
    unsigned char whole[crypto_sign_SECRETKEYBYTES], bytes[crypto_sign_PUBLICKEYBYTES];
    char public_key[OWNER_PUBLIC_TEXT + 1];
    struct stat status;
    FREED_WITH(descriptor_close) int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return file_error(diagnostics, path, "cannot read");
    input_files_note(descriptor, path);
    bool is_private = fstat(descriptor, &status) == 0 && !(status.st_mode & (S_IRWXG | S_IRWXO));
    ssize_t size = read(descriptor, secret, OWNER_SECRET_TEXT);
    secret[size > 0 ? size : 0] = '\0';
    if (!is_private)
        return input_error(diagnostics, path, "run chmod 600 on it",
                           "is a secret key that others besides its owner can read or change");
    if (!expand(secret, whole, bytes))
        return input_error(diagnostics, path, "skycc federate makes it", "is not the key of a federation's owner");
    sodium_memzero(whole, sizeof whole);
    sodium_bin2hex(public_key, sizeof public_key, bytes, sizeof bytes);
    return (federation->compiled.owner && strcmp(public_key, federation->compiled.owner) == 0) ||
           input_error(diagnostics, path, NULL, "is not the key of this federation's owner");
}

/* ---- Reading ---- */

static bool read_sites(Amendment *amendment, const YamlFile *yaml, YamlNode *node, ChangeKind kind, SiteForm form)
{
    static const char *const what[] = {"remove", "keys", "add"};
    size_t count;
    bool ok = true;
    if (!node) return true;
    if (!yaml_sequence(yaml, node, what[kind], &count)) return false;
    for (size_t i = 0; i < count; i++) {
        AmendmentChange change = {.kind = kind};
        YamlNode *item = yaml_item(yaml, node, i);
        const char *name;
        if (kind == CHANGE_REMOVE)
            ok &= yaml_text(yaml, item, "remove", "a site's name", &name) &&
                  (change.site.name = arena_string(&amendment->arena, name));
        else
            ok &= site_read(yaml, &amendment->arena, item, form, &change.site, NULL);
        array_push(amendment->changes, amendment->count, amendment->capacity, change);
    }
    return ok;
}

enum { ROUND, REMOVE, KEYS, ADD, DIRECTORY, NUMBER = DIRECTORY, FEDERATION, SIGNATURE, MEMBERS };

static bool read_members(Amendment *amendment, const YamlFile *yaml, YamlMember *members, bool is_signed)
{
    bool ok = yaml_members(yaml, yaml->root, NULL, members, is_signed ? MEMBERS : NUMBER + 1);
    if (members[ROUND].value)
        ok &= yaml_integer(yaml, members[ROUND].value, NULL, "from_round", 1, MOST_COUNT, &amendment->from_round);
    ok &= read_sites(amendment, yaml, members[REMOVE].value, CHANGE_REMOVE, SITE_KEYED);
    ok &= read_sites(amendment, yaml, members[KEYS].value, CHANGE_KEY, SITE_KEYED);
    ok &= read_sites(amendment, yaml, members[ADD].value, CHANGE_ADD, is_signed ? SITE_ADDED : SITE_WRITTEN);
    return ok && (amendment->count || yaml_error(yaml, yaml->root, NULL, "remove, keys or add says what changes",
                                                 "the amendment changes nothing"));
}

bool amendment_read(Amendment *amendment, const char *path, Diagnostics *diagnostics)
{
    YamlMember members[MEMBERS] = {[ROUND] = {"from_round", false, NULL},
                                   [REMOVE] = {"remove", false, NULL},
                                   [KEYS] = {"keys", false, NULL},
                                   [ADD] = {"add", false, NULL},
                                   [DIRECTORY] = {"federation", false, NULL}};
    FREED_WITH(yaml_close) YamlFile yaml = {0};
    *amendment = (Amendment){0};
    if (!yaml_read(&yaml, path, diagnostics)) return false;
    bool ok = read_members(amendment, &yaml, members, false);
    if (members[DIRECTORY].value)
        ok &= yaml_text(&yaml, members[DIRECTORY].value, NULL, "federation", &amendment->directory);
    if (ok && amendment->directory) amendment->directory = arena_string(&amendment->arena, amendment->directory);
    return ok;
}

/* Where the line of the signature begins; 0: there is none, or more than one line follows. */
static size_t find_signature(const char *text, size_t size, unsigned char signature[crypto_sign_BYTES])
{
    size_t length = sizeof signature_key - 1, line = length + SIGNATURE_TEXT + 2; /* quote and end of line */
    char digits[SIGNATURE_TEXT + 1];
    if (size <= line || size > AMENDMENT_MOST_BYTES || memchr(text, '\0', size)) return 0;
    size_t at = size - line;
    if (text[at - 1] != '\n' || memcmp(text + at, signature_key, length) != 0) return 0;
    memcpy(digits, text + at + length, SIGNATURE_TEXT);
    digits[SIGNATURE_TEXT] = '\0';
    return memcmp(text + size - 2, "\"\n", 2) == 0 && read_hex(digits, SIGNATURE_TEXT, signature) ? at : 0;
}

static bool is_signed_by(const char *text, size_t size, const char *owner)
{
    unsigned char signature[crypto_sign_BYTES], key[crypto_sign_PUBLICKEYBYTES];
    size_t signed_bytes = find_signature(text, size, signature);
    return sodium_init() >= 0 && signed_bytes && owner && read_hex(owner, OWNER_PUBLIC_TEXT, key) &&
           crypto_sign_verify_detached(signature, (const unsigned char *)text, signed_bytes, key) == 0;
}

static bool check_head(const Amendment *amendment, const Federation *federation, const char *identity, const char *name,
                       Diagnostics *diagnostics)
{
    char hash[33];
    Place place = PLACE_FILE(name);
    int64_t taken = federation->compiled.amended;
    if (strcmp(identity, hash_format(federation->compiled.identity, hash)) != 0)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "is an amendment of another federation");
    if (amendment->number <= taken)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "is amendment %lld, and was taken before: %lld were", (long long)amendment->number,
                                 (long long)taken);
    return amendment->number == taken + 1 || diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                                               "is amendment %lld, and amendment %lld comes first",
                                                               (long long)amendment->number, (long long)taken + 1);
}

bool amendment_open(Amendment *amendment, const Federation *federation, const char *name, const char *text, size_t size,
                    Diagnostics *diagnostics)
{
    YamlMember members[MEMBERS] = {[ROUND] = {"from_round", true, NULL},   [REMOVE] = {"remove", false, NULL},
                                   [KEYS] = {"keys", false, NULL},         [ADD] = {"add", false, NULL},
                                   [NUMBER] = {"amendment", true, NULL},   [FEDERATION] = {"federation", true, NULL},
                                   [SIGNATURE] = {"signature", true, NULL}};
    FREED_WITH(yaml_close) YamlFile yaml = {0};
    const char *identity;
    *amendment = (Amendment){0};
    if (!is_signed_by(text, size, federation->compiled.owner))
        return input_error(diagnostics, name, NULL, "is not signed by the federation's owner");
    return yaml_read_text(&yaml, name, arena_format(&amendment->arena, "%.*s", (int)size, text), diagnostics) &&
           read_members(amendment, &yaml, members, true) &&
           yaml_integer(&yaml, members[NUMBER].value, NULL, "amendment", 1, MOST_COUNT, &amendment->number) &&
           yaml_text(&yaml, members[FEDERATION].value, NULL, "federation", &identity) &&
           check_head(amendment, federation, identity, name, diagnostics);
}

/* The least number after `number` of an amendment next to it; 0: there is none. */
static int64_t later_than(int64_t number, const char *path)
{
    const char *name = strrchr(path, '/');
    FREED char *folder_path = strndup(path, (size_t)(name - path));
    FREED_WITH(listing_close) DIR *folder = opendir(folder_path);
    int64_t least = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *end;
        int64_t other = strtoll(entry->d_name, &end, 10);
        if (end > entry->d_name && strcmp(end, ".yaml") == 0 && other > number && (!least || other < least))
            least = other;
    }
    return least;
}

/* Amendments are taken in their order: without this one, those after it wait. */
static bool say_missing(const Federation *federation, const char *path, Diagnostics *diagnostics)
{
    int64_t number = federation->compiled.amended + 1, later = later_than(number, path);
    return later && input_error(diagnostics, path, "copy it from DIR/amendments, where it was signed",
                                "is missing: amendment %lld is there and waits for amendment %lld", (long long)later,
                                (long long)number);
}

bool amendment_open_file(Amendment *amendment, const Federation *federation, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    *amendment = (Amendment){0};
    if (access(path, F_OK) != 0) return say_missing(federation, path, diagnostics);
    if (!file_map(&file, path, diagnostics)) return false;
    bool ok = amendment_open(amendment, federation, path, (const char *)file.bytes, file.size, diagnostics);
    input_files_release_path(path); /* it may be replaced while this process runs */
    return ok;
}

void amendment_free(Amendment *amendment)
{
    free(amendment->changes);
    arena_free(&amendment->arena);
    *amendment = (Amendment){0};
}

const char *amendment_path(Arena *arena, const char *directory, int64_t number)
{
    return arena_format(arena, "%s/amendments/%06lld.yaml", directory, (long long)number);
}

/* ---- Writing ---- */

static void print_changes(const Amendment *amendment, ChangeKind kind, const char *open, Buffer *text)
{
    bool any = false;
    for (size_t i = 0; i < amendment->count; i++) {
        const AmendmentChange *change = &amendment->changes[i];
        if (change->kind != kind) continue;
        buffer_print(text, "%s", any ? ", " : open);
        any = true;
        if (kind != CHANGE_REMOVE) buffer_print(text, "{name: ");
        json_print_string(text, change->site.name);
        if (kind == CHANGE_REMOVE) continue;
        buffer_print(text, ", key: ");
        json_print_string(text, change->site.key);
        if (kind == CHANGE_ADD)
            buffer_print(text, ", rows_per_step: %lld%s", (long long)change->site.rows_per_step,
                         change->site.own_options ? ", own_options: true" : "");
        buffer_print(text, "}");
    }
    if (any) buffer_print(text, "]\n");
}

void amendment_print(const Amendment *amendment, const char *secret, Buffer *text)
{
    unsigned char whole[crypto_sign_SECRETKEYBYTES], public_bytes[crypto_sign_PUBLICKEYBYTES];
    unsigned char signature[crypto_sign_BYTES];
    char hash[33], digits[SIGNATURE_TEXT + 1];
    size_t first = text->size;
    buffer_print(text, "amendment: %lld\nfederation: \"%s\"\nfrom_round: %lld\n", (long long)amendment->number,
                 hash_format(amendment->federation, hash), (long long)amendment->from_round);
    print_changes(amendment, CHANGE_REMOVE, "remove: [", text);
    print_changes(amendment, CHANGE_KEY, "keys: [", text);
    print_changes(amendment, CHANGE_ADD, "add: [", text);
    if (!expand(secret, whole, public_bytes)) bug("the owner's key was read before");
    crypto_sign_detached(signature, NULL, (const unsigned char *)text->bytes + first, text->size - first, whole);
    sodium_memzero(whole, sizeof whole);
    sodium_bin2hex(digits, sizeof digits, signature, sizeof signature);
    buffer_print(text, "%s%s\"\n", signature_key, digits);
}

void amendment_describe(const Amendment *amendment, Buffer *text)
{
    static const char *const words[][2] = {{"removes", ""}, {"gives", " a new key"}, {"adds", ""}};
    for (size_t i = 0; i < amendment->count; i++) {
        const AmendmentChange *change = &amendment->changes[i];
        buffer_print(text, "%s%s '%s'%s", i ? ", " : " ", words[change->kind][0], change->site.name,
                     words[change->kind][1]);
    }
}

/* ---- Taking ---- */

bool amendment_has_new_keys(const Amendment *amendment)
{
    for (size_t i = 0; i < amendment->count; i++)
        if (amendment->changes[i].kind != CHANGE_REMOVE) return true;
    return false;
}

/* Every key may be used once: what was revoked stays revoked. */
static bool check_key(const Federation *federation, const FederationSite *site, Place place, Diagnostics *diagnostics)
{
    if (strcmp(site->key, federation->key) == 0)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "the new key of site '%s' is the coordinator's", site->name);
    for (int s = 0; s < federation->site_count; s++) {
        const FederationSite *other = &federation->sites[s];
        bool is_former = other->former_key && strcmp(site->key, other->former_key) == 0;
        if (is_former || strcmp(site->key, other->key) == 0)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "skycc key NAME makes a new one",
                                     "the new key of site '%s' is or was that of site '%s'", site->name, other->name);
    }
    return true;
}

static bool take_change(Federation *federation, const AmendmentChange *change, int64_t round, Place place,
                        Diagnostics *diagnostics)
{
    const char *name = change->site.name;
    int number = federation_find_site(federation, name);
    FederationSite *site = number >= 0 ? &federation->sites[number] : NULL;
    if (change->kind != CHANGE_REMOVE && !check_key(federation, &change->site, place, diagnostics)) return false;
    if (change->kind == CHANGE_ADD) {
        if (site)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "give it another name",
                                     "site '%s' is or was in the federation", name);
        site = &federation->sites[federation->site_count++];
        *site = change->site;
        site->name = arena_string(&federation->arena, name);
        site->cluster = site->cluster ? arena_string(&federation->arena, site->cluster) : NULL;
        site->key = arena_string(&federation->arena, change->site.key);
        site->joined = round;
        return true;
    }
    if (!site || site->left)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "site '%s' is not in the federation%s", name,
                                 site ? " any more" : "");
    if (change->kind == CHANGE_REMOVE) {
        site->left = round;
        return true;
    }
    site->former_key = site->key;
    site->key = arena_string(&federation->arena, change->site.key);
    site->rekeyed = round;
    return true;
}

/* What a federation must have, as federation_read has it. */
static bool check_size(const Federation *federation, Place place, Diagnostics *diagnostics)
{
    int present = federation_present(federation), needed = federation->secure ? sum_threshold(present) : 1;
    if (present < federation->least)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "add a site with the same amendment",
                                 "leaves %d sites, and a round needs %d (min_sites)", present, federation->least);
    if (federation->secure && present < SUM_FEWEST_SITES)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "add a site with the same amendment",
                                 "leaves %d sites, and secure sums need %d", present, SUM_FEWEST_SITES);
    return !federation->sample || federation->sample >= needed ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                             "makes %d sites, of which a secure sum needs %d: more than sample: %d", present, needed,
                             federation->sample);
}

bool federation_amend(Federation *federation, const Amendment *amendment, const char *where, Diagnostics *diagnostics)
{
    Federation before = *federation;
    size_t room = (size_t)federation->site_count + amendment->count;
    Place place = PLACE_FILE(where);
    bool ok = true;
    if (room > SUM_MOST_SITES)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "makes more than the %d sites that a federation may have had", SUM_MOST_SITES);
    federation->sites = arena_new_array(&federation->arena, FederationSite, room);
    memcpy(federation->sites, before.sites, (size_t)before.site_count * sizeof *before.sites);
    for (size_t i = 0; i < amendment->count && ok; i++)
        ok = take_change(federation, &amendment->changes[i], amendment->from_round, place, diagnostics);
    ok = ok && check_size(federation, place, diagnostics);
    federation->compiled.amended += ok;
    if (!ok) { /* the arena keeps what was added */
        federation->sites = before.sites;
        federation->site_count = before.site_count;
    }
    return ok;
}

bool federation_write(const Federation *federation, const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0}, path = {0};
    federation_print(federation, &text);
    buffer_print(&path, "%s/federation.yaml", directory);
    input_files_release_path(path.bytes);
    return file_write_all(path.bytes, text.bytes, text.size, diagnostics);
}
