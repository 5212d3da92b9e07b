#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/buffer.h"
#include "base/units.h"
#include "cluster/cluster.h"
#include "tests/common/scratch.h"

/* A device and itself are joined by a free link. */
static ClusterLink link_between(const Cluster *cluster, int from, int to)
{
    if (from == to) return (ClusterLink){.bandwidth_Bps = INFINITY};
    return cluster->links[cluster->devices[from].zone * cluster->zone_count + cluster->devices[to].zone];
}

static double transfer_s(const Cluster *cluster, int from, int to, int64_t bytes)
{
    ClusterLink link = link_between(cluster, from, to);
    return link.latency_s + (double)bytes / link.bandwidth_Bps;
}

static const char complete[] =
    "targets:\n"
    "  - {name: pi, triple: aarch64-linux-gnu, cpu: cortex-a72, features: \"\", sysroot: /opt/pi}\n"
    "devices:\n"
    "  - name: edge-1\n"
    "    host: edge-1.example\n"
    "    target: pi\n"
    "    threads: 4\n"
    "    memory: 8GiB\n"
    "    reserve: auto\n"
    "    gflops: 120\n"
    "    bandwidth: 20GB/s\n"
    "    slowdown: 2.5\n"
    "    region: paris\n"
    "  - {name: cloud, region: tokyo, count: 3, memory: 16GB}\n"
    "  - {name: laptop}\n"
    "default_link: {latency: 1ms, bandwidth: 10Gbit}\n"
    "links:\n"
    "  - {between: [paris, tokyo], latency: 110ms, bandwidth: 600Mbit}\n"
    "  - {between: [tokyo, tokyo], latency: 50us, bandwidth: 5GB/s}\n"
    "  - {between: [edge-1, cloud.1], latency: 7ms, bandwidth: 1Gbit}\n"
    "keep: {inputs: edge-1, labels: cloud.2}\n"
    "interface: 10.1.0.0/16\n"
    "ports: 20000-20999\n";

/* Reads `text` as a cluster file; it must be accepted with this many warnings. */
static Cluster read_good(const char *text, int warnings)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    Cluster cluster;
    bool ok = cluster_read(&cluster, file.path, &diagnostics);
    if (!ok) diagnostics_print(&diagnostics, stderr);
    assert_true(ok);
    assert_int_equal(diagnostics.warnings, warnings);
    diagnostics_free(&diagnostics);
    unlink(file.path);
    return cluster;
}

static void a_complete_file_is_read(void **state)
{
    (void)state;
    Cluster cluster = read_good(complete, 0);
    assert_int_equal(cluster.target_count, 2);
    assert_string_equal(cluster.targets[0].name, "native");
    assert_string_equal(cluster.targets[1].cpu, "cortex-a72");
    assert_string_equal(cluster.targets[1].features, "");
    assert_string_equal(cluster.targets[1].sysroot, "/opt/pi");
    assert_string_equal(cluster.targets[1].launch, "");
    assert_int_equal(cluster.device_count, 5);
    const ClusterDevice *edge = &cluster.devices[0], *laptop = &cluster.devices[4];
    assert_string_equal(edge->host, "edge-1.example");
    assert_int_equal(edge->target, 1);
    assert_int_equal(edge->threads, 4);
    assert_true(edge->memory_bytes == INT64_C(8) << 30 && edge->reserve_bytes == CLUSTER_RESERVE_PROCESS);
    assert_true(edge->gflops == 120 && edge->bandwidth_Bps == 20e9 && edge->slowdown == 2.5);
    assert_string_equal(edge->region, "paris");
    assert_string_equal(cluster.devices[3].name, "cloud.2");
    assert_true(cluster.devices[3].memory_bytes == 16000000000);
    assert_string_equal(laptop->host, "localhost");
    assert_int_equal(laptop->threads, 1);
    assert_true(laptop->memory_bytes == CLUSTER_NO_LIMIT && laptop->slowdown == 1 && laptop->gflops == 0);
    assert_null(laptop->region);
    assert_int_equal(cluster.keep_inputs, 0);
    assert_int_equal(cluster.keep_labels, 3);
    assert_string_equal(cluster.network.interface, "10.1.0.0/16");
    assert_int_equal(cluster.network.first_port, 20000);
    assert_int_equal(cluster.network.last_port, 20999);
    assert_int_equal(cluster_find_device(&cluster, "cloud.1"), 2);
    assert_int_equal(cluster_find_device(&cluster, "cloud"), -1);
    cluster_free(&cluster);
}

