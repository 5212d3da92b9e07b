"""Runs on hosts of one site: mpiexec over ssh, between namespaces."""
import os
import subprocess
import time

import numpy as np

from case import ROOT, case, expect
from network import Link

import safetensors_files

ROWS, LENGTH = 16, 8
CLUSTER = """
devices:
  - {name: one, host: one, threads: 1, memory: 1GiB}
  - {name: two, host: two, threads: 1, memory: 1GiB}
interface: %s
ports: 20000-20999
"""
TRAINING = ["--steps", "3", "--seed", "5", "--quiet"]


def write_data(path):
    draw = np.random.RandomState(1)
    safetensors_files.write(path, {
        "input_ids": draw.randint(0, 60, (ROWS, LENGTH)).astype(np.int32),
        "attention_mask": np.ones((ROWS, LENGTH), np.int32),
        "token_type_ids": np.zeros((ROWS, LENGTH), np.int32),
        "labels": draw.randint(0, 2, ROWS).astype(np.int32),
    })


def compile_nano(bench, net, cluster, name):
    """A small BERT in a stage for each device of the cluster; returns the folder."""
    with open(f"{net.folder}/{name}.yaml", "w") as file:
        file.write(cluster)
    bench.command([
        bench.skycc, "compile", f"{ROOT}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx", "-d",
        f"{net.folder}/{name}.yaml", "-o", f"{net.folder}/{name}", "--dim", "batch=2", "--dim", f"seq={LENGTH}",
        "--microbatches", "2", "--allocate", "even", "--quiet"
    ])
    write_data(f"{net.folder}/data")
    return f"{net.folder}/{name}"


def deploy(bench, net, folder, environment):
    """Copies to where each host has a folder of its own, which is returned; `train` finds all there."""
    there = "/tmp/copied"
    words = [bench.skycc, "deploy", folder, "--to", there, "--data", f"{net.folder}/data"]
    done = net["one"].run(*words, "--check", env=environment)
    expect(done.returncode == 6 and "not there: stage-01" in done.stdout, f"exit code {done.returncode}: {done.stdout}")
    net["one"].check(*words, env=environment)
    for host, stage in ("one", "stage-00"), ("two", "stage-01"):
        found = net[host].check("ls", "-A", there).split()
        wanted = {stage, f"{stage}.safetensors", "data", "train", "run.mpi", "run.conf", "run.sbatch"}
        expect(set(found) == wanted, f"{host} has {found}")
    net["one"].check(*words, "--check", env=environment)
    return there


def losses(log):
    with open(log) as file:
        return [line.split(",")[:2] for line in file]


@case("mpi: two hosts of a site train as one does", quick=True)
def two_hosts(bench):
    """With an environment that nobody else is to see, a network that only the subnet names, and files that are
    copied."""
    with bench.network(["one", "two"], Link(latency=0.001, bandwidth=12.5e6)) as net:
        environment = {
            **os.environ, "PATH": f"{net.serve_ssh()}:{os.environ['PATH']}", "TOKEN_OF_MINE": "open sesame",
            "OMP_WAIT_POLICY": "passive"
        }
        alone = compile_nano(bench, net, "devices:\n  - {name: one, threads: 1, memory: 1GiB}\n", "alone")
        apart = compile_nano(bench, net, CLUSTER % "10.77.0.0/16", "apart")
        net["one"].check(f"{alone}/train", "--data", f"{net.folder}/data", "--log", f"{net.folder}/alone.csv",
                         *TRAINING, env=environment)
        there = deploy(bench, net, apart, environment)
        path = f"{net.folder}/capture.pcap"
        net.ask("capture", path)
        net["one"].check("sh", "-c", f"cd {there} && exec ./train \"$@\"", "sh", "--data", "data", "--log",
                         f"{net.folder}/apart.csv", *TRAINING, env=environment)
        net.ask("capture")
        done = net["one"].run("sh", "-c", f"mkdir /tmp/only && cd /tmp/only && exec {there}/train --data {there}/data",
                              env=environment)
        expect(
            done.returncode == 1 and
            "/tmp/only: error: train was started here, where host two cannot go" in done.stdout,
            f"exit code {done.returncode}: {done.stdout}")
        expect(
            len(losses(f"{net.folder}/alone.csv")) == 4 and
            losses(f"{net.folder}/apart.csv") == losses(f"{net.folder}/alone.csv"), "other losses")
        with open(path, "rb") as file:
            captured = file.read()
        expect(b"hydra" in captured or b"stage-01" in captured, "nothing of the run is in the capture")
        for secret in (b"TOKEN_OF_MINE", b"open sesame"):
            expect(secret not in captured, f"{secret} went over the network")
        outside = ports_outside(captured)
        expect(outside == 0, f"{outside} connections went to other ports than 22 and 20000-20999")
        return f"{len(captured)} bytes sent"


