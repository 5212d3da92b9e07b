#!/bin/bash
# What a command prints or writes and cannot is an error with a reason, whichever command it is: a full disk, here
# /dev/full, a closed standard output, and full files.
#
#   tests/driver/test_lost_output.sh SKYCC TEST_DATA [less]
#
# `less`: every third of the commands that print.
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
skycc=$(realpath "$1") data=$(realpath "$2")
model=$data/bert/bert-nano-seqcls-opset17-dyn.onnx inputs=$data/bert/seqcls.ref.safetensors \
    folder=$data/huggingface/bert
enter_scratch_folder

printf 'devices:\n  - {name: a, threads: 1, memory: 1GiB, gflops: 10}\n' >cluster.yaml
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad >vocab.txt
(printf 'sentence\tlabel\n' && for i in 0 1 2 0; do printf 'good bad\t%s\n' $i; done) >table.tsv
dims=(--dim batch=2 --dim seq=16)
text=(--vocab vocab.txt --task single table.tsv)
"$skycc" compile "$model" -d cluster.yaml "${dims[@]}" -o run -q || die "compile"
"$skycc" tokenize "${text[@]}" --max-length 16 -o data.safetensors -q || die "tokenize"
"$skycc" run "$model" --inputs "$inputs" --loss cross-entropy --train 1 -o trained.safetensors || die "run"
printf 'step,loss,seconds\n1,2.5,1\n2,2.4,1\n' >log.csv
"$skycc" key coordinator >coordinator.txt && "$skycc" key paris >paris.txt || die "key"
cat >federation.yaml <<END
sites: [{name: paris, cluster: cluster.yaml, key: "$(cat paris.pub)", rows_per_step: 4}]
coordinator: {address: "127.0.0.1:1", key: "$(cat coordinator.pub)"}
rounds: 1
local_steps: 1
aggregate: plain
default_link: {latency: 1ms, bandwidth: 1Gbit}
END

# What each command prints. The files that it writes all the same are of no interest here.
cat >commands <<'END'
--help
--version
check MODEL
check MODEL --json
plan MODEL -d cluster.yaml DIMS
plan MODEL -d cluster.yaml DIMS --report json
plan MODEL -d cluster.yaml DIMS -o -
plan MODEL --federation federation.yaml DIMS
plan --costs run/costs.json
verify run/plan.json --costs run/costs.json
explain run/plan.json
diff run/plan.json run/plan.json
compile MODEL -d cluster.yaml DIMS -o printed
compile MODEL -d cluster.yaml DIMS --emit=graph -o -
compile MODEL -d cluster.yaml DIMS --emit=plan -o -
run MODEL --inputs INPUTS -o -
plot log.csv
key KEY
probe -d cluster.yaml -o -
tokenize TEXT -o - -q
bert --layers 1 --hidden 8 --heads 1 -o -
export MODEL trained.safetensors -o -
import FOLDER -o - -q
head ENCODER --head seqcls:2 -o - -q
predict MODEL --text good --tokenizer vocab.txt
predict MODEL --data data.safetensors
evaluate MODEL trained.safetensors data.safetensors
evaluate MODEL trained.safetensors data.safetensors -o -
finetune FOLDER table.tsv --tokenizer vocab.txt --label label --dry-run
probe --devices
explain run/plan.json --report svg
plan --costs run/costs.json --report html
federate MODEL -c federation.yaml DIMS -o sites
deploy run --check
END
for command in finetune check compile plan run probe verify explain diff plot tokenize bert export import head \
    predict evaluate key federate coordinate deploy; do
    echo "$command --help"
done >>commands
number=0
while read -r line; do
    number=$((number + 1))
    [ $((number % 3)) = 0 ] || [ "${3-}" != less ] || continue
    words=()
    for word in $line; do
        case $word in
        MODEL) words+=("$model") ;;
        ENCODER) words+=("$data/bert/bert-nano-model-opset14-dyn.onnx") ;;
        INPUTS) words+=("$inputs") ;;
        FOLDER) words+=("$folder") ;;
        DIMS) words+=("${dims[@]}") ;;
        TEXT) words+=("${text[@]}") ;;
        KEY) words+=("key-$number") ;;
        *) words+=("$word") ;;
        esac
    done
    "$skycc" "${words[@]}" >good.out 2>good.err || { echo "not tried: skycc $line: $(head -1 good.err)"; continue; }
    [ -s good.out ] || fail "skycc $line prints nothing"
    [ "$line" = "key KEY" ] && words[1]=other-$number
    "$skycc" "${words[@]}" >/dev/full 2>message && fail "skycc $line >/dev/full is a success"
    grep -q 'standard output: error: cannot write.*: No space left' message ||
        fail "skycc $line >/dev/full says: $(cat message)"
    [ "$(grep -c 'standard output: error' message)" = 1 ] ||
        fail "skycc $line >/dev/full repeats itself: $(cat message)"
    [ "$line" = "key KEY" ] && words[1]=third-$number
    "$skycc" "${words[@]}" 2>message >&- && fail "skycc $line is a success without standard output"
    grep -q 'standard output: error: cannot write' message || fail "skycc $line >&- says: $(cat message)"
done <commands
grep -q . <<<"$number" && [ $number -gt 50 ] || fail "only $number commands"

# A closed standard output is no place for what is printed: no file that is opened next may take it for one.
"$skycc" export "$model" trained.safetensors -o with.onnx &&
    "$skycc" export "$model" trained.safetensors -o without.onnx >&-
cmp with.onnx without.onnx || fail "a closed standard output changes what is exported"

# Files that cannot be written.
full() { expect 1 '/dev/full: error: cannot write: No space left' -- "$skycc" "$@"; }
full plan "$model" -d cluster.yaml "${dims[@]}" -o /dev/full
full compile "$model" -d cluster.yaml "${dims[@]}" --emit=costs -o /dev/full
full compile "$model" -d cluster.yaml "${dims[@]}" -o unfinished --report /dev/full -q
full compile "$model" -d cluster.yaml "${dims[@]}" -o unfinished --depfile /dev/full -q
full run "$model" --inputs "$inputs" -o /dev/full
full plot log.csv -o /dev/full
full probe -d cluster.yaml -o /dev/full
full tokenize "${text[@]}" -o /dev/full -q
full bert --layers 1 --hidden 8 --heads 1 -o /dev/full
full export "$model" trained.safetensors -o /dev/full
full import "$folder" -o /dev/full -q
full head "$data/bert/bert-nano-model-opset14-dyn.onnx" --head seqcls:2 -o /dev/full -q
full predict "$model" --text good --tokenizer vocab.txt -o /dev/full
full evaluate "$model" trained.safetensors data.safetensors -o /dev/full

finish "$number commands say what they could not write"
