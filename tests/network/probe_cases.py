"""Links between sites: what skycc probe --site measures, compared with the settings of the network."""
import json
import subprocess
import time

from case import ROOT, case, expect
from network import Link
from site_cases import STRANGER

SITES = ("paris", "tokyo")
PORT = 7400
LATENCY, BANDWIDTH = 0.01, 10e6  # bytes a second, of frames
TCP_SHARE = 1448 / 1514


def write_cluster(bench, net):
    """One site is behind NAT."""
    lines = ["sites:"]
    for name in SITES:
        key = bench.command([bench.skycc, "key", f"{net.folder}/{name}"]).split()[-1]
        address = "" if name == "tokyo" else f'address: "{net[name].address}:{PORT}", '
        lines.append(f"  - {{name: {name}, {address}key: '{key}'}}")
    lines.append("devices:")
    lines += [f"  - {{name: d-{name}, site: {name}, threads: 1, memory: 1GiB}}" for name in SITES]
    with open(f"{net.folder}/sites.yaml", "w") as file:
        file.write("\n".join(lines) + "\n")


def start(bench, net, name, *options, key=None):
    folder = net.folder
    return net[name].start(bench.skycc, "probe", "--site", name, "--key", f"{folder}/{key or name}.key", "-d",
                           f"{folder}/sites.yaml", "-o", f"{folder}/{name}.json", *options, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)


def end(process, code=0):
    said = process.communicate(timeout=120)[0]
    expect(process.returncode == code, f"ended with {process.returncode}, not {code}: {said}")
    return said


@case("sites: what probe measures is the link", quick=True)
def measured(bench):
    with bench.network(list(SITES), Link(latency=LATENCY, bandwidth=BANDWIDTH)) as net:
        net.ask("inward", "tokyo", "no")
        write_cluster(bench, net)
        said = end(start(bench, net, "paris", key="tokyo"), 1)
        expect("the key is not that of site paris" in said, said)
        said = end(start(bench, net, "paris", "--timeout", "1"), 6)
        expect("site tokyo has not come" in said, said)
        runs = {name: start(bench, net, name) for name in SITES}
        said = {name: end(process) for name, process in runs.items()}
        links = []
        for name in SITES:
            with open(f"{net.folder}/{name}.json") as file:
                links.append(json.load(file)["links"])
        expect(links[0] == links[1] and len(links[0]) == 1, f"other links at the other site: {links}")
        link = links[0][0]
        expect(link["between"] == ["d-paris", "d-tokyo"], link)
        # A busy machine makes a link seem slower, never faster.
        expect(LATENCY <= link["latency_s"] < 2 * LATENCY, link)
        share = link["bandwidth_Bps"] / (BANDWIDTH * TCP_SHARE)
        expect(0.4 < share < 1.05, link)
        return [line for line in said["paris"].splitlines() if line.startswith("paris to tokyo")][0]


@case("sites: what probe measures of a federation")
def federation(bench):
    """The coordinator takes one site after the other; `auto` of local steps goes by it."""
    with bench.network(["coordinator", *SITES, "lima"], Link(latency=LATENCY, bandwidth=BANDWIDTH)) as net:
        names = [*SITES, "lima", "coordinator"]
        keys = {name: bench.command([bench.skycc, "key", f"{net.folder}/{name}"]).split()[-1] for name in names}
        path = f"{net.folder}/federation.yaml"
        with open(path, "w") as file:
            file.write("sites:\n" +
                       "".join(f"  - {{name: {name}, cluster: one.yaml, rows_per_step: 4, key: '{keys[name]}'}}\n"
                               for name in names[:-1]))
            file.write(
                f"coordinator: {{address: '{net['coordinator'].address}:{PORT}', key: '{keys['coordinator']}'}}\n"
                "rounds: 4\nlocal_steps: auto\n")
        with open(f"{net.folder}/one.yaml", "w") as file:
            file.write("devices: [{name: d, threads: 1, memory: 4GiB, gflops: 100, bandwidth: 20GB/s}]\n")
        runs = [
            net[name].start(bench.skycc, "probe", "--site", name, "--key", f"{net.folder}/{name}.key", "--federation",
                            path, "-o", f"{net.folder}/{name}.json", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True) for name in names
        ]
        for process in runs:
            end(process)
        with open(f"{net.folder}/coordinator.json") as file:
            links = json.load(file)["links"]
        expect([link["between"] for link in links] == [[name, "coordinator"] for name in names[:-1]], links)
        expect(all(LATENCY <= link["latency_s"] < 2 * LATENCY for link in links), links)
        federate = [
            bench.skycc, "federate", f"{ROOT}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx", "-c", path, "-o",
            f"{net.folder}/made", "--dim", "batch=2", "--dim", "seq=8"
        ]
        done = subprocess.run(federate, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == 1 and "needs the link of site 'paris'" in done.stdout, done.stdout)
        said = bench.command([*federate, "--profile", f"{net.folder}/coordinator.json"])
        return next(line for line in said.splitlines() if line.startswith("local_steps"))


@case("sites: strangers at the port of a probe disturb nothing")
def strangers(bench):
    with bench.network([*SITES, "mallory"], Link(latency=LATENCY, bandwidth=BANDWIDTH)) as net:
        write_cluster(bench, net)
        runs = {"paris": start(bench, net, "paris")}
        attack = net["mallory"].start("/usr/bin/python3", "-c", STRANGER, net["paris"].address, PORT, 6,
                                      stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        runs["tokyo"] = start(bench, net, "tokyo")
        for process in runs.values():
            end(process)
        tried = int(attack.communicate(timeout=120)[0])
        expect(tried > 100, f"only {tried} connections were tried")
        with open(f"{net.folder}/paris.json") as file:
            link = json.load(file)["links"][0]
        expect(LATENCY <= link["latency_s"] < 4 * LATENCY, link)
        return f"{tried} connections tried, latency found as {1e3 * link['latency_s']:.1f} ms"
