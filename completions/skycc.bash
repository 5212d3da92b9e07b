# bash completion for skycc and the `train` scripts it makes. Commands and options are asked of the programs themselves.
#
#   source completions/skycc.bash        or copy it to /usr/share/bash-completion/completions/skycc

_skycc_options() { "$@" --help 2>/dev/null | grep '^  ' | grep -oE -e '(^|[ ,])--[a-z][a-z-]*' | tr -d ' ,' | sort -u; }

# The values of options that take one of a few words.
_skycc_values() {
    case $1 in
    --allocate) echo even sky heuristic optimal ;;
    --objective) echo step period ;;
    --schedule) echo gpipe 1f1b zb auto ;;
    --recompute) echo auto never always ;;
    --schedule-lr) echo constant linear cosine ;;
    --optimizer) echo sgd momentum adam adamw lamb ;;
    --loss) echo cross-entropy output: ;;
    --dropout) echo off ;;
    --precision) echo f32 bf16 ;;
    --emit) echo graph train costs plan llvm asm obj ;;
    --init) echo none normal:0.02 ;;
    --head) echo seqcls mlm ;;
    --weights) echo seed none ;;
    --task) echo mnli mrpc sst2 pair single mlm ;;
    --no-decay) echo bias norm bias,norm ;;
    *) return 1 ;;
    esac
}

_skycc() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} values
    local -a help=("$program")
    COMPREPLY=()
    if [ "${program##*/}" = skycc ]; then
        if [ "$COMP_CWORD" = 1 ]; then
            values=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')
            mapfile -t COMPREPLY < <(compgen -W "$values --help --version" -- "$word")
            return
        fi
        help+=("${COMP_WORDS[1]}")
    fi
    if [ "$word" = = ]; then word=''; fi
    if [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
    if [ "$before" = --report ] && [ "${COMP_WORDS[1]}" = plan ]; then
        values="text json html"
    else
        values=$(_skycc_values "$before")
    fi
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_skycc_options "${help[@]}")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
    fi
}

complete -F _skycc skycc train
