#!/bin/sh
# test_plan_threads.sh SKYCC COSTS...: plans and their proofs are the same bytes whatever the number of threads.
set -e
skycc=$1
shift
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for costs; do
    for objective in period step; do
        for threads in 1 2 5; do
            OMP_NUM_THREADS=$threads "$skycc" plan --costs "$costs" --objective $objective --time-limit 1000 \
                -o "$folder/$threads.json" >"$folder/$threads.txt"
        done
        cmp "$folder/1.json" "$folder/2.json"
        cmp "$folder/1.json" "$folder/5.json"
    done
done
