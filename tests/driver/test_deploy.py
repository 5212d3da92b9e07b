#!/usr/bin/python3
"""skycc deploy: copies to hosts, here names of one sshd that the test starts, and says what they lack.

    test_deploy.py SKYCC TESTS_DATA
"""
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

skycc, data = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "common"))
import ssh_server
from checks import failed, require, run

LAUNCHERS = ["train", "run.mpi", "run.conf", "run.sbatch"]
SKIPPED = 77


def write(path, text, mode=0o644):
    with open(path, "w" if isinstance(text, str) else "wb") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Bench:
    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        self.run, self.data = f"{folder}/run", f"{folder}/rows of data"
        # Nothing of this name may be taken for a command.
        self.there = f"{folder}/it's $(touch oops) \"there\"; touch oops; true"

    def skycc(self, *words, code, ssh=None, says=(), **options):
        """Runs it, and returns what it prints."""
        done = run(skycc, *words, code=code, stdin=subprocess.DEVNULL, cwd=self.folder, **options)
        for pattern in says:
            require(re.search(pattern, done.stdout + done.stderr),
                    f"'{pattern}' is not in what skycc {' '.join(words)} prints:\n{done.stdout}{done.stderr}")
        return done.stdout

    def deploy(self, *words, code=0, says=(), ssh=None, run=None, **options):
        return self.skycc("deploy", run or self.run, "--ssh", ssh or self.server.ssh, *words, code=code, says=says,
                          **options)

    def with_list(self, name, change):
        """A copy of the folder, its list changed."""
        copy = f"{self.folder}/{name}"
        shutil.copytree(self.run, copy)
        with open(f"{copy}/deploy.json") as file:
            content = json.load(file)
        change(content)
        write(f"{copy}/deploy.json", json.dumps(content))
        return copy

    def needed(self, *stages):
        return sorted([*LAUNCHERS, *stages, *(f"{stage}.safetensors" for stage in stages), os.path.basename(self.data)])


def compile_run(bench):
    write(f"{bench.folder}/cluster.yaml", "devices:\n  - {name: a, host: one}\n  - {name: b, host: two}\n")
    bench.skycc("compile", f"{data}/bert/bert-nano-seqcls-opset17-dyn.onnx", "-d", "cluster.yaml", "--allocate", "even",
                "--dim", "batch=2", "--dim", "seq=6", "--microbatches", "1", "-q", "-o", "run", code=0)
    write(bench.data, bytes(range(256)) * 300)
    with open(f"{bench.run}/deploy.json") as file:
        content = json.load(file)
    for entry in content["files"]:
        whole = read(f"{bench.run}/{entry['name']}")
        require(entry["sha256"] == hashlib.sha256(whole).hexdigest() and entry["bytes"] == len(whole),
                f"deploy.json has a wrong hash or size of {entry['name']}")
    for host, stage in zip(content["hosts"], ("stage-00", "stage-01")):
        require(sorted(host["files"]) == sorted({*bench.needed(stage)} - {os.path.basename(bench.data)}),
                f"{host['host']} needs {host['files']}")


def copies(bench):
    to = ("--to", bench.there, "--data", bench.data)
    bench.deploy(*to, "--check", code=6, says=["two: .*not there: stage-01, .*train.*rows of data"])
    require(not os.path.exists(bench.there), "--check wrote")
    said = bench.deploy(*to, says=["one: [1-7] files sent", "two: [1-7] files sent", r"on one: .*/train' --data "])
    pasted = said.splitlines()[-1].removeprefix("on one: ")
    words = subprocess.run(["sh", "-c", f"printf '%s\\n' {pasted}"], stdout=subprocess.PIPE, text=True).stdout
    require(words.splitlines() == [f"{bench.there}/train", "--data", f"{bench.there}/rows of data"], words)
    found = sorted(os.listdir(bench.there))
    require(found == bench.needed("stage-00", "stage-01"), f"there are {found}")
    for name in found:
        here = bench.data if name == os.path.basename(bench.data) else f"{bench.run}/{name}"
        there = f"{bench.there}/{name}"
        require(read(here) == read(there), f"{name} is not what it was")
        require(os.access(here, os.X_OK) == os.access(there, os.X_OK), f"{name} has another mode")
    bench.deploy(*to, says=["one: 0 files sent, 0 B; 7 were there", "two: 0 files sent"])
    rows = bench.deploy(*to, "--check").splitlines()
    require([row.split()[0:2] for row in rows] == [["host", "files"], ["one", "ok"], ["two", "ok"]],
            f"the table is {rows}")


