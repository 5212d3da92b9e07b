"""Hosts and networks on one machine. A host is a set of namespaces (network, mount, UTS, IPC, processes) with its own
name, /tmp, /run and /dev/shm; all see the machine's files otherwise. Hosts are joined by a switch (switch.c), which
delays, limits, loses and cuts what they send. Everything ends with the process that made it.

    with Network(switch, ["paris", "tokyo"], Link(latency=0.02, bandwidth=25e6)) as network:
        network["paris"].run("ping", "tokyo")
"""
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import typing

os.environ.pop("TMPDIR", None)  # no host sees it
NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")
SETUP = """
set -e
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd
mount --bind "$2" /etc/hosts
hostname "$1"
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
# What hosts mostly have; a machine may forbid it to namespaces.
(echo cubic >/proc/sys/net/ipv4/tcp_congestion_control) 2>/dev/null || true
ip link set lo up
"""
# The first process of a host, which adopts orphaned processes: the host lives as long as this process does.
FIRST = 'read process rest </proc/self/stat; ' + SETUP + 'echo "$process"; exec >&-; sleep infinity & wait'
# Neighbours need not be asked for (all have one address): as on the internet, what cannot be reached is silent.
DEVICE = """
link set eth0 address 02:00:00:00:00:01 arp off mtu %d txqueuelen 10000 up
address add %s/32 dev eth0
route add default dev eth0
"""


# Everybody who has the key may enter as root, by the network's own keys and settings alone; shells read no start-up
# files of this user.
SSHD = """
HostKey %(folder)s/ssh/key
AuthorizedKeysFile %(folder)s/ssh/key.pub
AcceptEnv none
ListenAddress 0.0.0.0
PasswordAuthentication no
PermitRootLogin yes
PidFile none
SetEnv HOME=%(folder)s/ssh
StrictModes no
Subsystem sftp internal-sftp
UsePAM no
"""
SSH = """
BatchMode yes
IdentitiesOnly yes
IdentityFile %(folder)s/ssh/key
UserKnownHostsFile %(folder)s/ssh/known
LogLevel ERROR
"""


class Link(typing.NamedTuple):
    """One direction between two hosts."""
    latency: float = 0.0  # seconds
    bandwidth: float = 1e11  # bytes a second, of whole Ethernet frames
    loss: float = 0.0  # the share of frames that is lost
    queue: float = None  # bytes; default: a round trip's worth, and 10 ms at least, as routers have

    def room(self):
        return self.queue or max(self.bandwidth * max(2 * self.latency, 0.01), 1 << 16)


def missing():
    """What keeps this machine from having such networks: a list of reasons."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("it needs root, for namespaces and devices")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        reasons.append("it needs /dev/net/tun (the kernel's module tun)")
    for program, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(program):
            reasons.append(f"it needs {program} (Debian: {package})")
    for folder in {os.getcwd(), os.path.dirname(os.path.abspath(__file__))}:
        if f"{folder}/".startswith(("/tmp/", "/run/", "/dev/shm/")):
            reasons.append(f"hosts do not see {folder}: they have /tmp, /run and /dev/shm of their own")
    if not reasons:
        device = "ip tuntap add dev eth0 mode tap\nip -batch - <<'END'" + DEVICE % (1500, "10.77.0.1") + "END\n"
        done = subprocess.run([
            "unshare", *NAMESPACES, "--fork", "--propagation", "private", "sh", "-c", SETUP + device, "sh", "trial",
            "/etc/hosts"
        ], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            reasons.append(f"it needs namespaces with mounts and devices of their own: {done.stderr.strip()}")
    return reasons


def end_with_parent():
    """Between fork and exec: the process is killed when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def write_file(path, text, mode=0o644):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


