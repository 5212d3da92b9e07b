#!/bin/bash
# test_plan_threads.sh SKYCC DATA: plans and their proofs are the same bytes whatever the number of threads.
set -e
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../../common/test.sh"
skycc=$1
chain=$(realpath "$2/chain-uniform-40x12-s2.json") wan=$(realpath "$2/wan10-uniform-40x12-256MiB-s6.json")
enter_scratch_folder
check() { # what to plan
    for threads in 1 5; do
        OMP_NUM_THREADS=$threads "$skycc" plan "$@" -o "$threads.json" >"$threads.txt"
    done
    cmp 1.json 5.json
}
check --costs "$chain" --objective period
check --costs "$chain" --objective step
check --costs "$wan" --objective period
# of all twelve devices the search takes 20 times as long
check --costs "$wan" --objective step --without d7 --without d8 --without d9 --without d10 --without d11
