#!/bin/bash
# The layout of every C file by clang-format and the mistakes that clang-tidy finds (.clang-format, .clang-tidy). Both are of
# one version, 14, because versions disagree about layout and checks.
#
#   cmake/check-style.sh BUILD_DIRECTORY       a build folder with compile_commands.json, built
set -u
build=$(realpath "$1")
cd "$(dirname "$0")/.." || exit 1

found=$(find . -name '*.[ch]' -not -path './build*' -print0 | xargs -0 clang-format-14 --dry-run -Werror 2>&1) || {
    echo "$found"
    echo "clang-format-14 -i FILE repairs this"
    exit 1
}
# What is compiled into the build folder is generated. --quiet still counts suppressed warnings on standard error.
grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | grep -v "^$build/" | sort -u |
    xargs -P "$(nproc)" -n 8 clang-tidy-14 --quiet -p "$build" 2>/dev/null
