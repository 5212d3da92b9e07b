"""Federations whose sites and coordinator are killed at random moments.

Three kinds take turns. Where rounds wait for everybody, a coordinator and sites that are started again at once must end
with the model, and every site with the checkpoint, of the federation that nobody disturbed, to the last bit; so with
samples, whose sites are the same. Where rounds do not wait, sites stay away: the round goes on without one, nobody goes
on without the quorum, and who comes back has the model. A coordinator that goes back to an earlier round takes all
sites with it, killed or not.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from trial import LONGEST, ROOT, Processes, Wrong
import safetensors_files
from federations import Scene

TRAINING = ["--seed", "1", "--lr", "1e-2", "--quiet", "--retries", "9"]
SITES = {"paris": (1, 4), "oslo": (2, 8), "lima": (1, 4), "kyoto": (1, 4), "accra": (1, 4)}
THREE, FOUR = list(SITES)[:3], list(SITES)[:4]
STEPS = 2
PAUSE = 0.02  # seconds between two looks at what runs


class Form:
    """One way to federate: its rules, its sites, and how it ends undisturbed."""

    def __init__(self, name, rounds, sites, *rules, amended=0):
        self.name, self.rounds, self.rules, self.amended = name, rounds, rules, amended
        self.first = sites  # the others join by the amendment that begins with round `amended`, and kyoto leaves
        self.sites = [*sites, "accra"] if amended else sites
        self.averages = any(rule.startswith("average") for rule in rules)
        self.lasting = [name for name in self.sites if not amended or name != "kyoto"]


# The quorum is three of four with masks, two of three without.
WAITING = [
    Form("secure", 6, THREE, "fragments: 2", "evaluate: {data: paris.safetensors}", "keep_best: loss",
         "average: 3"),
    Form("sampled", 6, FOUR, "sample: 3"),
    Form("amended", 6, FOUR, "sample: 3", "model_codec: q6", amended=3),
    Form("controlled", 6, FOUR, "sample: 3", "control_variates: true", amended=3),
    Form("private", 6, THREE, "dp: {clip: 1, noise: 1}", "model_codec: q8"),
    Form("plain", 6, THREE, "aggregate: plain", "outer: {optimizer: average}"),
    Form("coded", 6, THREE, "aggregate: plain", "codec: q4", "model_codec: q6", "fragments: 2", "least_change: 0.05"),
    Form("overlapped", 6, THREE, "overlap: 1", "fragments: 2"),
    Form("overlapped, coded", 6, THREE, "overlap: all", "aggregate: plain", "codec: q4", "model_codec: q4")
]
BACK = [Form("gone back", 8, FOUR, "keep: 3", "control_variates: true",
             "evaluate: {data: paris.safetensors, every: 2}", amended=3),
        Form("gone back, coded", 8, THREE, "keep: 3", "aggregate: plain", "codec: q6", "model_codec: q6",
             "fragments: 2")]
LEAVING = [Form("secure, not waiting", 8, FOUR, "round_timeout: 3s", "model_codec: q6"),
           Form("plain, not waiting", 8, THREE, "aggregate: plain", "min_sites: 2", "round_timeout: 3s")]


def tensors(path):
    return {name: array.tobytes() for name, array in safetensors_files.read(path).items()}


def newest_checkpoint(folder):
    """All tensors, optimiser states with them. Files that the manifest lacks are of a process that was killed."""
    step = max(name for name in os.listdir(folder) if name.startswith("step-"))
    found = {}
    with open(f"{folder}/{step}/MANIFEST.json", encoding="utf-8") as manifest:
        for file in json.load(manifest)["files"]:
            found.update(tensors(f"{folder}/{step}/{file['name']}"))
    return found


def remainders(folder):
    """What a site keeps of its updates: what codecs left out, and control variates."""
    paths = [f"{folder}/{name}.safetensors" for name in ["feedback", "control"]]
    return [tensors(path) for path in paths if os.path.exists(path)]


class Party(Processes):
    """A site or the coordinator, which is started again when it is killed, as who supervises it would."""

    def __init__(self, name, folder, command):
        super().__init__()
        self.name, self.folder, self.command, self.output = name, folder, command, f"{folder}/{name}.out"
        self.run, self.code, self.is_unread, self.ends = None, None, False, (None, 0)

    def start(self):
        self.code, self.started = None, time.time()
        with open("/dev/full" if self.is_unread else self.output, "a", encoding="utf-8") as output:
            # mpiexec passes on the end of its input, and fails if the programs have ended by then: this one does not
            # end.
            self.run = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=output, stderr=output,
                                        cwd=self.folder, env=self.environment())

    def goes_on(self):
        self.code = self.run.poll()
        if self.code not in self.ends:
            raise Wrong(f"{self.name} ended with {self.code}: {self.said()[-800:]}")
        return self.code is None

    def kill(self):
        """All that it consists of, at once."""
        hit = self.run.poll() is None
        self.end_all()
        self.run.wait()
        self.run.stdin.close()
        return hit

    def kill_alone(self):
        """What it started outlives it: a site's stage programs save and end."""
        hit = self.run.poll() is None
        self.run.kill()
        self.run.wait()
        self.run.stdin.close()
        return hit

    def said(self):
        if not os.path.exists(self.output):
            return ""
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return file.read()


