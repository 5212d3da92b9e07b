#!/usr/bin/python3
"""RUN/report.html: what it shows while skycc finetune trains and afterwards, and how it looks in a browser.

    tests/driver/finetune/test_run_report.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface. Without Chromium the page is only read, and this is said.
"""
import base64
import csv
import hashlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
import browser  # noqa: E402
import event_files  # noqa: E402
from checks import failed, require, run  # noqa: E402
from finetune_data import KINDS, make_model, reviews, write_table  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
here = os.getcwd()
HOSTILE = "<b>good</b>"


def page(name="run"):
    with open(f"{name}/report.html", encoding="utf-8") as file:
        return file.read()


def ask(port, target, host="localhost", method="GET"):
    """The status and the body of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def check_server(port):
    """Only what belongs to the report, only for this machine."""
    with open("secret.svg", "w") as file:
        file.write("not yours")
    os.symlink("../secret.svg", "live/link.svg")
    with open("live/curve.svg", "w") as file:
        file.write("<svg/>")
    silent, start = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)], time.monotonic()
    require(ask(port, "/")[0] == 200 and time.monotonic() - start < 30, "who says nothing holds up others")
    for connection in silent:
        connection.close()
    require(ask(port, "/")[0] == 200 and ask(port, "/?again")[0] == 200, "no report is served")
    require(ask(port, "/log.csv")[1].startswith("step,loss"), "no log is served")
    require(ask(port, "/curve.svg") == (200, "<svg/>"), "no picture is served")
    for target in ("/settings.yaml", "/../secret.svg", "/%2e%2e/secret.svg", "//etc/passwd", "/link.svg",
                   "/data/../log.csv", "/model/config.json", "/" + "a" * 3000 + ".svg", "report.html"):
        require(ask(port, target)[0] in (400, 404), target[:40], "is served")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    script = re.search(b"<script>(.*?)</script>", answer, re.DOTALL)
    allowed = b"script-src 'sha256-" + base64.b64encode(hashlib.sha256(script[1]).digest()) + b"'"
    require(allowed in answer.partition(b"\r\n\r\n")[0], "the server does not allow the page's script", allowed)
    for host in ("example.org", f"example.org:{port}", "127.0.0.1.example.org"):
        require(ask(port, "/", host)[0] == 403, "answers for", host)
    require(ask(port, "/", f"127.0.0.1:{port}")[0] == 200 and ask(port, "/", method="POST")[0] == 405, "POST")
    require(ask(port, "/", method="HEAD") == (200, ""), "HEAD has a body")


def check_while_training():
    training = subprocess.Popen([skycc, "finetune", "model", "many.csv", "--lr", "1e-4", "-o", "live", "--serve",
                                 "--epochs", "500", "--patience", "0"],  # until it is ended, however fast it is
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = next(int(found[1]) for found in (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in training.stdout)
                if found)
    deadline = time.time() + 60
    while time.time() < deadline and training.poll() is None:
        if "class=\"l\"" in ask(port, "/")[1]:
            break
        time.sleep(0.05)
    text = ask(port, "/report.html")[1]
    check_server(port)
    training.terminate()
    training.communicate()
    require("http-equiv=refresh" in text and "Training</strong>, step" in text, "not live:", text[:3000])
    text = page("live")
    require("Interrupted: go on with skycc finetune --resume live<" in text and "http-equiv" not in text, text[:3000])
    try:
        ask(port, "/")
        require(False, "is served after the end")
    except ConnectionRefusedError:
        pass


def check_events():
    """What TensorBoard reads is what the log has, of a resumed run too."""
    with open("run/log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    paths = sorted(os.path.join("events", name) for name in os.listdir("events"))
    found = event_files.numbers(paths[0])
    for name, column in (("train/loss", "loss"), ("train/learning_rate", "learning_rate"), ("eval/loss", "eval_loss"),
                         ("eval/accuracy", "eval_accuracy")):
        wanted = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
        require([step for step, _ in wanted] == [step for step, _ in found[name]], name, "has other steps")
        same = all(abs(a - b) <= 1e-6 * abs(a) for (_, a), (_, b) in zip(wanted, found[name]))
        require(same, name, "is not the log's")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as missing:
        print("skipped: the events are read by TensorBoard itself:", missing)
        return
    events = EventAccumulator("events")
    events.Reload()
    require([(event.step, event.value) for event in events.Scalars("train/loss")] == found["train/loss"], "TensorBoard")


def check_afterwards():
    run(skycc, "finetune", "model", "reviews.csv", "--lr", "2e-2", "--epochs", "4", "--tensorboard", "events",
        "--test", "reviews.csv")
    text = page()
    for part in ("<title>model: classes</title>", "<strong>Finished</strong>", "Losses and metrics", ">best</text>",
                 "<h2>Test set</h2>", ">test loss<", "[UNK]",
                 "Confusion", "Worst errors", "&lt;b&gt;good&lt;/b&gt;", "busy, of a step", "planned step time",
                 "programs/report.html", "What would make it faster", "warmup", "rows for evaluation",
                 "<abbr tabindex=0 title=\"the share of predictions that are right\">accuracy</abbr>"):
        require(part in text, "no", part, text[-5000:])
    require("[PAD]" not in text, "padding is shown as text")
    require("http-equiv" not in text and HOSTILE not in text, "refreshes for ever, or is not escaped")
    require("<script" not in text and "abbr:focus::after" in text, "a script, or explanations for pointers alone")
    require(not re.search(r"(src|href)=.?https?:", text), "needs something from elsewhere")
    with open("run/metrics.json") as file:
        worst = json.load(file)["worst"]
    require(worst and all(row["label"] != row["predicted"] and row["text"] for row in worst), worst)
    require(worst[0]["score"] >= worst[-1]["score"] - 0.5 and len(worst) <= 20, worst)


def check_without_texts():
    """Of two pipelines that share the rows."""
    with open("two.yaml", "w") as file:
        file.write("devices: [{name: one, threads: 1, memory: 1GiB}, {name: two, threads: 1, memory: 1GiB}]\n")
    run(skycc, "finetune", "model", "reviews.csv", "--lr", "2e-2", "--epochs", "1", "--no-texts", "-o", "quiet", "-d",
        "two.yaml", "--replicas", "2")
    with open("quiet/programs/plan.json") as file:
        require(len(json.load(file)["replicas"]) == 2, "the report is not one of two pipelines")
    require(all(f">{name}<" in page("quiet") for name in ("one", "two")), "the report lacks a device")
    require("Worst errors" not in page("quiet"), "texts are shown in spite of --no-texts")
    with open("quiet/metrics.json") as file:
        require("worst" not in json.load(file), "texts are kept in spite of --no-texts")


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-", ignore_cleanup_errors=True) as scratch:
        os.chdir(scratch)
        make_model("model", data)
        chance, kinds = random.Random(3), sorted(KINDS)
        rows = [(text, chance.choice(kinds) if chance.random() < 0.3 else kind) for text, kind in reviews(160)]
        hurt = [(text, HOSTILE if kind == "good" else kind) for text, kind in rows]
        write_table("reviews.csv", ["review", "kind"], hurt)
        write_table("many.csv", ["review", "kind"], reviews(30000))
        check_while_training()
        check_afterwards()
        check_events()
        check_without_texts()
        browser.look({"classes": "run/report.html", "replicas": "quiet/report.html"}, here)
        os.chdir("/")
    return failed()


sys.exit(main())
