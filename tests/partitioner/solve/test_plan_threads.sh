#!/bin/bash
# test_plan_threads.sh SKYCC COSTS...: plans and their proofs are the same bytes whatever the number of threads.
set -e
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../../common/test.sh"
skycc=$1
shift
costs=()
for file; do costs+=("$(realpath "$file")"); done
enter_scratch_folder
for file in "${costs[@]}"; do
    for objective in period step; do
        for threads in 1 5; do
            OMP_NUM_THREADS=$threads "$skycc" plan --costs "$file" --objective $objective \
                -o "$threads.json" >"$threads.txt"
        done
        cmp 1.json 5.json
    done
done
