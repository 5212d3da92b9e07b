#!/bin/bash
# The completions of shells offer what is meant, and no words that commands refuse. (That they know all options follows
# from the table that they are made from.)
#
#   tests/driver/test_completion.sh SKYCC BUILD_DIRECTORY
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
skycc=$1
completions=$2/completions
# shellcheck source=/dev/null
source "$completions/skycc.bash"

# complete_words WORD...: what completing the last word offers.
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _skycc
    echo "${COMPREPLY[*]}"
}

offers() { # WORDS WORD...
    local wanted=$1 found
    shift
    found=$(complete_words "$@")
    [ "$found" = "$wanted" ] || fail "bash: $*: offers '$found' instead of '$wanted'"
}

offers "check compile coordinate" skycc c
offers "--microbatches" "$skycc" compile --mi
offers "heuristic" skycc compile --allocate h
offers "period" skycc plan --objective p
offers "json" skycc plan --report j
offers "--hidden --heads --head --help-all --help" skycc bert --h
offers "llvm" skycc compile --emit = l
offers "constant cosine" programs/train --schedule-lr c
offers "--trace" train --tr
cd "$completions" && offers "skycc.zsh" skycc compile --report skycc.z

# Words that are offered as values are accepted: no complaint about them, whatever else is missing.
for option in $(_skycc_options compile); do
    for value in $(_skycc_values "compile $option"); do
        message=$("$skycc" compile missing.onnx -d missing.yaml -o missing "$option" "$value" 2>&1)
        case $message in missing.*": error: cannot open"*) ;; *) fail "compile $option $value: $message" ;; esac
    done
done

if command -v zsh >/dev/null; then
    zsh -n "$completions/skycc.zsh" || fail "zsh: syntax"
else
    echo "SKIPPED: zsh, which is not installed, reads its completion"
fi
if command -v fish >/dev/null; then
    fish_offers() { # WORDS LINE
        local found
        found=$(fish -c "source $completions/skycc.fish; complete -C '$2'" | cut -f 1 | tr '\n' ' ')
        [ "$found" = "$1 " ] || fail "fish: $2: offers '$found' instead of '$1 '"
    }
    fish_offers "check compile coordinate" "skycc c"
    fish_offers "heuristic" "skycc compile --allocate h"
    fish_offers "--microbatches" "skycc plan --mi"
    fish_offers "constant cosine" "train --schedule-lr c"
else
    echo "SKIPPED: fish, which is not installed, reads its completion"
fi
finish "completion offers what the commands take"
