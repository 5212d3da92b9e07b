#include "codegen/link/launch_internal.h"

const char launch_site_expected[] = "    key) key=$argument ;;\n"
                                    "    site_timeout) site_timeout=$argument ;;\n"
                                    "    audit) audit=$argument ;;\n";

const char launch_site_options[] = "    --key) expected=key ;;\n"
                                   "    --key=*) key=${argument#*=} ;;\n"
                                   "    --site-timeout) expected=site_timeout ;;\n"
                                   "    --site-timeout=*) site_timeout=${argument#*=} ;;\n"
                                   "    --audit) expected=audit ;;\n"
                                   "    --audit=*) audit=${argument#*=} ;;\n";

/* The gateway says last where its ranks find it: once that is there, all is well. It ends with the script, however that
 * ends. The path of its socket must be short. */
const char launch_site_gateway[] =
    "\n"
    "# The ranks of this site reach those of others through its gateway, which knows the other sites by their keys.\n"
    "[ -r \"$key\" ] || {\n"
    "    echo \"train: the secret key of site @SITE@ is not in $key; --key FILE or SKYCC_SITE_KEY names it\" >&2\n"
    "    exit 1\n"
    "}\n"
    "case $key in /*) ;; *) key=$PWD/$key ;; esac\n"
    "meeting=$(mktemp -d \"${TMPDIR:-/tmp}/skycc-XXXXXXXX\") || exit 6\n"
    "trap 'rm -rf \"$meeting\"' EXIT\n"
    "if [ ${#meeting} -gt 80 ]; then\n"
    "    rmdir \"$meeting\"\n"
    "    meeting=$(mktemp -d /tmp/skycc-XXXXXXXX) || exit 6\n"
    "fi\n"
    "gateway=''\n"
    "begin_gateway() {\n"
    "    rm -f \"$meeting\"/*\n"
    "    $apart \"$directory\"/gateway --site \"$directory\"/site.json --key \"$key\" --local \"@GATEWAY_PLACE@\" \\\n"
    "        --place \"$meeting/place\" --site-timeout \"$site_timeout\" ${audit:+--audit \"$audit\"} </dev/null &\n"
    "    gateway=$!\n"
    "    while [ ! -e \"$meeting/place\" ]; do\n"
    "        kill -0 \"$gateway\" 2>/dev/null || end_gateway\n"
    "        [ -n \"$gateway\" ] || return 1\n"
    "        sleep 0.05\n"
    "    done\n"
    "    SKYCC_GATEWAY=$(cat \"$meeting/place\")\n"
    "    export SKYCC_GATEWAY\n"
    "}\n"
    "# It passes on what is still on its way. Sets gateway_code.\n"
    "end_gateway() {\n"
    "    kill \"$gateway\" 2>/dev/null\n"
    "    if [ $interrupts -gt 1 ]; then kill -KILL \"$gateway\" 2>/dev/null; fi\n"
    "    while :; do\n"
    "        wait \"$gateway\"\n"
    "        gateway_code=$?\n"
    "        kill -0 \"$gateway\" 2>/dev/null || break\n"
    "    done\n"
    "    gateway=''\n"
    "    # Ended by the signal before it took any.\n"
    "    if [ $gateway_code -eq 143 ]; then gateway_code=0; fi\n"
    "}\n";

const char launch_site_begin[] =
    "    begin_gateway || {\n"
    "        case $gateway_code in 1 | 2 | 5 | 70) exit $gateway_code ;; *) exit 6 ;; esac\n"
    "    }\n";

const char launch_site_end[] =
    "    end_gateway\n"
    "    if [ -n \"$audit\" ] && [ $code -eq 0 ] && [ $gateway_code -ne 0 ]; then\n"
    "        echo \"train: the run is done, but its audit is not whole: the gateway ended with $gateway_code\" >&2\n"
    "        exit 6\n"
    "    fi\n"
    "    if [ $code -eq 8 ] && [ -z \"$ended\" ] && [ $gateway_code -eq 0 ]; then\n"
    "        echo \"train: another site began anew; going on from the newest checkpoint that all sites have\" >&2\n"
    "        case \" $* \" in *' --resume '*) ;; *) set -- \"$@\" --resume ;; esac\n"
    "        continue\n"
    "    fi\n";
