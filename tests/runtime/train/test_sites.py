#!/usr/bin/python3
"""One pipeline over sites, each with its own gateway, keys and launcher, on this host: the same losses and parameters
to the last bit as in one site; a link that is cut and comes back; a site that is killed, comes back, and goes on from
the checkpoint.

    test_sites.py SKYCC TESTS_DATA
"""
import csv
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402

SKYCC, DATA = sys.argv[1:]
MODEL = f"{DATA}/bert/bert-nano-seqcls-opset17-dyn.onnx"
SEQUENCE, ROWS = 16, 64
PATIENCE = 300  # seconds: for what must come, however busy the machine is
BY_SLURM = ("three", "b")
ATTEMPTS = 5  # a port that was free may be taken a moment later


def wait_for(condition, what):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.02)


def free_port():
    """Below those that systems give to whoever connects."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Relay(threading.Thread):
    """Passes bytes between whoever connects and a port; stops in the middle of the run, once `limit` bytes have
    passed."""

    def __init__(self, port, limit):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.port, self.limit, self.passed = port, limit, 0
        self.stopped, self.mended = threading.Event(), threading.Event()
        self.start()

    def run(self):
        selector, other = selectors.DefaultSelector(), {}
        selector.register(self.listener, selectors.EVENT_READ)

        def close(end):
            for one in (end, other.pop(end)):
                other.pop(one, None)
                selector.unregister(one)
                one.close()

        while True:
            if self.passed > self.limit and not self.stopped.is_set():
                for end in list(other):
                    if end in other:
                        close(end)
                self.stopped.set()
            for key, _ in selector.select(0.05):
                end = key.fileobj
                if end is self.listener:
                    accepted = self.listener.accept()[0]
                    try:
                        assert not self.stopped.is_set() or self.mended.is_set()
                        target = socket.create_connection(("127.0.0.1", self.port))
                    except (OSError, AssertionError):
                        accepted.close()
                        continue
                    other[accepted], other[target] = target, accepted
                    selector.register(accepted, selectors.EVENT_READ)
                    selector.register(target, selectors.EVENT_READ)
                elif end in other:
                    try:
                        data = end.recv(1 << 16)
                        other[end].sendall(data)
                        self.passed += len(data)
                    except OSError:
                        data = b""
                    if not data:
                        close(end)


def write_data():
    draws = np.random.default_rng(5)
    safetensors_files.write("data", {
        "input_ids": draws.integers(0, 100, (ROWS, SEQUENCE)).astype("i4"),
        "attention_mask": np.ones((ROWS, SEQUENCE), "i4"),
        "token_type_ids": np.zeros((ROWS, SEQUENCE), "i4"),
        "labels": draws.integers(0, 3, ROWS).astype("i4"),
    })


def write_packed_data():
    """Rows of several lengths, of which some are as long as may be."""
    draws = np.random.default_rng(6)
    lengths = draws.integers(3, SEQUENCE + 1, ROWS)
    lengths[:8] = SEQUENCE
    padding = np.arange(SEQUENCE) >= lengths[:, None]
    safetensors_files.write("packed-data", {
        "input_ids": np.where(padding, 0, draws.integers(1, 100, (ROWS, SEQUENCE))).astype("i4"),
        "attention_mask": (~padding).astype("i4"),
        "token_type_ids": np.zeros((ROWS, SEQUENCE), "i4"),
        "labels": draws.integers(0, 3, ROWS).astype("i4"),
    })


def compile_run(name, sites, schedule, *options):
    """Four devices; `sites` says for each in which site it is, or is empty."""
    with open(f"{name}.yaml", "w") as file:
        if sites:
            file.write("sites:\n")
            for i, site in enumerate(sorted(set(sites))):
                address = f", address: '127.0.0.1:{1000 + i}'" if i < len(set(sites)) - 1 else ""
                key = open(f"{site}.pub").read().strip().replace("'", "''")
                file.write(f"  - {{name: {site}, key: '{key}'{address}}}\n")
        file.write("devices:\n")
        for d in range(4):
            site = f", site: {sites[d]}" if sites else ""
            file.write(f"  - {{name: device-{d}, threads: 1, memory: 1GiB{site}}}\n")
    subprocess.run([
        SKYCC, "compile", MODEL, "-d", f"{name}.yaml", "--allocate", "even", "-o", name, "--dim", "batch=8",
        *(options or ["--dim", f"seq={SEQUENCE}"]), "--microbatches", "4", "--schedule", schedule
    ], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def set_addresses(name, sites, relay_of=None):
    """Gives every site that has an address a port; `relay_of` (site, limit): the others reach it through a relay."""
    names = sorted(set(sites))
    addresses = {site: f"localhost:{free_port()}" for site in names[:-1]}
    relay = Relay(int(addresses[relay_of[0]].split(":")[1]), relay_of[1]) if relay_of else None
    for own in names:
        path = f"{name}/{own}/site.json"
        site_file = json.load(open(path))
        for site in site_file["sites"]:
            site["address"] = addresses.get(site["name"])
            if relay and site["name"] == relay_of[0] != own:
                site["address"] = relay.address
        json.dump(site_file, open(path, "w"))
    return relay


def start(name, site, options):
    """`options` come last, and so count. One of the sites is started by what Slurm runs on the node that it gives."""
    output, here = open(f"{name}-{site}.out", "ab"), os.getcwd()
    if (name, site) == BY_SLURM:
        command, place = ["./run.sbatch", "--key", f"{here}/{site}.key"], f"{name}/{site}"
    else:
        command, place = [f"{here}/{name}/{site}/train"], here
    command += [
        "--data", f"{here}/data", "--log", f"{here}/{name}-{site}.csv", "--clip", "1", "--seed", "4", "--checkpoint",
        f"{here}/{name}-{site}.kept", "--audit", f"{here}/{name}-{site}.audit", *options
    ]
    return subprocess.Popen(command, cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def output_of(name, site):
    return open(f"{name}-{site}.out", errors="replace").read()


def end(name, site, process):
    """Waits for a site's end. None if it could not listen; else its exit code."""
    code = process.wait(PATIENCE)
    return None if "cannot listen for other sites" in output_of(name, site) else code


