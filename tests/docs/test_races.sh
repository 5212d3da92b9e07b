#!/bin/bash
# ./test says whether a failed test passes alone, and fails in either case. ctest and cmake are stand-ins here.
#
#   tests/docs/test_races.sh SOURCE_DIRECTORY
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
enter_scratch_folder
mkdir cmake stand-ins
cp "$1/test" .
for name in cmake/install-packages.sh stand-ins/cmake stand-ins/ctest; do
    printf '#!/bin/bash\n' >$name
    chmod +x $name
done
# Every test whose name is in fails-first fails in the first run, every one in fails-again in the second run too.
cat >>stand-ins/ctest <<'END'
directory=$2/Testing/Temporary
case "$*" in
*--rerun-failed*) failing=fails-again ;;
*) failing=fails-first ;;
esac
mkdir -p "$directory"
cp $failing "$directory/LastTestsFailed.log"
[ ! -s $failing ]
END

expect_test() { # exit code, words of the output
    local found=0 output
    output=$(PATH=$scratch/stand-ins:$PATH ./test 2>&1) || found=$?
    [ $found = "$1" ] || fail "exit code $found instead of $1: $output"
    for word in "${@:2}"; do
        grep -qF -e "$word" <<<"$output" || fail "'$word' is not in: $output"
    done
}

: >fails-first
: >fails-again
expect_test 0
echo 7:racing >fails-first
expect_test 1 "FAILED with other tests running, passed alone: racing (build)"
printf '7:racing\n8:broken\n' >fails-first
echo 8:broken >fails-again
expect_test 1 "passed alone: racing (build-sanitize)" "FAILED twice: broken (build)"
finish "a test that passes only alone has failed"
