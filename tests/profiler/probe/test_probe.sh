#!/bin/bash
# skycc probe: this machine, a model on it, every device of a cluster under mpiexec, and the links between hosts.
#
#   tests/profiler/probe/test_probe.sh SKYCC DATA
set -euo pipefail
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../../common/test.sh"
skycc=$(realpath "$1")
model=$(realpath "$2/bert/bert-nano-seqcls-opset17-dyn.onnx")
enter_scratch_folder
never_ending_input
dimensions=(--dim batch=2 --dim seq=8)

cat >cluster.yaml <<'END'
devices:
  - {name: a, region: here}
  - {name: b, region: here, threads: 2}
  - {name: c, host: 127.0.0.1, region: there, slowdown: 3}
links:
  - {between: [here, there], latency: 7s, bandwidth: 1Mbit}
END

# profile FILE EXPRESSION: the profile, `p`, fulfils a Python expression.
profile() {
    python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$1" "$2" ||
        die "$1: not $2"
}

# A machine without a model: speeds, and those of the device with two threads.
"$skycc" probe -d cluster.yaml -o machine.json
profile machine.json 'p["gflops"] > 0.1 and p["bandwidth_Bps"] > 1e7 and p["kernels"] == {}'
profile machine.json '[(d["device"], d["threads"]) for d in p["devices"]] == [("b", 2)]'
"$skycc" plan "$model" -d cluster.yaml --profile machine.json "${dimensions[@]}" >plan.txt 2>messages.txt
! grep -q profile messages.txt || die "a profile without kernels: $(cat messages.txt)"

# One process per device.
mpiexec.mpich -n 3 "$skycc" probe "$model" -d cluster.yaml -o all.json "${dimensions[@]}"
profile all.json '[d["device"] for d in p["devices"]] == ["a", "b", "c"]'
profile all.json 'len(p["kernels"]) > 20 and all(set(d["kernels"]) == set(p["kernels"]) for d in p["devices"])'
profile all.json 'all(t > 0 for d in p["devices"] for t in d["kernels"].values())'
profile all.json '[l["between"] for l in p["links"]] == [["a", "c"]] and 0 < p["links"][0]["latency_s"] < 1'
"$skycc" compile "$model" -d cluster.yaml --profile all.json "${dimensions[@]}" --emit=costs \
    -o costs.json 2>messages.txt
! grep -q profile messages.txt || die "a profile of this model: $(cat messages.txt)"
python3 - <<'END' || die "costs.json does not say what all.json does"
import json, sys
costs, profile = json.load(open("costs.json")), json.load(open("all.json"))
links, measured = costs["links"], profile["links"][0]
here, there = links["regions"].index("here"), links["regions"].index("there")
own = [device["forward_s"] for device in costs["devices"]]
sys.exit(
    links["latency_s"][here][there] != measured["latency_s"]
    or links["bandwidth_Bps"][there][here] != measured["bandwidth_Bps"]
    or links["latency_s"][here][here] != 0
    or any(len(times) != len(costs["layers"]) for times in own)
)
END

# What cannot be.
expect 2 'has 3 devices, but the launcher started 2' -- \
    mpiexec.mpich -n 2 "$skycc" probe -d cluster.yaml -o two.json
said=$(timeout 300 mpiexec.mpich -n 2 "$skycc" probe -d cluster.yaml -o two.json 2>&1) &&
    die "two processes for three devices"
[ "$(grep -c 'error:' <<<"$said")" = 1 ] || die "is not said once: $said"
# What only one of them finds, it says.
said=$(timeout 300 mpiexec.mpich -n 2 "$skycc" probe -d cluster.yaml -o three.json : \
    -n 1 "$skycc" probe -d missing.yaml -o three.json 2>&1) &&
    die "a process without a cluster file"
grep -q 'missing.yaml: error:' <<<"$said" || die "the process that found no cluster file is silent: $said"
sed 's/"between": \["a"/"between": [7/' all.json >broken.json
expect 1 'broken.json: error: links\[0\]' -- \
    "$skycc" plan "$model" -d cluster.yaml --profile broken.json "${dimensions[@]}"
finish "machines, models, devices and links were measured"