def damages(bench):
    program, weights = f"{bench.there}/stage-00", f"{bench.there}/stage-01.safetensors"
    whole = read(weights)
    os.chmod(program, 0o644)
    write(weights, whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    bench.deploy(
        "--to", bench.there, "--check", code=6, says=[
            "one: .*wrong content or not executable.*: stage-00\n",
            "two: .*wrong content or not executable.*: stage-01.safetensors\n", "(?m)^one +1 wrong", "(?m)^two +1 wrong"
        ])
    bench.deploy("--to", bench.there, says=["one: 1 files sent", "two: 1 files sent"])
    require(read(weights) == whole and os.access(program, os.X_OK), "what was damaged is not replaced")
    os.unlink(program)
    os.mkdir(program)
    bench.deploy("--to", bench.there, code=6, says=["stage-00 is a folder"])
    os.rmdir(program)


def part_of(bench, path, host):
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{hashlib.sha256(read(path)).hexdigest()[:16]}.{host}.part"


def cuts(bench):
    """What a transfer that was killed left is gone on with, unless it is of something else."""
    there, kept = f"{bench.folder}/cut", 20000
    name = "stage-00.safetensors"
    part = f"{there}/{os.path.basename(part_of(bench, f'{bench.run}/{name}', 'one'))}"
    bench.deploy("--to", there)
    os.unlink(f"{there}/{name}")
    # Lets so much pass, and then nothing, until whoever started it is gone.
    slow = write(f"{bench.folder}/slow", f"""#!/bin/sh
case $* in *{name}*) ;; *) exec {bench.server.ssh} "$@" ;; esac
(head -c {kept}; cat {bench.folder}/never) | {bench.server.ssh} "$@"
""", 0o755)
    os.mkfifo(f"{bench.folder}/never")
    process = subprocess.Popen([skycc, "deploy", bench.run, "--ssh", slow, "--to", there], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(part) or os.path.getsize(part) < kept:
        if process.poll() is not None:
            return require(False, "deploy ended before it was killed")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open(f"{bench.folder}/never", "w"):
        pass  # the rest of the killed transfer ends
    require(not os.path.exists(f"{there}/{name}"), "a part has the file's name")
    bench.deploy("--to", there, "--check", code=6, says=[f"one: .*incomplete.*: {name}\n"])
    size = os.path.getsize(f"{bench.run}/{name}")
    bench.deploy("--to", there, says=[f"one: 1 files sent, {(size - kept) / 1024:.1f} KiB; 5 were there"])
    require(read(f"{there}/{name}") == read(f"{bench.run}/{name}") and not os.path.exists(part),
            "what was gone on with is wrong")
    os.unlink(f"{there}/{name}")
    write(part, b"x" * kept)
    bench.deploy("--to", there, says=[f"one: 1 files sent, {size / 1024:.1f} KiB; 5 were there"])
    require(read(f"{there}/{name}") == read(f"{bench.run}/{name}") and not os.path.exists(part),
            "what began wrong is wrong")
    # Somebody else deploys the same while this transfer stands still: both end with the file as it is here.
    os.unlink(f"{there}/{name}")
    write(slow, f"""#!/bin/sh
case $* in *{name}*) ;; *) exec {bench.server.ssh} "$@" ;; esac
(dd bs=1 count={kept} status=none; cat {bench.folder}/never; cat) | {bench.server.ssh} "$@"
""", 0o755)
    process = subprocess.Popen([skycc, "deploy", bench.run, "--ssh", slow, "--to", there], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None and (not os.path.exists(part) or os.path.getsize(part) < kept):
        time.sleep(0.01)
    bench.deploy("--to", there, says=["one: 1 files sent"])
    with open(f"{bench.folder}/never", "w"):
        pass
    said = process.communicate()[0]
    require(process.returncode == 0 and read(f"{there}/{name}") == read(f"{bench.run}/{name}"), "two at once:", said)


def hostile(bench):
    """A host that says what it likes: no end of it, one word and no more, and what would control a terminal."""
    def host_that(says):
        return write(f"{bench.folder}/hostile", f"""#!/bin/sh
case " $* " in *" two "*) {says} ;; *) exec {bench.server.ssh} "$@" ;; esac
""", 0o755)
    for endless in ("exec yes", "exec yes >&2", "exec cat /dev/zero"):
        bench.deploy("--check", code=6, ssh=host_that(endless), timeout=60,
                     says=["two: no answer by ssh: its shell says more than 1 MiB"])
    forged = "\\033]0;x\\302\\233 1mskycc: error: \\342\\200\\256"
    said = bench.deploy("--check", code=6, ssh=host_that(f"""exec printf '@begin 1\\n@mpi 4{forged}\\n@machine {forged}
@lacks {forged}\\n@room 99999999999999999999999\\n@file 99999 x\\n@file -1 x\\n@port zz\\n@other\\n@\\n@end inf\\n'"""),
                        says=["two "], timeout=60)
    require(not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", said), f"controls the terminal: {said!r}")


def lacks(bench):
    """All that a host may lack, by a list that wants too much and an ssh whose other end is odd."""
    def change(content):
        content["processors"][0]["flags"] += " warp_drive"
        content["hosts"][0]["ranks"][0]["memory_bytes"] = 1 << 50
        content.update(gateway_port=bench.server.port, first_port=bench.server.port, last_port=bench.server.port)
        content["hosts"][1]["host"] = "gone"
    copy = bench.with_list("lacks", change)
    odd = write(f"{bench.folder}/odd", f"""#!/bin/sh
{bench.server.ssh} "$@" | awk '/^@(begin|end) / {{ printf "%s %.3f\\n", $1, $2 + 100000; next }} {{ print }}'
""", 0o755)
    version = write(f"{bench.folder}/mpiexec", '#!/bin/sh\necho "    Version:  ${SSH_CONNECTION:+4.9}"\n', 0o755)
    said = bench.deploy("--check", run=copy, code=6, ssh=odd, env={**os.environ, "MPIEXEC": version}, says=[
        "one: .*stage-00 was compiled for .*lacks warp_drive\n", "one: the plan needs 1024 TiB of memory",
        "one: its clock is (99[0-9]{3}|100000) s ahead", f"one: port {bench.server.port} of the site is in use",
        "one: ports .*: 0 are free, but 2 are needed", "gone: no answer by ssh: "])
    require(re.search(r"(?m)^one +ok +4\.9 +lacks features", said) and re.search(r"(?m)^gone +no answer$", said),
            f"the table is\n{said}")
    write(version, '#!/bin/sh\necho "    Version:  ${SSH_CONNECTION:+other }4.0"\n', 0o755)
    bench.deploy("--check", code=6, env={**os.environ, "MPIEXEC": version},
                 says=["two: MPICH is other 4.0 here, but 4.0 where the run is started"])
    bench.deploy("--check", code=6, env={**os.environ, "MPIEXEC": "no-mpiexec"},
                 says=["two: mpiexec.mpich is not installed"])
    bench.deploy("--to", f"{bench.folder}/alone", run=copy, code=6,
                 says=["gone: no answer by ssh: ", "one: 6 files sent"])
    require(os.path.exists(f"{bench.folder}/alone/stage-00"), "one host waits for another")


def opencl(bench):
    """A program for an OpenCL device needs the loader, which it opens itself; others do not."""
    write(f"{bench.folder}/opencl.yaml",
          "devices:\n  - {name: a, host: one, target: opencl}\n  - {name: b, host: two}\n")
    bench.skycc("compile", f"{data}/bert/bert-nano-seqcls-opset17-dyn.onnx", "-d", "opencl.yaml", "--allocate", "even",
                "--dim", "batch=2", "--dim", "seq=6", "--microbatches", "1", "-q", "-o", "with-opencl", code=0)
    local = write(f"{bench.folder}/local", '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec sh -c "$1"\n', 0o755)
    given = {"run": f"{bench.folder}/with-opencl", "ssh": local}
    bench.deploy("--to", f"{bench.folder}/opencl", **given)
    os.mkdir(f"{bench.folder}/broken")
    write(f"{bench.folder}/broken/libOpenCL.so.1", "")
    said = bench.deploy("--to", f"{bench.folder}/opencl", "--check", code=6, says=[
        "one: shared libraries are missing: libOpenCL.so.1\n"
    ], env={**os.environ, "LD_LIBRARY_PATH": f"{bench.folder}/broken"}, **given)
    require(re.search(r"(?m)^one .*lacks libraries", said) and re.search(r"(?m)^two .* ok ", said), said)
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return
    bench.deploy("--to", f"{bench.folder}/opencl", "--check", **given)


def silence(bench):
    """A host that does not answer costs its time-out once and is named: whether it refuses, or its shell hangs."""
    gone = write(f"{bench.folder}/gone", f"""#!/bin/sh
PATH={os.environ['PATH']} # in which ssh is not this one
case " $* " in
*" -G "*) ;;
*" two "*)
    if [ -e {bench.folder}/lacking ]; then sed -f {bench.folder}/lacking | {bench.server.ssh} "$@"; exit; fi
    if [ -e {bench.folder}/refuses ]; then echo 'two: no route' >&2; exit 255; fi
    exec sleep 1000 ;;
esac
exec {bench.server.ssh} "$@"
""", 0o755)
    os.mkdir(f"{bench.folder}/path")
    os.symlink(gone, f"{bench.folder}/path/ssh")
    train = [f"{bench.run}/train", "--data", bench.data, "--retries", "3", "--insecure"]
    environment = {**os.environ, "PATH": f"{bench.folder}/path:{os.environ['PATH']}"}

    def start():
        return subprocess.Popen(train, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
    mute = write(f"{bench.folder}/mute", f"""#!/bin/sh
case " $* " in *" two "*) echo Welcome; exec sleep 1000 ;; *) exec {bench.server.ssh} "$@" ;; esac
""", 0o755)
    greeted = subprocess.Popen([skycc, "deploy", bench.run, "--ssh", mute, "--check"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    began = time.monotonic()
    trained = start()
    bench.deploy("--check", "--to", bench.there, code=6, ssh=gone,
                 says=["two: no answer by ssh: its shell says nothing for 1"])
    said, took = trained.communicate(timeout=60)[0], time.monotonic() - began
    require(trained.returncode == 6 and "host two does not answer" in said and "host one" not in said, said)
    require(took < 45, f"a host that does not answer costs {took} s")
    said = greeted.communicate(timeout=60)[0]
    require(greeted.returncode == 6 and "two: no answer by ssh: its shell says nothing for 1" in said, said)
    write(f"{bench.folder}/refuses", "")
    began, trained = time.monotonic(), start()
    said, took = trained.communicate(timeout=60)[0], time.monotonic() - began
    require(trained.returncode == 6 and said.count("host two does not answer: two: no route") == 1, said)
    require(took < 10, f"a host that refuses costs {took} s")
    # What answers, but could not run its part: mpiexec would wait for it for ever.
    for change, lacked in (("s/hydra_[a-z]*_proxy/absent/", r"has no .*/hydra_\w+_proxy, .*install MPICH"),
                           ("s/stage-01/absent/", "has no program .*/stage-01; skycc deploy copies it"),
                           ("s/ --launch/ --help/", "cannot run .*/stage-01: usage"),
                           ("s/stage-01/absent/; s/has no program/has \u009bno\u202e program/",
                            r"has \?\?no\?\?\? program"),
                           ("s/stage-01/absent/; s/hydra_[a-z]*_proxy/absent/", "(.*\n.*)+ host two has no program")):
        write(f"{bench.folder}/lacking", change)
        began, trained = time.monotonic(), start()
        said, took = trained.communicate(timeout=60)[0], time.monotonic() - began
        require(trained.returncode == 6 and "host one" not in said, said)
        require(re.search(f"train: host two {lacked}", said), lacked, "is not said:", said)
        require(took < 20, f"a host that lacks something costs {took} s")


def collected(bench):
    """Parts of checkpoints, from hosts that greet, are cut off, lose files, or send what is no checkpoint."""
    there, step = f"{bench.folder}/there", "step-00000001"
    os.makedirs(f"{there}/{step}")
    names = {f"{step}/rank-1.safetensors": bytes(range(256)) * 400, f"{step}/MANIFEST.json": b"{}"}
    for name, content in names.items():
        write(f"{there}/{name}", content)
    os.symlink("/etc/passwd", f"{there}/{step}/link")
    os.mkfifo(f"{there}/{step}/pipe")

    def from_hosts(label, two="exec sh -c \"$command\"", **options):
        """ssh whose hosts have `there` instead of the folder here; `two`: what host two does."""
        to = f"{bench.folder}/it's {label}"
        os.makedirs(to, exist_ok=True)
        ssh = write(f"{bench.folder}/far", f"""#!/bin/sh
for word; do :; done
command=$(printf %s "$word" | sed "s|cd '.*' && exec|cd {there} \\&\\& exec|")
echo welcome to this host
case " $* " in *" two "*) {two} ;; esac
exec sh -c "$command"
""", 0o755)
        said = bench.skycc("deploy", bench.run, "--ssh", ssh, "--collect", to, "-q", timeout=60, **options)
        return to, said
    to, _ = from_hosts("all", code=0)
    found = sorted(os.path.relpath(f"{top}/{name}", to) for top, _, files in os.walk(to) for name in files)
    require(found == sorted(names) and all(read(f"{to}/{name}") == names[name] for name in names), f"collected {found}")
    mode = os.stat(f"{to}/{step}/rank-1.safetensors").st_mode
    require(mode & 0o6022 == 0, f"mode {mode:o}")
    write(f"{to}/{step}/MANIFEST.json", "ours")
    from_hosts("all", code=0, says=[f"two: .*all: 1 of its files differ .*such as {step}/MANIFEST.json"])
    require(read(f"{to}/{step}/MANIFEST.json") == b"ours", "what was here is replaced")
    for label, two in (("cut", 'sh -c "$command" | head -c 51200; exit 255'),
                       ("lost", 'sh -c "$command"; echo tar: rank-2: Permission denied >&2; exit 2'),
                       ("yes", "exec yes"), ("nothing", "exit 0")):
        to, _ = from_hosts(label, two, code=6, says=["two: .* cannot be collected"])
        require([name for name in os.listdir(to) if name.startswith(".")] == [], "something is left")
    # What is in the way here; the manifest, which would vouch for the rest, does not come.
    for label, place in (("file", step), ("folder", f"{step}/rank-1.safetensors"), ("link", step)):
        to = f"{bench.folder}/it's {label}"
        if label == "folder":
            os.makedirs(f"{to}/{place}")
        elif label == "file":
            os.makedirs(to)
            write(f"{to}/{place}", "in the way")
        else:
            os.makedirs(to)
            os.symlink(place, f"{to}/{place}")
        before = sorted(os.walk(to))
        from_hosts(label, code=6, says=["two: .* cannot be collected: "])
        require(sorted(os.walk(to)) == before, f"a {label} in the way: {sorted(os.walk(to))}")


def ways(bench):
    """What lies where files are to go: links, which are not written through, and what is no folder."""
    there, name, outside = f"{bench.folder}/ways", "stage-00.safetensors", f"{bench.folder}/outside"
    bench.deploy("--to", there)
    whole = read(f"{there}/{name}")
    part = f"{there}/{os.path.basename(part_of(bench, f'{bench.run}/{name}', 'one'))}"
    write(outside, "not to be written to")
    os.unlink(f"{there}/{name}")
    for link in (part, f"{there}/{name}", f"{there}/train"):
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(outside, link)
    bench.deploy("--to", there, says=["one: [12] files sent"])  # both hosts need `train`, and have one folder here
    require(not os.path.islink(f"{there}/train"), "a link that both hosts need is not replaced")
    require(read(outside) == b"not to be written to", "a link there is written through")
    require(read(f"{there}/{name}") == whole and not os.path.islink(f"{there}/{name}"), "a link is not replaced")
    os.symlink(there, f"{bench.folder}/to-ways")
    bench.deploy("--to", f"{bench.folder}/to-ways", says=["one: 0 files sent"])
    os.symlink("loop", f"{bench.folder}/loop")
    for way in (outside, f"{outside}/in", f"{bench.folder}/loop"):
        bench.deploy("--to", way, code=6, says=["one: .*(not a dir|Not a dir|exists|many levels)"])
        bench.deploy("--to", way, "--check", code=6, says=["one: .*this user cannot make .* there"])
    os.mkdir(f"{bench.folder}/data")
    data = write(f"{bench.folder}/data/train", "x")
    bench.deploy("--to", there, "--data", data, code=2, says=["'train' is the name of a file of the run"])


def here(bench):
    def change(content):
        one, two = content["hosts"]
        two["files"] = [name for name in two["files"] if name not in one["files"]]
        for key in ("ranks", "files", "outside"):
            one[key] += two[key]
        content["hosts"] = [{**one, "host": "localhost"}]
    copy = bench.with_list("here", change)
    bench.deploy(run=copy, ssh="false", says=["localhost: this host, nothing to copy"])
    bench.deploy("--check", run=copy, ssh="false", says=["localhost +ok"])
    bench.deploy("--to", "/elsewhere", run=copy, code=2, says=["one rank runs on localhost"])


def refusals(bench):
    def with_host(name):
        return lambda content: content["hosts"][0].update(host=name)

    def with_file(name):
        return lambda content: content["files"][0].update(name=name)
    changes = (with_host("-oProxyCommand=touch oops"), with_host("a b"), with_host("$(touch oops)"), with_host(""),
               with_file("../outside"), with_file(".profile"), lambda content: content["files"][0].update(sha256="0"),
               lambda content: content["files"][0].update(bytes=-1), lambda content: content.update(format="other"),
               lambda content: content["hosts"][0]["files"].append("unlisted"),
               lambda content: content["hosts"][0]["ranks"][0].update(processor=7), with_host("two"), with_host("TWO"),
               lambda content: content["hosts"][0]["ranks"][0].update(program="../../bin/ls"))
    for number, change in enumerate(changes):
        bench.deploy(run=bench.with_list(f"bad-{number}", change), code=1,
                     says=["error: .*deploy.json|deploy.json.*error"])
    copy = bench.with_list("changed", lambda content: None)
    write(f"{copy}/stage-01", "something else", 0o755)
    bench.deploy(run=copy, code=1, says=["stage-01: error: has changed since skycc compile wrote it"])
    os.mkdir(f"{bench.folder}/sites")
    shutil.move(copy, f"{bench.folder}/sites/paris")
    bench.deploy(run="sites", code=1, says=["holds a folder for every site", "skycc deploy sites/paris"])
    bench.deploy(run="ssh-server", code=1, says=["there is no deploy.json"])
    bench.deploy("--to", "there", code=2, says=["not the absolute path"])
    bench.deploy("--data", "no-data", code=1, says=["no-data"])


with tempfile.TemporaryDirectory(prefix="skycc-test-") as folder:
    try:
        server = ssh_server.SshServer(folder, ["one", "two"])
    except ssh_server.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    os.environ["TMPDIR"] = folder  # a killed skycc leaves its sockets' folder
    try:
        bench = Bench(folder, server)
        compile_run(bench)
        for case in (copies, damages, ways, cuts, hostile, lacks, opencl, silence, collected, here, refusals):
            case(bench)
            print(f"{case.__name__} ok", flush=True)
        require(not any("oops" in files for _, _, files in os.walk(folder)), "a name was taken for a command")
    finally:
        server.close()
sys.exit(failed())