def forget(name, sites):
    for site in set(sites):
        shutil.rmtree(f"{name}-{site}.kept", ignore_errors=True)
        for path in (f"{name}-{site}.out", f"{name}-{site}.csv", f"{name}-{site}.audit"):
            if os.path.exists(path):
                os.remove(path)


def descendants(root):
    """The process and all that it started, children last."""
    found, children = [root], {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as file:
                children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
        except (OSError, ValueError, IndexError):
            continue
    for process in found:
        found.extend(children.get(process, []))
    return found


def kill_site(process):
    for one in descendants(process.pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def run_sites(name, sites, options, relay_of=None, meanwhile=None):
    """All sites to their end, which must be a good one."""
    for _ in range(ATTEMPTS):
        forget(name, sites)
        relay = set_addresses(name, sites, relay_of)
        processes = {site: start(name, site, options) for site in sorted(set(sites))}
        if meanwhile and "cannot listen" not in "".join(output_of(name, site) for site in processes):
            meanwhile(relay, processes)
        codes = {site: end(name, site, process) for site, process in processes.items()}
        if None in codes.values():
            for process in processes.values():
                process.kill()
            continue
        outputs = "\n".join(f"--- {site}\n{output_of(name, site)}" for site in processes)
        assert set(codes.values()) == {0}, f"{name}: {codes}\n{outputs}"
        return
    raise AssertionError("no port was free")


def losses(path):
    """Step to loss, as they are written; a step that was done again must have had the same."""
    found = {}
    for row in csv.DictReader(open(path)):
        step, loss = row["step"], row["loss"]
        assert found.setdefault(step, loss) == loss, f"{path}: step {step} is {found[step]} and {loss}"
    return found


def run_alone(name, *options):
    subprocess.run([
        f"{name}/train", "--data", "data", "--log", f"{name}.csv", "--clip", "1", "--seed", "4", "--checkpoint",
        f"{name}.kept", "--quiet", *options
    ], check=True, stdin=subprocess.DEVNULL)


def check_same(name, sites, steps, one="one"):
    """Against the run in one site: losses and the bytes of what was kept."""
    first = min(sites)
    expected, found = losses(f"{one}.csv"), losses(f"{name}-{first}.csv")
    assert len(expected) >= steps
    for step in range(1, steps + 1):
        assert found[str(step)] == expected[str(
            step)], f"{name}: step {step}: {found[str(step)]}, not {expected[str(step)]}"
    for rank, site in enumerate(sites):
        part = f"step-{steps:08d}/rank-{rank:02d}.safetensors"
        same = open(f"{name}-{site}.kept/{part}", "rb").read() == open(f"{one}.kept/{part}", "rb").read()
        assert same, f"{name}: {part} differs"


def verify(name, *audits):
    """Exit code of skycc verify, and what it printed."""
    command = [SKYCC, "verify", f"{name}/plan.json", "--costs", f"{name}/costs.json"]
    for audit in audits:
        command += ["--audit", audit]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return done.returncode, done.stdout


def audit_of(name, site):
    return json.load(open(f"{name}-{site}.audit"))


def check_audits(name, sites, whole=True):
    """What every site counted is in the plan; `whole`: each of two sites counted the same. A site counts both ways."""
    names = sorted(set(sites))
    code, text = verify(name, *(f"{name}-{site}.audit" for site in names))
    assert code == 0, text
    audits = {site: audit_of(name, site) for site in names}
    counted = {}
    for site, audit in audits.items():
        assert not audit["running"] and audit["cut_short"] + audit["broken_off"] == 0 or not whole, audit
        for crossing in audit["crossed"]:
            if crossing["class"] not in ("acknowledgement", "greeting", "end"):
                key = tuple(
                    str(crossing.get(k))
                    for k in ("class", "tensor", "kind", "from_stage", "to_stage", "from_site", "to_site"))
                counted.setdefault(key, []).append((crossing["messages"], crossing["bytes"]))
    for key, both in counted.items():
        assert not whole or (len(both) == 2 and both[0] == both[1]), f"{name}: {key} counted as {both}"
    return audits


def forge(name, site, change):
    """A changed audit; verify must refuse it with exit code 1. Returns what it says."""
    audit = audit_of(name, site)
    change(
        audit,
        next(crossing for crossing in audit["crossed"]
             if crossing["class"] == "tensor" and crossing["kind"] == "gradient"))
    json.dump(audit, open("forged.audit", "w"))
    code, text = verify(name, "forged.audit")
    assert code == 1, text
    return text


def add(crossing, messages):
    size = crossing["bytes"] // crossing["messages"]
    crossing["messages"] += messages
    crossing["bytes"] += messages * size


def test_audits():
    """Behind test_schedules: 4 steps of 4 micro-batches, with nothing that disturbed them."""
    for name, sites in (("two", "aabb"), ("three", "abbc"), ("mixed", "abac")):
        for audit in check_audits(name, sites).values():
            assert (audit["starts"], audit["steps"], audit["repeated_steps"], audit["last_step"],
                    audit["microbatches"]) == (1, 4, 0, 4, 16), audit
    plan = json.load(open("three/plan.json"))["crossings_between_sites"]
    tensors = [crossing for crossing in audit_of("three", "b")["crossed"] if crossing["class"] == "tensor"]
    assert len(tensors) == len(plan) and all(crossing["messages"] == 16 for crossing in tensors), tensors
    losses_sent = [crossing for crossing in audit_of("three", "c")["crossed"] if crossing["class"] == "loss"]
    assert [(crossing["from_site"], crossing["to_site"], crossing["messages"], crossing["bytes"])
            for crossing in losses_sent] == [("c", "a", 4, 32)], losses_sent

    text = forge("three", "b", lambda audit, tensor: audit["crossed"].append({**tensor, "tensor": "input_ids"}))
    assert "'input_ids'" in text and "not in the plan" in text, text
    name = next(crossing["tensor"] for crossing in tensors if crossing["kind"] == "gradient")
    text = forge("three", "b", lambda _, tensor: add(tensor, 1))
    assert f"'{name}'" in text and "crossed 17 times, more often than the 16 times" in text, text
    text = forge("three", "b", lambda _, tensor: add(tensor, -1))
    assert f"'{name}'" in text and "less often" in text, text
    text = forge("three", "b", lambda audit, tensor: audit["crossed"].remove(tensor))
    assert f"'{name}'" in text and "crossed 0 times" in text, text
    text = forge("three", "b", lambda _, tensor: tensor.update(most_bytes=tensor["most_bytes"] + 1))
    assert f"'{name}'" in text and "but the plan says" in text, text
    text = forge("three", "b", lambda _, tensor: tensor.update(to_site="c", from_site="a"))
    assert "which site 'b' cannot know" in text, text
    text = forge("three", "b", lambda audit, tensor: audit["crossed"].append({**tensor, "class": "unknown", "tag": 77}))
    assert "tag 77" in text, text
    text = forge(
        "three", "b", lambda audit, _: next(crossing for crossing in audit["crossed"]
                                            if crossing["class"] == "barrier").update(most_bytes=9))
    assert "barrier, " in text and "carry 0 at most" in text, text
    text = forge("three", "b", lambda audit, tensor: audit["crossed"].append(tensor))
    assert "is listed twice" in text, text
    text = forge("three", "b", lambda audit, _: audit["crossed"][0].update(
        {"from_site": "x\n\033[31m"} if audit["crossed"][0]["to_site"] == "b" else {"to_site": "x\n\033[31m"}))
    assert "cannot know" in text and "\033" not in text and "x\n" not in text, text
    text = forge("three", "b", lambda audit, _: audit.update(microbatches=17))
    assert "4 of them have 17 micro-batches" in text, text
    text = forge("three", "b", lambda audit, _: audit.update(steps=1 << 60))
    assert "out of range" in text, text
    shutil.copy("two-a.audit", "forged.audit")
    code, text = verify("three", "forged.audit")
    assert code == 1 and "another plan" in text, text

    # A file of another site or compilation is not gone on with; what stands there stays.
    before = open("two-b.audit").read()
    for site, own in (("a", "two"), ("b", "three")):
        done = subprocess.run([
            f"{own}/{site}/train", "--data", "data", "--steps", "1", "--checkpoint", "none", "--checkpoint-every", "1",
            "--audit", "two-b.audit"
        ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 1 and "--audit goes on with what is there" in done.stdout, done.stdout
    assert open("two-b.audit").read() == before
    done = subprocess.run(["one/train", "--data", "data", "--steps", "1", "--audit", "none"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 2 and "--audit needs several sites" in done.stdout and not os.path.exists(
        "none"), done.stdout


def test_audit_goes_on():
    """Behind test_schedules: the next four steps, with an evaluation, counted in the same files; what was done twice is
    said."""
    sites, options = "aabb", [
        "--steps", "8", "--schedule-steps", "12", "--checkpoint-every", "4", "--resume", "--eval-data", "data"
    ]
    for attempt in range(ATTEMPTS):
        set_addresses("two", sites)
        processes = {site: start("two", site, options) for site in "ab"}
        if all(end("two", site, process) == 0 for site, process in processes.items()):
            break
    for audit in check_audits("two", sites, whole=attempt == 0).values():
        assert (audit["steps"], audit["repeated_steps"], audit["last_step"]) == (8, 0, 8), audit
        assert (audit["evaluated_batches"], audit["evaluated_microbatches"], audit["longest_evaluation"]) == (4, 16,
                                                                                                              2), audit
    # A start that was broken off: gradients may be off by two steps of 4 micro-batches, activations by an evaluation of
    # two batches more.
    for kind, most in ("gradient", 8), ("activation", 16):
        for more, accepted in (most, True), (-most, True), (most + 1, False), (-most - 1, False):
            audit = audit_of("two", "a")
            audit["broken_off"] = 1
            add(next(crossing for crossing in audit["crossed"] if crossing.get("kind") == kind), more)
            json.dump(audit, open("forged.audit", "w"))
            code, text = verify("two", "forged.audit")
            assert code == (0 if accepted else 1), text
            assert "did not end cleanly" in text if accepted else "even with those that were broken off" in text, text


def test_schedules():
    for name, schedule, sites in (("two", "gpipe", "aabb"), ("three", "1f1b", "abbc"), ("mixed", "zb", "abac")):
        compile_run(name, sites, schedule)
        run_sites(name, sites, ["--steps", "4", "--schedule-steps", "12", "--checkpoint-every", "4"])
        check_same(name, sites, 4)


def test_packed():
    """Rows that share lines, with and without codecs, at three sites: the bits of one site, and no step sends more than
    it has."""
    packed = ["--dim", f"seq=auto:{SEQUENCE}", "--lengths", "packed-data"]
    run = ["--data", "packed-data", "--eval-data", "packed-data", "--steps", "4", "--checkpoint-every", "4"]
    found = []
    for codec in "lossless", "q8":
        one, name = f"one-{codec}", f"packed-{codec}"
        compile_run(one, "", "1f1b", *packed, "--codec", codec)
        compile_run(name, "abbc", "1f1b", *packed, "--codec", codec)
        run_alone(one, *run)
        run_sites(name, "abbc", run)
        check_same(name, "abbc", 4, one)
        plan = json.load(open(f"{name}/plan.json"))
        assert {crossing["codec"] for crossing in plan["crossings_between_sites"] if crossing["dtype"] == "f32"} == {
            "none" if codec == "lossless" else codec}, plan["crossings_between_sites"]
        for audit in check_audits(name, "abbc").values():
            assert audit["steps"] == 4 and audit["evaluated_batches"] > 0, audit
            assert audit["microbatches"] < 4 * plan["microbatches"], "no step left a micro-batch out"
            sizes = [(c["least_bytes"], c["most_bytes"]) for c in audit["crossed"]
                     if c.get("kind") in ("activation", "gradient")]
            assert sizes and any(least < most for least, most in sizes), f"no micro-batch sent fewer lines: {sizes}"
        forge(
            name, "a", lambda audit, crossing: crossing.update(least_bytes=crossing["least_bytes"] - 1, bytes=crossing[
                "bytes"] - 1))
        forge(name, "a",
              lambda audit, crossing: crossing.update(least_bytes=0, bytes=crossing["bytes"] - crossing["least_bytes"]))
        found.append(losses(f"{one}.csv"))
    assert found[0] != found[1], "the codec changed nothing"


def test_cut():
    """In the middle of a run the link between a and the others is cut, until they have noticed."""
    def mend(relay, processes):
        wait_for(lambda: relay.stopped.is_set() or processes["a"].poll() is not None, "the cut")
        wait_for(lambda: "lost site a" in output_of("three", "b") + output_of("three", "c"), "its being noticed")
        relay.mended.set()

    run_sites("three", "abbc", ["--steps", "12", "--checkpoint-every", "4"], ("a", 700000), mend)
    check_same("three", "abbc", 12)
    check_audits("three", "abbc")
    text = output_of("three", "b") + output_of("three", "c")
    assert "site a is back" in text, text
    assert "began anew" not in text, text


def test_killed():
    """Site c is killed while its link stands still, started again, and all go on from a checkpoint, which is whole some
    steps after its own."""
    options = ["--steps", "12", "--checkpoint-every", "2"]

    def kill(relay, processes):
        wait_for(relay.stopped.is_set, "the cut")
        kill_site(processes["c"])
        relay.mended.set()
        processes["c"] = start("three", "c", [*options, "--resume"])

    run_sites("three", "abbc", options, ("a", 1500000), kill)
    check_same("three", "abbc", 12)
    audits = check_audits("three", "abbc", whole=False)
    assert audits["c"]["starts"] == 2 and audits["c"]["cut_short"] == 1, audits["c"]
    for site in "ab":
        audit = audits[site]
        assert audit["starts"] == 2 and audit["broken_off"] == 1 and audit["cut_short"] == 0, audit
        assert audit["steps"] == 12 + audit["repeated_steps"], audit
    text = output_of("three", "a")
    assert "site c began anew" in text and "resuming after step" in text, text


def say_where(name, sites, options_of, expected):
    """All sites end badly, and each says what is expected of it, with the name of the site at fault."""
    for _ in range(ATTEMPTS):
        forget(name, sites)
        set_addresses(name, sites)
        processes = {site: start(name, site, options_of(site)) for site in sorted(set(sites))}
        codes = {site: end(name, site, process) for site, process in processes.items()}
        if None not in codes.values():
            break
    for site, code in codes.items():
        text = output_of(name, site)
        assert code == expected[0], f"{name}: {site} ends with {code}: {text}"
        assert all(word in text for word in expected[1]), f"{name}: {site} does not say {expected[1]}: {text}"


def test_reasons():
    """What ends a run is said at every site, and every site shows its progress."""
    steps = ["--steps", "4", "--schedule-steps", "12", "--checkpoint-every", "4"]
    safetensors_files.write(
        "other", {name: tensor[:ROWS // 2].copy()
                  for name, tensor in safetensors_files.read("data").items()})
    say_where("two", "aabb", lambda site: [*steps, "--data", "none"] if site == "b" else steps, (1, ["none", "2 b"]))
    assert "site b ended the run: rank" in output_of("two", "a"), output_of("two", "a")
    say_where("two", "aabb", lambda site: [*steps, "--data", "other"] if site == "b" else steps,
              (1, [f"has {ROWS} rows for rank 0, but {ROWS // 2} for rank", "2 b"]))
    say_where("two", "aabb", lambda site: [*steps, "--seed", "7"] if site == "b" else steps,
              (2, ["--seed", ", site b) ", ", site a)"]))

    def start_both(*options):
        forget("two", "aabb")
        set_addresses("two", "aabb")
        both = {site: start("two", site, ["--steps", "100000", "--checkpoint-every", "100000", *options])
                for site in "ab"}
        wait_for(lambda: "b: step 1/100000" in output_of("two", "b"), "the progress of site b")
        return both

    def is_rank(process):  # not what started it and watches it
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return b"/stage-03" in file.read() and len(descendants(process)) == 1

    # As when memory is out: a program that is killed can say nothing itself.
    processes = start_both("--site-timeout", "2")
    os.kill(next(filter(is_rank, descendants(processes["b"].pid))), signal.SIGKILL)
    for site, process in processes.items():
        code, text = process.wait(PATIENCE), output_of("two", site)
        assert code == 6 and "rank 3 (device-3), step" in text and "killed by signal 9" in text, (site, code, text)
    assert "--site-timeout: rank 3 (device-3), step" in output_of("two", "a"), output_of("two", "a")

    processes = start_both()
    processes["b"].terminate()
    for site, process in processes.items():
        code, text = process.wait(PATIENCE), output_of("two", site)
        assert code == 143 and "ended by SIGTERM at site b" in text, f"{site} ends with {code}: {text}"


def main():
    with tempfile.TemporaryDirectory(prefix="sites-") as folder:
        os.chdir(folder)
        write_data()
        write_packed_data()
        for site in "abc":
            subprocess.run([SKYCC, "key", site], check=True, stdout=subprocess.DEVNULL)
        compile_run("one", "", "1f1b")
        run_alone("one", "--steps", "12", "--checkpoint-every", "4")
        test_schedules()
        test_audits()
        test_audit_goes_on()
        test_packed()
        test_cut()
        test_killed()
        test_reasons()
        print("sites: three schedules, a cut and a killed site gave the same bits as one site")


main()
