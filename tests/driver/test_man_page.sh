#!/bin/bash
# The manual page is one that man shows without warnings and describes every command; the documents name no options that
# do not exist. (That page, --help and parsing agree follows from their one table.)
#
#   tests/driver/test_man_page.sh SKYCC STAGE_PROGRAM SOURCE_DIRECTORY BUILD_DIRECTORY
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
skycc=$1
program=$2
source=$3
page=$4/man/skycc.1

options() { grep -oE -e '(^|[^a-zA-Z0-9/-])--[a-z][a-z-]*' | grep -oE -e '--[a-z-]*' | sort -u; }

listed=
commands=$("$skycc" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ -n "$commands" ] || fail "skycc --help lists no commands"
for command in $commands; do
    grep -q "^\.SS skycc $command " "$page" || fail "the manual page lacks skycc $command"
    # One screen first, 24 lines of 80 columns, which names what it leaves out.
    screen=$("$skycc" "$command" --help)
    whole=$("$skycc" "$command" --help-all)
    lines=$(wc -l <<<"$screen")
    [ "$lines" -le 24 ] || fail "skycc $command --help prints $lines lines"
    wide=$(grep -hE '.{81}' <<<"$screen"$'\n'"$whole")
    [ -z "$wide" ] || fail "skycc $command --help prints lines of more than 80 columns: $wide"
    left=$(sed -n 's/.* lists \([0-9]*\) more options.$/\1/p' <<<"$screen")
    all=$(grep -c '^  \(-., \)\?--' <<<"$whole") short=$(grep -c '^  \(-., \)\?--' <<<"$screen")
    [ $((short + ${left:-0})) = "$all" ] ||
        fail "skycc $command has $all options, and --help says $short and ${left:-0}"
    [ "$short" -le 10 ] || fail "skycc $command --help lists $short options"
    [ "$(grep -c "^  skycc $command " <<<"$screen")" = 3 ] || fail "skycc $command --help does not give three examples"
    listed+=$'\n'$whole
done
known=$({
    echo "$listed"
    "$program" --help
    "$skycc" --help
    sed -n 's/^# *[.]\/demo/  /p' "$source/demo"
} | options)
for document in "$source"/README.md "$source"/docs/*.md "$page"; do
    while read -r option; do
        grep -qx -e "$option" <<<"$known" || fail "${document##*/} names $option, which does not exist"
    done < <(sed 's/\\-/-/g; s/\\f[A-Z]/ /g' "$document" | grep -v -E \
        'cmake|dpkg|apt-get|pkg-config|git|bench/|ctest|srun|\./test' | options)
done
# No marks of the tables' own remain in it, and a default is said once.
grep -nE '[a-z]\\fP_|_\\fP|\\f[BI]\*' "$page" && fail "marks that are no roff"
tr '\n' ' ' <"$page" | sed 's/ \.\(TP\|SS\|SH\) /\n/g' | grep -E '[Dd]efault.*Default: .fB' &&
    fail "a default is said twice"
if command -v man >/dev/null; then
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "man warns: $warnings"
else
    echo "SKIPPED: man, which is not installed, shows the page"
fi
if command -v mandoc >/dev/null; then
    warnings=$(mandoc -Tlint "$page" 2>&1)
    [ -z "$warnings" ] || fail "mandoc warns: $warnings"
else
    echo "SKIPPED: mandoc, which is not installed, checks the page"
fi
[ "$(grep -n '^skycc finetune ' "$page" | head -n 1 | cut -d: -f1)" -lt "$(grep -n '^\.SH DESCRIPTION' "$page" |
    cut -d: -f1)" ] || fail "the page does not start with the tutorial command"
finish "$(wc -w <<<"$commands") commands and $(wc -l <<<"$known") options"