static void expect_link(const Cluster *cluster, const char *a, const char *b, double latency, double bandwidth)
{
    int from = cluster_find_device(cluster, a), to = cluster_find_device(cluster, b);
    for (int i = 0; i < 2; i++) {
        ClusterLink link = i ? link_between(cluster, from, to) : link_between(cluster, to, from);
        if (link.latency_s != latency || link.bandwidth_Bps != bandwidth)
            fail_msg("%s-%s: %g s, %g B/s", a, b, link.latency_s, link.bandwidth_Bps);
    }
}

static void the_most_specific_link_wins(void **state)
{
    (void)state;
    Cluster cluster = read_good(complete, 0);
    expect_link(&cluster, "edge-1", "cloud.0", 110e-3, 75e6);
    expect_link(&cluster, "edge-1", "cloud.1", 7e-3, 125e6);
    expect_link(&cluster, "cloud.0", "cloud.2", 50e-6, 5e9);
    expect_link(&cluster, "cloud.0", "cloud.1", 50e-6, 5e9);
    expect_link(&cluster, "laptop", "cloud.1", 1e-3, 1.25e9);
    expect_link(&cluster, "laptop", "laptop", 0, INFINITY);
    assert_true(transfer_s(&cluster, 0, 1, 75000000) == 110e-3 + 1);
    assert_int_equal(cluster.zone_count, 4); /* edge-1, tokyo but for cloud.1, cloud.1, no region */
    assert_true(cluster.has_links);
    cluster_free(&cluster);
}

static void groups_are_named_whole_in_links(void **state)
{
    (void)state;
    Cluster cluster = read_good("devices:\n- {name: a, count: 2, region: r}\n- {name: b, count: 2, region: r}\n"
                                "- {name: c, region: r}\n"
                                "links:\n"
                                "- {between: [a, a], latency: 1ms, bandwidth: 8Mbit}\n"
                                "- {between: [b, a], latency: 2ms, bandwidth: 8Mbit}\n"
                                "- {between: [r, r], latency: 3ms, bandwidth: 8Mbit}\n"
                                "- {between: [a.1, b], latency: 4ms, bandwidth: 8Mbit}\n",
                                0);
    expect_link(&cluster, "a.0", "a.1", 1e-3, 1e6);
    expect_link(&cluster, "a.0", "b.1", 2e-3, 1e6);
    expect_link(&cluster, "b.0", "b.1", 3e-3, 1e6);
    expect_link(&cluster, "a.0", "c", 3e-3, 1e6);
    expect_link(&cluster, "a.1", "b.1", 4e-3, 1e6);
    bool found = false;
    for (int i = 0; i < cluster.zone_count; i++) found |= strcmp(cluster.zone_names[i], "b") == 0;
    assert_true(found);
    cluster_free(&cluster);
}

static void without_links_communication_is_free(void **state)
{
    (void)state;
    Cluster cluster = read_good("devices: [{name: a, region: x}, {name: b, region: y}]", 0);
    expect_link(&cluster, "a", "b", 0, INFINITY);
    assert_true(transfer_s(&cluster, 0, 1, 1 << 30) == 0);
    assert_false(cluster.has_links);
    cluster_free(&cluster);
    /* With some links, a missing one is most likely an oversight. */
    cluster = read_good("devices: [{name: a, region: x}, {name: b, region: y}, {name: c}]\n"
                        "links: [{between: [x, y], latency: 1ms, bandwidth: 8Mbit}]",
                        1);
    expect_link(&cluster, "a", "c", 0, INFINITY);
    cluster_free(&cluster);
}

