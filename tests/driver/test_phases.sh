#!/bin/bash
# skycc compile goes through its phases in order; --emit stops after any of them and prints what it made.
#   test_phases.sh SKYCC DATA_DIRECTORY
set -u
. "$(dirname "$0")/../common/test.sh"
skycc=$(realpath "$1")
model=$(realpath "$2")/bert/bert-nano-seqcls-opset17-dyn.onnx
enter_scratch_folder

cat >cluster.yaml <<'EOF'
devices:
  - {name: a, memory: 1GiB, gflops: 10}
  - {name: b, memory: 1GiB, gflops: 10}
default_link: {latency: 10us, bandwidth: 10Gbit}
EOF
compile=("$skycc" compile "$model" -d cluster.yaml --dim batch=2 --dim seq=8 --allocate even)

# The one that is asked for is the last that runs, and what it prints begins as it should.
emits() { # PHASE LAST-LINE-OF-TIMES BEGINNING
    "${compile[@]}" "--emit=$1" -v -o "$1.txt" 2>times.txt >output.txt || fail "--emit=$1: $(cat times.txt)"
    [ -s output.txt ] && fail "--emit=$1 prints on standard output: $(cat output.txt)"
    grep ' [0-9.]* s$' times.txt | tail -1 | grep -q "^$2 " ||
        fail "--emit=$1 does not stop after '$2': $(cat times.txt)"
    head -1 "$1.txt" | grep -q "$3" || fail "--emit=$1 begins with $(head -1 "$1.txt")"
}
emits graph "import" '^layer'
emits train "import and differentiation" '^layer'
emits costs "costs" '"format":"skycc.costs/1"'
emits plan "plan" '"format":"skycc.plan/1"'
grep -q "Update\|Adam" graph.txt && fail "--emit=graph prints updates"
grep -q "Adam" train.txt || fail "--emit=train prints no updates"
emits graph:after:loss "import" '^input'

# Forms of code: a file a device, reports, and nothing to start.
for form in llvm:ll asm:s obj:o; do
    "${compile[@]}" "--emit=${form%:*}" -o code -q || fail "--emit=$form"
    for file in "stage-00.${form#*:}" "stage-01.${form#*:}" plan.json costs.json report.html; do
        [ -s "code/$file" ] || fail "--emit=${form%:*} leaves no $file"
    done
    [ -e code/train ] && fail "--emit=${form%:*} leaves something to start"
done

# The last --emit counts.
"${compile[@]}" --emit=llvm --emit=costs -o last.json -q && cmp -s last.json costs.txt ||
    fail "--emit=llvm --emit=costs"

"${compile[@]}" -v -o job 2>times.txt >report.txt || fail "compile -v"
phases=$(grep ' s$\| s (.*)$' times.txt | sed 's/  .*//' | tr '\n' ';')
[ "$phases" = "import and differentiation;costs;plan;stages and memory;code;launch files and reports;" ] ||
    fail "phases are $phases"
grep -q "linking 2:" times.txt || fail "no time of linking: $(cat times.txt)"
[ -x job/train ] && [ -s report.txt ] || fail "no program, or no report"
finish "skycc compile goes through its phases, and stops where --emit says"
