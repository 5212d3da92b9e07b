#!/bin/sh
# Trains one model across two sites. Here both sites are folders of one host; each has its own key, programs, weights
# and gateway.
#
#     examples/sites/run.sh DIRECTORY [PORT]
#
# skycc must be on PATH. PORT must be free on this host; the default follows from the process id.
set -eu
examples=$(cd "$(dirname "$0")/.." && pwd)
port=${2:-$((20000 + $$ % 10000))}
mkdir -p "$1"
cd "$1"

# A small model and 16 sentences stand for your own.
skycc bert --layers 4 --hidden 64 --heads 2 --vocab 28 --positions 16 --classes 2 -o model.onnx
skycc tokenize "$examples/pipeline/sentences.tsv" --vocab "$examples/pipeline/vocabulary.txt" --task single \
    --max-length 16 -o data.safetensors

# Each site makes its own key pair and gives away only NAME.pub.
for site in lyon kyoto; do
    [ -e $site.key ] || skycc key $site >/dev/null
done

# kyoto has no address, so kyoto connects to lyon. Raw inputs stay in lyon.
cat >cluster.yaml <<CLUSTER
sites:
  - {name: lyon, address: "127.0.0.1:$port", key: "$(cat lyon.pub)"}
  - {name: kyoto, key: "$(cat kyoto.pub)"}
devices:
  - {name: lyon-host, site: lyon, count: 2}
  - {name: kyoto-host, site: kyoto, count: 1}
links:
  - {between: [lyon, kyoto], latency: 20ms, bandwidth: 200Mbit}
  - {between: [lyon, lyon], latency: 50us, bandwidth: 10Gbit}
keep: {inputs: lyon}
CLUSTER

# The planner would keep so small a model in one place; --pin moves its last layers to kyoto.
skycc compile model.onnx -d cluster.yaml -o pipeline --batch 4 --dim seq=16 \
    --pin classifier=kyoto-host.0 --quiet

# With real sites, pipeline/lyon and pipeline/kyoto would be copied to their sites and started there.
train() {
    pipeline/"$1"/train --data data.safetensors --steps 12 --key "$1.key" --checkpoint "checkpoints-$1" \
        --checkpoint-every 4 --audit "$1.audit"
}
rm -rf checkpoints-* ./*.audit
train kyoto &
train lyon
wait $!

# Each site checks that only the tensors of the plan have left it.
for site in lyon kyoto; do
    skycc verify pipeline/plan.json --costs pipeline/costs.json --audit $site.audit
done
