#!/bin/sh
# opencl_checked.sh TEST...: runs a test of kernels on oclgrind, which reports races and accesses outside of buffers.
library=$(ls /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so 2>/dev/null | head -1)
[ -n "$library" ] || {
    echo "skipped: there is no oclgrind (Debian: oclgrind)"
    exit 77
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
echo "$library" >"$folder/oclgrind.icd"
export OCL_ICD_VENDORS="$folder/" OCLGRIND_DATA_RACES=1 OCLGRIND_LOG="$folder/log"
"$@" || exit 1
[ ! -s "$folder/log" ] || {
    head -40 "$folder/log"
    exit 1
}
echo "no race and no access outside of a buffer"
