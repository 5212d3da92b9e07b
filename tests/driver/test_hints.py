#!/usr/bin/python3
"""What training programs say names no option that DIR/train does not take; an option of another command stands after
that command's name ("compile with the same --lora"). What skycc's own commands say is fitted when it is printed
(command_fit_hints; the function `expect` of test.sh looks at every hint).

    test_hints.py SKYCC TRAINING_PROGRAM SOURCE
"""
import os
import re
import subprocess
import sys

SKYCC, PROGRAM, SOURCE = sys.argv[1:4]
# Whose texts DIR/train prints: the programs', their gateways' and, with --join, the site's. Usage lines are the
# gateway's own.
FOLDERS = "runtime/program", "runtime/wire", "runtime/storage", "runtime/train", "federation/member"
OWN_OPTIONS = "runtime/wire/gateway_main.c", "runtime/train/training_options.c"
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
for folder in FOLDERS:
    for name in sorted(os.listdir(f"{SOURCE}/{folder}")):
        if not name.endswith(".c") or f"{folder}/{name}" in OWN_OPTIONS:
            continue
        for text in texts(f"{SOURCE}/{folder}/{name}"):
            for option in OPTION.findall(text) if " " in text else []:  # one word is code that reads it
                found += 1
                words = set(re.findall(r"[a-z]+", text.split(option)[0]))
                if option not in taken and not any(option in table[word] for word in words & set(table)):
                    failures.append(f"{folder}/{name}: {option} is no option of DIR/train: {text}")
print("\n".join(failures))
print(f"{found} options named by training programs, {len(failures)} that they do not take")
sys.exit(bool(failures) or found < 20 or len(taken) < 20)
