"""What tests/faults/run hurts: a small BERT, compiled into one, two and three stages, and one training of it at a
time."""
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.append(os.path.join(ROOT, "tests", "common"))
sys.path.append(os.path.join(ROOT, "tests", "driver", "finetune"))
import safetensors_files  # noqa: E402
from finetune_data import make_model, reviews, write_table  # noqa: E402

STEPS, ROWS, LENGTH = 24, 28, 8
PLANS = ("one", "two", "three")
TRAINING = ["--steps", str(STEPS), "--clip", "1", "--schedule-lr", "linear", "--warmup", "4", "--seed", "5"]
LONGEST = 300  # seconds: what takes longer hangs
LINGERING = 60  # seconds that processes may take to end after the launcher did, on a busy machine


class Wrong(Exception):
    """What should not have come to pass."""


def tree(folder):
    """What lies in a folder: a hash by path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(os.path.join(place, name), folder)] = hashlib.sha256(file.read()).hexdigest()
    return found


def losses(log):
    """Step, loss and learning rate: what must not depend on what happened."""
    with open(log) as file:
        return [line.split(",")[:3] for line in file]


def last_parameters(saved):
    """All tensors of the newest checkpoint, by name, with their bytes."""
    step = os.path.join(saved, f"step-{STEPS:08}")
    parts = [name for name in os.listdir(step) if name.endswith(".safetensors")]
    return {
        name: array.tobytes()
        for part in parts
        for name, array in safetensors_files.read(os.path.join(step, part)).items()
    }


class Bench:
    """The scratch folder with everything that was made once: model, data, programs, and how it ends undisturbed."""

    def __init__(self, skycc, folder):
        self.skycc, self.folder = skycc, folder
        self.cache, self._finetuned = f"{folder}/cache", None
        self.model = f"{ROOT}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
        self._write_data()
        os.mkdir(f"{folder}/programs")
        for count, plan in enumerate(PLANS, 1):
            with open(f"{folder}/{plan}.yaml", "w") as file:
                file.write("devices:\n  - {name: device, count: %d, threads: 1, memory: 1GiB}\n" % count)
            self._compile_or_end(plan, plan)
        with open(f"{folder}/hosts.yaml", "w") as file:
            file.write("devices: [{name: a, host: one}, {name: b, host: two}]\n")
        with open(f"{folder}/opencl.yaml", "w") as file:
            file.write("devices: [{name: a, threads: 1}, {name: b, target: opencl}]\n")
        self._compile_or_end("hosts", "hosts")
        self._compile_or_end("two", "stale", "--dropout", "0.2")
        self._compile_or_end("two", "frozen", "--freeze", "*embeddings*", "--freeze", "*layer.1*")
        self._run_undisturbed()
        self._undisturbed = {}

    def _compile_or_end(self, plan, name, *options):
        done = self.compile(plan, f"{self.folder}/programs/{name}", self.cache, options=options)
        if done.returncode != 0:
            sys.exit(f"the model does not compile:\n{done.stdout}")

    def undisturbed(self, name):
        """How a training with other bits ends: two replicas sum the same gradients in another order, and an OpenCL
        device computes in its own."""
        if name not in self._undisturbed:
            self._compile_or_end(*{"replicas": ("two", name, "--replicas", "2"), "opencl": (name, name)}[name])
            shutil.rmtree(f"{self.folder}/undisturbed-{name}", ignore_errors=True)  # of a try that took too long
            trial = Trial(self, f"{self.folder}/undisturbed-{name}", None)
            trial.ends(trial.start(name), {0})
            self._undisturbed[name] = losses(trial.log), last_parameters(trial.saved)
        return self._undisturbed[name]

    def finetuned(self):
        if not self._finetuned:
            self._finetuned = Finetuned(self)
        return self._finetuned

    def _write_data(self):
        draw = np.random.RandomState(1)
        safetensors_files.write(f"{self.folder}/data", {
            "input_ids": draw.randint(0, 60, (ROWS, LENGTH)).astype(np.int32),
            "attention_mask": np.ones((ROWS, LENGTH), np.int32),
            "token_type_ids": np.zeros((ROWS, LENGTH), np.int32),
            "labels": draw.randint(0, 2, ROWS).astype(np.int32),
        })

    def compile_command(self, plan, output):
        return [
            self.skycc, "compile", self.model, "-d", f"{self.folder}/{plan}.yaml", "-o", output, "--quiet", "--dropout",
            "0.1", "--dim", "batch=2", "--dim", f"seq={LENGTH}", "--microbatches", "2", "--allocate", "even"
        ]

    def compile(self, plan, output, cache, prefix=(), options=()):
        return subprocess.run([*prefix, *self.compile_command(plan, output), *options],
                              env={**os.environ, "SKYCC_CACHE": cache}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONGEST)

    def _run_undisturbed(self):
        """On one stage; the others must agree, or nothing below means anything. Leaves checkpoints of every third
        step."""
        for plan in PLANS:
            trial = Trial(self, f"{self.folder}/undisturbed-{plan}", None)
            start = time.monotonic()
            trial.ends(trial.start(plan, "--checkpoint-every", "3"), {0})
            self.duration = time.monotonic() - start
            if plan == PLANS[0]:
                self.losses, self.parameters = losses(trial.log), last_parameters(trial.saved)
            trial.compare()
        self.saved, self.log = trial.saved, trial.log


class Processes:
    """Processes that were started with a mark in their environment, and what they started in turn."""
    number = 0

    def __init__(self):
        Processes.number += 1
        self.mark = f"SKYCC_FAULTS={os.getpid()}-{Processes.number}"

    def environment(self):
        name, value = self.mark.split("=")
        return {**os.environ, name: value, "OMP_WAIT_POLICY": "passive"}

    def processes(self, pattern=""):
        """Those whose program's name matches: the name by process id."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    ours = self.mark.encode() in file.read().split(b"\0")
                name = os.path.basename(os.readlink(f"/proc/{entry}/exe")) if ours else ""
            except OSError:
                continue  # it ended, or is another user's
            if ours and re.match(pattern, name):
                found[int(entry)] = name
        return found

    def states(self):
        """What the processes do: T of one that is stopped, with the function of the kernel in which it waits."""
        texts = []
        for process, name in self.processes().items():
            try:
                with open(f"/proc/{process}/stat") as stat, open(f"/proc/{process}/wchan") as waits:
                    state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
                    texts.append(f"{name} {process} of {parent}: {state} {waits.read()}")
            except OSError:
                pass  # it has ended
        return ", ".join(texts)

    def signal(self, number, victims):
        """Returns whether one of them was still there."""
        hit = False
        for process in victims:
            try:
                os.kill(process, number)
                hit = True
            except ProcessLookupError:
                pass
        return hit

    def end_all(self):
        while self.signal(signal.SIGKILL, self.processes()):  # some start others meanwhile
            time.sleep(0.001)


