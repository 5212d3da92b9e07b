#!/bin/sh
# Trains one model in a federation of three sites: each keeps its rows, and the coordinator sees only sums of their
# updates. Here all of them run on one host, in folders of their own.
#
#     examples/federation/run.sh DIRECTORY [PORT]
#
# skycc must be on PATH. PORT must be free on this host; the default follows from the process id.
set -eu
examples=$(cd "$(dirname "$0")/.." && pwd)
port=${2:-$((20000 + $$ % 10000))}
sites="paris oslo lima"
mkdir -p "$1"
cd "$1"

# A small model stands for your own, and each site's rows are 5 of 16 sentences.
skycc bert --layers 2 --hidden 32 --heads 2 --vocab 28 --positions 16 --classes 2 -o model.onnx
first=2
for site in $sites; do
    { head -1 "$examples/pipeline/sentences.tsv"; tail -n +$first "$examples/pipeline/sentences.tsv" | head -5; } \
        >$site.tsv
    skycc tokenize $site.tsv --vocab "$examples/pipeline/vocabulary.txt" --task single \
        --max-length 16 -o $site.safetensors
    first=$((first + 5))
done

# Each site, and the coordinator, makes its own key pair and gives away only NAME.pub.
for name in coordinator $sites; do
    [ -e $name.key ] || skycc key $name >/dev/null
done

echo 'devices: [{name: here, threads: 1}]' >cluster.yaml
{
    echo "sites:"
    for site in $sites; do
        echo "  - {name: $site, cluster: cluster.yaml, key: \"$(cat $site.pub)\", rows_per_step: 4}"
    done
    cat <<FEDERATION
coordinator: {address: "127.0.0.1:$port", key: "$(cat coordinator.pub)"}
rounds: 3
local_steps: 4
outer: {optimizer: average}
FEDERATION
} >federation.yaml
skycc federate model.onnx -c federation.yaml -o federation --dim batch=4 --dim seq=16 --quiet

# With real sites, federation/paris would be copied to paris and started there, and so on.
rm -rf checkpoints-* rounds.csv
skycc coordinate federation/coordinator --key coordinator.key --log rounds.csv &
coordinator=$!
for site in $sites; do
    federation/$site/train --join --data $site.safetensors --key $site.key --checkpoint checkpoints-$site >$site.log &
done
wait $coordinator
wait
skycc export model.onnx federation/coordinator/model.safetensors -o trained.onnx
