#!/bin/bash
# Includes follow the flow: a folder uses only itself and what stands before it.
#
#   base -> graph -> frontend -> runtime -> codegen -> profiler -> partitioner -> models -> driver
#
# Not even all of that: runtime, which is linked into every stage program, uses base alone, and codegen sees of it only the
# contract for programs and what runs work in parallel.
#
#   tests/test_includes.sh SOURCE_DIRECTORY
set -u
cd "$1" || exit 1
declare -A allowed=(
    [base]="base"
    [runtime]="base runtime"
    [graph]="base graph"
    [frontend]="base graph frontend onnx"
    [codegen]="base graph codegen runtime/program.h runtime/parallel.h"
    [profiler]="base graph codegen runtime profiler"
    [partitioner]="base profiler partitioner"
    [models]="base models onnx"
    [driver]="base graph frontend codegen profiler partitioner runtime models driver"
)
failures=0 checked=0
for folder in "${!allowed[@]}"; do
    while IFS=: read -r file line text; do
        header=${text#*\"}
        header=${header%%\"*}
        checked=$((checked + 1))
        fits=no
        case $header in */*) ;; *) fits=yes ;; esac # generated, in the folder's own build directory
        for what in ${allowed[$folder]}; do
            if [ "$what" = "${header%%/*}" ] || [ "$what" = "$header" ]; then fits=yes; fi
        done
        if [ $fits = no ]; then
            echo "$file:$line: $folder must not include $header"
            failures=$((failures + 1))
        fi
    done < <(grep -rn --include='*.[ch]' '^ *# *include *"' "$folder")
done
echo "$checked includes checked, $failures against the flow"
[ $failures = 0 ] && [ $checked -gt 100 ]
