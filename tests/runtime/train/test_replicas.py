#!/usr/bin/python3
"""test_replicas.py SKYCC TESTS_DATA: pipelines that share the rows of a step train as one pipeline does.

One pipeline and two and three of them, with different cuts and shares, train a model with tied embeddings and dropout
over a partial last batch, padded and packed: losses, metrics and trained values agree to rounding. `skycc run --plan`
computes the bits of three in one process. Checkpoints hold each value once. A run whose rank was killed goes on under a
plan without its device.
"""
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402

ROWS, LENGTH, BATCH = 44, 8, 16
CLUSTER = """devices:
  - {name: a, threads: 1, gflops: 10}
  - {name: b, threads: 1, gflops: 10}
  - {name: c, threads: 1, gflops: 20}
  - {name: d, threads: 1, gflops: 40}
  - {name: e, threads: 1, gflops: 5}
  - {name: f, threads: 1, gflops: 5}
default_link: {latency: 10us, bandwidth: 10Gbit}
"""
UNEQUAL = "devices:\n" + "".join(f"  - {{name: {name}, threads: 1, gflops: {speed}}}\n" for name, speed in zip(
    "abcdef", (10, 10, 10, 1, 1, 1))) + "default_link: {latency: 10us, bandwidth: 1Gbit}\n"
OPTIONS = ("--dropout", "0.1", "--optimizer", "adamw:eps=1e-4", "-q")
PADDED = ("--dim", "batch=2", "--dim", f"seq={LENGTH}", "--microbatches", "8")
PACKED = ("--dim", f"seq=auto:{LENGTH}", "--lengths", "data.safetensors", "--batch", str(BATCH), "--microbatches", "8")


def write_data():
    random = np.random.default_rng(1)
    ids = random.integers(1, 90, (ROWS, LENGTH)).astype("i4")
    mask = (np.arange(LENGTH) < random.integers(3, LENGTH + 1, ROWS)[:, None]).astype("i4")
    labels = np.where((random.random((ROWS, LENGTH)) < 0.3) & (mask > 0), ids, -100).astype("i4")
    data = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros((ROWS, LENGTH), "i4"),
            "labels": labels}
    safetensors_files.write("data.safetensors", data)
    safetensors_files.write("batch.safetensors", {name: tensor[:BATCH] for name, tensor in data.items()})


def compile_plan(skycc, model, out, *options, cluster="cluster.yaml"):
    subprocess.run([skycc, "compile", model, "-d", cluster, "-o", out, *OPTIONS, *options], check=True,
                   stderr=subprocess.DEVNULL)
    subprocess.run([skycc, "verify", f"{out}/plan.json", "--costs", f"{out}/costs.json"], check=True,
                   stdout=subprocess.DEVNULL)
    with open(f"{out}/plan.json") as file:
        return json.load(file)


def train(out, *options):
    data = () if "--data" in options else ("--data", "data.safetensors")
    subprocess.run([f"{out}/train", *data, "--seed", "3", "--lr", "1e-3", "--quiet", *options], check=True)


def values(checkpoint):
    """All values of the newest checkpoint, each of which must be there once."""
    newest, found = f"{checkpoint}/{max(os.listdir(checkpoint))}", {}
    for name in os.listdir(newest):
        if name.endswith(".safetensors"):
            for tensor, value in safetensors_files.read(f"{newest}/{name}").items():
                assert tensor not in found or np.array_equal(found[tensor], value), f"{tensor} is there twice"
                found[tensor] = value
    return found


def log(path):
    with open(path) as file:
        return [{key: float(value) for key, value in row.items() if value and (key == "loss" or key[:4] == "eval")}
                for row in csv.DictReader(file)]


def assert_close(expected, found, most, what):
    assert expected.keys() == found.keys(), what
    for key, value in expected.items():
        if ".key.bias" in key:
            continue  # softmax ignores them, so their gradients are nothing but rounding
        error = np.linalg.norm(value - found[key]) / max(np.linalg.norm(value), 1e-6)
        assert error <= most, f"{what}: {key} differs by {error:.2g}"


def test_like_one_pipeline(skycc, model):
    ways = [("packed-one", "1", "even", PACKED), ("packed-two", "2", "even", PACKED), ("one", "1", "even", PADDED),
            ("two", "2", "heuristic", PADDED), ("three", "3", "even", PADDED)]
    for out, replicas, allocate, form in ways:
        plan = compile_plan(skycc, model, out, "--replicas", replicas, "--allocate", allocate, *form)
        reference = "packed-one" if form is PACKED else "one"
        assert len(plan["replicas"]) == int(replicas)
        assert sum(replica["rows"] for replica in plan["replicas"]) == BATCH
        assert [rank["replica"] for rank in plan["ranks"]] == [
            number for number, replica in enumerate(plan["replicas"]) for _ in replica["ranks"]]
        train(out, "--epochs", "2", "--eval-data", "data.safetensors", "--log", f"{out}.csv", "--checkpoint",
              f"{out}-saved")
        assert_close(values(f"{reference}-saved"), values(f"{out}-saved"), 2e-6, f"{replicas} replicas")
        for expected, found in zip(log(f"{reference}.csv"), log(f"{out}.csv"), strict=True):
            assert_close(expected, found, 1e-6, f"{replicas} replicas, the log")
    shares = {replica["rows"] for replica in plan["replicas"]}
    assert len(shares) > 1, "all replicas have as many rows"


