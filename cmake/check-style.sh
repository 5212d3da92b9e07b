#!/bin/bash
# Checks the style of the source: no line is over 120 columns, clang-format accepts the layout of every C file
# (.clang-format), and clang-tidy finds no mistakes (.clang-tidy). Both tools are of version 14, because versions
# disagree.
#
#   cmake/check-style.sh BUILD_DIRECTORY       a build folder with compile_commands.json, built
set -u
build=$(realpath "$1")
cd "$(dirname "$0")/.." || exit 1

# Source files, without build folders; scripts have no suffix and begin with #!.
files() { # patterns of names
    find . \( -path './build*' -o -path './.git' -o -path ./demo-run \) -prune -o -type f \( "$@" \) -print0
}
scripts() { files -size -200k ! -name '*.*' | xargs -0 grep -lZ -m1 '^#!'; }

wide=$({ files -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt && scripts; } |
    LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{121,}' | sed 's,^[.]/,,')
if [ -n "$wide" ]; then
    cut -c1-160 <<<"$wide"
    echo "$(wc -l <<<"$wide") lines are over 120 columns"
    exit 1
fi

found=$(files -name '*.[ch]' | xargs -0 clang-format-14 --dry-run -Werror 2>&1) || {
    echo "$found"
    echo "clang-format-14 -i FILE repairs this"
    exit 1
}
# What is compiled into the build folder is generated. --quiet still counts suppressed warnings on standard error.
grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | grep -v "^$build/" | sort -u |
    xargs -P "$(nproc)" -n 40 clang-tidy-14 --quiet -p "$build" 2>/dev/null
