#!/bin/bash
# What the documents quote of the demo belongs together: the picture is that of the plan, and the output that of the
# same run.
#
#   tests/docs/test_demo.sh SKYCC SOURCE_DIRECTORY
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
skycc=$1 docs=$2/docs
enter_scratch_folder
"$skycc" explain "$docs/demo-plan.json" --report svg >demo.svg || die "explain --report svg"
cmp -s demo.svg "$docs/demo.svg" ||
    fail "docs/demo.svg is not the picture of docs/demo-plan.json: tests/docs/record_demo.py"
# Allocations are compared in every report; their numbers are those of the run.
"$skycc" explain "$docs/demo-plan.json" >explained.txt || die "explain"
rows=$(grep -E '^[ *] (even|sky|heuristic|optimal) ' explained.txt)
[ "$(wc -l <<<"$rows")" = 4 ] || fail "explain compares other allocations: $rows"
while read -r row; do
    grep -qF -e "$row" "$docs/demo.txt" || fail "not in docs/demo.txt: $row"
done <<<"$rows"
finish "docs/demo.svg, docs/demo-plan.json and docs/demo.txt are of one run"
