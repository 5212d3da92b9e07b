/* profile.json ("skycc.profile/1"): kernel times measured on the reference machine. */
#include "base/json.h"
#include "profiler/model_costs.h"

#include <string.h>

bool profile_write(const Profile *profile, const char *path, Diagnostics *diagnostics)
{
    Buffer text = {0};
    buffer_print(&text, "{\n  \"format\": \"skycc.profile/1\",\n  \"target\": ");
    json_print_string(&text, profile->target);
    buffer_print(&text, ",\n  \"kernels\": {");
    for (size_t i = 0; i < profile->kernel_count; i++) {
        char hash[33];
        buffer_print(&text, "%s\n    \"%s\": ", i ? "," : "", hash_format(profile->kernels[i].kernel, hash));
        json_print_number(&text, profile->kernels[i].seconds);
    }
    buffer_print(&text, "\n  }\n}\n");
    bool ok = file_write_all(path, text.bytes, text.size, diagnostics);
    buffer_free(&text);
    return ok;
}

static bool parse_hash(const char *text, Hash *hash)
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
    unsigned long long high, low;
    if (sscanf(text, "%16llx%16llx", &high, &low) != 2) return false;
    *hash = (Hash){high, low};
    return true;
}

static bool read_kernels(Profile *profile, json_t *root, JsonReader reader)
{
    const char *format, *target;
    json_t *kernels;
    if (!json_get_string(reader, root, "", "format", &format) ||
        !json_get_string(reader, root, "", "target", &target) ||
        !json_get_object(reader, root, "", "kernels", &kernels))
        return false;
    if (strcmp(format, "skycc.profile/1") != 0)
        return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, PLACE_FILE(reader.file),
                                 "skycc probe writes profiles", "is not a profile (format '%s')", format);
    profile->target = arena_string(&profile->arena, target);
    profile->kernels = arena_new_array(&profile->arena, KernelTime, json_object_size(kernels));
    const char *key;
    json_t *member;
    json_object_foreach(kernels, key, member)
    {
        KernelTime *time = &profile->kernels[profile->kernel_count++];
        if (!parse_hash(key, &time->kernel))
            return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, PLACE_FILE(reader.file), NULL,
                                     "'%s' is not a kernel hash", key);
        if (!json_get_number(reader, kernels, "kernels", key, &time->seconds)) return false;
        if (!(time->seconds >= 0 && time->seconds < 1e6))
            return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, PLACE_FILE(reader.file), NULL,
                                     "kernels.%s: not a time in seconds", key);
    }
    return true;
}

bool profile_read(Profile *profile, const char *path, Diagnostics *diagnostics)
{
    *profile = (Profile){0};
    json_t *root = json_read(path, diagnostics);
    if (!root) return false;
    bool ok = read_kernels(profile, root, (JsonReader){path, diagnostics});
    json_decref(root);
    if (!ok)
        profile_free(profile);
    else
        profile_sort(profile);
    return ok;
}

void profile_free(Profile *profile)
{
    arena_free(&profile->arena);
    *profile = (Profile){0};
}
