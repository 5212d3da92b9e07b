#!/bin/bash
# man/skycc.1, the commands' --help and what the commands take are the same commands and options; the documents name no
# others.
#
#   tests/test_man_page.sh SKYCC STAGE_PROGRAM SOURCE_DIRECTORY
set -u
skycc=$1
program=$2
source=$3
page=$source/man/skycc.1
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

options() { grep -oE -e '(^|[^a-zA-Z0-9/-])--[a-z][a-z-]*' | grep -oE -e '--[a-z-]*' | sort -u; }

# The page's section about one command, without roff's escapes.
section() { sed -n "/^\.SS ${1//\//\\/} /,/^\.S[SH] /p" "$page" | sed '1!{/^\.S[SH] /d}; s/\\-/-/g; s/\\f[A-Z]//g'; }

# compare NAME HELP: an option of the help may be anywhere in the section; one that the section explains (the line behind
# .TP) must be in the help.
compare() {
    local name=$1 help text option
    help=$(grep '^  ' <<<"$2") # without the prose
    text=$(section "$name")
    [ -n "$text" ] || fail "$name has no section in the manual page"
    while read -r option; do
        grep -q -e "$option\([^a-z-]\|$\)" <<<"$text" || fail "$name: the manual page lacks $option"
    done < <(options <<<"$help")
    while read -r option; do
        grep -q -e "$option\([^a-z-]\|$\)" <<<"$help" || fail "$name: the manual page explains $option, which does not exist"
    done < <(grep -A1 '^\.TP' <<<"$text" | options)
}

# macro NAME: rows of options that several commands have.
macro() { sed -n "/^#define $1/,/[^\\\\]\$/p" "$source/driver/plan_model.h" | tail -n +2; }

# taken COMMAND: the long options in the command's own table.
taken() {
    local table=$source/driver/$1.c
    {
        cat "$table"
        if grep -q -e PLAN_LONG_OPTIONS "$table"; then macro PLAN_LONG_OPTIONS; fi
        if grep -q -e PLAN_LONG_OPTIONS -e MODEL_LONG_OPTIONS "$table"; then macro MODEL_LONG_OPTIONS; fi
    } | tr -d '\\\n' | grep -oE '[{] *"[a-z-]+", *(no|required|optional)_argument' | sed 's/.*"\([a-z-]*\)".*/--\1/' | sort -u
}

commands=$("$skycc" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ -n "$commands" ] || fail "skycc --help lists no commands"
for command in $commands; do
    help=$("$skycc" "$command" --help)
    compare "skycc $command" "$help"
    difference=$(diff <(grep '^  ' <<<"$help" | options) <(taken "$command")) || fail "skycc $command: --help (<) and what it takes (>): $difference"
done
compare DIR/train "$("$program" --help)"
while read -r command; do
    grep -qx "$command" <<<"$commands" || fail "the manual page describes skycc $command, which does not exist"
done < <(sed -n 's/^\.SS skycc \([a-z]*\) .*/\1/p' "$page")
known=$({ for command in $commands; do "$skycc" "$command" --help; done; "$program" --help; "$skycc" --help; } | options)
for document in "$source"/README.md "$source"/docs/*.md; do
    while read -r option; do
        grep -qx -e "$option" <<<"$known" || fail "${document##*/} names $option, which does not exist"
    done < <(grep -v -E 'cmake|dpkg|apt-get|git|ctest' "$document" | options)
done
if command -v man >/dev/null; then
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "man warns: $warnings"
fi
echo "$(wc -w <<<"$commands") commands compared, $failures differences"
[ $failures = 0 ]
