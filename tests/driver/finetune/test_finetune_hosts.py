#!/usr/bin/python3
"""skycc finetune over two hosts: the second is an sshd with files of its own, to which everything has to be copied. The
model that comes out has the bits of one that two devices of this machine trained.

    tests/driver/finetune/test_finetune_hosts.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
import ssh_server  # noqa: E402
from checks import failed, require, run  # noqa: E402
from finetune_data import make_model, reviews, write_table  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
SKIPPED = 77
DEVICES = "devices: [{name: near, threads: 1, memory: 1GiB}, {name: far, %sthreads: 1, memory: 1GiB}]\n"


def write(path, text, mode=0o644):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def finetune(cluster, folder, *more, environment=None, code=0):
    return run(skycc, "finetune", "model", "reviews.csv", "--epochs", "1", "--lr", "1e-2", "-d", cluster, "-o", folder,
               "--replicas", "1", *more, code=code, env=environment, stdin=subprocess.DEVNULL)


def on_far(server, command):
    return subprocess.run(f"{server.ssh} far '{command}'", shell=True, capture_output=True, text=True).stdout


def check_journey(server, work):
    os.mkdir("path")
    write("path/ssh", f"#!/bin/sh\nPATH={os.environ['PATH']} exec {server.ssh} \"$@\"\n", 0o755)
    environment = {**os.environ, "PATH": f"{work}/path:{os.environ['PATH']}"}
    write("local.yaml", DEVICES % "")
    write("far.yaml", DEVICES % "host: far, ")
    write("gone.yaml", DEVICES % "host: gone.invalid, ")
    require(on_far(server, f"ls {work}") == "", "the other host has files before")
    result = finetune("far.yaml", "run", environment=environment)
    require("hosts         far   skycc deploy copies what they need" in result.stdout, result.stdout)
    there = on_far(server, f"cd {work}/run && ls programs data").split()
    for name in ("stage-01", "train.safetensors", "train.holdout.safetensors"):
        require(name in there, "no", name, "on the other host, which has", there)
    require("stage-00" not in there, "the other host has what it does not need:", there)
    finetune("local.yaml", "local")
    with open("run/model/model.safetensors", "rb") as far, open("local/model/model.safetensors", "rb") as near:
        require(far.read() == near.read(), "two hosts train another model")
    result = finetune("gone.yaml", "gone", environment=environment, code=6)
    require("gone.invalid: no answer by ssh" in result.stderr and not os.path.exists("gone"), result.stderr)
    on_far(server, f"rm {work}/run/programs/stage-01")
    result = run(f"{work}/run/programs/train", "--data", "run/data/train.safetensors", "--steps", "1", code=6,
                 env=environment)
    require("host far has no program" in result.stderr and "skycc deploy copies it" in result.stderr, result.stderr)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    work = f"{scratch}/work"
    os.mkdir(work)
    try:
        server = ssh_server.SshServer(scratch, ["far"], apart=work)
    except ssh_server.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    try:
        os.chdir(work)
        make_model("model", data)
        write_table("reviews.csv", ["review", "kind"], reviews(120))
        check_journey(server, work)
    finally:
        os.chdir("/")
        server.close()
sys.exit(failed())
