#!/bin/bash
# Bad inputs: each gives the right exit code, a message that names the place and the reason, a hint where there is one,
# and leaves no files.
#
#   tests/driver/test_bad_input.sh SKYCC TEST_DATA
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
skycc=$1
model=$2/bert/bert-nano-seqcls-opset17-dyn.onnx
inputs=$2/bert/seqcls.ref.safetensors
enter_scratch_folder

cat >cluster.yaml <<'END'
devices:
  - {name: a, threads: 1, memory: 1GiB, gflops: 10, bandwidth: 10GB/s}
  - {name: b, threads: 1, memory: 1GiB, gflops: 10, bandwidth: 10GB/s}
END
sed 's/1GiB/20KiB/' cluster.yaml >small.yaml
sed '3s/threads/treads/' cluster.yaml >unknown.yaml
sed '3s/name: b/name: a/' cluster.yaml >twice.yaml
echo "This is not a model." >text.onnx
: >empty.onnx
head -c 70000 "$model" >truncated.onnx
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad >vocab.txt
for i in 0 1 2 0 1 2 0 1; do printf 'good bad good\t%s\n' "$i"; done >right.tsv
for i in 0 1 2 3 4 3 4 0; do printf 'good bad good\t%s\n' "$i"; done >classes.tsv
(printf 'sentence\tlabel\n' && cat right.tsv) >data.tsv
(printf 'sentence\tlabel\n' && cat classes.tsv) >more-classes.tsv
tokenize() { "$skycc" tokenize --vocab vocab.txt --task single -q "$@" || fail "tokenize $*"; }
tokenize data.tsv --max-length 16 -o data.safetensors
tokenize data.tsv --max-length 24 -o longer.safetensors
tokenize more-classes.tsv --max-length 16 -o labels.safetensors
dimensions=(--dim batch=2 --dim seq=16)

# Models
for command in check compile plan run; do
    case $command in
    check) rest=() ;;
    run) rest=(--inputs "$inputs" -o out) ;;
    *) rest=(-d cluster.yaml -o out) ;;
    esac
    expect 1 'missing.onnx: error: .*No such file' -- "$skycc" $command missing.onnx "${rest[@]}"
    expect 1 'text.onnx: error: .*not an ONNX model' 'hint:' -- "$skycc" $command text.onnx "${rest[@]}"
    expect 1 'empty.onnx: error:' -- "$skycc" $command empty.onnx "${rest[@]}"
    expect 1 'truncated.onnx: error: .*byte' 'hint:' -- "$skycc" $command truncated.onnx "${rest[@]}"
done

# Absent weights: a plan needs none, programs do.
"$skycc" bert --layers 1 --hidden 8 --heads 1 --weights none -o absent.onnx || fail "bert"
"$skycc" plan absent.onnx -d cluster.yaml "${dimensions[@]}" >/dev/null || fail "plan without weights"
expect 1 'absent.onnx: error: .*does not exist' 'hint: .*check --no-weights and compile --init work without it' -- \
    "$skycc" compile absent.onnx -d cluster.yaml -o out "${dimensions[@]}"
# What the hint says can be done.
"$skycc" check --no-weights absent.onnx >/dev/null || fail "check --no-weights"
"$skycc" compile absent.onnx -d cluster.yaml -o drawn "${dimensions[@]}" --init normal:0.02 -q || fail "compile --init"
rm -r drawn
expect 2 'no-weights' -- "$skycc" compile absent.onnx -d cluster.yaml -o out --no-weights

# Weights of a run that diverged: a gain is infinite, and one is no number
"$skycc" bert --layers 1 --hidden 8 --heads 1 -o whole.onnx || fail "bert"
LC_ALL=C sed 's:\x00\x00\x80\x3f\x00\x00\x80\x3f:\x00\x00\x80\x7f\x00\x00\xc0\x7f:' whole.onnx >diverged.onnx
expect 1 "diverged.onnx: error: parameter '.*LayerNorm.weight': holds [1-9][0-9]* of 8 values that are infinite" \
    'hint: take weights' -- "$skycc" compile diverged.onnx -d cluster.yaml -o out "${dimensions[@]}"

