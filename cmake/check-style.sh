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

# Files with lines that are still to be wrapped. A file goes from this list when it is; none is added.
still_wide="
driver/commands/coordinate_command.c
driver/commands/plot_command.c
driver/commands/plot_log.h
driver/commands/probe_sites_command.c
driver/compile/packed_check.c
driver/compile/packed_check.h
driver/compile/packed_model.h
driver/compile/plan_model.c
driver/compile/training_model.h
driver/export/peft_adapter.h
driver/export/trained_values.h
driver/federate/federation_plans.h
driver/federate/federation_start.h
driver/federate/federation_steps.h
driver/main.c
driver/options/documentation.h
driver/options/option_table.c
driver/options/options.c
driver/predict/text_words.c
driver/predict/text_words.h
frontend/onnx/trained.c
frontend/text/normalizer.h
frontend/text/pretokenizer.c
frontend/text/text_dataset.c
frontend/text/token_pipeline.h
frontend/text/tokenizer.h
graph/analysis/table_values.c
partitioner/solve/recompute.c
runtime/program/step_scalars.h
tests/driver/CMakeLists.txt
tests/driver/test_bad_input.sh
tests/driver/test_deploy.py
tests/driver/test_hints.py
tests/driver/test_lora_runs.py
tests/driver/test_packing.py
tests/driver/test_plan_federation.py
tests/driver/test_predict.py
tests/driver/test_reserved_names.py
tests/faults/federation.py
tests/federation/member/test_federation_runs.py
tests/frontend/onnx/CMakeLists.txt
tests/frontend/onnx/test_large_models.py
tests/frontend/text/test_tokenizer_json.c
tests/network/site_cases.py
"
wide=$({ files -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt && scripts; } |
    LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{121,}' | sed 's,^[.]/,,' | grep -vF -f <(sed '/^$/d; s/$/:/' <<<"$still_wide"))
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
    xargs -P "$(nproc)" -n 8 clang-tidy-14 --quiet -p "$build" 2>/dev/null
