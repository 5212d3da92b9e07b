#!/usr/bin/python3
"""A run on one host has no port that others can reach, and who connects to any port of the host and leaves does it no
harm.

    test_ports.py SKYCC TESTS_DATA

While a run trains, whose devices are on "localhost" or on this host by its name, every port of this host on which
anything listens is connected to and closed, over and over, and once every other port too. mpiexec, where it is wanted,
listens, but nobody reaches it once all ranks are there. What listens is read from /proc. All this is in a network
namespace of its own, so that no other run on this machine is disturbed; where there can be none, the test is skipped.
"""
import csv
import errno
import glob
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402
from checks import failed, require, run  # noqa: E402

SKYCC, DATA = sys.argv[1:]
MODEL = f"{DATA}/bert/bert-nano-seqcls-opset17-dyn.onnx"
SEQUENCE, ROWS = 8, 16
PATIENCE = 300  # seconds: for what must come, however busy the machine is
TIMES = 2  # that a port is connected to; 1 s each where mpiexec answers nobody
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


ADDRESSES = ("127.0.0.1", "192.0.2.7")  # of the namespace; the second is outside loopback


def enter_namespace():
    """Starts this test again in a network namespace, as root or as a user that may have one."""
    for unshare in (["unshare", "-n"], ["unshare", "-rn"]):
        if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
            setup = f"ip link set lo up && ip address add {ADDRESSES[1]}/32 dev lo && exec \"$@\""
            os.environ["IN_NAMESPACE"] = "1"
            os.execvp("unshare", [*unshare, "sh", "-c", setup, "sh", sys.executable, "-B", *sys.argv])
    print("skipped: this user may have no network namespace")
    sys.exit(77)


def scan(address, ports):
    """Connects to these ports of the address, and closes at once."""
    for port in ports:
        with socket.socket() as probe:
            probe.settimeout(1)
            refused = probe.connect_ex((address, port))
            require(refused in (0, errno.ECONNREFUSED, errno.EAGAIN, errno.EADDRNOTAVAIL), address, port,
                    os.strerror(refused))


def descendants(process):
    """The numbers of a process and of all that it started."""
    parents = {}
    for status in glob.glob("/proc/[0-9]*/stat"):
        try:
            number, rest = int(status.split("/")[2]), open(status).read().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents.setdefault(int(rest[1]), []).append(number)
    found = [process]
    for parent in found:
        found += parents.get(parent, [])
    return found


def workers(process):
    """The processes that train: those that started no other."""
    all_of_them = descendants(process)
    return [number for number in all_of_them if len(descendants(number)) == 1 and b"stage-" in command(number)]


def command(process):
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def listening_sockets():
    """The places of the namespace where somebody listens, as /proc writes them, by socket."""
    return {f"socket:[{words[9]}]": words[1]
            for table in ("/proc/net/tcp", "/proc/net/tcp6") if os.path.exists(table)
            for words in map(str.split, open(table).read().splitlines()[1:]) if words[3] == LISTENS}


def reachable_sockets(process):
    """The ports outside loopback on which the processes of the run listen."""
    listening = {name: place for name, place in listening_sockets().items() if not place.startswith("0100007F:")}
    held = set()
    for number in descendants(process):
        for descriptor in glob.glob(f"/proc/{number}/fd/*"):
            try:
                held.add(os.readlink(descriptor))
            except OSError:
                pass
    return [place for name, place in listening.items() if name in held]


def steps_of(log):
    try:
        return sum(1 for _ in csv.reader(open(log))) - 1
    except FileNotFoundError:
        return 0


def scanned_run(name, host, environment, mpiexec=False, all_ports=False):
    devices = "".join(f"  - {{name: d{d}, host: \"{host}\", threads: 1, memory: 1GiB}}\n" for d in range(2))
    with open(f"{name}.yaml", "w") as cluster:
        cluster.write("devices:\n" + devices)
    run(SKYCC, "compile", MODEL, "-d", f"{name}.yaml", "-o", name, "--dim", "batch=2", "--dim", f"seq={SEQUENCE}",
        "--microbatches", "2", "--allocate", "even", "--quiet")
    log = f"{name}.csv"
    train = subprocess.Popen([f"{name}/train", "--data", "data", "--steps", "100000000", "--schedule-steps", "1000",
                              "--log", log, "--quiet"], env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    limit = time.monotonic() + PATIENCE
    while steps_of(log) < 3 and train.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    require(steps_of(log) >= 3, name, "does not train")
    require(mpiexec or reachable_sockets(train.pid) == [], name, "listens outside loopback:",
            reachable_sockets(train.pid))
    cores = {tuple(os.sched_getaffinity(rank)) for rank in workers(train.pid)}
    require(mpiexec or len(os.sched_getaffinity(0)) < 2 or len(cores) == 2, name, "runs both ranks on", cores)
    listening = {int(place.rpartition(":")[2], 16) for place in listening_sockets().values()}
    require(not mpiexec or listening, name, "listens nowhere")
    for address in ADDRESSES:
        for _ in range(TIMES):
            scan(address, listening)
        if all_ports and address != ADDRESSES[0]:
            scan(address, range(1, 65536))
        require(train.poll() is None, name, "ended when the ports of", address, "were scanned, with", train.returncode)
    done = steps_of(log)
    while steps_of(log) < done + 3 and train.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    require(steps_of(log) >= done + 3, name, "does not go on after the scans")
    train.send_signal(signal.SIGTERM)
    require(train.wait(PATIENCE) == 143, name, "ends with", train.returncode)


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as folder:
        os.chdir(folder)
        random = np.random.default_rng(1)
        safetensors_files.write("data", {
            "input_ids": random.integers(1, 99, (ROWS, SEQUENCE)).astype(np.int32),
            "attention_mask": np.ones((ROWS, SEQUENCE), np.int32),
            "token_type_ids": np.zeros((ROWS, SEQUENCE), np.int32),
            "labels": random.integers(0, 2, ROWS).astype(np.int32)})
        environment = {"OMP_WAIT_POLICY": "passive", "OMP_PROC_BIND": "close", "SKYCC_BIND": "core"}
        scanned_run("here", "localhost", environment, all_ports=True)
        scanned_run("named", socket.gethostname(), environment)
        scanned_run("mpiexec", "localhost", {**environment, "MPIEXEC": "mpiexec.mpich"}, mpiexec=True)
    return failed()


if "IN_NAMESPACE" not in os.environ:
    enter_namespace()
sys.exit(main())