# Names that checkpoints need for the optimiser's states; of the same length, as the file's format wants it
LC_ALL=C sed 's:m.bert.pooler.dense.bias:adam.m/m.classifier.bias:g' "$model" >names.onnx
expect 1 "names.onnx: error: initializer 'adam.m/m.classifier.bias': .*state of 'm.classifier.bias'" 'hint: rename' -- \
    "$skycc" compile names.onnx -d cluster.yaml -o out "${dimensions[@]}"
"$skycc" compile names.onnx -d cluster.yaml --emit=plan -o - "${dimensions[@]}" --optimizer sgd -q >plan.json ||
    fail 'without states no name clashes'

# Clusters
expect 1 'missing.yaml: error:' -- "$skycc" compile "$model" -d missing.yaml -o out
expect 1 "unknown.yaml:3:[0-9]*: error: .*unknown key 'treads'" 'hint: .*threads' -- \
    "$skycc" compile "$model" -d unknown.yaml -o out
expect 1 "twice.yaml:3:[0-9]*: error: .*'a'" -- "$skycc" compile "$model" -d twice.yaml -o out
expect 4 'no allocation' 'hint: .*MiB on' -- "$skycc" compile "$model" -d small.yaml -o out "${dimensions[@]}"
expect 4 'no allocation' 'hint: .*MiB on' -- "$skycc" plan "$model" -d small.yaml "${dimensions[@]}"

# Census: the ONNX node, its operator and opset, and what to try
expect 1 "node '.*' (Add, opset 17): shapes .* do not broadcast" 'hint: the open dimensions are batch=2, seq=4000' -- \
    "$skycc" check "$model" --dim batch=2 --dim seq=4000
expect 2 "error: --dim batch= takes an integer" -- "$skycc" check --json "$model" --dim batch=0
expect 2 'error: no loss is given' \
    'hint: give --loss .* last_hidden_state f32.*: cross-entropy:last_hidden_state.* pooler_output' -- \
    "$skycc" run "$2/bert/bert-nano-model-opset14-dyn.onnx" --inputs "$inputs" -o out --grad

# Inputs of run
expect 1 "labels.safetensors: error: label 3 of row 3 of 'labels' is not in 0 ... 2" -- \
    "$skycc" run "$model" --inputs labels.safetensors -o out --grad
expect 1 "labels.safetensors: error: label 3 of row 3 of 'labels' is not in 0 ... 2" -- \
    "$skycc" run "$model" --inputs labels.safetensors -o out --loss cross-entropy+cross-entropy
expect 1 "input 'labels'.*has shape .*, but the model takes \[.*,3\]" -- \
    "$skycc" run "$model" --inputs "$inputs" -o out --loss mse
for row in "bert=0:'bert' is not a parameter" 'bert:malformed row' '@=300:does not have this row' \
    '@=0x:malformed row'; do
    expect 2 "error: .*${row##*:}" 'hint:' -- "$skycc" run "$model" --inputs "$inputs" -o out \
        --no-gradient-row "$(echo "${row%:*}" | sed s/@/m.bert.embeddings.word_embeddings.weight/)"
done
expect 2 "=16: .* as many rows without a gradient as a table may have" 'hint:' -- \
    "$skycc" run "$model" --inputs "$inputs" -o out \
    $(seq -f '--no-gradient-row m.bert.embeddings.word_embeddings.weight=%g' 0 16)
expect 2 "'m.classifier.weight' is not a table" 'hint:' -- \
    "$skycc" run "$model" --inputs "$inputs" -o out --no-gradient-row m.classifier.weight=0
expect 1 'text.onnx: error:' -- "$skycc" run "$model" --inputs text.onnx -o out
expect 1 'nowhere/out: error:' -- "$skycc" run "$model" --inputs "$inputs" -o nowhere/out