class FederationTrial:
    """A federation in a folder of its own, from its start to its end."""

    def __init__(self, bench, form, folder):
        os.mkdir(folder)
        self.bench, self.form, self.folder = bench, form, folder
        shutil.copytree(f"{bench.folder}/{form.name}/coordinator", f"{folder}/coordinator")
        programs = f"{bench.folder}/{form.name}"
        if form.amended:  # sites write into their folders
            programs = shutil.copytree(programs, f"{folder}/programs")
        head = [
            bench.scene.skycc, "coordinate", "coordinator", "--key", f"{bench.folder}/coordinator.key", "--log",
            "rounds.csv"
        ]
        self.head = Party("coordinator-out", folder, head)
        for name in form.sites:  # noise is the same in every trial
            os.mkdir(f"{folder}/at-{name}")
            with open(f"{folder}/at-{name}/noise.seed", "wb") as file:
                file.write(name.ljust(32).encode())
        self.sites = {
            name: Party(name, folder, [
                f"{programs}/{name}/train", "--join", "--data", f"{bench.folder}/{name}.safetensors",
                "--key", f"{bench.folder}/{name}.key", "--checkpoint", f"{folder}/at-{name}", *TRAINING
            ])
            for name in form.sites
        }
        if form.amended:
            self.sites["kyoto"].ends = (None, 0, 6)  # it is told that it was removed
        self.parties = [self.head, *self.sites.values()]
        self.kills = 0

    def start(self):
        self.began = time.monotonic()
        for party in self.parties:
            party.start()

    def check_time(self):
        if time.monotonic() - self.began > LONGEST + 60 * self.form.rounds:
            raise Wrong("still running: " + "; ".join(f"{party.name}: {party.said()[-300:]}"
                                                      for party in self.parties if party.goes_on()))

    def watch(self):
        """Whether it goes on; an end that nobody caused is wrong, and so is none at all."""
        self.check_time()
        on = [party.goes_on() for party in self.parties]
        if not on[0] and any(on[1:]):  # it has waited as long as it is to for a site that was started again
            self.head.start()
        return any(on[1:])

    def wait_until(self, condition):
        while not condition() and self.watch():
            time.sleep(PAUSE)

    def finish(self):
        self.wait_until(lambda: False)
        while self.head.goes_on() and not self.is_idle():
            self.check_time()
            time.sleep(PAUSE)

    def is_idle(self):
        """Whether a coordinator that was started after the last round has nothing to do but wait for sites."""
        evaluates = any(rule.startswith("evaluate") for rule in self.form.rules)
        if self.head.is_unread:  # as is one that ended before a site did, and was started again for it
            with open(f"{self.folder}/coordinator/status.json", encoding="utf-8") as status:
                is_done = json.load(status)["state"] == "Finished"
        else:
            is_done = "rounds are done" in self.head.said()
        return is_done and (not evaluates or f"\n{self.form.rounds}," in self.evaluations()) and \
            (not self.form.averages or os.path.exists(f"{self.folder}/coordinator/averaged.safetensors"))

    def rounds(self):
        """Of every round that the log has, its sites."""
        try:
            with open(f"{self.folder}/rounds.csv", encoding="utf-8") as file:
                lines = file.read().split("\n")[:-1]
        except FileNotFoundError:
            return []
        names = [word[len("rows_"):] for word in lines[0].split(",") if word.startswith("rows_")] if lines else []
        rounds = []
        for line in lines[1:]:
            words = line.split(",")
            if int(words[0]) != len(rounds) + 1:
                raise Wrong(f"round {words[0]} stands in row {len(rounds) + 1} of the log")
            rounds.append({name for name, rows in zip(names, words[8::2]) if rows})
        return rounds

    def evaluations(self):
        path = f"{self.folder}/coordinator/evaluations.csv"
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def rounds_made(self):
        return int(safetensors_files.metadata(f"{self.folder}/coordinator/model.safetensors")["round"])

    # ---- Faults ----

    def kill_coordinator(self):
        """What it has on disk is whole, and what it goes on from."""
        before = len(self.head.said())
        hit = self.head.kill()
        self.kills += hit
        if hit:
            self.start_coordinator(before)
        return hit

    def start_coordinator(self, before):
        made, rounds = self.rounds_made(), self.form.rounds
        goes_on = f"round {made + 1} of {rounds} is next" if made < rounds else f"all {rounds} rounds are done"
        self.head.start()
        # Whatever the sites do: they may have ended, if it was killed on its way out.
        while not re.search("round .* is next|rounds are done", self.head.said()[before:]) and self.head.goes_on():
            self.check_time()
            time.sleep(PAUSE)
        if goes_on not in self.head.said()[before:]:
            raise Wrong(f"the coordinator does not say that {goes_on}: {self.head.said()[before:]}")

    def go_back(self, rounds):
        """To the model so many rounds ago. Whoever starts the coordinator after this lets it go on."""
        self.head.kill()
        before, to = len(self.head.said()), max(self.rounds_made() - rounds, 0)
        command = self.head.command
        self.head.command = [*command, "--from-round", str(to)]
        self.head.start()
        self.head.command = command
        while "is next" not in self.head.said()[before:] and self.head.goes_on():
            self.check_time()
            time.sleep(PAUSE)
        if f"round {to + 1} of {self.form.rounds} is next" not in self.head.said()[before:]:
            raise Wrong(f"the coordinator does not go back to round {to}: {self.head.said()[before:]}")
        self.kills += 1

    def kill_site(self, name, alone=False):
        party = self.sites[name]
        hit = party.kill_alone() if alone else party.kill()
        self.kills += hit
        if hit:
            party.start()
        return hit

    def is_heard(self, name):
        """Whether the coordinator, as it runs now, has heard of the site."""
        try:
            if os.stat(f"{self.folder}/coordinator/status.json").st_mtime <= self.head.started + 0.01:
                return False
            with open(f"{self.folder}/coordinator/status.json", encoding="utf-8") as file:
                sites = json.load(file)["sites"]
            return any(site["name"] == name and site["heard_s_ago"] is not None for site in sites)
        except FileNotFoundError:
            return False

    def start_twice(self, name):
        """The same site in a second place, which is turned away, whether the first was there long or has just come."""
        first = self.sites[name]
        if name not in self.form.lasting:  # it may be told meanwhile that it was removed
            return False
        self.wait_until(lambda: self.is_heard(name))
        if not first.goes_on():
            return False
        place = first.command.index("--checkpoint") + 1
        command = [*first.command[:place], f"{self.folder}/twice-{name}", *first.command[place + 1 :]]
        second = Party(f"twice-{name}", self.folder, command)
        second.start()
        try:
            self.wait_until(lambda: second.run.poll() is not None)
            hit, said = second.run.poll() is not None, second.said()
        finally:
            second.kill()
        if hit and second.run.returncode == 0 and self.rounds_made() == self.form.rounds:
            hit = False  # all had ended before it was heard of, so it took the last model as anybody would
        if hit and (second.run.returncode != 6 or "runs in two places" not in said):
            raise Wrong(f"a second start of {name} ends with {second.run.returncode}: {said[-800:]}")
        shutil.rmtree(f"{self.folder}/twice-{name}", ignore_errors=True)
        self.kills += hit
        return hit

    def leave(self, names):
        for name in names:
            self.kills += self.sites[name].kill()
        self.parties = [party for party in self.parties if party.name not in names]

    def come_back(self, names):
        for name in names:
            self.sites[name].start()
            self.parties.append(self.sites[name])

    # ---- What must be ----

    def check(self):
        model, rounds = f"{self.folder}/coordinator/model.safetensors", self.rounds()
        if self.rounds_made() != self.form.rounds or len(rounds) != self.form.rounds:
            raise Wrong(
                f"the model is of round {self.rounds_made()}, the log has {len(rounds)} rounds, there are "
                f"{self.form.rounds}"
            )
        values = {name: value for name, value in tensors(model).items()
                  if not name.startswith(("momentum/", "remainder/"))}
        for name in self.form.lasting:
            if tensors(f"{self.folder}/at-{name}/global.safetensors") != values:
                raise Wrong(f"{name} has another model than the coordinator")
        for place in ["coordinator", *(f"at-{name}" for name in self.form.lasting)]:
            left = [
                name for name in os.listdir(f"{self.folder}/{place}")
                if re.match(r"(model|averaged|global|feedback|control)\.safetensors.+", name)
            ]
            if left:
                raise Wrong(f"{place} has {left} of a process that was killed")

    def compare(self):
        """With the undisturbed federation of this form."""
        calm = self.form.calm
        if self.rounds() != calm.rounds():
            raise Wrong(f"a round went on without a site: {self.rounds()}, not {calm.rounds()}")
        if self.evaluations() != calm.evaluations():
            raise Wrong(f"other evaluations than the undisturbed federation's: {self.evaluations()}")
        for name in ["model", "averaged"] if self.form.averages else ["model"]:
            if tensors(f"{self.folder}/coordinator/{name}.safetensors") != tensors(
                    f"{calm.folder}/coordinator/{name}.safetensors"):
                raise Wrong(f"another {name}.safetensors than the undisturbed federation's")
        for name in self.form.lasting:
            if remainders(f"{self.folder}/at-{name}") != remainders(f"{calm.folder}/at-{name}"):
                raise Wrong(f"another feedback or control variate at {name} than the undisturbed one")
            if newest_checkpoint(f"{self.folder}/at-{name}") != newest_checkpoint(f"{calm.folder}/at-{name}"):
                raise Wrong(f"another checkpoint at {name} than the undisturbed one")

    def end_all(self):
        for party in [self.head, *self.sites.values()]:
            party.end_all()


