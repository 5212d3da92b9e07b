#!/usr/bin/python3
"""RUN/report.html: what it shows while skycc finetune trains and afterwards, and how it looks in a browser.

    tests/driver/finetune/test_run_report.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface. Without Chromium the page is only read, and this is said.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
from checks import failed, require, run  # noqa: E402
from finetune_data import KINDS, make_model, reviews, write_table  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
HOSTILE = "<b>good</b>"


def page(name="run"):
    with open(f"{name}/report.html", encoding="utf-8") as file:
        return file.read()


def check_while_training():
    training = subprocess.Popen([skycc, "finetune", "model", "many.csv", "--lr", "1e-4", "-o", "live"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while time.time() < deadline and training.poll() is None:
        if os.path.exists("live/report.html") and "class=\"l\"" in page("live"):
            break
        time.sleep(0.05)
    text = page("live")
    training.terminate()
    training.wait()
    require("http-equiv=refresh" in text and "Training</strong>, step" in text, "not live:", text[:3000])
    require("Interrupted" in page("live") and "http-equiv" not in page("live"), page("live")[:3000])


def check_afterwards():
    run(skycc, "finetune", "model", "reviews.csv", "--lr", "2e-2", "--epochs", "4")
    text = page()
    for part in ("<title>model: classes</title>", "<strong>Finished</strong>", "Losses and metrics", ">best</text>",
                 "Confusion", "Worst errors", "&lt;b&gt;good&lt;/b&gt;", "busy, of a step", "planned step time",
                 "programs/report.html", "What would make it faster", "warmup"):
        require(part in text, "no", part, text[-5000:])
    require("http-equiv" not in text and HOSTILE not in text, "refreshes for ever, or is not escaped")
    require(not re.search(r"(src|href)=.?https?:", text), "needs something from elsewhere")
    with open("run/metrics.json") as file:
        worst = json.load(file)["worst"]
    require(worst and all(row["label"] != row["predicted"] and row["text"] for row in worst), worst)
    require(worst[0]["score"] >= worst[-1]["score"] - 0.5 and len(worst) <= 20, worst)


def check_without_texts():
    run(skycc, "finetune", "model", "reviews.csv", "--lr", "2e-2", "--epochs", "1", "--no-texts", "-o", "quiet")
    require("Worst errors" not in page("quiet"), "texts are shown in spite of --no-texts")
    with open("quiet/metrics.json") as file:
        require("worst" not in json.load(file), "texts are kept in spite of --no-texts")


def check_in_browser():
    """Nothing is wider than the window, of a desk or of a phone; the console is silent; links and tables are reached
    by keyboard."""
    chromium = shutil.which("chromium")
    if not chromium:
        print("skipped: the page is not looked at in a browser, as there is no chromium")
        return
    for width in (1280, 390):
        with open("look.html", "w") as file:
            file.write(f"""<iframe src="run/report.html" style="width:{width}px;height:900px;border:0"></iframe><p></p>
<script>onload = () => {{
  const inside = document.querySelector("iframe").contentDocument;
  const reached = [...inside.querySelectorAll("a,[tabindex]")].filter(e => e.tabIndex >= 0).length;
  document.querySelector("p").textContent = `width ${{inside.documentElement.scrollWidth}} reached ${{reached}}.`;
}}</script>""")
        result = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                                 "--allow-file-access-from-files", "--virtual-time-budget=2000", "--dump-dom",
                                 f"--user-data-dir={os.getcwd()}/profile", f"file://{os.getcwd()}/look.html"],
                                capture_output=True, text=True, timeout=120)
        found = re.search(r"width (\d+) reached (\d+)\.", result.stdout)
        require(found, "chromium says", result.stdout[-500:], result.stderr[-2000:])
        require(int(found[1]) <= width, width, "pixels are too few: the page takes", found[1])
        require(int(found[2]) >= 6, "only", found[2], "places are reached by keyboard")
        require("CONSOLE" not in result.stderr, result.stderr)


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
        check_without_texts()
        check_in_browser()
        os.chdir("/")
    return failed()


sys.exit(main())