# Command lines
expect 2 'usage:' -- "$skycc"
expect 2 "unknown command 'tran'" 'hint:' -- "$skycc" tran
expect 2 'no output' 'hint:' -- "$skycc" compile "$model" -d cluster.yaml
for command in bert check compile export plan probe run tokenize verify; do
    expect 2 "skycc: error: unrecognized option '--no-such-option'" "hint: skycc $command --help" -- \
        "$skycc" $command --no-such-option
done
for command in compile plan probe; do
    expect 2 "unexpected argument 'other.onnx'" -- "$skycc" $command "$model" other.onnx -d cluster.yaml -o out
done
expect 2 "no device is named 'c'" -- "$skycc" compile "$model" -d cluster.yaml -o out "${dimensions[@]}" --without c
expect 2 "no layers match 'tail'" -- "$skycc" compile "$model" -d cluster.yaml -o out "${dimensions[@]}" --pin tail=a
expect 1 'more than the allowed 1e-09 s' -- \
    "$skycc" compile "$model" -d cluster.yaml -o out "${dimensions[@]}" --fail-above 1e-9
for number in 2x 0 -1 1e9 ''; do
    expect 2 "error: --microbatches .*not '$number'" -- \
        "$skycc" compile "$model" -d cluster.yaml -o out --microbatches "$number"
done
expect 2 'hidden size 30' -- "$skycc" bert --layers 1 --hidden 30 --heads 4 -o out

# A directory that is not skycc's own is not replaced.
mkdir mine && echo "dear diary" >mine/diary
expect 1 'mine: error: .*skycc did not write' 'hint:' -- \
    "$skycc" compile "$model" -d cluster.yaml -o mine "${dimensions[@]}"
echo '{}' >mine/plan.json # which makes it no output of skycc's
expect 1 'mine: error: .*skycc did not write' -- "$skycc" compile "$model" -d cluster.yaml -o mine "${dimensions[@]}"

# Of a former output only what skycc wrote is replaced; the report and the list of what was read are skycc's.
build() {
    "$skycc" compile "$model" -d cluster.yaml -o built "${dimensions[@]}" -q --report built/more.txt \
        --depfile built/d "$@"
}
build && build || fail "compiling again into the same directory"
mkdir -p built/checkpoints && echo "dear diary" >built/notes
expect 1 'built: error: .*skycc did not write' 'hint: .*--force' -- build
build --force || fail "--force"
[ "$(cat built/notes)" = "dear diary" ] && [ -d built/checkpoints ] || fail "--force removed what is not skycc's"
[ -s built/plan.json ] && [ -s built/more.txt ] && [ -s built/d ] || fail "--force wrote no output"

# A linker of blanks is none: the usual one serves.
(echo 'targets: [{name: blank, triple: x86_64-pc-linux-gnu, linker: " "}]' &&
    sed 's/threads: 1/threads: 1, target: blank/' cluster.yaml) >blank.yaml
"$skycc" compile "$model" -d blank.yaml -o blank "${dimensions[@]}" -q || fail "a blank linker"

# An interrupt leaves no files. The linker of this cluster file says that it runs, and then waits forever.
mkfifo linking never
exec 3<>linking 4<>never
printf '#!/bin/sh\necho $PPID >linking\nexec cat never\n' >slow-linker && chmod +x slow-linker
(echo 'targets: [{name: slow, triple: x86_64-pc-linux-gnu, linker: ./slow-linker}]' &&
    sed 's/threads: 1/threads: 1, target: slow/' cluster.yaml) >slow.yaml
for signal in INT TERM; do
    env --default-signal=INT "$skycc" compile "$model" -d slow.yaml -o interrupted "${dimensions[@]}" -q 4>&- &
    compiler=$!
    until [ "${linked_for-}" = $compiler ]; do # a program each is linked at once, and the former compiler's last
        read -r -t 100 -u 3 linked_for || { fail "the linker was not reached" && break; }
    done
    kill -$signal $compiler
    wait $compiler
    [ $? -gt 128 ] || fail "SIG$signal did not end the compiler"
    [ -z "$(find . -name 'interrupted*')" ] || fail "SIG$signal leaves $(find . -name 'interrupted*')"
