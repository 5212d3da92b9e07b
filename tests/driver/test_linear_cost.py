"""Processor time of big inputs grows with their size: sixteen times the input may take thirty times the processor time,
where quadratic time takes a hundred times as long and more.

    test_linear_cost.py SKYCC
"""
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, printed, require

SKYCC = sys.argv[1]
TIMES, MOST = 16, 30


def processor_seconds(*command):
    quiet = os.open(os.devnull, os.O_WRONLY)
    child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, quiet, 1)])
    os.close(quiet)
    _, status, usage = os.wait4(child, 0)
    require(status == 0, *command, "ends with", os.waitstatus_to_exitcode(status))
    return usage.ru_utime + usage.ru_stime


def field(number, content):
    """A field of a protobuf message: a number or bytes."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def node(operator, given, made, domain=""):
    return field(1, given) + field(2, made) + field(4, operator) + field(7, domain)


def functions(count):
    """A model that calls each of its functions once."""
    def value(name):
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 2)))))
    opset, own = field(2, 17), field(1, "own") + field(2, 1)
    calls = b"".join(field(1, node(f"F{i}", f"v{i}", f"v{i + 1}", "own")) for i in range(count))
    graph = calls + field(2, "g") + field(11, value("v0")) + field(12, value(f"v{count}"))
    defined = b"".join(
        field(25, field(1, f"F{i}") + field(4, "a") + field(5, "b") + field(7, node("Relu", "a", "b")) +
              field(9, opset) + field(10, "own")) for i in range(count))
    return field(1, 8) + field(7, graph) + field(8, opset) + field(8, own) + defined


def products(count, shared=False):
    """A model whose layers are products with weights of their own, or each with that of another layer."""
    def value(name):
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 2)) * 2)))
    weights = range(count // 2 if shared else count)
    nodes = b"".join(field(1, field(1, f"v{i}") + field(1, f"w{i % len(weights)}") + field(2, f"v{i + 1}") +
                           field(3, f"layer.{i}") + field(4, "MatMul")) for i in range(count))
    held = b"".join(field(5, field(1, 2) * 2 + field(2, 1) + field(8, f"w{i}") +
                          field(9, struct.pack("<4f", 1, i, 2, 3))) for i in weights)
    graph = nodes + field(2, "g") + held + field(11, value("v0")) + field(12, value(f"v{count}"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def shared_products(count):
    return products(count, True)


def devices(count, layers=10, regions=2):
    """Costs of so many layers, with outputs of as many sizes, on so many unequal devices."""
    layer = {"forward_s": 1e-3, "backward_s": 2e-3, "update_s": 1e-4, "memory_bytes": 1000}
    links = {"regions": [f"r{i}" for i in range(regions)], "latency_s": [[1e-4] * regions] * regions,
             "bandwidth_Bps": [[1e9] * regions] * regions}
    return json.dumps({
        "format": "skycc.costs/1", "name": "many", "microbatches": 8, "links": links,
        "layers": [dict(layer, name=f"l{i}", output_bytes=100 + i, forward_s=1e-3 + i * 7919 % 997 * 1e-6)
                   for i in range(layers)],
        "devices": [{"name": f"d{i}", "slowdown": 1 + i / count, "memory_bytes": 1 << 40, "region": f"r{i % regions}"}
                    for i in range(count)]}).encode()


def marks(count):
    """A text of combining marks out of order."""
    return ("text,label\n" + "\u0301\u0323" * count + ",a\nabc,b\n").encode()


def layers(count):
    return devices(3, count, 3)


def check(what, make, count, *arguments):
    seconds = []
    for size in (count, TIMES * count):
        with open("input.csv", "wb") as file:
            file.write(make(size))
        seconds.append(processor_seconds(SKYCC, *arguments))
    require(seconds[1] <= MOST * seconds[0], f"{TIMES} times as many {what} take {seconds[1]:.2f} s of processor "
            f"time, {seconds[1] / seconds[0]:.0f} times those of {count}: at most {MOST} times is expected")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "abc"]) + "\n")
    check("functions", functions, 1000, "check", "input.csv")
    check("marks", marks, 2000, "tokenize", "--vocab", "vocab.txt", "input.csv", "--text", "text", "--label", "label",
          "-o", "rows.safetensors")
    check("devices", devices, 1000, "plan", "--costs", "input.csv", "--allocate", "heuristic", "-o", "plan.json")
    check("layers", layers, 200, "plan", "--costs", "input.csv", "--allocate", "heuristic", "-o", "plan.json")
    with open("cluster.yaml", "w", encoding="utf-8") as file:
        file.write("devices: [{name: a, site: x}, {name: b, site: y}]\nsites:\n"
                   "  - {name: x, address: 'a.example:1', key: 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7'}\n"
                   "  - {name: y, key: 'JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6'}\n")
    for make in (products, shared_products):
        check(make.__name__, make, 400, "compile", "input.csv", "-d", "cluster.yaml", "--loss", "mse", "--emit=costs",
              "-o", "costs.json")
    with open("input.csv", "wb") as links:
        links.write(devices(100, 2000, 100))
    text = printed(SKYCC, "plan", "--costs", "input.csv", code=1)
    require("the links between 100 regions, each for 1999 sizes of what crosses them, would take 1.3 GiB" in text, text)
sys.exit(failed())
