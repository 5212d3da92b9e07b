#!/bin/sh
# Trains on the devices that this directory was compiled for: train --data FILE [options]; --help lists them.
directory=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P) || exit 6

# The options that concern the launcher; the programs check all of them.
retries=0 checkpoint='' insecure='' expected=''
#@ if site
key=${SKYCC_SITE_KEY:-@SITE@.key} site_timeout=0 audit=''
#@ end
for argument; do
    case $expected in
    retries) retries=$argument ;;
    checkpoint) checkpoint=$argument ;;
#@ if site
    key) key=$argument ;;
    site_timeout) site_timeout=$argument ;;
    audit) audit=$argument ;;
#@ end
    esac
    expected=''
    case $argument in
    --retries) expected=retries ;;
    --retries=*) retries=${argument#*=} ;;
    --checkpoint) expected=checkpoint ;;
    --checkpoint=*) checkpoint=${argument#*=} ;;
    --insecure) insecure=1 ;;
#@ if site
    --key) expected=key ;;
    --key=*) key=${argument#*=} ;;
    --site-timeout) expected=site_timeout ;;
    --site-timeout=*) site_timeout=${argument#*=} ;;
    --audit) expected=audit ;;
    --audit=*) audit=${argument#*=} ;;
#@ end
    --help) exec @FIRST@ --help ;;
    --join)
        [ -x "$directory/member" ] && exec "$directory"/member "$@"
        echo "train: --join: there is no federation to join; skycc federate makes one" >&2
        exit 2 ;;
    esac
done
case $retries in *[!0-9]* | '') retries=0 ;; esac

# On one host the first program starts the others, and nothing listens on any port. Other hosts need mpiexec, which
# listens on all addresses of this one; the first program sees to it that only hosts of the run can connect there.
# MPIEXEC names another launcher, to be used in any case and as it is.
mpiexec=${MPIEXEC:-} hosts='' bind='' peers='' far=''
#@ if elsewhere
for host in @HOSTS@; do
    case $host in localhost | "$(hostname)" | "$(hostname -f 2>/dev/null)") ;; *) hosts='@HOST_LIST@' ;; esac
done
if [ -n "$hosts" ]; then mpiexec=${mpiexec:-mpiexec.mpich}; fi
#@ end
[ -z "$mpiexec" ] || command -v "$mpiexec" >/dev/null || {
    echo "train: $mpiexec is not installed (Debian: mpich); MPIEXEC may name another" >&2
    exit 6
}
if [ -t 1 ]; then SKYCC_TERMINAL=1; else SKYCC_TERMINAL=0; fi
export SKYCC_TERMINAL
#@ if elsewhere

# mpiexec and the programs encrypt nothing, and who reaches their ports can read and disturb the run: that is for
# networks whose users trust each other, not for addresses of the open internet. Private addresses: RFC 1918, 3927,
# 6598, 5737 and 2544, and the host itself. mpiexec and UCX use IPv4.
is_public() {
    case $1 in
    10.* | 127.* | 169.254.* | 192.168.* | 172.1[6-9].* | 172.2[0-9].* | 172.3[01].*) return 1 ;;
    100.6[4-9].* | 100.[789][0-9].* | 100.1[01][0-9].* | 100.12[0-7].*) return 1 ;;
    192.0.2.* | 198.51.100.* | 203.0.113.* | 198.1[89].*) return 1 ;;
    *.*.*.*) return 0 ;;
    esac
    return 1
}
addresses_of() { # a host, by the name that ssh has for it
    name=$(ssh -G "$1" 2>/dev/null | sed -n 's/^hostname //p')
    getent ahostsv4 "${name:-$1}" 2>/dev/null | sed 's/ .*//' | sort -u
}
if [ -z "$insecure" ] && [ -n "$hosts" ]; then
    for host in @HOSTS@; do
        for address in $(addresses_of "$host"); do
            if is_public "$address"; then
                echo "train: host $host has the public address $address, where all that ranks send can be read" \
                    "and the run be disturbed; put it in a site of its own, or give --insecure" >&2
                exit 1
            fi
        done
    done
