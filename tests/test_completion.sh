#!/bin/bash
# completions/skycc.bash offers what the command knows, and nothing it would refuse.
#
#   tests/test_completion.sh SKYCC STAGE_PROGRAM SOURCE_DIRECTORY
set -u
skycc=$1
program=$2
# shellcheck source=/dev/null
source "$3/completions/skycc.bash"
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

# Every option that is offered is taken, and all that are taken are offered (test_man_page.sh compares them with --help).
for command in $("$skycc" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    offered=$(complete_words "$command" --)
    [[ $offered == *--help* ]] || fail "skycc $command: offers no options"
    for option in $offered; do
        message=$("$skycc" "$command" "$option" 2>&1 </dev/null)
        case $message in *"unrecognized option"*) fail "skycc $command $option: $message" ;; esac
    done
done

# Values that are offered stand in the help of the command that takes them.
for option in --allocate --objective --schedule --recompute --precision --emit --optimizer --dropout --loss --init \
    --head --weights --task --schedule-lr --no-decay; do
    case $option in
    --head | --weights) help=$("$skycc" bert --help) ;;
    --task) help=$("$skycc" tokenize --help) ;;
    --schedule-lr | --no-decay) help=$("$program" --help) ;;
    *) help=$("$skycc" compile --help) ;;
    esac
    text=$(grep -A2 -e "$option " -e "$option=" <<<"$help")
    [ -n "$text" ] || fail "no help about $option"
    for value in $(_skycc_values "$option" | tr ',' ' '); do
        grep -qw -e "${value%%:*}" <<<"$text" || fail "$option $value is offered, but not in the help"
    done
done

# Words that are offered as values are accepted: no complaint about them, whatever else is missing.
for option in --allocate --objective --schedule --recompute --precision --emit --optimizer --dropout --init; do
    for value in $(_skycc_values $option); do
        message=$("$skycc" compile missing.onnx -d missing.yaml -o missing "$option" "$value" 2>&1)
        case $message in missing.*": error: cannot open"*) ;; *) fail "compile $option $value: $message" ;; esac
    done
done
[ $failures = 0 ] && echo "completion offers what the command takes"
exit $((failures > 0))
