#!/usr/bin/python3
"""Keeps what README.md and docs/ quote of the demo: its output, its plan, and the picture of its plan.

    ./demo >demo.log && tests/docs/record_demo.py demo.log
                                    writes docs/demo.txt, docs/demo-plan.json and docs/demo.svg, and fills in the blocks
    tests/docs/record_demo.py       only fills in the blocks that quote them

A block is quoted where a comment <!-- demo ... --> is before it. The comment lists the beginnings of lines of
docs/demo.txt, in their order, each on a line of its own or after " | "; an empty one and ... stay as they are.
tests/docs checks that every quoted line is in docs/demo.txt.
"""
import os
import re
import shutil
import subprocess
import sys

QUOTE = re.compile(r"(^<!-- demo\n)(.*?)(^-->\n)```text demo\n.*?^```$", re.M | re.S)


def record(log):
    with open(log, encoding="utf-8") as file:
        printed = file.read()
    with open("docs/demo.txt", "w", encoding="utf-8") as file:
        file.write(printed[printed.index("== Model"):])  # not the build
    shutil.copy("demo-run/programs/plan.json", "docs/demo-plan.json")
    with open("docs/demo.svg", "wb") as file:
        subprocess.run(["build/bin/skycc", "explain", "docs/demo-plan.json", "--report", "svg"], stdout=file,
                       check=True)


def quoted(beginnings, printed):
    lines, place = [], 0
    for beginning in beginnings:
        if beginning in ("", "..."):
            lines.append(beginning)
            continue
        while place < len(printed) and not printed[place].startswith(beginning):
            place += 1
        if place == len(printed):
            sys.exit(f"no line of docs/demo.txt begins with '{beginning}' there")
        lines.append(printed[place].rstrip())
        place += 1
    return "".join(line + "\n" for line in lines)


def fill_in(path, printed):
    with open(path, encoding="utf-8") as file:
        text = file.read()

    def block(match):
        beginnings = re.split(r"\n| \| ", match[2].rstrip("\n"))
        return f"{match[1]}{match[2]}{match[3]}```text demo\n{quoted(beginnings, printed)}```"
    filled = QUOTE.sub(block, text)
    if filled != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(filled)


os.chdir(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
if len(sys.argv) > 1:
    record(sys.argv[1])
with open("docs/demo.txt", encoding="utf-8") as demo:
    output = demo.read().splitlines()
for page in ["README.md"] + [f"docs/{name}" for name in sorted(os.listdir("docs")) if name.endswith(".md")]:
    fill_in(page, output)