fi
#@ include network
#@ if interface
# The other hosts are told to call back at the address that this one has there.
own_address=$(ip -o -4 address show @INTERFACE_IS@ @INTERFACE@ 2>/dev/null | sed -n '1s/.* inet \([0-9.]*\).*/\1/p')
if [ -n "$own_address" ] && [ -n "$hosts" ]; then bind="-localhost $own_address"; fi
#@ end
# Who may connect to mpiexec: the hosts of the cluster file, by their addresses as this host knows them. The guard
# adds the subnet where one of them is not in it.
if [ -n "$hosts" ] && [ -z "${MPIEXEC:-}" ]; then
    peers="127.0.0.0/8 ${SKYCC_PEERS:-}"
    for host in @HOSTS@; do peers="$peers $(addresses_of "$host")"; done
fi
#@ if apart
# Where the other hosts reach the gateway, which runs next to this script.
for host in @HOSTS@; do
    [ -z "${own_address:-}" ] || break
    for address in $(addresses_of "$host"); do
        own_address=$(ip -o route get "$address" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
        case $own_address in 127.*) own_address='' ;; *) break ;; esac
    done
done
[ -n "${own_address:-}" ] || {
    echo "train: no address of this host is known that the other hosts of the site could reach; interface: in the" \
        "cluster file names it" >&2
    exit 6
}
#@ end
# Ranks go there themselves: of hosts without this folder mpiexec would say nothing.
export SKYCC_FOLDER="$PWD"
#@ include environment
#@ end

#@ if elsewhere
# mpiexec does not notice that a host does not answer, or has not what it starts there, and would wait for it: each is
# asked before, all at once.
quote() { printf "'%s'" "$(printf '%s\n' "$1" | sed "s/'/'\\\\''/g")"; }
# What a shell there runs, for programs and the words before them: it prints what the host lacks. A program that is
# there and finds its libraries refuses a --launch of nothing with 2.
question() {
    for proxy in hydra_pmi_proxy hydra_bstrap_proxy; do
        proxy=$(dirname "$(command -v "$mpiexec")")/$proxy
        [ ! -x "$proxy" ] || echo "[ -x $(quote "$proxy") ] || echo" \
            "$(quote "has no $proxy, which mpiexec starts there; install MPICH as on this host (Debian: mpich)")"
    done
    while [ $# -gt 1 ]; do
        cat <<END
if [ ! -x $(quote "$2") ]; then echo $(quote "has no program $2; skycc deploy copies it")
else said=\$($1 $(quote "$2") --launch 2>&1 </dev/null)
[ \$? = 2 ] || echo "cannot run "$(quote "$2")": \$said" | head -n 1; fi
END
        shift 2
    done
}
ask() { # a host; the words before a program of its, and the program: of each
    host=$1
    shift
    case $host in localhost | "$(hostname)" | "$(hostname -f 2>/dev/null)") return ;; esac
    question "$@" >"$answers/question.$host"
    (
        ulimit -f 2048 # blocks of 512 bytes: it may say what it likes
        timeout -k 1 15 "${HYDRA_LAUNCHER_EXEC:-ssh}" -o BatchMode=yes -o ConnectTimeout=10 "$host" sh \
            <"$answers/question.$host" >"$answers/lacks.$host" 2>"$answers/silent.$host" 5<&- 6>&- 7>&-
    ) && rm -f "$answers/silent.$host" &
    asked="$asked $!" far="$far $host"
}
# What another host says, without what controls a terminal.
plainly() { tr -d '\000\015' | LC_ALL=C tr -c '\012\040-\176' '?'; }
ask_hosts() {
    case ${MPIEXEC:-}${HYDRA_LAUNCHER:-ssh}${SLURM_JOB_ID:-} in ssh) ;; *) return 0 ;; esac
    [ -n "$hosts" ] && answers=$(mktemp -d) || return 0
    asked='' far='' refused=0