class Host:
    """Commands run on it as root, in the folder of whoever asks if the host has it."""

    def __init__(self, name, address, hosts_file):
        self.name, self.address, self._servers = name, address, []
        self._holder = subprocess.Popen([
            "unshare", *NAMESPACES, "--fork", "--kill-child", "--propagation", "private", "sh", "-c", FIRST, "sh", name,
            hosts_file
        ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
        line = self._holder.stdout.readline()
        if not line:
            raise RuntimeError(f"cannot make host {name}")
        self.process = int(line)

    def words(self, *command):
        """The command as one that anybody on this machine may run."""
        return [
            "nsenter", "--target",
            str(self.process), *NAMESPACES, f"--wdns={os.getcwd()}", "--", *map(str, command)
        ]

    def start(self, *command, **options):
        """A process on it, as subprocess.Popen has it."""
        return subprocess.Popen(self.words(*command), **{"stdin": subprocess.DEVNULL, **options})

    def run(self, *command, **options):
        """A command on it, as subprocess.run has it; what it prints is returned."""
        options = {
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True,
            "timeout": 120, **options
        }
        if "input" in options:
            del options["stdin"]
        return subprocess.run(self.words(*command), **options)

    def check(self, *command, **options):
        """What it prints, if it succeeds."""
        done = self.run(*command, **options)
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(map(str, command))} on {self.name} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def serve(self, port, *command):
        """Starts a server; returns when it listens. It lives as long as the host."""
        self._servers.append(self.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        listens = f'until ss -Hltn "sport = :{port}" | grep -q .; do sleep 0.01; done'
        self.check("sh", "-c", listens)

    def close(self):
        """Kills all of its processes at once, as if the power failed."""
        self._holder.kill()
        for server in self._servers:
            server.wait()
        self._holder.wait()
        self._holder.stdout.close()


class Network:
    """`folder` is one that all hosts see under that name; it is removed in the end. `large`: hosts hand over up to 64
    KiB at once, as to cards that divide it, which takes far less of the processor; then no frames are lost by
    chance."""

    def __init__(self, switch, names, link=Link(), mtu=1500, seed=1, addresses=None, large=False):
        self.folder = tempfile.mkdtemp(prefix="skycc-network-", dir="/var/tmp")
        self.hosts, self._switch, self._program, self._seed, self._mtu, self._large = {}, None, switch, seed, mtu, large
        try:
            self._begin(names, link, addresses or {name: f"10.77.{number}.1" for number, name in enumerate(names, 1)})
        except BaseException:
            self.close()
            raise

    def _begin(self, names, link, addresses):
        self._switch = subprocess.Popen([self._program, str(self._seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=end_with_parent)
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items()))
        for name, address in addresses.items():
            self.hosts[name] = Host(name, address, f"{self.folder}/hosts")
            self.ask("host", name, self.hosts[name].process, address, *(["large"] if self._large else []))
            self.hosts[name].check("ip", "-batch", "-", input=DEVICE % (self._mtu, address))
        for one in names:
            for other in names:
                if one != other:
                    self.set_link(one, other, link, both=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, name):
        return self.hosts[name]

    def ask(self, *words):
        """A command of the switch; returns what it answers."""
        self._switch.stdin.write(" ".join(map(str, words)) + "\n")
        self._switch.stdin.flush()
        answer = self._switch.stdout.readline().split()
        if not answer or answer[0] != "ok":
            raise RuntimeError(f"the switch answers {' '.join(answer) or 'nothing'} to {' '.join(map(str, words))}")
        return answer[1:]

    def set_link(self, one, other, link, both=True):
        assert not (self._large and link.loss), "a large frame would be lost as a whole"
        for start, end in ((one, other), (other, one))[:2 if both else 1]:
            self.ask("link", start, end, round(link.latency * 1e9), link.bandwidth, round(link.room()), link.loss)

    def cut(self, one, other):
        """In both directions, and what is on its way is lost."""
        for start, end in ((one, other), (other, one)):
            self.ask("cut", start, end)

    def heal(self, one, other):
        for start, end in ((one, other), (other, one)):
            self.ask("heal", start, end)

    def serve_ssh(self):
        """Every host gets a server, and all may enter each other; returns a folder whose `ssh` knows how, for PATH."""
        folder = f"{self.folder}/ssh"
        os.mkdir(folder)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"], check=True)
        with open(f"{folder}/key.pub") as file:
            key = " ".join(file.read().split()[:2])
        write_file(f"{folder}/known", "".join(
            f"{name} {key}\n{host.address} {key}\n" for name, host in self.hosts.items()))
        write_file(f"{folder}/server", SSHD % {"folder": self.folder})
        write_file(f"{folder}/client", SSH % {"folder": self.folder})
        os.mkdir(f"{folder}/bin")
        write_file(f"{folder}/bin/ssh", f"#!/bin/sh\nexec {shutil.which('ssh')} -F {folder}/client \"$@\"\n", 0o755)
        for host in self.hosts.values():
            host.serve(22, "/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/server")
        return f"{folder}/bin"

    def traffic(self, one, other):
        """From one to the other: (frames, bytes) by what became of them, and frames that it did not let in."""
        numbers = list(map(int, self.ask("traffic", one, other)))
        kinds = ("carried", "lost", "full", "severed")
        return {**{kind: tuple(numbers[2 * i:2 * i + 2]) for i, kind in enumerate(kinds)}, "refused": numbers[8]}

    def close(self):
        for host in self.hosts.values():
            host.close()
        self.hosts = {}
        if self._switch:
            self._switch.stdin.close()
            self._switch.stdout.close()
            self._switch.wait()
            self._switch = None
        shutil.rmtree(self.folder, ignore_errors=True)
