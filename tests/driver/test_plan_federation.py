#!/usr/bin/python3
"""skycc plan --federation: what it says of pipelines against plans of clusters written by hand, what does not fit, and
what is refused.

    tests/driver/test_plan_federation.py SKYCC SOURCE
"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require, run  # noqa: E402

SKYCC, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = f"{SOURCE}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
DIMENSIONS = ["--dim", "batch=4", "--dim", "seq=16"]
KEYS = {}


def call(*arguments, code=0):
    return run(SKYCC, *arguments, code=code, timeout=300)


def plan(*options, code=0):
    return call("plan", MODEL, "--federation", "federation.yaml", *DIMENSIONS, *options, code=code)


def report(*options, code=0):
    return json.loads(plan("--report", "json", *options, code=code).stdout)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def key(name):
    if name not in KEYS:
        KEYS[name] = call("key", name).stdout.strip() and open(f"{name}.pub", encoding="utf-8").read().strip()
    return KEYS[name]


def federation(sites, *rules):
    lines = ["sites:"]
    for name, cluster in sites:
        lines.append(f'  - {{name: {name}, cluster: {cluster}, key: "{key(name)}", rows_per_step: 8}}')
    lines += [f'coordinator: {{address: "h:1", key: "{key("coordinator")}", bandwidth: 1Gbit}}', "rounds: 9", *rules]
    write("federation.yaml", "\n".join(lines) + "\n")


def candidate(made, *groups):
    found = [c for c in made["candidates"] if [replica["sites"] for replica in c["replicas"]] == list(groups)]
    require(len(found) == 1, f"{groups} is considered once: {found}")
    return found[0]


def plan_of(cluster, microbatches):
    write("cluster.yaml", cluster)
    call("plan", MODEL, "-d", "cluster.yaml", *DIMENSIONS, "--microbatches", str(microbatches), "-o", "plan.json")
    with open("plan.json", encoding="utf-8") as file:
        return json.load(file)


FAST = "{name: a, memory: 4GiB, gflops: 1, bandwidth: 1GB/s}"
SLOW = "{name: b, memory: 4GiB, gflops: 0.5, bandwidth: 1GB/s, region: inner}"
INSIDE = "{latency: 2ms, bandwidth: 20MB/s}"


def check_pipelines():
    """Sites alone, and joined, are the clusters that a person would write."""
    write("one.yaml", f"devices: [{FAST}]\n")
    write("two.yaml", f"devices: [{FAST}, {SLOW}]\ndefault_link: {INSIDE}\n")
    federation([("paris", "one.yaml"), ("oslo", "two.yaml"), ("lima", "one.yaml")], "local_steps: 500",
               "default_link: {latency: 30ms, bandwidth: 50Mbit}",
               "links: [{between: [oslo, lima], latency: 1ms, bandwidth: 10Gbit}]", "aggregate: plain")
    made = report()
    require(made["format"] == "skycc.federation-plan/1" and made["elements"] == 28611, made)
    require(made["all_tried"] and len(made["candidates"]) == 5, "all five ways to divide three sites are considered")
    apart = candidate(made, ["paris"], ["oslo"], ["lima"])
    alone = plan_of(f"devices: [{FAST}]\n", 2)
    require(apart["replicas"][0]["step_s"] == alone["simulated_step_s"], f"paris alone: {apart['replicas'][0]}")
    both = plan_of(f"devices: [{FAST}, {SLOW}]\ndefault_link: {INSIDE}\n", 2)
    require(apart["replicas"][1]["step_s"] == both["simulated_step_s"], f"oslo alone: {apart['replicas'][1]}")
    joined = plan_of(
        f"sites: [{{name: oslo, address: 'h:1', key: \"{key('oslo')}\"}}, {{name: lima, key: \"{key('lima')}\"}}]\n"
        f"devices: [{FAST.replace('name: a', 'name: o, site: oslo')}, "
        f"{SLOW.replace('name: b', 'name: b, site: oslo')}, "
        f"{FAST.replace('name: a', 'name: l, site: lima')}]\nlinks:\n"
        "  - {between: [oslo, lima], latency: 1ms, bandwidth: 10Gbit}\n"
        "  - {between: [inner, lima], latency: 1ms, bandwidth: 10Gbit}\n"
        "  - {between: [oslo, oslo], latency: 2ms, bandwidth: 20MB/s}\n", 4)
    grouped = candidate(made, ["paris"], ["oslo", "lima"])
    require(grouped["replicas"][1]["step_s"] == joined["simulated_step_s"],
           f"oslo and lima: {grouped['replicas'][1]}, not {joined['simulated_step_s']}")
    crossed = sum(
        c["bytes"] * c.get("per_step", 1) for c in joined.get("crossings_between_sites", []) if c["kind"] != "input")
    a_day = sum(link["bytes_per_day"] for link in grouped["links"] if "coordinator" not in (link["from"], link["to"]))
    steps = 86400 / grouped["round_s"] * 500
    require(
        abs(a_day - crossed * steps) <= 1e-6 * a_day, f"{a_day} bytes a day between oslo and lima, {crossed} a step")
    for c in made["candidates"]:
        require(c["local_steps"] == (None if len(c["replicas"]) == 1 else 500), c)
        require(c["rows_leave"] == (len(c["replicas"]) < 3), c)
    fastest = min((c for c in made["candidates"] if c["fits"]), key=lambda c: c["row_s"])
    require(made["candidates"][made["fastest"]] == fastest, f"{made['fastest']} is the fastest")
    require(made["candidates"][made["proposed"]] == apart and made["rows_stay"] == made["proposed"],
            "what keeps rows at their sites is proposed first")
    text = plan().stdout
    require(("if rows may leave their sites: " in text) == (fastest != apart), text)
    require("proposed: " in text and "of every way" not in text and "compared: all " in text, text)


def check_left_out():
    """One of four sites has no room for the model: the others can do without it."""
    write("tiny.yaml", "devices: [{name: a, memory: 20KiB}]\n")
    federation([("paris", "one.yaml"), ("oslo", "one.yaml"), ("lima", "tiny.yaml"), ("rome", "one.yaml")],
               "local_steps: 5", "default_link: {latency: 30ms, bandwidth: 50Mbit}")
    made = report()
    best = made["candidates"][made["proposed"]]
    require(best["left_out"] == ["lima"] and not best["rows_leave"] and len(best["replicas"]) == 3, best)
    text = plan().stdout
    require("proposed: paris | oslo | rome (without lima), for all rows stay at their sites" in text, text)
    require("(rows leave their sites, despite aggregate: secure)" in text, text)


def check_memory():
    """Seven sites of which none has room for the model: those with fast links together have."""
    write("small.yaml", "devices: [{name: a, memory: 600KiB}]\n")
    names = ["s1", "s2", "s3", "s4", "s5", "s6", "s7"]
    links = [f"  - {{between: [{names[i]}, {names[i + 1]}], latency: 1ms, bandwidth: {10 - i}Gbit}}" for i in range(6)]
    federation([(name, "small.yaml") for name in names], "local_steps: auto",
               "default_link: {latency: 50ms, bandwidth: 10Mbit}", "links:", *links)
    made = report("--allocate", "heuristic")
    apart = candidate(made, *[[name] for name in names])
    require(not apart["fits"] and "memory" in apart["why_not"], apart)
    best = made["candidates"][made["proposed"]]
    require(best["fits"] and best["rows_leave"] and made["rows_stay"] is None, best)
    pairs = candidate(made, ["s1", "s2"], ["s3", "s4"], ["s5", "s6", "s7"])
    require(pairs["fits"] and pairs == best, "the smallest groups that fit are found")
    write("small.yaml", "devices: [{name: a, memory: 20KiB}]\n")
    made = json.loads(plan("--report", "json", "--allocate", "heuristic", code=4).stdout)
    require(made["proposed"] is None and not any(c["fits"] for c in made["candidates"]), made)


def check_refusals():
    def refused(expected, *options, code=2):
        text = plan(*options, code=code).stderr
        require(expected in text, f"{expected}: {text}")
    refused("--cluster does not apply to --federation", "-d", "one.yaml")
    refused("--output does not apply", "-o", "plan.json")
    refused("--report html does not apply", "--report", "html")
    refused("--without does not apply", "--without", "a")
    refused("--microbatches auto does not apply", "--microbatches", "auto")
    refused("federations cannot train rows of several lengths yet", "--dim", "seq=auto:16")
    text = call("plan", MODEL, "-d", "one.yaml", "--local-steps", "auto", code=2).stderr
    require("need --federation" in text, text)
    federation([("paris", "one.yaml"), ("oslo", "none.yaml"), ("lima", "one.yaml")], "local_steps: 5",
               "default_link: {latency: 30ms, bandwidth: 50Mbit}")
    refused("none.yaml", code=1)
    federation([("paris", "one.yaml"), ("oslo", "one.yaml"), ("lima", "one.yaml")], "local_steps: 5")
    refused("a comparison needs the link of site 'paris' with the coordinator", code=1)
    federation([("paris", "one.yaml"), ("oslo", "one.yaml"), ("lima", "one.yaml")], "local_steps: 5", "links:", *[
        f"  - {{between: [{name}, coordinator], latency: 1ms, bandwidth: 1Gbit}}" for name in ["paris", "oslo", "lima"]
    ])
    made = report()
    require(len(made["candidates"]) == 1 and made["all_tried"], "sites that no link joins are no pipeline")


def main():
    scratch = tempfile.mkdtemp(prefix="skycc-test-")
    os.chdir(scratch)
    check_pipelines()
    check_left_out()
    check_memory()
    check_refusals()
    os.chdir("/")
    if failed():
        print(f"see {scratch}")
    else:
        shutil.rmtree(scratch)
    return failed()


sys.exit(main())