class Finetuned:
    """One run of skycc finetune that nobody disturbed."""

    def __init__(self, bench):
        self.bench, folder = bench, f"{bench.folder}/finetune"
        os.mkdir(folder)
        make_model(f"{folder}/model", f"{ROOT}/tests/data/huggingface")
        write_table(f"{folder}/table.csv", ["text", "label"], reviews(120))
        for run in (f"{folder}/first", f"{folder}/run"):  # the first compiles kernels, and takes longer
            start = time.monotonic()
            done = subprocess.run(self.command(run), env={**os.environ, "SKYCC_CACHE": bench.cache},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST)
            if done.returncode != 0:
                sys.exit(f"skycc finetune fails:\n{done.stdout}")
        self.duration, self.result = time.monotonic() - start, self.of(run)
        self.size = sum(os.path.getsize(os.path.join(run, name)) for name in tree(run))

    def command(self, run):
        folder = f"{self.bench.folder}/finetune"
        return [self.bench.skycc, "finetune", f"{folder}/model", f"{folder}/table.csv", "--lr", "1e-3", "-o", run]

    def of(self, run):
        """The model, and what the log says but for the time that steps took."""
        with open(f"{run}/model/model.safetensors", "rb") as file:
            model = file.read()
        with open(f"{run}/log.csv") as file:
            return model, [line.split(",")[:3] + line.split(",")[7:] for line in file]


