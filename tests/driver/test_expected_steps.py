#!/usr/bin/python3
"""Plans for rows of several lengths: the planned step time is the mean over sampled steps, from costs.json alone.
Reports say so, verify recomputes it, and explain compares each traced step with the plan for its micro-batches."""
import json
import math
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, printed, require  # noqa: E402
from safetensors_files import write  # noqa: E402

SKYCC, DATA = sys.argv[1], sys.argv[2]
NANO = f"{DATA}/bert/bert-nano-seqcls-opset17-dyn.onnx"
LONGEST, BATCH = 16, 24


def run(*command, code=0):
    return printed(SKYCC, *command, code=code)


def load(name):
    with open(name) as file:
        return json.load(file)


def text_of(name):
    with open(name) as file:
        return file.read()


def make_files():
    random = np.random.default_rng(3)
    lengths = np.minimum(random.geometric(0.2, 500) + 1, LONGEST)
    mask = np.arange(LONGEST) < lengths[:, None]
    tensors = {"input_ids": mask * 7, "attention_mask": mask, "token_type_ids": mask * 0, "labels": lengths % 3}
    write("data.safetensors", {name: np.ascontiguousarray(array.astype("i4")) for name, array in tensors.items()})
    with open("cluster.yaml", "w") as file:
        file.write("devices:\n  - {name: a, gflops: 3, memory: 1GiB}\n  - {name: b, gflops: 2, memory: 1GiB}\n"
                   "default_link: {latency: 1us, bandwidth: 10Gbit}\n")
    return lengths


OPTIONS = ("-d", "cluster.yaml", "--dim", "batch=8", "--dim", f"seq=auto:{LONGEST}", "--lengths", "data.safetensors",
           "--microbatches", "3")


def nanoseconds(seconds):
    return round(seconds * 1e9)


