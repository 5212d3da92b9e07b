#!/usr/bin/python3
"""What training programs say names no option that DIR/train does not take, and what the coordinator says none that
skycc coordinate does not take; an option of another command stands after that command's name ("compile with the same
--lora"). What skycc's own commands say is fitted when it is printed (command_fit_hints; the function `expect` of
test.sh looks at every hint).

    test_hints.py SKYCC TRAINING_PROGRAM SOURCE
"""
import os
import re
import subprocess
import sys

SKYCC, PROGRAM, SOURCE = sys.argv[1:4]
# Whose texts DIR/train prints: the programs', their gateways' and, with --join, the site's. Usage lines are the
# gateway's own.
FOLDERS = ("runtime/program", "runtime/wire", "runtime/storage", "runtime/train", "runtime/launch", "federation/member",
           "federation", "federation/connect", "federation/aggregate", "driver/coordinate")
SCRIPTS = ("codegen/link",)
COORDINATORS = re.compile(r"federation/(coordinator|model_history|connect/serve)|driver/coordinate/")
OWN_OPTIONS = "runtime/wire/gateway_main.c", "runtime/train/training_options.c", "runtime/launch/launch.c"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def options_of(*command):
    lines = subprocess.run([*command], capture_output=True, text=True, check=True,
                           stdin=subprocess.DEVNULL).stdout.splitlines()
    listed = [re.match(r"  (?:-\w, )?(--[a-z0-9-]+)", line) for line in lines]
    return {match[1] for match in listed if match}


def texts(path):
    """String literals, those that stand next to each other joined."""
    with open(path, encoding="utf-8") as file:
        code = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for match in re.finditer(rf"{literal}(?:\s*{literal})*", code):
        yield "".join(part[1:-1] for part in re.findall(literal, match[0]))


commands = re.findall(r"^  ([a-z]+) ",
                      subprocess.run([SKYCC, "--help"], capture_output=True, text=True, check=True).stdout, re.M)
table = {command: options_of(SKYCC, command, "--help-all") for command in commands}
table |= {"tokenise": table["tokenize"], "compiled": table["compile"]}
taken = options_of(PROGRAM, "--help")
failures, found = [], 0
files = [(folder, ".c") for folder in FOLDERS] + [(folder, ".sh") for folder in SCRIPTS]
for folder, kind in files:
    for name in sorted(os.listdir(f"{SOURCE}/{folder}")):
        if not name.endswith(kind) or f"{folder}/{name}" in OWN_OPTIONS:
            continue
        program, options = "DIR/train", taken
        if COORDINATORS.match(f"{folder}/{name}"):
            program, options = "skycc coordinate", table["coordinate"]
        for text in texts(f"{SOURCE}/{folder}/{name}"):
            if text.startswith("setpriv "):  # a command that the script runs
                continue
            for option in OPTION.findall(text) if " " in text else []:  # one word is code that reads it
                found += 1
                words = set(re.findall(r"[a-z]+", text.split(option)[0]))
                if {"site", "train"} & words and option in {*taken, "--join"}:  # that of a site is meant
                    continue
                if option not in options and not any(option in table[word] for word in words & set(table)):
                    failures.append(f"{folder}/{name}: {option} is no option of {program}: {text}")
print("\n".join(failures))
print(f"{found} options named by training programs, {len(failures)} that they do not take")
sys.exit(bool(failures) or found < 20 or len(taken) < 20)
