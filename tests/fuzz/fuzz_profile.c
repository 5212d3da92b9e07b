/* A profile: all that is looked up in it, and what is written of it again. */
#include "profiler/costs/profile.h"
#include "tests/fuzz/fuzz.h"

static void look_up(const MachineProfile *machine)
{
    for (size_t i = 0; i < machine->kernel_count; i++)
        if (!(machine_profile_seconds(machine, machine->kernels[i].kernel) >= 0)) bug("a measured kernel is not found");
    machine_profile_seconds(machine, (Hash){1, 2});
}

static bool use(const Profile *profile, Diagnostics *diagnostics)
{
    look_up(&profile->reference);
    for (size_t i = 0; i < profile->device_count; i++) {
        if (!profile_device(profile, profile->devices[i].device)) bug("a device is not found by its name");
        look_up(&profile->devices[i]);
    }
    return profile_write(profile, "-", diagnostics);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    Profile profile;
    fuzz_file("profile.json", data, size);
    bool ok = profile_read(&profile, "profile.json", &diagnostics);
    if (ok) {
        ok = use(&profile, &diagnostics);
        profile_free(&profile);
    }
    fuzz_end(ok, &diagnostics);
    return 0;
}