def test_same_bits_in_one_process(skycc, model, out="three", batch="batch.safetensors"):
    shutil.rmtree("bits", ignore_errors=True)
    train(out, "--data", batch, "--steps", "3", "--schedule-lr", "constant", "--warmup", "0", "--clip",
          "0", "--no-decay", "none", "--no-shuffle", "--log", "bits.csv", "--checkpoint", "bits")
    subprocess.run([skycc, "run", model, "--inputs", batch, "--loss", "cross-entropy", "--train", "3",
                    "--seed", "3", "--dropout", "0.1", "--optimizer", "adamw:eps=1e-4,lr=1e-3", "--plan",
                    f"{out}/plan.json", "-o", "bits.safetensors"], check=True, stderr=subprocess.DEVNULL)
    run = safetensors_files.read("bits.safetensors")
    with open("bits.csv") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == [f"{loss:.9g}" for loss in run["train/loss"][:3]]
    compared = 0
    for name, value in values("bits").items():
        if f"param/{name}" in run:
            assert np.array_equal(value, run[f"param/{name}"]), f"{name} is not the same bits in one process"
            compared += 1
    assert compared > 20, compared
    assert run["out/logits"].shape[0] == BATCH


def test_orders_of_sums(skycc, model):
    """A split backward ends layers in another order, and ranks sum them in that order: the bits are the same."""
    plans, deals = {}, set()
    for schedule in ("1f1b", "zb"):
        plan = plans[schedule] = compile_plan(skycc, model, schedule, "--replicas", "2", "--allocate", "even",
                                              "--schedule", schedule, *PADDED, cluster="unequal.yaml")
        deals.add(tuple(replica["microbatches"] for replica in plan["replicas"]))
        train(schedule, "--epochs", "2", "--eval-data", "data.safetensors", "--log", f"{schedule}.csv", "--checkpoint",
              f"{schedule}-saved")
    assert "sum_order" not in plans["1f1b"] and len(deals) == 1, (plans["1f1b"].get("sum_order"), deals)
    order = plans["zb"]["sum_order"]
    assert order != sorted(order, reverse=True)
    places = np.argsort(order).astype("<u4").tobytes()
    for rank in range(len(plans["zb"]["ranks"])):
        with open(f"zb/stage-{rank:02}", "rb") as program:
            assert places in program.read(), f"rank {rank} does not know the order of sums"
    assert_close(values("one-saved"), values("zb-saved"), 2e-6, "sums in another order")
    for expected, found in zip(log("one.csv"), log("zb.csv"), strict=True):
        assert_close(expected, found, 1e-6, "sums in another order, the log")
    assert log("zb.csv") == log("1f1b.csv"), "another order of sums gives other losses"
    first, second = values("zb-saved"), values("1f1b-saved")
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), f"{name} has other bits where sums have another order"


def test_tables(skycc, model):
    """Of an embedding table that nothing else uses, replicas send only rows that occur."""
    few = safetensors_files.read("batch.safetensors")
    safetensors_files.write("few-labels.safetensors", {**few, "labels": few["labels"] % 3})
    for replicas in ("2", "3"):
        compile_plan(skycc, model, "tables", "--replicas", replicas, "--allocate", "even", *PADDED)
        test_same_bits_in_one_process(skycc, model, "tables", "few-labels.safetensors")
        with open("tables/costs.json") as file:
            tables = [layer for layer in json.load(file)["layers"] if "table_rows" in layer]
        assert [(table["table_rows"], table["table_reads"]) for table in tables] == [(256, 2 * LENGTH)]


def test_large_shared_parameters(skycc):
    """A table of more than 2^21 numbers is summed in several pieces, which are under way at the same time."""
    subprocess.run([skycc, "bert", "--layers", "1", "--hidden", "64", "--intermediate", "64", "--heads", "2", "--head",
                    "mlm", "--vocab", "40000", "--positions", str(LENGTH), "-o", "large.onnx"], check=True,
                   stderr=subprocess.DEVNULL)
    compile_plan(skycc, "large.onnx", "large", "--replicas", "2", "--allocate", "even", *PADDED)
    test_same_bits_in_one_process(skycc, "large.onnx", "large")