static void anchors_may_share_what_devices_have_in_common(void **state)
{
    (void)state;
    Cluster cluster = read_good("devices:\n- {name: a, memory: &m 2GiB}\n- {name: b, memory: *m}\n", 0);
    assert_true(cluster.devices[1].memory_bytes == INT64_C(2) << 30);
    cluster_free(&cluster);
}

static void refuses(const char *text, const char *expected)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    Cluster cluster;
    assert_false(cluster_read(&cluster, file.path, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    unlink(file.path);
}

static void what_is_no_cluster_file_is_refused(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    Cluster cluster;
    assert_false(cluster_read(&cluster, scratch_absent().path, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    diagnostics_free(&diagnostics);
    refuses("", "is empty");
    refuses("# nothing\n", "is empty");
    refuses("just text", ":1:1: error: must be a mapping (key: value), not a plain value");
    refuses("- a\n- b\n", "must be a mapping (key: value), not a list");
    refuses("devices:\n\t- name: a\n", ":2:1: error: not valid YAML");
    refuses("devices: [{name: a}\n", "not valid YAML");
    refuses("devices: [{name: \"a\xff\"}]\n", "not valid YAML");
    refuses("devices: [{name: a}]\n---\ndevices: [{name: b}]\n", ":2:1: error: a second document");
    refuses("devices: [{name: a}]\n%\n", "not valid YAML");
    refuses("devices: *nowhere\n", "not valid YAML");
    refuses("{devices: [{name: a}], ? [x] : y}", "a key must be a plain word");
}

static void bad_devices_are_refused(void **state)
{
    (void)state;
    refuses("keep: {}\n", "key 'devices' is missing");
    refuses("devices:\n", "must be a list, not a plain value");
    refuses("devices: []\n", "'devices' is empty");
    refuses("devices: [a]\n", ":1:11: error: device: must be a mapping");
    refuses("devices:\n  - {threads: 2}\n", ":2:5: error: device: key 'name' is missing");
    refuses("devices:\n  - name: a\n    thread: 3\n",
            ":3:5: error: device: unknown key 'thread'\n    hint: known keys: name");
    refuses("extra: 1\ndevices: [{name: a}]\n", ":1:1: error: unknown key 'extra'");
    refuses("devices:\n  - name: a\n    name: b\n", ":3:5: error: device: key 'name' is given twice");
    refuses("devices:\n  - name: a\n  - name: a\n", ":3:11: error: two devices are named 'a'");
    refuses("devices:\n  - {name: a, count: 2}\n  - name: a.1\n", ":3:11: error: two devices are named 'a.1'");
    refuses("devices:\n  - {name: a, region: b}\n  - name: b\n", "'b' names both a region and a device");
    refuses("devices: [{name: [a]}]\n", "name must be a plain value, not a list");
    refuses("devices: [{name: \"\"}]\n", "name is empty");
    refuses("devices: [{name: \"a b\"}]\n", "name 'a b' may have letters");
    refuses("devices: [{name: ../a}]\n", "name '../a' may have letters");
    refuses("devices: [{name: -n}]\n", "name '-n' may have letters");
    refuses("devices: [{name: \"a\\0b\"}]\n", "name contains a control character");
    refuses("devices: [{name: a, host: \"x; reboot\"}]\n", "host 'x; reboot' may have");
    refuses("devices: [{name: a, target: pi}]\n", "device 'a': unknown target 'pi'");
    refuses("devices: [{name: a, region: \"x\\ny\"}]\n", "region contains a control character");
    refuses("devices: [{name: a, threads: 0}]\n", "threads must be from 1 to 4096, not 0");
    refuses("devices: [{name: a, threads: 2.5}]\n", "threads must be a whole number");
    refuses("devices: [{name: a, threads: 99999999999999999999}]\n", "threads must be a whole number");
    refuses("devices: [{name: a, count: 0}]\n", "count must be from 1");
    refuses("devices: [{name: a, count: 16384}, {name: b}]\n", "more than 16384 devices");
    refuses("devices:\n- name: a\n  memory: 8 gigs\n",
            ":3:11: error: device 'a': memory '8 gigs' is not a size\n    hint: write");
    refuses("devices: [{name: a, memory: 1GiB, reserve: much}]\n", "reserve 'much' is not a size");
    refuses("devices: [{name: a, memory: 1GiB, reserve: 1GiB}]\n", "reserve leaves nothing of the memory");
    refuses("devices: [{name: a, memory: -1GiB}]\n", "is not a size");
    refuses("devices: [{name: a, memory: 0}]\n", "is not a size");
    refuses("devices: [{name: a, memory: 9e18GiB}]\n", "is not a size");
    refuses("devices: [{name: a, bandwidth: 20GB}]\n", "bandwidth '20GB' is not a rate");
    refuses("devices: [{name: a, gflops: nan}]\n", "gflops must be a number, not 'nan'");
    refuses("devices: [{name: a, gflops: 0}]\n", "gflops must be more than 0");
    refuses("devices: [{name: a, gflops: 1e999}]\n", "gflops must be a number");
    refuses("devices: [{name: a, slowdown: 0.5}]\n", "slowdown must be at least 1, not 0.5");
    refuses("devices: &a [*a]\n", "must be a mapping");
}

static void opencl_devices_are_patterns_or_numbers(void **state)
{
    (void)state;
    static const char device[] = "devices: [{name: a, target: opencl, opencl: {%s}}]\n";
    static const struct {
        const char *given, *found; /* NULL: refused */
        const char *message;
    } cases[] = {{"device: 255", "255", NULL},
                 {"device: RTX 4090", "RTX 4090", NULL},
                 {"device: '*7900*'", "*7900*", NULL},
                 {"device: Infinity", "Infinity", NULL},
                 {"device: -1", NULL, ":1:54: error: device 'a': the OpenCL device must be from 0 to 255, not -1"},
                 {"device: 256", NULL, "must be from 0 to 255, not 256"},
                 {"device: 1.5", NULL, "must be a whole number, not '1.5'"},
                 {"device: '+1'", NULL, "must be a whole number, not '+1'"},
                 {"device: ' 1'", NULL, "must be a whole number, not ' 1'"},
                 {"device: 0x1", NULL, "must be a whole number, not '0x1'"},
                 {"device: 1e999", NULL, "must be a whole number, not '1e999'"},
                 {"device: 99999999999999999999", NULL, "must be a whole number"},
                 {"device: ", NULL, "the OpenCL device is empty"},
                 {"device: ''", NULL, "the OpenCL device is empty"},
                 {"device: null", NULL, "the OpenCL device is empty\n    hint: skycc probe --devices lists"},
                 {"device: ~", NULL, "the OpenCL device is empty"},
                 {"device: [0]", NULL, "must be a plain value, not a list"},
                 {"device: \"a\\tb\"", NULL, "contains a control character"},
                 {"platform: 0", NULL, "the OpenCL platform must be a pattern for its name, not the number 0"},
                 {"platform: -1.5", NULL, "must be a pattern for its name"},
                 {"platform: {name: x}", NULL, "must be a plain value, not a mapping"},
                 {"gpu: 0", NULL, "unknown key 'gpu'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FREED_WITH(buffer_free) Buffer text = {0};
        buffer_print(&text, device, cases[i].given);
        if (cases[i].found) {
            Cluster cluster = read_good(buffer_text(&text), 0);
            assert_string_equal(cluster.devices[0].opencl_device, cases[i].found);
            assert_string_equal(cluster.devices[0].opencl_platform, "*");
            cluster_free(&cluster);
        } else {
            refuses(buffer_text(&text), cases[i].message);
        }
    }
    refuses("devices: [{name: a, target: opencl, opencl: 0}]\n", "opencl: must be a mapping");
    refuses("devices: [{name: a, target: opencl, opencl: }]\n", "opencl: must be a mapping");
    refuses("devices: [{name: a, opencl: {}}]\n", "opencl is for devices of target opencl");
    refuses("devices: [{name: a, memory: auto}]\n", "memory 'auto' is not a size");
}

static void bad_links_targets_and_keeps_are_refused(void **state)
{
    (void)state;
#define TWO "devices: [{name: a, region: x}, {name: b, region: y}, {name: c, count: 2}]\n"
    refuses(TWO "links:\n- {between: [x, mars], latency: 1ms, bandwidth: 1Gbit}\n",
            ":3:17: error: link: unknown region or device 'mars'");
    refuses(TWO "links: [{between: [x], latency: 1ms, bandwidth: 1Gbit}]\n", "'between' must name two");
    refuses(TWO "links: [{between: x, latency: 1ms, bandwidth: 1Gbit}]\n", "must be a list");
    refuses(TWO "links: [{between: [a, a], latency: 1ms, bandwidth: 1Gbit}]\n", "joins a device with itself");
    refuses(TWO "links: [{between: [x, y], bandwidth: 1Gbit}]\n", "key 'latency' is missing");
    refuses(TWO "links: [{between: [x, y], latency: 1ms}]\n", "key 'bandwidth' is missing");
    refuses(TWO "links: [{latency: 1ms, bandwidth: 1Gbit}]\n", "key 'between' is missing");
    refuses(TWO "links: [{between: [x, y], latency: 1, bandwidth: 1Gbit}]\n", "latency '1' is not a time");
    refuses(TWO "links: [{between: [x, y], latency: 1ms, bandwidth: 0bit}]\n", "bandwidth '0bit' is not a rate");
    refuses(TWO "links: [x]\n", "link: must be a mapping");
    refuses(TWO "links: {x: y}\n", "links: must be a list");
    refuses(TWO "links:\n- {between: [x, y], latency: 1ms, bandwidth: 1Gbit}\n"
                "- {between: [y, x], latency: 2ms, bandwidth: 1Gbit}\n",
            ":4:3: error: this pair is linked already, at line 3");
    refuses(TWO "default_link: {latency: 1ms}\n", "default_link: key 'bandwidth' is missing");
    refuses(TWO "default_link: 1ms\n", "default_link: must be a mapping");
    refuses(TWO "keep: {inputs: z}\n", ":2:16: error: keep: unknown device 'z'");
    refuses(TWO "keep: {inputs: x}\n", "'x' is not one device");
    refuses(TWO "keep: {labels: c}\n", "hint: name one device of the group");
    refuses(TWO "keep: {weights: a}\n", "unknown key 'weights'");
    refuses(TWO "targets: [{name: pi}]\n", "target: key 'triple' is missing");
    refuses(TWO "targets: [{name: native, triple: x86_64-linux-gnu}]\n", "'native' is built in");
    refuses(TWO "targets: [{name: t, triple: u}, {name: t, triple: v}]\n", "two targets are named 't'");
    refuses(TWO "targets: 3\n", "targets: must be a list");
    refuses(TWO "interface: eth0;id\n", "interface 'eth0;id' may have letters");
    refuses(TWO "interface: 10.1.0.0/33\n", ":2:12: error: interface '10.1.0.0/33' is neither");
    refuses(TWO "interface: 10.1.0/16\n", "is neither a name nor an IPv4 subnet");
    refuses(TWO "interface: an-interface-of-24-bytes\n", "is neither a name");
    refuses(TWO "ports: 20000\n", ":2:8: error: ports '20000' are not a range");
    refuses(TWO "ports: 20000-20010\n", "at least 16 ports");
    refuses(TWO "ports: 1-20010\n", "from 1024 to 65535");
    refuses(TWO "ports: 20000-70000\n", "are not a range");
    refuses(TWO "ports: 20000-20100x\n", "are not a range");
#undef TWO
}

#define KEY_A "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
#define KEY_B "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
#define KEY_C "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define PARIS "- {name: paris, address: \"paris.example:7400\", key: \"" KEY_A "\"}\n"
#define TOKYO "- {name: tokyo, key: \"" KEY_B "\"}\n"
#define SITES "sites:\n" PARIS TOKYO

static void sites_are_read(void **state)
{
    (void)state;
    Cluster cluster =
        read_good(SITES "- {name: lima, address: \"[2001:db8::7]:9\", key: \"" KEY_C "\"}\n"
                        "devices:\n- {name: a, site: paris}\n- {name: b, site: tokyo, count: 2, region: hall}\n"
                        "- {name: c, site: tokyo}\n- {name: d, site: lima}\n"
                        "links:\n"
                        "- {between: [paris, tokyo], latency: 20ms, bandwidth: 8Mbit}\n"
                        "- {between: [paris, hall], latency: 21ms, bandwidth: 8Mbit}\n"
                        "- {between: [tokyo, tokyo], latency: 1ms, bandwidth: 8Mbit}\n"
                        "- {between: [lima, paris], latency: 50ms, bandwidth: 8Mbit}\n"
                        "- {between: [lima, tokyo], latency: 60ms, bandwidth: 8Mbit}\n"
                        "- {between: [lima, b.1], latency: 61ms, bandwidth: 8Mbit}\n",
                  0);
    assert_int_equal(cluster.site_count, 3);
    assert_string_equal(cluster.sites[0].name, "paris");
    assert_string_equal(cluster.sites[0].address, "paris.example:7400");
    assert_string_equal(cluster.sites[0].key, KEY_A);
    assert_null(cluster.sites[1].address);
    assert_string_equal(cluster.sites[2].address, "[2001:db8::7]:9");
    const int site_of[] = {0, 1, 1, 1, 2};
    for (int d = 0; d < cluster.device_count; d++) assert_int_equal(cluster.devices[d].site, site_of[d]);
    expect_link(&cluster, "a", "c", 20e-3, 1e6);
    expect_link(&cluster, "a", "b.0", 21e-3, 1e6);
    expect_link(&cluster, "b.0", "b.1", 1e-3, 1e6);
    expect_link(&cluster, "b.1", "c", 1e-3, 1e6);
    expect_link(&cluster, "d", "a", 50e-3, 1e6);
    expect_link(&cluster, "d", "b.0", 60e-3, 1e6);
    expect_link(&cluster, "d", "b.1", 61e-3, 1e6);
    cluster_free(&cluster);
    cluster = read_good("devices: [{name: a}]", 0);
    assert_int_equal(cluster.site_count, 0);
    assert_int_equal(cluster.devices[0].site, -1);
    cluster_free(&cluster);
}

static void sites_keep_inputs_and_labels(void **state)
{
    (void)state;
    Cluster cluster = read_good(SITES "devices:\n- {name: a, site: paris}\n- {name: b, site: tokyo, count: 2}\n"
                                      "keep: {inputs: paris, labels: tokyo}\n",
                                0);
    assert_int_equal(cluster.keep_inputs, 0); /* a site of one device is that device */
    assert_int_equal(cluster.keep_inputs_site, -1);
    assert_int_equal(cluster.keep_labels, -1);
    assert_int_equal(cluster.keep_labels_site, 1);
    cluster_free(&cluster);
}

static void bad_sites_are_refused(void **state)
{
    (void)state;
#define DEVICE "devices: [{name: a, site: paris}]\n"
    refuses("sites: 3\n" DEVICE, ":1:8: error: sites: must be a list");
    refuses("sites: []\n" DEVICE, "'sites' is empty");
    refuses("sites:\n- {name: paris}\n" DEVICE, ":2:3: error: site: key 'key' is missing");
    refuses("sites:\n- {key: \"" KEY_A "\"}\n" DEVICE, "site: key 'name' is missing");
    refuses("sites:\n- {name: a b, key: \"" KEY_A "\"}\n" DEVICE, ":2:10: error: site: name 'a b' may have letters");
    refuses("sites:\n- {name: ../up, key: \"" KEY_A "\"}\n" DEVICE, "name '../up' may have letters");
    refuses("sites:\n- {name: paris, key: abc}\n" DEVICE, ":2:22: error: site 'paris': key must be a public key");
    refuses("sites:\n- {name: paris, key: \"~q:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"}\n" DEVICE, "key must be");
    refuses("sites:\n- {name: paris, key: \"" KEY_A "x\"}\n" DEVICE, "key must be");
    /* Five digits that are more than 32 bits. */
    refuses("sites:\n- {name: paris, key: \"#####M>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"}\n" DEVICE, "key must be");
    static const char *const addresses[] = {"paris",        "paris:",      ":7400",       "paris:0",
                                            "paris:65536",  "paris:7400x", "pa ris:7400", "2001:db8::7:9",
                                            "[paris]:7400", "[]:7400",     "-paris:7400", "paris:-7400"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        char text[300];
        snprintf(text, sizeof text, "sites:\n- {name: paris, address: \"%s\", key: \"%s\"}\n%s", addresses[i], KEY_A,
                 DEVICE);
        refuses(text, ":2:26: error: site 'paris': address '");
    }
    refuses(SITES "- {name: paris, address: \"x:1\", key: \"" KEY_C "\"}\n" DEVICE,
            ":4:10: error: two sites are named 'paris'");
    refuses(SITES "- {name: lima, address: \"x:1\", key: \"" KEY_A "\"}\n" DEVICE, "is that of site 'paris', too");
    refuses(SITES "- {name: lima, address: \"paris.example:7400\", key: \"" KEY_C "\"}\n" DEVICE,
            "site 'lima': address 'paris.example:7400' is that of site 'paris', too");
    refuses(SITES "- {name: lima, key: \"" KEY_C "\"}\n" DEVICE,
            ":4:3: error: site 'lima': has no address, nor has site 'tokyo'");
    refuses(SITES "- {name: lima, address: none, key: \"" KEY_C "\"}\n" DEVICE, "has no address, nor has site 'tokyo'");
    refuses(SITES "devices:\n- {name: a, site: rome}\n", ":5:19: error: device 'a': unknown site 'rome'");
    refuses("devices: [{name: a, site: rome}]\n", "device 'a': unknown site 'rome'");
    refuses(SITES "devices:\n- {name: a, site: tokyo}\n- {name: b, count: 3}\n",
            ":6:3: error: device 'b': is in none of the sites");
    refuses(SITES "devices: [{name: paris, site: tokyo}]\n", "'paris' names both a site and a device");
    refuses(SITES "devices: [{name: a, site: tokyo, region: paris}]\n", "'paris' names both a site and a region");
    refuses(SITES "devices:\n- {name: a, site: paris, region: r}\n- {name: b, site: tokyo, region: r}\n",
            ":5:34: error: region 'r' is in two sites: 'a' is in 'paris', and 'b' in 'tokyo'");
    refuses(SITES DEVICE "links: [{between: [paris, rome], latency: 1ms, bandwidth: 1Gbit}]\n",
            "unknown site, region or device 'rome'");
#undef DEVICE
}

static void all_errors_are_reported_at_once(void **state)
{
    (void)state;
    Scratch file = scratch_text("devices:\n- {name: a, threads: x}\n- {name: b, memory: y, color: red}\n- 7\n");
    Diagnostics diagnostics = {0};
    Cluster cluster;
    assert_false(cluster_read(&cluster, file.path, &diagnostics));
    assert_int_equal(diagnostics.errors, 4);
    diagnostics_free(&diagnostics);
    unlink(file.path);
}

/* Truncation and replaced bytes: accepted or refused, never worse (the sanitizers watch). */
static void damaged_files_are_survived(void **state)
{
    (void)state;
    static const char replacements[] = {0, '\n', ' ', ':', '-', '[', '{', '&', '*', '\'', (char)0xff};
    size_t size = sizeof complete - 1;
    int refused = 0, errors = 0;
    for (size_t at = 0; at < size; at++)
        for (size_t r = 0; r <= sizeof replacements; r++) {
            char damaged[sizeof complete];
            memcpy(damaged, complete, size);
            if (r < sizeof replacements) damaged[at] = replacements[r];
            Scratch file = scratch_file(damaged, r < sizeof replacements ? size : at);
            Diagnostics diagnostics = {0};
            Cluster cluster;
            if (cluster_read(&cluster, file.path, &diagnostics))
                cluster_free(&cluster);
            else
                refused++;
            errors += diagnostics.errors > 0;
            diagnostics_free(&diagnostics);
            unlink(file.path);
        }
    assert_int_equal(refused, errors);
    assert_true(refused > 1000);
}

static void hostile_depth_and_breadth_are_survived(void **state)
{
    (void)state;
    size_t depth = 1 << 20;
    char *nested = memory_allocate(depth + 1);
    memset(nested, '[', depth);
    refuses(nested, ":1:65: error: nested more than 64 deep");
    free(nested);
    FREED_WITH(buffer_free) Buffer unknown = {0};
    for (int i = 0; i < 100000; i++) buffer_print(&unknown, "key%d: 1\n", i);
    refuses(buffer_text(&unknown), "unknown key 'key99'"); /* but not a hundred thousand messages */
}

static void units_are_what_they_say(void **state)
{
    (void)state;
    int64_t bytes = 0;
    double value = 0;
    assert_true(units_parse_bytes("512", &bytes) && bytes == 512);
    assert_true(units_parse_bytes("1.5KiB", &bytes) && bytes == 1536);
    assert_true(units_parse_bytes("2 MB", &bytes) && bytes == 2000000);
    assert_true(units_parse_bytes("1TiB", &bytes) && bytes == INT64_C(1) << 40);
    const char *bad_bytes[] = {"",      "GiB",   "8GIB",    "8Gbit", "0x10",      "inf",
                               " 8GiB", "8GiB ", "1..5GiB", "1.5",   "8388608TiB"};
    for (size_t i = 0; i < sizeof bad_bytes / sizeof *bad_bytes; i++)
        assert_false(units_parse_bytes(bad_bytes[i], &bytes));
    assert_true(units_parse_bandwidth("10Gbit", &value) && value == 1.25e9);
    assert_true(units_parse_bandwidth("10Gbit/s", &value) && value == 1.25e9);
    assert_true(units_parse_bandwidth("8kbps", &value) && value == 1000);
    assert_true(units_parse_bandwidth("1GiB/s", &value) && value == 0x1p30);
    assert_false(units_parse_bandwidth("1GiB", &value));
    assert_false(units_parse_bandwidth("100", &value));
    assert_false(units_parse_bandwidth("/s", &value));
    assert_true(units_parse_seconds("110ms", &value) && value == 0.11);
    assert_true(units_parse_seconds("0", &value) && value == 0);
    assert_false(units_parse_seconds("1min", &value));
    assert_false(units_parse_seconds("1e400s", &value));
    assert_true(units_parse_number("-2.5e-3", &value) && value == -2.5e-3);
    assert_false(units_parse_number("1e", &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_file_is_read),
        cmocka_unit_test(the_most_specific_link_wins),
        cmocka_unit_test(groups_are_named_whole_in_links),
        cmocka_unit_test(without_links_communication_is_free),
        cmocka_unit_test(anchors_may_share_what_devices_have_in_common),
        cmocka_unit_test(what_is_no_cluster_file_is_refused),
        cmocka_unit_test(bad_devices_are_refused),
        cmocka_unit_test(opencl_devices_are_patterns_or_numbers),
        cmocka_unit_test(bad_links_targets_and_keeps_are_refused),
        cmocka_unit_test(sites_are_read),
        cmocka_unit_test(sites_keep_inputs_and_labels),
        cmocka_unit_test(bad_sites_are_refused),
        cmocka_unit_test(all_errors_are_reported_at_once),
        cmocka_unit_test(damaged_files_are_survived),
        cmocka_unit_test(hostile_depth_and_breadth_are_survived),
        cmocka_unit_test(units_are_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
