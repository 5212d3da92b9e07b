#!/usr/bin/python3
"""No command replaces what it reads: every output option is tried against every input of its command, also through
links. And none makes an output of inputs that are overwritten meanwhile.

    tests/driver/test_inputs_are_spared.py SKYCC DATA

DATA is tests/data.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
CLUSTER = "devices: [{name: a, memory: 1GiB, gflops: 10}, {name: b, memory: 1GiB, gflops: 10}]\n"
DIMENSIONS = ("--dim", "batch=2", "--dim", "seq=6", "--microbatches", "2")


def content(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def forms(path):
    """The same file under other names."""
    for kind, make in (("link", os.symlink), ("hard", os.link)):
        name = f"{kind}-{os.path.basename(path)}"
        if not os.path.lexists(name):
            make(os.path.realpath(path) if kind == "link" else path, name)
        yield name


def refused(path, output, *command, environment=None):
    before = content(path)
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    require(content(path) == before and os.path.isfile(path), command, "replaces", path)
    require(result.returncode == 2, command, "gives", result.returncode, result.stderr)
    require("would replace" in result.stderr and output in result.stderr, command, "says", result.stderr)
    require(
        os.path.islink(output) == os.path.basename(output).startswith("link-"), command, "replaces the link", output)


def attack(inputs, options, *command):
    """Every one of `options`, that the command writes, against every one of `inputs`."""
    for path in inputs:
        for option in options:
            other = [] if option == "-o" else ["-o", "fresh"]
            refused(path, path, skycc, *command, *other, option, path)
            shutil.rmtree("fresh", ignore_errors=True)
    for output in forms(inputs[0]):
        other = [] if options[0] == "-o" else ["-o", "fresh"]
        refused(inputs[0], output, skycc, *command, *other, options[0], output)
        os.remove(output)


def prepare():
    for name in ("config.json", "model.safetensors"):
        os.makedirs("folder", exist_ok=True)
        shutil.copy(f"{data}/huggingface/bert/{name}", "folder")
    with open("folder/vocab.txt", "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, 61))]) + "\n")
    with open("t.tsv", "w") as file:
        file.write("sentence\tlabel\nw5 w6\tno\nw7\tyes\nw9 w10\tno\nw11\tyes\n")
    with open("c.yaml", "w") as file:
        file.write(CLUSTER)
    shutil.copy(f"{data}/bert/bert-nano-seqcls-opset17-dyn.onnx", "m.onnx")
    shutil.copy(f"{data}/bert/seqcls.ref.safetensors", "x.safetensors")
    run(skycc, "tokenize", "--vocab", "folder/vocab.txt", "--text", "sentence", "--label", "label", "t.tsv", "-o",
        "d.safetensors", "--max-length", "6", "-q")
    run(skycc, "probe", "m.onnx", "-d", "c.yaml", "-o", "profile.json", *DIMENSIONS[:4])
    run(skycc, "plan", "m.onnx", "-d", "c.yaml", "--profile", "profile.json", *DIMENSIONS, "-o", "plan.json")
    run(skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "--emit=costs", "-o", "costs.json")
    with open("log.csv", "w") as file:
        file.write("step,loss\n1,0.5\n2,0.25\n")
    run(skycc, "import", "folder", "-o", "imported.onnx")


def commands():
    model = ("m.onnx", "-d", "c.yaml", *DIMENSIONS)
    attack(["m.onnx", "c.yaml", "profile.json"], ["-o", "--report", "--depfile"], "compile", *model, "--profile",
           "profile.json")
    attack(["m.onnx", "c.yaml"], ["-o"], "compile", *model, "--emit=graph")
    attack(["m.onnx", "c.yaml", "profile.json"], ["-o"], "plan", *model, "--profile", "profile.json")
    attack(["costs.json"], ["-o"], "plan", "--costs", "costs.json")
    attack(["d.safetensors"], ["-o"], "plan", "m.onnx", "-d", "c.yaml", "--dim", "batch=2", "--dim", "seq=auto:6",
           "--lengths", "d.safetensors")
    attack(["m.onnx", "c.yaml"], ["-o"], "probe", *model[:-2])
    attack(["m.onnx", "x.safetensors"], ["-o"], "run", "m.onnx", "--inputs", "x.safetensors")
    attack(["t.tsv", "folder/vocab.txt"], ["-o"], "tokenize", "--vocab", "folder/vocab.txt", "--text", "sentence",
           "--label", "label", "t.tsv", "--max-length", "8", "-q")
    attack(["folder/config.json", "folder/model.safetensors"], ["-o"], "import", "folder")
    shutil.copy("folder/model.safetensors", "trained.safetensors")
    attack(["folder/vocab.txt", "folder/config.json", "trained.safetensors", "imported.onnx"], ["-o"], "export",
           "imported.onnx", "trained.safetensors")
    attack(["imported.onnx", "t.tsv"], ["-o"], "predict", "imported.onnx", "--data", "t.tsv", "--text", "sentence",
           "--tokenizer", "folder/vocab.txt")
    attack(["log.csv"], ["-o"], "plot", "log.csv")
    with open("folder/config.json") as file:
        config = json.load(file)
    config["architectures"] = ["BertModel"]
    with open("folder/config.json", "w") as file:
        json.dump(config, file)
    run(skycc, "import", "folder", "-o", "encoder.onnx")
    attack(["encoder.onnx"], ["-o"], "head", "encoder.onnx", "--head", "seqcls:2")


def overwritten(path, *command):
    """Whoever reads the command's output comes late: `path` is overwritten while the command waits for that."""
    os.mkfifo("late")
    process = subprocess.Popen([skycc, *command, "-o", "late"], stderr=subprocess.PIPE, text=True)
    waits = 0
    while process.poll() is None and waits < 3:
        time.sleep(0.02)
        with open(f"/proc/{process.pid}/stat") as stat, open(f"/proc/{process.pid}/maps") as maps:
            waits += stat.read().rsplit(")", 1)[1].split()[0] == "S" and os.path.realpath(path) in maps.read()
    with open(path, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(first)
    if process.poll() is None:
        with open("late", "rb") as file:
            file.read()
    said = process.communicate()[1]
    require(process.returncode == 1 and f"{path}: error: was overwritten while it was in use" in said, path, command,
            process.returncode, said)
    os.remove("late")


def trains():
    environment = {**os.environ, "MPIEXEC_TIMEOUT": "100"}
    run(skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "--allocate", "even", "-o", "job", "-q")
    shutil.copy("d.safetensors", "e.safetensors")
    train = ("job/train", "--data", "d.safetensors", "--eval-data", "e.safetensors", "--steps", "2", "--quiet")
    run(*train, "--checkpoint", "kept", "--log", "run.csv", "--trace", "trace.json")
    # in place, as documented
    run(*train, "--checkpoint", "kept", "--resume", "--log", "run.csv", "--trace", "trace.json")
    weights = [f"job/{name}" for name in sorted(os.listdir("job")) if name.endswith(".safetensors")] or ["m.onnx"]
    for path in ("d.safetensors", "e.safetensors", *weights):
        for option in ("--log", "--trace", "--eval-first"):
            refused(path, path, *train, option, path, environment=environment)
    for name in ("job/train", "job/plan.json"):  # which no rank reads
        for output in (name, *forms(name)):
            for option in ("--log", "--eval-first"):
                refused(name, output, *train, option, output, environment=environment)
        for kind in ("link", "hard"):
            os.remove(f"{kind}-{os.path.basename(name)}")
    for output in forms("d.safetensors"):
        refused("d.safetensors", output, *train, "--log", output, environment=environment)
        os.remove(output)
    # Data that lies where a checkpoint will be written.
    shutil.copy("d.safetensors", "kept/step-00000002/rank-77.safetensors")
    path = "kept/step-00000002/rank-77.safetensors"
    refused(path, path, "job/train", "--data", path, "--steps", "2", "--quiet", "--checkpoint", "kept",
            environment=environment)
    run(skycc, "export", "m.onnx", "kept", "-o", "trained.onnx")
    step = "kept/step-00000002"
    overwritten("t.tsv", "tokenize", "--vocab", "folder/vocab.txt", "--text", "sentence", "--label", "label", "t.tsv",
                "--max-length", "8", "-q")
    os.mkdir("taken.safetensors")
    run(skycc, "tokenize", "--vocab", "folder/vocab.txt", "--text", "sentence", "--label", "label", "t.tsv", "-o",
        "taken.safetensors", "--holdout", "1", "-q", code=1)
    require(not os.path.exists("taken.holdout.safetensors"), "rows are held out of nothing")
    overwritten("folder/model.safetensors", "import", "folder", "-q")
    overwritten("m.onnx", "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "--emit=graph")
    for path in ("m.onnx", f"{step}/rank-00.safetensors"):
        overwritten(path, "export", "m.onnx", "kept")
    safetensors_files.write("unnamed.safetensors", safetensors_files.read("e.safetensors"))
    attack(["m.onnx", "unnamed.safetensors", f"{step}/rank-00.safetensors"], ["-o"], "evaluate", "m.onnx", "kept",
           "unnamed.safetensors")
    attack(["m.onnx", f"{step}/MANIFEST.json", f"{step}/rank-00.safetensors"], ["-o"], "export", "m.onnx", "kept")
    # A directory of skycc's own that holds an input, and one in whose place an input is.
    run(skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "-o", "job", "-q")  # again: nothing of it is read
    before = content("job/plan.json")
    with open("job/d.yaml", "w") as file:
        file.write(CLUSTER)
    with open("job/.skycc-files", "a") as file:
        file.write("d.yaml\n")
    for force in ((), ("--force",)):
        refused("job/d.yaml", "job", skycc, "compile", "m.onnx", "-d", "job/d.yaml", *DIMENSIONS, "-o", "job", "-q",
                *force)
    require(content("job/plan.json") == before, "job was replaced")


def directories():
    """-o DIR that holds an input which skycc wrote, under whichever name; and what no directory can replace."""
    model = ("-d", "c.yaml", *DIMENSIONS, "-q")
    made = ("compile", "m.onnx", *model, "-o", "inside")
    run(skycc, *made)
    for make in (shutil.copy, os.link, lambda old, new: os.symlink(os.path.abspath(old), new)):
        make("m.onnx", "inside/own.onnx")
        with open("inside/.skycc-files", "a") as file:
            file.write("own.onnx\n")
        os.symlink("inside", "alias")
        for path in ("inside/own.onnx", "alias/own.onnx"):
            before = content(path)
            result = subprocess.run([skycc, "compile", path, *model, "-o", "inside"], capture_output=True, text=True)
            require(os.path.exists("m.onnx") and content("m.onnx") == before, "the model is lost")
            linked = os.path.islink("inside/own.onnx")  # which is not skycc's
            require(result.returncode == (1 if linked else 2), result.returncode, result.stderr)
            require("own.onnx" in result.stderr and content(path) == before, path, result.stderr)
        os.remove("inside/own.onnx")
        os.remove("alias")
        run(skycc, *made)
    before = sorted(os.listdir("."))
    for command in (made[:-2], ("export", "m.onnx", "m.onnx"), ("federate", "m.onnx", "-c", "c.yaml", *DIMENSIONS)):
        option = "--folder" if command[0] == "export" else "-o"
        for place in (".", "./", "..", os.getcwd(), f"{os.getcwd()}/", "inside/..", "/"):
            if command[0] != "compile" and place != ".":
                continue
            result = subprocess.run([skycc, *command, option, place], capture_output=True, text=True)
            require(result.returncode in (1, 2) and "busy" not in result.stderr, command, place, result.stderr)
            require(command[0] != "compile" or "cannot be replaced\n" in result.stderr, command, place, result.stderr)
    require(sorted(os.listdir(".")) == before, "something is left in the working directory")


def owned():
    """What a run, a checkpoint or a compiled folder needs whole is not replaced by what never read it."""
    run(skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "-o", "job", "-q", "--force")
    run("job/train", "--data", "d.safetensors", "--steps", "1", "--quiet", "--checkpoint", "saved", "--log", "log.csv")
    os.makedirs("run/checkpoints")
    shutil.copytree("job", "run/programs")
    shutil.copytree("saved/step-00000001", "run/checkpoints/step-00000001")
    for name in ("settings.yaml", "model.onnx", "report.html", "log.csv", "metrics.json"):
        shutil.copy("m.onnx", f"run/{name}")
    os.symlink("run", "other-run")
    kept = ["job/plan.json", "job/stage-00", "job/report.html", "saved/step-00000001/rank-00.safetensors",
            "saved/step-00000001/MANIFEST.json", "run/settings.yaml", "run/report.html", "run/programs/stage-00",
            "other-run/metrics.json", "run/../run/log.csv", "run/checkpoints/step-00000001/MANIFEST.json"]
    for path in kept:
        before = content(path)
        for command in (("plot", "log.csv", "-o"), ("bert", "--layers", "1", "--hidden", "8", "--heads", "1", "-o")):
            result = subprocess.run([skycc, *command, path], capture_output=True, text=True)
            require(result.returncode == 2 and "would replace a part of the" in result.stderr, path, result.stderr)
            require(content(path) == before, path, "is replaced")
    for path in ("run/settings.yaml", "other-run/metrics.json"):
        for option in ("--log", "--trace"):
            refused(path, path, "job/train", "--data", "d.safetensors", "--steps", "1", "--quiet", option, path)
    for folder in ("run/programs", "run/model", "run/checkpoints"):
        os.makedirs(folder, exist_ok=True)
        result = subprocess.run([skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, "-o", folder, "--force"],
                                capture_output=True, text=True)
        require(result.returncode == 2 and "a part of the run" in result.stderr, folder, result.stderr)
    os.remove("run/model.onnx")  # a run that has just begun
    with open("run/settings.yaml", "w") as file:
        file.write("format: \"skycc.run/1\"\n")
    for command in (("plot", "log.csv", "-o"), ("tokenize", "--vocab", "folder/vocab.txt", "t.tsv", "-o")):
        result = subprocess.run([skycc, *command, "run/report.html"], capture_output=True, text=True)
        require(result.returncode == 2 and "a part of the run" in result.stderr, command, result.stderr)
    for path in ("run/loss.svg", "job/loss.svg", "saved/loss.svg"):  # what is new there is no part
        for _ in range(2):
            run(skycc, "plot", "log.csv", "-o", path)


def collide():
    """Outputs of one command that would replace each other, or what the command makes besides."""
    model = ("m.onnx", "-d", "c.yaml", *DIMENSIONS, "-q")
    for more in (("--report", "new/plan.json"), ("--depfile", "new/train"), ("--report", "new"),
                 ("--report", "same", "--depfile", "./same")):
        result = subprocess.run([skycc, "compile", *model, "-o", "new", *more], capture_output=True, text=True)
        require(result.returncode == 2 and "would replace" in result.stderr, more, result.returncode, result.stderr)
        require(not os.path.exists("new") and not os.path.exists("same"), more, "leaves something")
    run(skycc, "compile", *model, "-o", "new", "--report", "new.html", "--depfile", "absent/new.d", code=1)
    require(not os.path.exists("new") and not os.path.exists("new.html"), "a compilation that failed leaves something")
    before = {name: content(f"job/{name}") for name in os.listdir("job")}
    os.symlink("job/plan.json", "to-plan")
    train = ("job/train", "--data", "d.safetensors", "--steps", "1", "--quiet", "--checkpoint", "later")
    for more in (("--log", "one", "--trace", "./one"), ("--log", "job/plan.json"), ("--log", "job/train"),
                 ("--log", "to-plan"), ("--trace", "job/costs.json"), ("--trace", "job/stage-00"),
                 ("--tensorboard", "later/step-00000001"), ("--tensorboard", "later/best"),
                 ("--log", "later/step-00000001"), ("--tensorboard", "one", "--log", "one"),
                 ("--log", "saved/step-00000001/MANIFEST.json")):
        result = subprocess.run([*train, *more], capture_output=True, text=True)
        require(result.returncode == 2 and more[1] in result.stderr, more, result.returncode, result.stderr)
        require(not os.path.exists("one") and not [n for n in os.listdir("later") if n[0] != "."],
                more, "begins")
    require({name: content(f"job/{name}") for name in os.listdir("job")} == before, "job is changed")
    finetune = (skycc, "finetune", "folder", "t.tsv", "--text", "sentence", "--label", "label", "--eval", "t.tsv", "-o",
                "tuned")
    for place in ("tuned/model", "tuned/data/events", "tuned/../tuned/seed-0", "t.tsv", "t.tsv/events"):
        result = subprocess.run([*finetune, "--tensorboard", place], capture_output=True, text=True)
        require(result.returncode == 2 and "--tensorboard" in result.stderr, place, result.returncode, result.stderr)
        require(not os.path.exists("tuned"), place, "begins")
    run(*finetune, "--tensorboard", "tuned/events", "--dry-run")


def exports():
    """A folder and an adapter in the place of what they are made from."""
    shutil.copytree("folder", "source")
    run(skycc, "import", "source", "-o", "source.onnx")
    for place in ("source", "source/", "source/config.json"):
        before = {name: content(f"source/{name}") for name in os.listdir("source")}
        result = subprocess.run([skycc, "export", "source.onnx", "source.onnx", "--folder", place],
                                capture_output=True, text=True)
        require(result.returncode != 0, place, result.stderr)
        require({name: content(f"source/{name}") for name in os.listdir("source")} == before, place, "is replaced")
    lora = ("--lora", "r=2,alpha=4,targets=query")
    run(skycc, "compile", "m.onnx", "-d", "c.yaml", *DIMENSIONS, *lora, "-o", "low", "-q")
    run("low/train", "--data", "d.safetensors", "--steps", "1", "--quiet", "--checkpoint", "lower")
    state = {name: content(f"lower/step-00000001/{name}") for name in os.listdir("lower/step-00000001")}
    for place in ("lower", "lower/step-00000001", "lower/step-00000001/MANIFEST.json", "m.onnx", "c.yaml"):
        result = subprocess.run([skycc, "export", "m.onnx", "lower", "--adapter", place],
                                capture_output=True, text=True)
        require(result.returncode != 0, place, result.stderr)
    require({name: content(f"lower/step-00000001/{name}") for name in os.listdir("lower/step-00000001")} == state,
            "the checkpoint is replaced")
    # Whichever of the outputs cannot be made, none is there: m.onnx becomes no folder, and the others are taken.
    os.mkdir("taken")
    os.mkdir("taken/mine")
    for one, other in (("--folder", "none"), ("--adapter", "taken"), ("-o", "taken")):
        before = sorted(os.listdir("."))
        outputs = {"--adapter": "a", "-o": "t.onnx", one: other}
        run(skycc, "export", "m.onnx", "lower", *(word for pair in outputs.items() for word in pair), code=1)
        require(sorted(os.listdir(".")) == before, one, "leaves", set(os.listdir(".")) - set(before))
    run(skycc, "export", "m.onnx", "lower", "--adapter", "a", "-o", "t.onnx")
    require(os.path.exists("a/adapter_config.json") and os.path.exists("t.onnx"), "outputs are missing")
    require(not any(".partial-" in name for name in (*os.listdir("."), *os.listdir("a"))), "something is unfinished")


def federations():
    """federate -o DIR that holds its rules; --log of coordinator and member; --audit of a gateway."""
    for name in ("paris", "coordinator"):
        run(skycc, "key", name)
    key = {name: open(f"{name}.pub").read().strip() for name in ("paris", "coordinator")}
    rules = f"""sites: [{{name: paris, cluster: c.yaml, key: "{key['paris']}", rows_per_step: 4}}]
coordinator: {{address: "127.0.0.1:1", key: "{key['coordinator']}"}}
rounds: 1
local_steps: 1
aggregate: plain
"""
    with open("f.yaml", "w") as file:
        file.write(rules)
    federate = ("federate", "m.onnx", "-c", "f.yaml", "--dim", "batch=2", "--dim", "seq=6", "--allocate", "even")
    attack(["m.onnx", "c.yaml", "f.yaml"], ["-o"], *federate)
    run(skycc, *federate, "-o", "fed")
    shutil.copy("f.yaml", "fed/own.yaml")
    with open("fed/.skycc-files", "a") as file:
        file.write("own.yaml\n")
    with open("fed/own.yaml", "w") as file:
        file.write(rules.replace("c.yaml", "../c.yaml"))
    refused("fed/own.yaml", "fed", skycc, *federate[:3], "fed/own.yaml", *federate[4:], "-o", "fed")
    refused("fed/own.yaml", "fed", skycc, *federate[:3], "fed/own.yaml", *federate[4:], "-o", "fed", "--force")
    for path in ("coordinator.key", "fed/coordinator/federation.yaml", "fed/coordinator/model.safetensors"):
        before = content(path)
        for log in (path, *forms(path)):
            result = subprocess.run([skycc, "coordinate", "fed/coordinator", "--log", log], capture_output=True,
                                    text=True)
            require(result.returncode in (1, 2), log, result.returncode, result.stderr)
            require(content(path) == before, log, "is replaced")
            if log != path:
                os.remove(log)
    join = ("fed/paris/train", "--join", "--data", "d.safetensors", "--eval-data", "e.safetensors", "--checkpoint",
            "joined")
    for path in ("d.safetensors", "e.safetensors", "paris.key", "fed/paris/federation.yaml",
                 "fed/paris/start.safetensors"):
        before = content(path)
        for log in (path, *forms(path)):
            result = subprocess.run([*join, "--log", log], capture_output=True, text=True, timeout=60)
            require(result.returncode in (1, 2), log, result.returncode, result.stderr)
            require(content(path) == before, log, "is replaced")
            if log != path:
                os.remove(log)
    require(not os.path.exists("joined") or not os.listdir("joined"),
            "something was written before --log was looked at")
    # What they will write, and is not there yet.
    for command, folder, names in (
            ((skycc, "coordinate", "fed/coordinator"), "fed/coordinator",
             ("status.json", "status.html", "best.safetensors", "evaluations.csv")),
            (join, "joined", ("global.safetensors", "noise.seed", "next-round", "evaluations.csv"))):
        for name in names:
            result = subprocess.run([*command, "--log", f"{folder}/{name}"], capture_output=True, text=True, timeout=60)
            require(result.returncode == 2 and "one of the files that are kept" in result.stderr, name,
                    result.returncode, result.stderr)
            require(not os.path.exists(f"{folder}/{name}"), name, "was written")


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    prepare()
    commands()
    trains()
    directories()
    owned()
    collide()
    exports()
    federations()
sys.exit(failed())