def test_plan(lengths):
    run("compile", NANO, *OPTIONS, "--emit=costs", "-o", "costs.json")
    text = run("plan", NANO, *OPTIONS, "-o", "plan.json")
    rows, plan = load("costs.json")["rows"], load("plan.json")
    require(
        plan["rows"] == rows and rows["batch"] == BATCH and rows["longest"] == LONGEST <= rows["length"] < 2 * LONGEST,
        f"rows: {rows}")
    most = -(-BATCH // rows["lines"])
    require(plan["microbatches"] == most, f"{plan['microbatches']} micro-batches, not {most}")
    counts, steps = rows["microbatches"], sum(times for _, times in rows["microbatches"])
    sampled = sum(length * times for length, times in rows["lengths"])
    require(steps == 64 and sum(times for _, times in rows["lengths"]) == steps * BATCH, f"samples: {rows}")
    require(abs(sampled / (steps * BATCH) - lengths.mean()) < 0.5, "the samples' mean length is not the data's")
    mean = sum(number * times for number, times in counts) / steps
    lines, most_lines = rows["lines_computed"], mean * steps * rows["lines"]
    require(rows["lines"] > 1 and most_lines - steps * (rows["lines"] - 1) <= lines < most_lines, f"lines: {rows}")
    tokens, most_tokens = rows["tokens_computed"], most_lines * rows["length"]
    require(0 <= lines * rows["length"] - tokens < mean * steps * rows["length"], f"tokens: {rows}")
    padding = 1 - sampled / tokens
    period, step = nanoseconds(plan["period_s"]), nanoseconds(plan["step_s"])
    once = step - math.ceil((mean - 1) * period)
    stages, links = plan["stages"], plan["links"]
    update = max(nanoseconds(stage["update_s"]) for stage in stages)
    for key, count in ("worst_step_s", counts[-1][0]), ("padded_step_s", most):  # micro-batches of all lines
        planned = update + (once - update + (count - 1) * period) * most_tokens / tokens
        require(0 <= nanoseconds(plan[key]) - planned <= 1, f"{key}: {plan[key]}, not {planned / 1e9}")
    work = [nanoseconds(stage["forward_s"]) + nanoseconds(stage["backward_s"]) for stage in stages]
    ways = [nanoseconds(link[key]) for link in links
            for key in ("seconds", "latency_s", "backward_seconds", "backward_latency_s")]
    require(once == sum(work) + sum(ways) + update, "the sum of a step")
    require(plan["proven_optimal"] and mean < most, "proven, for fewer micro-batches than padded rows need")
    for said in (f"{mean:.1f} micro-batches", f"Padding: {100 * padding:.1f}% of the tokens computed",
                 f"if every row had {LONGEST} tokens", "tokens #"):
        require(said in text, f"'{said}' is not in:\n{text}")
    report = json.loads(run("plan", "--costs", "costs.json", "--report", "json"))
    require(report["rows"] == rows and abs(report["padding"] - padding) < 1e-12, "the JSON report")
    require("<h2 id=rows>" in run("plan", "--costs", "costs.json", "--report", "html"), "the HTML report")


def test_verify():
    """Without the data; and what is not so is refused."""
    run("plan", "--costs", "costs.json", "-o", "again.json")
    plan = text_of("plan.json")
    unnamed = plan.replace(f'"rows":{BATCH},', '"rows":null,')  # costs do not say how many rows a step has
    require(text_of("again.json") == unnamed, "the plan from costs.json is another one")
    require("certified optimal" in run("verify", "plan.json", "--costs", "costs.json"), "verify")
    for key in "step_s", "worst_step_s", "padded_step_s", "simulated_step_s", "bubble":
        value = load("plan.json")[key]
        with open("wrong.json", "w") as file:
            file.write(plan.replace(f'"{key}":{value!r}', f'"{key}":{value + 1e-3!r}', 1))
        require(key in run("verify", "wrong.json", "--costs", "costs.json", code=1), f"wrong {key}")
    number, times = load("plan.json")["rows"]["lengths"][0]
    with open("wrong.json", "w") as file:
        file.write(plan.replace(f'"lengths":[[{number},', f'"lengths":[[{number - 1},', 1))
    require("rows" in run("verify", "wrong.json", "--costs", "costs.json", code=1), "other rows")
    require("leave out" in run("plan", "--costs", "costs.json", "--microbatches", "2", code=2), "--microbatches")
    require('"rows":{' not in run("plan", NANO, *OPTIONS[:2], "--dim", "batch=8", "--dim", f"seq={LONGEST}", "-o", "-"),
           "rows of one length")


def test_explain():
    """A trace whose steps take what they should, with 2, 3 and 2 micro-batches."""
    run("plan", NANO, *OPTIONS, "--without", "b", "-o", "alone.json")
    stage, now, events = load("alone.json")["stages"][0], 0.0, []

    def add(name, seconds, step, **more):
        nonlocal now
        events.append({"ph": "X", "name": name, "pid": 0, "tid": 0, "ts": now * 1e6, "dur": seconds * 1e6,
                       "args": {"step": step, **more}})
        now += seconds

    for step, count in enumerate((1, 2, 3, 2)):
        for microbatch in range(count):
            add("forward", stage["forward_s"], step, microbatch=microbatch)
            add("backward", stage["backward_s"], step, microbatch=microbatch)
        add("update", stage["update_s"], step)
    with open("trace.json", "w") as file:
        json.dump({"traceEvents": events}, file)
    for step in range(3):  # the first one is slower than the others, and so left out
        parts = {"data": 10, "forward": 60 if step else 900, "waiting": 0, "rest": 30}
        events.append({"ph": "X", "name": "step", "pid": 0, "tid": 0, "ts": 0, "dur": sum(parts.values()),
                       "args": {"step": step, "parts": parts}})
    events.append({"ph": "M", "name": "trace_full", "pid": 0, "tid": 0, "args": {"step": 7}})
    with open("trace.json", "w") as file:
        json.dump({"traceEvents": events}, file)
    said = run("explain", "alone.json", "--trace", "trace.json")
    parts = "of 100.0 us a step: data 10.0%, forward 60.0%, rest 30.0% (more than 3%: a defect)"
    require(parts in said and "rank 0: the trace ends at step 7, because it was full" in said, said)
    require(
        re.search(r"measured over 3 steps:\n  step: mean .*planned .*[+-]0\.0%\), micro-batches 2\.33 a step", said),
        said)
    events[1]["args"]["microbatch"] = 1000
    with open("trace.json", "w") as file:
        json.dump({"traceEvents": events}, file)
    require("not of a run" in run("explain", "alone.json", "--trace", "trace.json", code=1), "too many micro-batches")


def test_cause():
    """A run in no time compared with its plan: train says that backward is the largest cause, and what was planned."""
    with open("slow.yaml", "w") as file:
        file.write("devices:\n  - {name: a, gflops: 0.01, memory: 1GiB}\n")
    run("compile", NANO, "-d", "slow.yaml", *OPTIONS[2:], "-q", "-o", "slow")
    said = printed("slow/train", "--data", "data.safetensors", "--steps", "4", "--no-shuffle")
    plan = load("slow/plan.json")
    counts, steps = plan["rows"]["microbatches"], sum(times for _, times in plan["rows"]["microbatches"])
    planned = plan["stages"][0]["backward_s"] * sum(number * times for number, times in counts) / steps
    found = re.search(r"Largest cause: backward of stage 0 on a took \S+ m?s a step instead of (\S+) s", said)
    require(found and abs(float(found[1]) / planned - 1) < 0.5, f"planned {planned} s of backward a step:\n{said}")


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    test_plan(make_files())
    test_verify()
    test_explain()
    test_cause()
sys.exit(failed())
