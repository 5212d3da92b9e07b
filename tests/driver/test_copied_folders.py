#!/usr/bin/python3
"""Folders that skycc makes work where they are copied to: DIR/SITE of a federation holds all that a site needs, for
another user in another place, and the programs of `skycc compile` find a model that lies in their own folder, or is
moved with it.

    test_copied_folders.py SKYCC SOURCE
"""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "common"))
from checks import failed, require, run  # noqa: E402
from federations import Scene  # noqa: E402

SKYCC, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
NANO = f"{SOURCE}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
NOBODY = 65534
# mpiexec sometimes fails at the end of a run that is very short, when it passes on the end of its input.
TRAINING = ["--seed", "1", "--quiet", "--retries", "9"]


def train(folder, *options, **places):
    return run(f"{folder}/train", "--steps", "2", *TRAINING, *options, stdin=subprocess.DEVNULL, timeout=120, **places)


def links(folder):
    return [os.path.join(where, name) for where, folders, files in os.walk(folder) for name in folders + files
            if os.path.islink(os.path.join(where, name))]


def most_files(process):
    """The limit of open files, and so of connections."""
    with open(f"/proc/{process}/limits", encoding="utf-8") as limits:
        return next(line.split()[3] for line in limits if line.startswith("Max open files"))


def check_federation(folder):
    """The site's folder alone, and the coordinator's, without the model, by another user where the test may become
    one."""
    scene = Scene(SKYCC, f"{folder}/made/nano.onnx", f"{folder}/made", {"paris": (2, 4)}, 2)
    shutil.copy(NANO, f"{folder}/made/nano.onnx")
    scene.write_rows()
    made = scene.federate("run", "rounds: 1", "aggregate: plain", "outer: {optimizer: average}",
                          options=["--freeze", "*encoder*", "--frozen-weights", "int8"])
    require(made.returncode == 0, "federate:", made.stdout)
    require(not links(f"{folder}/made/run"), "links in", links(f"{folder}/made/run"))
    there = f"{folder}/elsewhere/deeper"
    os.makedirs(there)
    for name in "run/paris", "run/coordinator", "paris.safetensors", "coordinator.key", "paris.key":
        copy = shutil.copytree if os.path.isdir(f"{folder}/made/{name}") else shutil.copy
        copy(f"{folder}/made/{name}", f"{there}/{os.path.basename(name)}")
    shutil.rmtree(f"{folder}/made")
    other = {}
    if os.geteuid() == 0:
        for where, folders, files in os.walk(f"{folder}/elsewhere"):
            for name in [".", *folders, *files]:
                os.chown(os.path.join(where, name), NOBODY, NOBODY)
        os.chmod(folder, 0o711)
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    unread, output = os.pipe()
    os.close(unread)  # as after `skycc coordinate | head -1`: the round is made all the same
    with open(f"{folder}/coordinator.out", "w", encoding="utf-8") as log:
        coordinator = subprocess.Popen([SKYCC, "coordinate", "coordinator"], cwd=there, stdout=output, stderr=log,
                                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1000)),
                                       **other)
    os.close(output)
    try:
        end = time.monotonic() + 20
        while (limit := most_files(coordinator.pid)) == "64" and time.monotonic() < end:
            time.sleep(0.02)
        run("paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "kept", *TRAINING, cwd=there,
            stdin=subprocess.DEVNULL, timeout=120, env={**os.environ, "HOME": there}, **other)
    finally:
        try:
            coordinator.wait(20)
        except subprocess.TimeoutExpired:
            coordinator.kill()
    with open(f"{folder}/coordinator.out", encoding="utf-8") as log:
        said = log.read()
    require(coordinator.returncode == 0, "the coordinator ends with", coordinator.returncode, said)
    require(limit == "1000", "strangers may take all connections of", limit)
    require("went on without it" in said, "the coordinator does not say that its output is lost:", said)


def check_programs(folder):
    """A model in the folder of its own programs; and programs that are moved together with their model."""
    os.makedirs(f"{folder}/place/job")
    scene = Scene(SKYCC, NANO, f"{folder}/place", {"rows": (1, 4)}, 1)
    scene.write_rows()
    data, cluster = f"{folder}/place/rows.safetensors", f"{folder}/place/1.yaml"
    dims = ["--dim", "batch=4", "--dim", "seq=16", "-d", cluster, "-q"]
    shutil.copy(NANO, f"{folder}/place/job/m.onnx")
    shutil.copy(NANO, f"{folder}/place/m.onnx")
    for place in f"{folder}/place", "/":
        job = os.path.relpath(f"{folder}/place/job", place)
        for _ in range(2):  # also over its former output
            run(SKYCC, "compile", f"{job}/m.onnx", "-o", job, "--force", *dims, cwd=place)
        require(os.path.exists(f"{folder}/place/job/m.onnx"), "the model is gone")
        train(f"{folder}/place/job", "--data", data)
    run(SKYCC, "compile", "m.onnx", "-o", "other", *dims, cwd=f"{folder}/place")
    shutil.move(f"{folder}/place", f"{folder}/moved")
    train(f"{folder}/moved/job", "--data", f"{folder}/moved/rows.safetensors")
    train(f"{folder}/moved/other", "--data", f"{folder}/moved/rows.safetensors")


for check in check_federation, check_programs:
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
        os.makedirs(f"{scratch}/made")
        check(os.path.realpath(scratch))
sys.exit(failed())