class Trial(Processes):
    """One training in a folder of its own. Its methods raise Wrong."""

    def __init__(self, bench, folder, random):
        super().__init__()
        self.bench, self.folder, self.random = bench, folder, random
        self.saved, self.log, self.output = f"{folder}/saved", f"{folder}/log", f"{folder}/output"
        self.said, self.identical = "", False
        os.mkdir(folder)

    # ---- Running ----

    def start(self, plan, *options, data="data", prefix=(), quiet=True):
        """Starts DIR/train; what it prints goes to self.output."""
        command = [
            *prefix, f"{self.bench.folder}/programs/{plan}/train", "--data",
            os.path.join(self.bench.folder, data), *TRAINING, "--checkpoint", self.saved, "--log", self.log,
            *(["--quiet"] if quiet else []), *options
        ]
        return self.begin(command)

    def begin(self, command):
        with open(self.output, "w") as output:
            output.write("$ " + " ".join(command) + "\n")
            output.flush()
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                    env={**self.environment(), "SKYCC_CACHE": self.bench.cache})

    def ends(self, run, codes):
        """Waits for the run's end: its exit code must be one of those, and none of its processes may outlive it."""
        try:
            code = run.wait(LONGEST)
        except subprocess.TimeoutExpired:
            running = self.states()
            self.end_all()
            raise Wrong(f"still running after {LONGEST} seconds: {running}") from None
        limit = time.monotonic() + LINGERING
        absent = 0  # several times: a process that becomes another program has no environment for a moment
        while absent < 3 and time.monotonic() < limit:
            absent = 0 if self.processes() else absent + 1
            time.sleep(0.01)
        left = self.processes()
        with open(self.output, errors="replace") as output:
            self.said = output.read()
        if left:
            self.end_all()
            raise Wrong("left running: " + ", ".join(left.values()))
        if code not in codes:
            raise Wrong(f"exit code {code} instead of {' or '.join(map(str, sorted(codes)))}")
        return code

    def resume(self, *options, codes=(0,), plan=None, data="data"):
        """Goes on under any plan."""
        return self.ends(self.start(plan or self.random.choice(PLANS), "--resume", *options, data=data), set(codes))

    def same_losses_with(self, data):
        """Whether the training that has ended is one with these data from its first step on."""
        other = Trial(self.bench, f"{self.folder}/other", self.random)
        code = other.ends(other.start(PLANS[0], data=data), {0, 1})  # they may be refused
        return code == 0 and losses(self.log) == losses(other.log)

    def compare(self, expected=None):
        """The training must have ended as the undisturbed one did, to the last bit."""
        expected_losses, parameters = expected or (self.bench.losses, self.bench.parameters)
        if losses(self.log) != expected_losses:
            raise Wrong("other losses than the undisturbed run's")
        if last_parameters(self.saved) != parameters:
            raise Wrong("other parameters than the undisturbed run's")
        self.identical = True

    # ---- Processes ----

    def launchers(self):
        """On one host, the first program starts the others; mpiexec and its proxies do on several."""
        def launches(process):
            try:
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    return file.read().split(b"\0")[1:2] == [b"--launch"]
            except OSError:
                return False
        return {process: name for process, name in self.processes().items()
                if re.match("mpiexec|hydra", name) or launches(process)}

    def ranks(self):
        launchers = self.launchers()
        return {process: name for process, name in self.processes(r"stage-").items() if process not in launchers}

    def workers(self):
        """The processes that train; their parents watch them."""
        def parent(process):
            try:
                with open(f"/proc/{process}/stat") as file:
                    return int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                return 0
        ranks = self.ranks()
        return {process: name for process, name in ranks.items() if parent(process) in ranks}

    def listening(self):
        """Ports on which the run's processes wait for connections: (address, port), both as numbers in hexadecimal."""
        inodes = set()
        for process in self.processes():
            try:
                links = [os.readlink(f"/proc/{process}/fd/{name}") for name in os.listdir(f"/proc/{process}/fd")]
            except OSError:
                continue
            inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
            found |= {tuple(row[1].split(":")) for row in rows if row[3] == "0A" and row[9] in inodes}
        return found

    # ---- Moments ----

    def await_step(self, run, step):
        """Until the log tells of that step; whether the run still goes on."""
        while run.poll() is None:
            if os.path.exists(self.log):
                with open(self.log) as log:
                    if sum(1 for _ in log) > step:
                        return True
            time.sleep(0.001)
        return False

    def sleep_into(self, run):
        """To some moment of the run, from its start to its end."""
        if self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, self.bench.duration / 2))
        elif self.await_step(run, self.random.randrange(1, STEPS - 2)):
            time.sleep(self.random.uniform(0, self.bench.duration / STEPS))

    def await_saving(self, run):
        """Until a checkpoint of some step is being written."""
        step = f"{self.saved}/step-{self.random.randrange(1, STEPS):08}"
        while run.poll() is None and not os.path.exists(step):
            time.sleep(0.0001)
        time.sleep(self.random.uniform(0, 0.003))

    def steps(self):
        """The names of the checkpoints, begun or whole: the directory holds locks, too."""
        names = os.listdir(self.saved) if os.path.exists(self.saved) else []
        return sorted(name for name in names if name.startswith("step-"))

    def tensors_of(self, step):
        """All tensors of a checkpoint, if it is whole."""
        if not os.path.exists(f"{self.saved}/{step}/MANIFEST.json"):
            return {}
        parts = [name for name in os.listdir(f"{self.saved}/{step}") if name.endswith(".safetensors")]
        return {
            name: array
            for part in parts
            for name, array in safetensors_files.read(f"{self.saved}/{step}/{part}").items()
        }

    def has_unfinished(self):
        """Whether a checkpoint was begun that was not ended."""
        return any(not os.path.exists(f"{self.saved}/{step}/MANIFEST.json") for step in self.steps())

    # ---- Files ----

    def take_over(self):
        """The checkpoints and the log of an undisturbed run: steps 3, 6, ..., as if it had just ended."""
        shutil.copytree(self.bench.saved, self.saved)
        shutil.copy(self.bench.log, self.log)

    def flip(self, path, size=None):
        """One bit, of the first `size` bytes."""
        with open(path, "r+b") as file:
            offset = self.random.randrange(size or os.path.getsize(path))
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))

    def cut(self, path):
        os.truncate(path, self.random.randrange(os.path.getsize(path)))