@QUESTIONS@    for one in $asked; do wait "$one"; done
    for answer in "$answers"/lacks.*; do
        host=${answer##*/lacks.} silence=$answers/silent.${answer##*/lacks.}
        if [ -e "$silence" ]; then
            refused=6
            echo "train: host $host does not answer: $(plainly <"$silence" | tail -n 1 | cut -c 1-300 | grep . ||
                if [ -s "$answer" ]; then echo "its shell says something else"; else
                    echo "nothing came by ssh for 15 s"; fi)" >&2
        elif [ -s "$answer" ]; then
            refused=6
            plainly <"$answer" | head -c 4096 | sed "s/^/train: host $host /" >&2
        fi
    done
    rm -rf "$answers"
    return $refused
}
# A connection to a host that falls silent lasts for a quarter of an hour. Another one asks it every four seconds, so
# that the run ends within 30 s. A host that refuses to connect is not silent.
become_ssh() {
    exec $apart env LC_ALL=C "${HYDRA_LAUNCHER_EXEC:-ssh}" -o BatchMode=yes -o ConnectTimeout=10 -o ControlPath=none \
        -o ServerAliveInterval=4 -o ServerAliveCountMax=3 "$@" </dev/null 7>&-
}
watch_host() { # a host; the process that runs mpiexec
    asking=''
    trap 'kill $asking 2>/dev/null; exit' TERM
    while kill -0 "$2" 2>/dev/null; do
        become_ssh -N "$1" >/dev/null 2>&1 &
        asking=$!
        while sleep 1 7>&- & wait $! && kill -0 $asking 2>/dev/null && kill -0 "$2" 2>/dev/null; do :; done
        said=$(become_ssh "$1" true 2>&1)
        case $?,$said in 0,* | *refused* | *reset* | *closed* | *denied* | *resolve*) continue ;; esac
        echo "train: host $1 does not answer any more: $(echo "$said" | plainly | tail -n 1 | cut -c 1-300)" >&7
        launcher=$2
        if [ -n "$peers" ]; then launcher=$(pgrep -P "$2"); fi
        left=$(pgrep -P "$launcher") # connections to hosts, and what runs on this one
        kill -KILL "$launcher"
        kill $left
        return
    done
    kill $asking
} 2>/dev/null 5<&- 6>&- 8<&- 9<&-
#@ end

# On one host ranks get cores of their own where there are enough and no other run has them (the lock lasts until the
# last process of a run ends); SKYCC_BIND=core binds in any case, SKYCC_BIND=none never does. Otherwise threads that
# wait sleep.
binds() {
    case ${SKYCC_BIND:-} in core) return 0 ;; none) return 1 ;; esac
    lock=${XDG_RUNTIME_DIR:-/tmp}/skycc-bind-$(id -u)
    mkdir -m 700 "$lock" 2>/dev/null
    # Nobody else can make a directory that belongs to this user, or replace it.
    [ -d "$lock" ] && [ ! -L "$lock" ] && [ -O "$lock" ] && command -v flock >/dev/null || return 0
    exec 9<"$lock"
    flock -n 9
}
if [ -z "$hosts" ]; then
    # MPICH's own shared memory is slower for large messages than UCX's.
    export MPIR_CVAR_NOLOCAL="${MPIR_CVAR_NOLOCAL:-1}" UCX_TLS="${UCX_TLS:-sm,self}"
    threads=@THREADS@
    if [ $((@RANKS@ * threads)) -le "$(nproc)" ]; then
        if binds; then
            bind="-bind-to core:$threads"
            export OMP_PROC_BIND="${OMP_PROC_BIND:-close}"
        fi
    else
        export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
    fi
fi

# mpiexec has a session of its own, so that Ctrl-C reaches it once, from here, and learns if this is killed.
apart=''
command -v setsid >/dev/null && apart=setsid
setpriv --pdeathsig TERM true 2>/dev/null && apart="setpriv --pdeathsig TERM $apart"
start() {
    if [ -n "$peers" ]; then exec @FIRST@ --guard "$peers" "${SKYCC_SUBNET:-}" "$mpiexec" "$@"; fi
    if [ -n "$mpiexec" ]; then exec $apart "$mpiexec" "$@"; fi
    exec @FIRST@ --launch "$@"
}
launch() {
#@ if elsewhere
    forget_environment
#@ end
#@ if apart
    export SKYCC_SITE_KEY="$key"
#@ end
    start $bind ${hosts:+-hosts "$hosts"}@PROGRAMS@
}

