#include "codegen/link/launch_network.h"

#include <stdbool.h>
#include <string.h>

/* mpiexec sends its whole environment to the other hosts, in plain text and whatever its options say, so nothing may be
 * in it that they do not need. */
const char launch_network_environment[] =
    "\n"
    "# What the programs need of the environment; SKYCC_KEEP may name more. The rest, in which there may be secrets,\n"
    "# would be sent to the other hosts unencrypted.\n"
    "forget_environment() {\n"
    "    for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do\n"
    "        case $name in\n"
    "        SKYCC_SITE_KEY) unset \"$name\" ;;\n"
    "        PATH | HOME | USER | LOGNAME | LANG | LC_* | TZ | TMPDIR | XDG_RUNTIME_DIR | LD_LIBRARY_PATH) ;;\n"
    "        OMP_* | GOMP_* | MPIR_* | MPICH_* | MPIEXEC_* | HYDRA_* | UCX_* | SKYCC_*) ;;\n"
    "        SSH_AUTH_SOCK | PMI_* | PMIX_* | SLURM_* | SLURMD_*) ;;\n"
    "        *) case \" ${SKYCC_KEEP:-} \" in *\" $name \"*) ;; *) unset \"$name\" ;; esac ;;\n"
    "        esac\n"
    "    done\n"
    "}\n";

/* Private addresses: RFC 1918, 3927, 6598, 5737 and 2544, and the host itself. mpiexec and UCX use IPv4. */
const char launch_network_check[] =
    "\n"
    "# mpiexec and the programs encrypt nothing, and whoever reaches mpiexec's port can end the run: that is for "
    "networks\n"
    "# whose users trust each other, not for addresses that all the world may reach.\n"
    "is_public() {\n"
    "    case $1 in\n"
    "    10.* | 127.* | 169.254.* | 192.168.* | 172.1[6-9].* | 172.2[0-9].* | 172.3[01].*) return 1 ;;\n"
    "    100.6[4-9].* | 100.[789][0-9].* | 100.1[01][0-9].* | 100.12[0-7].*) return 1 ;;\n"
    "    192.0.2.* | 198.51.100.* | 203.0.113.* | 198.1[89].*) return 1 ;;\n"
    "    *.*.*.*) return 0 ;;\n"
    "    esac\n"
    "    return 1\n"
    "}\n"
    "addresses_of() { # a host, by the name that ssh has for it\n"
    "    name=$(ssh -G \"$1\" 2>/dev/null | sed -n 's/^hostname //p')\n"
    "    getent ahostsv4 \"${name:-$1}\" 2>/dev/null | sed 's/ .*//' | sort -u\n"
    "}\n"
    "if [ -z \"$insecure\" ]; then\n"
    "    for host in @HOSTS@; do\n"
    "        for address in $(addresses_of \"$host\"); do\n"
    "            if is_public \"$address\"; then\n"
    "                echo \"train: host $host has the public address $address, where all that ranks send can be read\" "
    "\\\n"
    "                    \"and the run be disturbed; put it in a site of its own, or give --insecure\" >&2\n"
    "                exit 1\n"
    "            fi\n"
    "        done\n"
    "    done\n"
    "fi\n";

/* Where the other hosts reach the gateway, which runs beside this script. */
const char launch_network_address[] =
    "for host in @HOSTS@; do\n"
    "    [ -z \"${own_address:-}\" ] || break\n"
    "    for address in $(addresses_of \"$host\"); do\n"
    "        own_address=$(ip -o route get \"$address\" 2>/dev/null | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p')\n"
    "        case $own_address in 127.*) own_address='' ;; *) break ;; esac\n"
    "    done\n"
    "done\n"
    "[ -n \"${own_address:-}\" ] || {\n"
    "    echo \"train: no address of this host is known that the other hosts of the site could reach; interface: in "
    "the\" \\\n"
    "        \"cluster file names it\" >&2\n"
    "    exit 6\n"
    "}\n";

static bool is_subnet(const char *interface) { return strchr(interface, '/') != NULL; }

/* Over TCP a message that is first announced (UCX's rendezvous) takes five to six times the latency. */
void print_network_settings(Buffer *text, const LaunchNetwork *network)
{
    buffer_print(text, "\n# Over TCP, messages go out at once: announcing them would take several round trips each.\n"
                       "export UCX_RNDV_THRESH=\"${UCX_RNDV_THRESH:-inf}\"\n");
    if (network->first_port)
        buffer_print(text,
                     "export MPIEXEC_PORT_RANGE=\"${MPIEXEC_PORT_RANGE:-%d:%d}\"\n"
                     "export UCX_TCP_PORT_RANGE=\"${UCX_TCP_PORT_RANGE:-%d-%d}\"\n",
                     network->first_port, network->last_port, network->first_port, network->last_port);
    if (!network->interface) return;
    if (is_subnet(network->interface))
        buffer_print(text, "export SKYCC_SUBNET=%s\n", network->interface);
    else
        buffer_print(text, "export UCX_NET_DEVICES=\"${UCX_NET_DEVICES:-%s}\"\n", network->interface);
}

/* The other hosts are told to call back at the address that this one has there. */
void print_own_address(Buffer *text, const LaunchNetwork *network)
{
    if (!network->interface) return;
    buffer_print(text,
                 "own_address=$(ip -o -4 address show %s %s 2>/dev/null | sed -n '1s/.* inet \\([0-9.]*\\).*/\\1/p')\n"
                 "if [ -n \"$own_address\" ]; then bind=\"-localhost $own_address\"; fi\n",
                 is_subnet(network->interface) ? "to" : "dev", network->interface);
}

void print_gateway_port(Buffer *text, const LaunchNetwork *network)
{
    buffer_print(text, "tcp://$own_address:");
    if (network->first_port)
        buffer_print(text, "%d-%d", network->first_port, network->last_port);
    else
        buffer_print(text, "*");
}

void print_network_options(Buffer *text, const LaunchNetwork *network)
{
    buffer_print(text, "-genv UCX_RNDV_THRESH inf ");
    if (network->first_port)
        buffer_print(text, "-genv UCX_TCP_PORT_RANGE %d-%d ", network->first_port, network->last_port);
    if (network->interface)
        buffer_print(text, "-genv %s %s ", is_subnet(network->interface) ? "SKYCC_SUBNET" : "UCX_NET_DEVICES",
                     network->interface);
}
