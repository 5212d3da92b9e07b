# shellcheck shell=bash
# What the tests in shell share; they source it.
failures=0

# fail WORD...: notes a failure; the test goes on. die WORD...: it does not.
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

die() {
    fail "$@"
    exit 1
}

# Goes to an empty folder, $scratch, that is removed when the test ends.
enter_scratch_folder() {
    scratch=$(mktemp -d -t skycc-test-XXXXXX)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch" || exit 1
}

# mpiexec passes on the end of its input, and fails if the programs have ended by then: tests that run it have an input
# that is empty and does not end.
input=/dev/null
never_ending_input() {
    mkfifo input-that-never-ends
    exec 0<>input-that-never-ends
    rm input-that-never-ends
    input=/dev/fd/0
}

# takes SKYCC COMMAND OPTION. In a pipe, grep -q would end before what it reads from, which then may fail.
takes() {
    grep -qE -e "^  (-., )?$3( |$)" <<<"$("$1" "$2" --help-all)"
}

# hints_fit MESSAGE COMMAND WORD...: every option that a hint names is one that the command takes, or that of a command
# which the hint names. Of other programs than skycc nothing is known here.
hints_fit() {
    local hints option word message=$1
    [ "$(basename "$2")" = skycc ] || return 0
    hints=$(sed -n 's/^    hint: //p' <<<"$message")
    for option in $(grep -oE -e '(^|[^A-Za-z0-9-])--[a-z][a-z0-9-]*' <<<"$hints" | grep -oE -e '--[a-z].*' | sort -u); \
        do
        [ "$option" = --help ] && continue
        takes "$2" "$3" "$option" && continue
        for word in $(grep -E -e "$option" <<<"$hints" | grep -oE '[a-z]+' | sort -u); do
            grep -qE "^  $word " <<<"$("$2" --help)" && takes "$2" "$word" "$option" && continue 2
        done
        fail "a hint of $(basename "$2") $3 names $option, which it does not take: $hints"
    done
}

# expect CODE PATTERN... -- COMMAND: its exit code; every pattern in what it prints on standard error; no new file.
expect() {
    local code=$1 patterns=() before after found=0 message
    shift
    while [ "$1" != -- ]; do
        patterns+=("$1")
        shift
    done
    shift
    before=$(find . ! -name . | sort)
    message=$("$@" 2>&1 >/dev/null <$input) || found=$?
    after=$(find . ! -name . | sort)
    [ $found = "$code" ] || fail "exit code $found instead of $code: $*: $message"
    [ "$before" = "$after" ] || fail "files left by $*: $(diff <(echo "$before") <(echo "$after"))"
    for pattern in "${patterns[@]}"; do
        grep -q -e "$pattern" <<<"$message" || fail "'$pattern' is not in the message of $*: $message"
    done
    hints_fit "$message" "$@"
}

# finish WORD...: says what holds, unless something failed; the last line of a test.
finish() {
    [ $failures = 0 ] && echo "$*"
    exit $((failures > 0))
}
