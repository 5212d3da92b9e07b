#!/bin/sh
# One model over two sites, which here are two directories of one host: each has its key, its programs and its part of the
# weights, starts by itself, and meets the other through its gateway.
#
#     examples/sites/run.sh build/bin/skycc MODEL.onnx DATA.safetensors PORT DIRECTORY
#
# PORT is free on this host; DIRECTORY is made, and holds everything.
set -eu
skycc=$(realpath "$1") model=$(realpath "$2") data=$(realpath "$3") port=$4
mkdir -p "$5"
cd "$5"

# Each site makes its own pair, and gives away NAME.pub alone.
for site in lyon kyoto; do
    [ -e $site.key ] || "$skycc" key $site >/dev/null
done

# kyoto has no address: it only connects outward. Raw inputs and labels stay in lyon.
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

# --pin puts the last layers in kyoto, which the planner would not do for a model as small as this one.
"$skycc" compile "$model" -d cluster.yaml -o pipeline --dim batch=2 --dim seq=6 --microbatches 2 \
    --pin classifier=kyoto-host.0 --quiet

# Elsewhere, pipeline/lyon and pipeline/kyoto would be copied to their sites, and started there.
train() {
    pipeline/"$1"/train --data "$data" --steps 12 --key "$1.key" --checkpoint "checkpoints-$1" --checkpoint-every 4
}
train kyoto &
train lyon
wait $!