class FederationBench:
    """The scratch folder with what was made once: keys, rows, programs of every form that is used."""

    def __init__(self, skycc, folder, forms):
        self.folder, self.number = folder, 0
        self.scene = Scene(skycc, f"{ROOT}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx", folder, SITES, STEPS)
        self.scene.write_rows()
        for form in forms:
            made = self.scene.federate(form.name, f"rounds: {form.rounds}", *form.rules, sites=form.first)
            if made.returncode == 0 and form.amended:
                made = self.amend(form)
            if made.returncode != 0:
                sys.exit(f"the federation does not compile:\n{made.stdout}")

    def amend(self, form):
        """Every site consents; the coordinator takes it when its round has come."""
        home = f"{self.folder}/{form.name}"
        with open(f"{self.folder}/change.yaml", "w", encoding="utf-8") as file:
            print(f"from_round: {form.amended}", "remove: [kyoto]", "add:",
                  f'  - {{name: accra, cluster: 1.yaml, key: "{self.scene.public_key("accra")}", rows_per_step: 4}}',
                  sep="\n", file=file)
        made = subprocess.run(
            [self.scene.skycc, "federate", self.scene.model, "--amend", "change.yaml", "-o", home, "--dim", "batch=4",
             "--dim", "seq=16", *self.scene.allocation], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name in form.sites if made.returncode == 0 else []:
            shutil.copytree(f"{home}/amendments", f"{home}/{name}/amendments")
        return made

    def trial(self, form):
        self.number += 1
        return FederationTrial(self, form, f"{self.folder}/try-{self.number:04}")

    def run_undisturbed(self, form):
        form.calm = self.trial(form)
        try:
            form.calm.start()
            form.calm.finish()
            form.calm.check()
        finally:
            form.calm.end_all()
        form.duration = time.monotonic() - form.calm.began


class Kills:
    """How many there were, by victim."""

    def __init__(self):
        self.hits = {}

    def note(self, victim, hits):
        if hits:
            self.hits[victim] = self.hits.get(victim, 0) + int(hits)

    def all(self):
        return sum(self.hits.values())


def hurt_waiting(trial, draw, most, kills):
    """Up to `most` kills, each at a random moment after the last; a killed process starts again at once."""
    trial.start()
    while trial.kills < most and trial.watch():
        end = time.monotonic() + draw.uniform(0, trial.form.duration / trial.form.rounds)
        trial.wait_until(lambda: time.monotonic() > end)
        victim = draw.choice(["coordinator", "site", "site", "member", "second start"])
        name = draw.choice(trial.form.sites)
        if victim == "second start":
            kills.note("second start of a site", trial.start_twice(name))
        elif victim == "coordinator":
            kills.note("coordinator", trial.kill_coordinator())
        else:
            kills.note("site" if victim == "site" else "site, but its stages", trial.kill_site(
                name, victim == "member"))
    trial.finish()
    trial.check()
    trial.compare()


def hurt_unread(trial, draw, most, kills):
    """What all of them print cannot be written."""
    for party in trial.parties:
        party.is_unread = True
    trial.kills = most
    trial.start()
    trial.finish()
    trial.check()
    trial.compare()
    kills.note("outputs that cannot be written", 1)


def hurt_leaving(trial, draw, most, kills):
    """One site away: rounds go on without it. So many that the quorum is not there: everybody waits, and it is said."""
    trial.start()
    while trial.kills < most and trial.watch() and trial.rounds_made() + 3 < trial.form.rounds:
        few = draw.random() < 0.5
        away = draw.sample(trial.form.sites, 2 if few else 1)
        before, said = trial.rounds_made(), len(trial.head.said())
        end = time.monotonic() + draw.uniform(0, trial.form.duration / trial.form.rounds)
        trial.wait_until(lambda: time.monotonic() > end)
        trial.leave(away)
        kills.note("sites below the quorum" if few else "site that stays away", len(away))
        if few:
            trial.wait_until(lambda: re.search(r"waiting for \d+ more of the", trial.head.said()[said:]))
            kills.note("coordinator", trial.kill_coordinator())  # and who waits waits on
        else:
            trial.wait_until(lambda: any(not sites & set(away) for sites in trial.rounds()[before:]))
        trial.come_back(away)
    trial.finish()
    trial.check()


def hurt_going_back(trial, draw, most, kills):
    """Twice back by one or two rounds, and kills in between."""
    trial.start()
    for _ in range(2):
        made = trial.rounds_made() + 2
        trial.wait_until(lambda: trial.rounds_made() >= made)
        if trial.rounds_made() >= trial.form.rounds:
            break
        trial.go_back(draw.choice([1, 2]))
        kills.note("coordinator that goes back", 1)
        name = draw.choice(trial.form.sites)
        end = time.monotonic() + draw.uniform(0, trial.form.duration / trial.form.rounds)
        trial.wait_until(lambda: time.monotonic() > end)
        kills.note("site", trial.kill_site(name))
        kills.note("coordinator", trial.kill_coordinator())
    trial.finish()
    trial.check()


def one_trial(bench, form, hurt_it, draw, most, kills, keep):
    trial = bench.trial(form)
    try:
        hurt_it(trial, draw, most, kills)
        trial.end_all()
        if not keep:
            shutil.rmtree(trial.folder)
        return True
    except (Wrong, subprocess.TimeoutExpired) as wrong:
        print(f"WRONG: {form.name}: {wrong}; see {trial.folder}", flush=True)
        return False
    finally:
        trial.end_all()


def hurt_federations(skycc, folder, wanted, seed):
    """Kills so many, a few per federation, and where they are few in one form, which the seed chooses; prints how many
    of each kind; whether all federations went on as they should."""
    quick = wanted < 20
    waiting, leaving = (WAITING[seed % len(WAITING) :][:1], []) if quick else (WAITING, [*LEAVING, *BACK])
    for form in waiting:
        form.rounds = 3 if quick else form.rounds
    bench, kills, number, wrong = FederationBench(skycc, folder, waiting + leaving), Kills(), 0, 0
    for form in waiting:
        bench.run_undisturbed(form)
    for form in leaving:
        form.duration = waiting[0].duration
    forms = [(waiting[0], hurt_unread)] + [(form, hurt_waiting) for form in waiting]
    forms += [(form, hurt_going_back if form in BACK else hurt_leaving) for form in leaving]
    while kills.all() < wanted:
        form, hurt_it = forms[number % len(forms)]
        number += 1
        most = min(wanted - kills.all(), 2 * form.rounds)
        wrong += not one_trial(bench, form, hurt_it, random.Random(f"{seed} {number}"), most, kills, False)
        print(f"{number} federations, {kills.all()} kills, {wrong} wrong", flush=True)
        if wrong > 5:
            break
    for victim, hits in sorted(kills.hits.items()):
        print(f"{victim:40} {hits:7} killed")
    return wrong == 0