# mpiexec ends all when it cannot print, so what it prints goes through here: training goes on when nobody reads it any
# more, or a disk is full. Programs that print themselves do without the rest.
trap '' PIPE
keep() {
    trap '' INT TERM HUP
    cat 2>/dev/null && return
    echo "train: $1 cannot be written; training goes on without it" >&2
    cat >/dev/null
}
close_output() {
    exec 6>&- 7>&-
    timeout 5 cat <&5 >/dev/null # until all is printed
}
(: 9>&1) 2>/dev/null || exec >/dev/null
(: 9>&2) || exec 2>/dev/null
exec 5</dev/null 6>&1 7>&2
if [ -n "$mpiexec" ] && pipes=$(mktemp -d 2>/dev/null); then
    if mkfifo "$pipes/output" "$pipes/errors" "$pipes/done" 2>/dev/null; then
        exec 5<>"$pipes/done" 6>&- 7>&-
        (keep 'standard output' <"$pipes/output" 9<&- &)
        exec 6>"$pipes/output"
        (keep 'standard error' <"$pipes/errors" >&2 6>&- 9<&- &)
        exec 7>"$pipes/errors" 5<"$pipes/done" # which ends when both have ended
    fi
    rm -rf "$pipes"
fi
trap close_output EXIT
#@ if site

