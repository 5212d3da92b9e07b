#!/bin/bash
# completions/skycc.bash offers what the command knows, and nothing it would refuse.
#
#   tests/test_completion.sh SKYCC SOURCE_DIRECTORY
set -u
skycc=$1
# shellcheck source=/dev/null
source "$2/completions/skycc.bash"
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# complete_words WORD...: what completing the last word offers.
complete_words() {
    COMP_WORDS=("$skycc" "$@")
    COMP_CWORD=$#
    _skycc
    echo "${COMPREPLY[*]}"
}

expect() {
    local wanted=$1 found
    shift
    found=$(complete_words "$@")
    [ "$found" = "$wanted" ] || fail "skycc $*: offers '$found' instead of '$wanted'"
}

expect "check compile" c
expect "--microbatches" compile --mi
expect "heuristic" compile --allocate h
expect "period" plan --objective p
expect "json" plan --report j
expect "--head --heads --help --hidden" bert --h
expect "constant cosine" train --schedule-lr c
expect "llvm" compile --emit = l

# Words that are offered as values are accepted: no complaint about them, whatever else is missing.
for option in --allocate --objective --schedule --emit --optimizer --dropout; do
    for value in $(_skycc_values $option); do
        message=$("$skycc" compile missing.onnx -d missing.yaml -o missing "$option" "$value" 2>&1)
        case $message in missing.*": error: cannot open"*) ;; *) fail "compile $option $value: $message" ;; esac
    done
done
[ $failures = 0 ] && echo "completion offers what the command takes"
exit $((failures > 0))