done

# Plans whose instructions are not what they should be
costs=$2/planner/chain-identical-40x12-s2.json
"$skycc" plan --costs "$costs" --objective period -o right.json --report json >report.json || fail "plan"
"$skycc" verify -q right.json --costs "$costs" || fail "verify"
damaged() { # SED-SCRIPT PATTERN
    sed "$1" right.json >damaged.json
    cmp -s right.json damaged.json && fail "$1 changes nothing"
    expect 1 "damaged.json: error: $2" -- "$skycc" verify damaged.json --costs "$costs"
}
damaged 's/\["forward",0,0,0\]/["fordward",0,0,0]/' 'schedule\[0\]\[0\]: must be \[op'
damaged 's/\["forward",0,1,1\]/["forward",0,1,1.5]/' 'schedule\[0\]\[.\]: must be \[op'
damaged 's/\["forward",0,1,1\]/["forward",0,1]/' 'schedule\[0\]\[.\]: must be \[op'
damaged 's/\["update",1,-1,-1\]\]/["update",1,-1,-1],[]]/' 'schedule\[1\]'
damaged 's/"schedule":\[/"schedule":[[],/' 'schedule\[1\]'
damaged 's/"schedule":\[/"schedule":{},"x":[/' 'schedule: must be an array'
damaged 's/\["forward",0,1,1\],/["forward",0,1,1]/' 'schedule\[0\]\[.\]: must be \[op'
sed 's/"certificate":/"certificate"/' right.json >damaged.json
expect 1 'damaged.json:[0-9]*:[0-9]*: error: not valid JSON' -- "$skycc" verify damaged.json --costs "$costs"

# Half an installation: what is there works, what is missing is named.
mkdir half && cp "$skycc" half/skycc
[ ! -e "${skycc%/bin/skycc}/lib/skycc/code_generator.so" ] ||
    { mkdir -p lib/skycc && cp "${skycc%/bin/skycc}/lib/skycc/code_generator.so" lib/skycc/; }
expect 5 'libskyrt.a is not found' 'hint:' -- \
    half/skycc compile "$model" -d cluster.yaml -o half-programs "${dimensions[@]}"
expect 2 'unknown option\|unrecognized option' 'hint: skycc compile --help' -- "$skycc" compile --no-such-option

# Data sets of another model
"$skycc" compile "$model" -d cluster.yaml -o programs "${dimensions[@]}" --microbatches 2 -q || fail "compile"
train=(programs/train --steps 1 --log log.csv --checkpoint checkpoints --quiet)
expect 1 'missing.safetensors: error:' -- "${train[@]}" --data missing.safetensors
expect 1 "labels.safetensors: error: tensor 'labels': row 3 holds 3, which is not in 0 ... 2" 'hint:' -- \
    "${train[@]}" --data labels.safetensors
expect 1 "longer.safetensors: error: .*24 .* 16" 'hint:' -- "${train[@]}" --data longer.safetensors
expect 1 'vocab.txt: error:' -- "${train[@]}" --data vocab.txt
"${train[@]}" --data data.safetensors || fail "training on the right data"
[ -s log.csv ] || fail "no log"

# Weights that are not those the programs were compiled from: of another export, and cut short
cp "$model" changing.onnx
"$skycc" compile changing.onnx -d cluster.yaml -o others "${dimensions[@]}" --microbatches 2 -q || fail "compile"
cp "$2/bert/bert-nano-seqcls-opset11-dyn.onnx" changing.onnx
expect 1 'changing.onnx: error:' 'not the one that the program was compiled from' 'hint:' -- \
    others/train --steps 1 --quiet --data data.safetensors
head -c 1000 "$model" >changing.onnx
expect 1 'changing.onnx: error:' 'shorter than when' 'hint:' -- others/train --steps 1 --quiet --data data.safetensors

finish "every bad input was refused as it should be"