# The ranks of this site reach those of others through its gateway, which knows the other sites by their keys.
[ -r "$key" ] || {
    echo "train: the secret key of site @SITE@ is not in $key; --key FILE or SKYCC_SITE_KEY names it" >&2
    exit 1
}
case $key in /*) ;; *) key=$PWD/$key ;; esac
meeting=$(mktemp -d "${TMPDIR:-/tmp}/skycc-XXXXXXXX") || exit 6
trap 'close_output; rm -rf "$meeting"' EXIT
if [ ${#meeting} -gt 80 ]; then # the path of a socket must be short
    rmdir "$meeting"
    meeting=$(mktemp -d /tmp/skycc-XXXXXXXX) || exit 6
fi
gateway=''
# The gateway says last where its ranks find it: once that is there, all is well. It ends with this script.
begin_gateway() {
    rm -f "$meeting"/*
    $apart "$directory"/gateway --site "$directory"/site.json --key "$key" --local "@GATEWAY_PLACE@" \
        --place "$meeting/place" --why "$meeting/why" --site-timeout "$site_timeout" ${audit:+--audit "$audit"} \
        </dev/null 5<&- 6>&- 7>&- &
    gateway=$!
    while [ ! -e "$meeting/place" ]; do
        kill -0 "$gateway" 2>/dev/null || end_gateway
        [ -n "$gateway" ] || return 1
        sleep 0.05
    done
    SKYCC_GATEWAY=$(cat "$meeting/place")
    SKYCC_WHY=$meeting/why # where a program that was killed leaves a line for the other sites
    export SKYCC_GATEWAY SKYCC_WHY
}
# It passes on what is still on its way. Sets gateway_code.
end_gateway() {
    kill "$gateway" 2>/dev/null
    if [ $interrupts -gt 1 ]; then kill -KILL "$gateway" 2>/dev/null; fi
    while :; do
        wait "$gateway"
        gateway_code=$?
        kill -0 "$gateway" 2>/dev/null || break
    done
    gateway=''
    # Ended by the signal before it took any.
    if [ $gateway_code -eq 143 ]; then gateway_code=0; fi
}
#@ end

# USR1 saves a checkpoint; TERM and the first INT save one and end; the second INT ends at once.
running='' insisting='' ended='' interrupts=0
pass() { if [ -n "$running" ]; then kill -"$1" "$running" 2>/dev/null; fi; }
# mpiexec loses what it is sent before the programs run, or passes nothing on ever after: TERM, which may come twice, is
# sent until they end, and to those on this host directly.
insist() {
    pass TERM
    if [ -z "$mpiexec" ] || [ -n "$insisting" ] || [ -z "$running" ]; then return; fi
    while sleep 2 && kill -TERM "$running"; do
        launcher=$running
        if [ -n "$peers" ]; then launcher=$(pgrep -P "$running"); fi
        for proxy in $(pgrep -P "$launcher"); do pkill -TERM -P "$proxy"; done
    done >/dev/null 2>&1 5<&- 6>&- 7>&- 8<&- 9<&- &
    insisting=$!
}
# What is sent to a process that has just been forked, its traps not yet forgotten or INT still ignored, is lost: the
# first program says by URG when it takes signals, and is told again.
repeat() { case $ended in 143) pass TERM ;; 130) pass INT ;; esac }
trap 'pass USR1' USR1
trap 'ended=143; insist' TERM HUP
trap 'ended=130; interrupts=$((interrupts + 1)); pass INT' INT
trap repeat URG

# mpiexec passes on the end of its input, and fails if the programs have ended by then: here it never ends.
exec 8</dev/null
if [ -n "$mpiexec" ] && silence=$(mktemp -d 2>/dev/null); then
    mkfifo "$silence/input" && exec 8<>"$silence/input"
    rm -rf "$silence"
fi

attempt=0
while :; do
#@ if elsewhere
    ask_hosts || exit 6
#@ end
#@ if site
    begin_gateway || {
        case $gateway_code in 1 | 2 | 5 | 70) exit $gateway_code ;; *) exit 6 ;; esac
    }
#@ end
    if [ -n "$ended" ]; then exit "$ended"; fi
    launch "$@" <&8 >&6 2>&7 5<&- 6>&- 7>&- 8<&- &
    running=$!
#@ if elsewhere
    watching=''
    for host in $far; do
        watch_host "$host" "$running" &
        watching="$watching $!"
    done
#@ end
    if [ -n "$ended" ]; then insist; fi
    # wait is interrupted by signals that a trap takes: what runs has ended when it is no process any more.
    while :; do
        wait "$running"
        code=$?
        kill -0 "$running" 2>/dev/null || break
    done
    running=''
    if [ -n "$insisting" ]; then kill "$insisting" 2>/dev/null; fi
#@ if elsewhere
    [ -z "$watching" ] || kill $watching 2>/dev/null
#@ end
#@ if site
    case $code in 0 | 8 | 130 | 143) ;; *)
        [ -s "$SKYCC_WHY" ] || echo "its stage programs ended with exit code $code" >"$SKYCC_WHY" ;;
    esac
    end_gateway
    if [ -n "$audit" ] && [ $code -eq 0 ] && [ $gateway_code -ne 0 ]; then
        echo "train: the run is done, but its audit is not whole: the gateway ended with $gateway_code" >&7
    fi
    if [ $code -eq 8 ] && [ -z "$ended" ] && [ $gateway_code -eq 0 ]; then
        echo "train: another site began anew; going on from the newest checkpoint that all sites have" >&7
        case " $* " in *' --resume '*) ;; *) set -- "$@" --resume ;; esac
        continue
    fi
#@ end
    if [ $interrupts -gt 1 ]; then exit 130; fi
    # Programs that cannot take a signal yet end by it, and mpiexec returns its number; having passed one on it may also
    # forget what they ended with.
    case $ended,$code in 143,15 | 130,2) exit $ended ;; esac
    case $code in 0) exit ${ended:-0} ;; 1 | 2 | 7 | 70 | 130 | 143) exit $code ;; esac
    if [ -n "$ended" ]; then exit 6; fi
    attempt=$((attempt + 1))
    if [ $attempt -gt "$retries" ]; then
        echo "train: the run failed" >&7
        exit 6
    fi
    echo "train: the run failed; starting it again ($attempt of $retries)" >&7
    if [ -n "$checkpoint" ]; then set -- "$@" --resume; fi
done