def test_coded_sums(skycc, model):
    """Two replicas code terms, three also sums; what coding loses comes back in later steps."""
    for replicas, codec in (("2", "bf16"), ("3", "q8")):
        compile_plan(skycc, model, "coded", "--replicas", replicas, "--allocate", "even", "--codec", codec, *PADDED)
        test_same_bits_in_one_process(skycc, model, "coded")
    train("coded", "--epochs", "2", "--eval-data", "data.safetensors", "--log", "coded.csv")
    for expected, found in zip(log("one.csv"), log("coded.csv"), strict=True):
        assert_close(expected, found, 3e-3, "coded sums, the log")
    assert log("one.csv") != log("coded.csv")


def train_on_hosts(plan, *options):
    """Every replica has a folder of its own, as if on a host that sees no files of the others."""
    command = ["three/stage-00", "--launch"]
    for rank, described in enumerate(plan["ranks"]):
        folder = f"{os.getcwd()}/host-{described['replica']}"
        os.makedirs(folder, exist_ok=True)
        command += [":"] * (rank > 0) + [
            "-n", "1", "-env", "SKYCC_FOLDER", folder, f"{os.getcwd()}/three/stage-{rank:02}", "--data",
            f"{os.getcwd()}/data.safetensors", "--quiet", "--steps", "6", *options]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_resumes_where_only_the_first_replica_sees_files():
    with open("three/plan.json") as file:
        plan = json.load(file)
    train_on_hosts(plan, "--log", "whole.csv")
    train_on_hosts(plan, "--checkpoint", "saved", "--stop-after", "3")
    assert not os.path.exists("host-1/saved") and not os.path.exists("host-2/saved")
    train_on_hosts(plan, "--checkpoint", "saved", "--resume", "--log", "rest.csv")
    assert log("host-0/whole.csv")[3:] == log("host-0/rest.csv")


def programs_of(process, name):
    """The processes below this one that run a program of that name."""
    found = []
    with open(f"/proc/{process}/task/{process}/children") as file:
        children = file.read().split()
    for child in children:
        if os.path.basename(os.readlink(f"/proc/{child}/exe")) == name:
            found.append(int(child))
        found += programs_of(child, name)
    return found


def test_goes_on_without_a_device(skycc, model):
    """Two replicas on unequal devices lose a rank; one pipeline without its device goes on from the checkpoint."""
    steps = ("--steps", "100000")
    run = subprocess.Popen(
        ["two/train", "--data", "data.safetensors", "--seed", "3", "--lr", "1e-3", *steps, "--quiet", "--log",
         "killed.csv", "--checkpoint", "killed", "--checkpoint-every", "5"], stderr=subprocess.PIPE, text=True)
    while not (os.path.isdir("killed") and any(name.startswith("step-") for name in os.listdir("killed"))):
        time.sleep(0.02)
        assert run.poll() is None, run.stderr.read()
    os.kill(max(programs_of(run.pid, "stage-01")), signal.SIGKILL)
    message = run.communicate()[1]
    assert run.returncode == 6, message
    device = json.load(open("two/plan.json"))["ranks"][1]["device"]
    assert f"--without {device} -o NEW, then NEW/train ... --resume" in message, message
    last = str(int(max(os.listdir("killed"))[5:]) + 4)
    train("two", *steps, "--checkpoint", "whole", "--stop-after", last, "--log", "whole.csv")
    compile_plan(skycc, model, "rest", "--without", device, "--allocate", "even", *PADDED)
    train("rest", "--resume", "--checkpoint", "killed", *steps, "--stop-after", last, "--log", "rest.csv")
    assert values("killed").keys() == values("whole").keys()
    killed, whole, rest = (log(f"{name}.csv") for name in ("killed", "whole", "rest"))
    common = min(len(killed), len(whole))
    assert common >= 5 and killed[:common] == whole[:common], "other losses before the kill"
    assert len(rest) >= 4
    for expected, found in zip(whole[-len(rest):], rest, strict=True):
        assert_close(expected, found, 1e-5, "losses after the kill")


def main():
    skycc, data = (os.path.abspath(path) for path in sys.argv[1:3])
    model = f"{data}/bert/bert-nano-mlm-opset17-dyn.onnx"
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as folder:
        os.chdir(folder)
        write_data()
        with open("cluster.yaml", "w") as file:
            file.write(CLUSTER)
        with open("unequal.yaml", "w") as file:
            file.write(UNEQUAL)
        test_like_one_pipeline(skycc, model)
        test_coded_sums(skycc, model)
        if sys.argv[3:] != ["less"]:
            test_same_bits_in_one_process(skycc, model)
            test_orders_of_sums(skycc, model)
            test_tables(skycc, f"{data}/bert/bert-nano-tokcls-opset17-dyn.onnx")
            test_large_shared_parameters(skycc)
            test_resumes_where_only_the_first_replica_sees_files()
            test_goes_on_without_a_device(skycc, model)
        os.chdir("/")
    print("replicas train as one pipeline does, and go on without a lost device")


main()