def ports_outside(captured):
    """Counts SYNs (without ACK) of a capture by where they go."""
    place, outside = 24, 0
    while place + 16 <= len(captured):
        size = int.from_bytes(captured[place + 8:place + 12], "little")
        frame = captured[place + 16:place + 16 + size]
        place += 16 + size
        if len(frame) >= 54 and frame[23] == 6 and frame[47] & 0x12 == 0x02:
            port = int.from_bytes(frame[36:38], "big")
            outside += port != 22 and not 20000 <= port <= 20999
    return outside


@case("mpi: public addresses are refused", quick=True)
def public(bench):
    with bench.network(["one", "two"], Link(), addresses={"one": "10.77.1.1", "two": "93.184.215.14"}) as net:
        apart = compile_nano(bench, net, CLUSTER % "eth0", "apart")
        done = net["one"].run(f"{apart}/train", "--data", f"{net.folder}/data", *TRAINING)
        expect(done.returncode == 1 and "93.184.215.14" in done.stdout, f"exit code {done.returncode}: {done.stdout}")
        done = net["one"].run(f"{apart}/train", "--data", f"{net.folder}/data", "--insecure", *TRAINING,
                              env={**os.environ, "MPIEXEC": "echo"})
        expect(done.returncode == 0 and "-hosts one:1,two:1" in done.stdout,
               f"exit code {done.returncode}: {done.stdout}")


SCAN = """
import socket, sys
for port in map(int, sys.argv[2:]):
    with socket.socket() as probe:
        probe.settimeout(0.3)
        try:
            opened = probe.connect_ex((sys.argv[1], port)) == 0
        except TimeoutError:
            opened = False
        if opened:
            print(port)
"""


def listening(host):
    """The TCP ports that processes of the host listen on, at any address."""
    return {int(line.split()[3].rsplit(":", 1)[1]) for line in host.check("ss", "-Hltn").splitlines()}


@case("mpi: a host that is not of the run reaches no port of it", quick=True)
def stranger(bench):
    """It connects to all ports of both hosts that anything listens on and to those of the run, and hangs up, while they
    train; only ssh listens to it."""
    with bench.network(["one", "two", "three"], Link()) as net:
        environment = {**os.environ, "PATH": f"{net.serve_ssh()}:{os.environ['PATH']}", "OMP_WAIT_POLICY": "passive"}
        for interface in ("eth0", "10.77.0.0/16"):
            folder = compile_nano(bench, net, CLUSTER % interface, f"to-{interface[:4]}")
            log = f"{folder}.csv"
            train = net["one"].start(f"{folder}/train", "--data", f"{net.folder}/data", "--steps", "100000000",
                                     "--schedule-steps", "1000", "--quiet", "--log", log, env=environment,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            limit = time.monotonic() + 120
            while train.poll() is None and time.monotonic() < limit and not (os.path.exists(log) and
                                                                             len(losses(log)) > 3):
                time.sleep(0.05)
            for host in "one", "two":
                ports = listening(net[host]) | set(range(20000, 21000))
                found = net["three"].check("/usr/bin/python3", "-c", SCAN, net[host].address, *ports).split()
                expect(found == ["22"], f"{host} listens to strangers on {found}")
                expect(train.poll() is None, f"a scan of {host} ended the run with {train.poll()}")
            net["one"].check("pkill", "-TERM", "-x", "train")
            expect(train.wait(120) == 143, f"exit code {train.returncode}")
