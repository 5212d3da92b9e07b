#!/bin/bash
# Codecs on links, from the command line: a pipeline of coded stages trains to the same losses whatever its schedule and
# threads, `skycc run --plan` computes them in one process, and verify checks what a plan says of its links.
#
#   test_codecs.sh SKYCC TESTS_DATA
set -u
skycc=$1 data=$2
common=$(cd "$(dirname "$0")/../common" && pwd)
source "$common/test.sh"
enter_scratch_folder
model=$data/bert/bert-nano-seqcls-opset17-dyn.onnx
for threads in 1 2; do
    cat >cluster-$threads.yaml <<END
devices:
  - {name: a, region: north, threads: $threads}
  - {name: b, region: north, threads: $threads}
  - {name: c, region: south, threads: $threads}
links:
  - {between: [north, south], latency: 1ms, bandwidth: 1Mbit}
  - {between: [north, north], latency: 1ms, bandwidth: 100Gbit, duplex: half}
END
done
/usr/bin/python3 -B - "$common" <<'END' || die "no data"
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from safetensors_files import write
random = np.random.default_rng(5)
for name, rows in (("batch", 4), ("data", 16)):
    lengths = random.integers(4, 9, rows)
    write(name + ".safetensors", {
        "input_ids": random.integers(1, 256, (rows, 8)).astype("i4"),
        "attention_mask": (np.arange(8) < lengths[:, None]).astype("i4"),
        "token_type_ids": np.zeros((rows, 8), "i4"), "labels": random.integers(0, 2, rows).astype("i4")})
END
losses() { cut -d, -f1,2 "$1"; }
links() { # plan: the codec of every link, there/back
    /usr/bin/python3 -c 'import json, sys
codecs = [link["codec"] for link in json.load(open(sys.argv[1]))["links"]]
print(*[codec if isinstance(codec, str) else "/".join(codec) for codec in codecs])' "$1"
}

# A pipeline: one micro-batch, so that `run` has the same batch.
options=(--allocate even --dim batch=4 --dim seq=8 --dropout 0.1 --optimizer adamw:lr=1e-3,weight_decay=0.01)
for codec in lossless q4; do
    "$skycc" compile "$model" -d cluster-1.yaml "${options[@]}" --microbatches 1 --codec $codec -o $codec >$codec.txt ||
        die "compile --codec $codec"
    $codec/train --data batch.safetensors --steps 3 --seed 7 --schedule-lr constant --warmup 0 --clip 0 \
        --no-decay none --no-shuffle --quiet --log $codec.csv </dev/null >/dev/null || die "train with $codec"
    "$skycc" run "$model" --inputs batch.safetensors --loss cross-entropy --train 3 --seed 7 --dropout 0.1 --optimizer \
        adamw:lr=1e-3,weight_decay=0.01 --plan $codec/plan.json -o $codec.safetensors || die "run --plan of $codec"
    /usr/bin/python3 -B - "$common" $codec <<'END' || fail "$codec: run and the pipeline differ"
import csv, sys
sys.path.insert(0, sys.argv[1])
from safetensors_files import read
run = read(sys.argv[2] + ".safetensors")["train/loss"]
with open(sys.argv[2] + ".csv") as file:
    pipeline = [row["loss"] for row in csv.DictReader(file)]
if ["%.9g" % loss for loss in run[:3]] != pipeline:
    sys.exit(f"run: {run[:3]}, the pipeline: {pipeline}")
END
done
cmp -s <(losses lossless.csv) <(losses q4.csv) && fail "q4 changes nothing"
# The plan and both reports say which codec every link has, and the plan how much shorter messages are.
[ "$(links q4/plan.json)" = "q4/q4 q4/q4" ] || fail "the plan's links have $(links q4/plan.json)"
"$skycc" explain q4/plan.json >explained.txt || fail "explain"
for link in '0 to 1' '1 to 0' '1 to 2' '2 to 1'; do
    grep -q "stage $link: q4 " q4.txt || fail "the report of compile does not name the codec from stage $link"
    grep -q "stage $link: q4 " explained.txt || fail "explain does not name the codec from stage $link"
done
/usr/bin/python3 -B - q4/plan.json <<'END' || fail "a link's coded bytes are wrong"
import json, sys
for link in json.load(open(sys.argv[1]))["links"]:
    if not 3 < link["logical_bytes"] / link["wire_bytes"] < 8:
        sys.exit(f"{link['logical_bytes']} bytes become {link['wire_bytes']} by q4")
END

# Schedules, threads and recomputation change nothing. Evaluation, which has no backward, is in it.
for way in "cluster-1.yaml --schedule gpipe" "cluster-2.yaml --schedule zb" "cluster-1.yaml --recompute always"; do
    # shellcheck disable=SC2086
    "$skycc" compile "$model" -d $way "${options[@]}" --microbatches 4 --codec q6 -o way --force >/dev/null ||
        die "$way"
    way/train --data data.safetensors --eval-data batch.safetensors --eval-every 1 --steps 2 --seed 1 --quiet \
        --log way.csv </dev/null >/dev/null || die "train: $way"
    cut -d, -f1,2,8 way.csv >>ways
done
[ "$(sort ways | uniq -c | awk '{print $1}' | sort -u)" = 3 ] || fail "losses depend on the schedule: $(cat ways)"

# The solver's choice: nothing is lost on the quick link, and as little as it may on the slow one.
"$skycc" plan "$model" -d cluster-1.yaml "${options[@]}" --codec auto:q6 -o auto.json >/dev/null || fail "auto:q6"
"$skycc" compile "$model" -d cluster-1.yaml "${options[@]}" --codec auto:q6 --emit=costs -o costs.json || fail "costs"
[ "$(links auto.json)" = "identity q6/q6" ] || fail "auto:q6 chose $(links auto.json)"
"$skycc" verify auto.json --costs costs.json >/dev/null || fail "the plan is not verified"
sed 's/"q6","q6"/"q8","q6"/' auto.json >other.json
expect 1 "q6 costs least forward" -- "$skycc" verify other.json --costs costs.json
"$skycc" plan "$model" -d cluster-1.yaml "${options[@]}" -o plain.json >/dev/null
grep -q codecs plain.json && fail "a lossless plan speaks of codecs"
expect 2 "auto:q6" -- "$skycc" plan "$model" -d cluster-1.yaml "${options[@]}" --codec q5
expect 1 "the plan is for another model" -- "$skycc" run "$data/bert/bert-nano24-seqcls-opset14-dyn-nofold.onnx" \
    --inputs batch.safetensors --plan q4/plan.json -o nothing.safetensors
sed 's/duplex: half/duplex: quarter/' cluster-1.yaml >wrong.yaml
expect 1 "full or half, not 'quarter'" -- "$skycc" plan "$model" -d wrong.yaml "${options[@]}"
finish "coded pipelines train as run --plan computes, whatever the schedule"
