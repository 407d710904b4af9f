"""Files that want too much: each has the command that reads it and what its one line must say."""

from __future__ import annotations

import io
import json
import os
import socket
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import chdir, closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import absurd
import numpy as np
from rare_files import BESIDE, COMMANDS, TRIOSIM, rare

MIB = 1 << 20
MACHINE = "platform: {preset: hgx-h100}\n"
STUDY = "workload: {generate: {model: llama-2-7b, batch: 8, sequence: 128, parallel: {tp: 8}}}\n" + MACHINE
SWEEP = "study: study.yaml\nvary:\n  workload.generate.batch: [8, 16]\n"


@dataclass(frozen=True)
class Case:
    """A file to write, the command that reads it, a part of the line that it must print, and its exit code."""

    name: str
    write: Callable[[Path], object]
    command: tuple[str, ...]
    said: str
    code: int = 2


def text(content: str | bytes | Callable[[], str | bytes]) -> Callable[[Path], object]:
    """Return what writes a file; what is large is made only then."""

    def write(path: Path) -> None:
        made = content() if callable(content) else content
        path.write_bytes(made.encode() if isinstance(made, str) else made)

    return write


def zeros_gzip(size: int, start: bytes = b"", filler: bytes = b" ") -> bytes:
    pack = zlib.compressobj(9, wbits=31)
    block = filler * (MIB // len(filler))
    return pack.compress(start) + b"".join(pack.compress(block) for _ in range(size // MIB)) + pack.flush()


def zeros_zstd(size: int) -> bytes:
    import zstandard

    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as stream:
        for _ in range(size // MIB):
            stream.write(bytes(MIB))
    return out.getvalue()


def merges(depth: int = 11) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "\n".join(lines) + "\n"


def aliases(depth: int = 11) -> str:
    lines = ["a0: &a0 [1, 2]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "\n".join(lines) + "\n"


def archive(**arrays: bytes | Callable[[], bytes]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as found:
            for name, data in arrays.items():
                found.writestr(f"{name}.npy", data() if callable(data) else data)

    return write


def endless_view(path: Path) -> None:
    """Write a database in which a view that never ends has the name of a table, beside a table of a sound name."""
    with closing(sqlite3.connect(path)) as connection:
        count = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start FROM n"
        connection.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {count}")
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT AS (zeroblob(1000000000)))")
        connection.execute("INSERT INTO StringIds VALUES (1)")
        connection.commit()


def array_of(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return out.getvalue() + content


def listening(path: Path) -> None:
    """Make a socket that nobody serves."""
    # A path of a socket has at most 108 bytes.
    with chdir(path.parent):
        socket.socket(socket.AF_UNIX).bind(path.name)


def both(*writes: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return what does one after the other."""

    def write(path: Path) -> None:
        for each in writes:
            each(path)

    return write


def described(path: Path) -> None:
    """Write the description of a captured folder of one rank."""
    found = {"script": "s.py", "digest": "", "arguments": [], "ranks": 1, "device": "h100-sxm"}
    path.with_name("capture.json").write_text(json.dumps(found | {"step": 3, "done": [0]}))


def of_rank(content: Callable[[], bytes]) -> Callable[[Path], object]:
    """Return what writes a rank of a captured folder, and the sound description beside it."""

    def write(path: Path) -> None:
        described(path)
        path.write_bytes(content())

    return write


ENTITIES = (
    '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + ']><algo name="&i;"/>'
)

DEVICES = """HloModule m, num_partitions=1000000

ENTRY main {
  p = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} all-gather(p), replica_groups={}, dimensions={0}
}
"""
"""A program of 1,000,000 devices that do the same."""

MANY = "[" + "{}," * 12_000_000 + "{}]"

NOBODY = '{"arrival_s": 0, "input_tokens": 9, "output_tokens": 1}\n' \
    '{"after": 7, "input_tokens": 9, "output_tokens": 1}\n'  # fmt: skip
LONG_REQUEST = '{"arrival_s": 0, "input_tokens": 1000000000000, "output_tokens": 1}\n'

ASTRA, LOGICAL = ("astra-sim",), ("--terse", "--logical-topology-configuration")
WORK = ("--workload-configuration", "+w", "--system-configuration", "+system.json")
READS: dict[str, tuple[str, ...]] = {
    "study.yaml": ("run", "@"),
    "sweep.yaml": ("sweep", "@"),
    "search.yaml": ("plan", "search", "@"),
    "machine.yaml": ("machine", "show", "@"),
    "plan.yaml": ("generate", "train", "llama-2-7b", "--plan", "@", "-o", "@.made"),
    "model.yaml": ("generate", "show", "@"),
    "corpus.yaml": ("generate", "learn", "corpus", "@.made", "--generate", "@"),
    "costs.yaml": ("plan", "cost", "+study.yaml", "--costs", "@"),
    "device.yaml": ("calibrate", "gemm", "@", "--device", "h100-sxm", "-o", "@.made"),
    "network.yaml": ("machine", "show", "--system", "+system.json", "--network", "@"),
    "fit.yaml": ("collective", "time", "@", "all-reduce", "1 MiB", "--gpus-per-node", "8"),
    "system.json": ("machine", "show", "--system", "@", "--network", "+network.yaml"),
    "groups.json": (
        "run",
        "--workload",
        "+grouped",
        "--system",
        "+system.json",
        "--network",
        "+network.yaml",
        "--comm-groups",
        "@",
    ),
    "w.0.et": ("trace", "info", "@"),
    "w.0.json": ("trace", "info", "@"),
    "step.npz": ("explain", "@"),
    "model.npz": ("generate", "learn", "show", "@"),
    "store.db": ("sweep", "results", "@"),
    "device.json": ("trace", "convert", "--from", "pytorch", "@", "-o", "@.made"),
    "work.txt": ("trace", "convert", "--from", "text", "@", "-o", "@.made"),
    "task.graph": ("trace", "convert", "--from", "flexflow", "@", "-o", "@.made"),
    "algo.xml": ("trace", "convert", "--from", "msccl", "@", "--size", "1 MiB", "-o", "@.made"),
    "plan.json": ("trace", "convert", "--from", "mscclpp", "@", "--size", "1 MiB", "-o", "@.made"),
    "infra.yaml": ("machine", "show", "@"),
    "four.topo": (
        *ASTRA,
        "htsim",
        *WORK,
        "--network-configuration",
        "+network.yaml",
        "--htsim_opts",
        "-topo",
        "@",
    ),
    "config.txt": (*ASTRA, "ns3", *WORK, "--network-configuration", "@", *LOGICAL, "+logical.json"),
    "logical.json": (*ASTRA, "ns3", *WORK, "--network-configuration", "+config.txt", *LOGICAL, "@"),
    "version1.json": ("machine", "show", "--system", "+system.json", "--network", "@"),
    "version1.txt": ("machine", "show", "--system", "@", "--network", "+network.yaml"),
    "loggers.toml": (
        *ASTRA,
        *WORK,
        "--network-configuration",
        "+network.yaml",
        "--logging-configuration",
        "@",
    ),
    "capture.json": ("run", "--captured", "^", "--machine", "1xh100"),
    "rank_0.json.gz": ("run", "--captured", "^", "--machine", "1xh100"),
    "rank0.log": ("trace", "convert", "--from", "nccl", "@", "-o", "@.made"),
    "results.json": ("trace", "convert", "--from", "rocprof", "@", "-o", "@.made"),
    "step.mlir": ("trace", "convert", "--from", "stablehlo", "@", "-o", "@.made"),
    "a.xplane.pb": ("trace", "convert", "--from", "xplane", "@", "-o", "@.made"),
    "a.sqlite": ("trace", "convert", "--from", "nsight", "@", "-o", "@.made"),
    "trace.csv": ("trace", "convert", "--from", "triosim", "@", "-o", "@.made"),
    "x.goal": ("trace", "convert", "--from", "goal", "@", "-o", "@.made"),
    "old.0.eg": ("trace", "convert", "--from", "eg", "@", "-o", "@.made"),
    "step.hlo": ("trace", "convert", "--from", "hlo", "@", "-o", "@.made"),
    "gemm.csv": ("calibrate", "gemm", "@", "--device", "h100-sxm", "-o", "@.made"),
    "nccl.log": ("calibrate", "nccl", "@", "-o", "@.made"),
    "measured.csv": ("validate", "--data", "@"),
    "measured.json": ("validate", "--data", "@"),
    "measured.md": ("validate", "--data", "@"),
    "requests.jsonl": ("serve", "llama-3.1-8b", "--machine", "1xh100", "--load", "@"),
    "requests.csv": ("serve", "llama-3.1-8b", "--machine", "1xh100", "--load", "@"),
}
READS |= COMMANDS | {name: words for name, words in absurd.COMMANDS.items() if name not in READS}
"""File of each reader -> the command that reads it: @ is the file, ^ its folder, +NAME a sound one elsewhere."""


KINDS_OF_PATH: dict[str, tuple[Callable[[Path], object], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    "fifo": (os.mkfifo, "is a pipe"),
    "folder": (Path.mkdir, ""),
    "socket": (listening, "is a socket"),
    "nothing": (text(b""), ""),
    "noise": (text(b"\x00\xff\xfe\x80" * 100), ""),
    "system": (lambda path: path.symlink_to("/proc/self/maps"), "is a view of the running system"),
}
"""How a path is written -> what is said of it."""


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield from kinds_of_path()
    yield from packed()
    yield from documents()
    yield from counts()
    for name, content, said in rare():
        file = name.rpartition(" ")[2]
        yield Case(name, both(BESIDE.get(file, lambda path: None), text(content)), READS[file], said)
    for name, made, said in absurd.files():
        write = made if callable(made) else text(made)
        yield Case(name, write, absurd.COMMANDS[name.rpartition(" ")[2]], said)
    for code, table in ((2, absurd.OPTIONS), (4, absurd.SHORTAGES)):
        for words, said in table.items():
            yield Case(f"{words[:60]} option", lambda path: None, tuple(words.split(" ")), said, code)


def kinds_of_path() -> Iterator[Case]:
    """Yield what is no file, for each reader."""
    for name, command in READS.items():
        # Of a captured folder, each rank has a sound description beside it.
        beside = BESIDE.get(name, described if name == "rank_0.json.gz" else lambda path: None)
        for kind, (write, said) in KINDS_OF_PATH.items():
            # A configuration of loggers may be empty, and what is no text is not looked at for its length.
            if (kind, name) != ("nothing", "loggers.toml"):
                said = name if kind in ("folder", "nothing", "noise") else said
                yield Case(f"{kind} {name}", both(beside, write), command, said)


def packed() -> Iterator[Case]:
    """Yield small files that unpack to much."""
    bomb = "unpacks to more than"
    yield Case("gzip w.0.et", text(lambda: zeros_gzip(320 * MIB)), READS["w.0.et"], bomb)
    yield Case("gzip w.0.json", text(lambda: zeros_gzip(320 * MIB, b"[")), READS["w.0.json"], bomb)
    yield Case(
        "gzip device.json", text(lambda: zeros_gzip(320 * MIB, b"[", b"{},")), READS["device.json"], bomb
    )
    yield Case("gzip measured.csv", text(lambda: zeros_gzip(320 * MIB)), READS["measured.csv"], bomb)
    yield Case(
        "gzip gemm.csv.gz", text(lambda: zeros_gzip(320 * MIB, b"", b"1,2\n")), READS["gemm.csv"], bomb
    )
    yield Case("gzip-members w.0.et", text(lambda: zeros_gzip(30 * MIB) * 60), READS["w.0.et"], bomb)
    yield Case("gzip-cut w.0.et", text(lambda: zeros_gzip(MIB)[:200]), READS["w.0.et"], "damaged gzip file")
    if find_spec("zstandard"):
        yield Case("zstd w.0.et", text(lambda: zeros_zstd(6 << 30)), READS["w.0.et"], bomb)
    big = array_of((1 << 60,))
    yield Case("shape step.npz", archive(head=big), READS["step.npz"], "for its shape")
    yield Case("shape model.npz", archive(header=big), READS["model.npz"], "for its shape")

    def much() -> bytes:
        return array_of((1 << 27,), bytes(1 << 30))

    yield Case("gzip a.xplane.pb", text(lambda: zeros_gzip(320 * MIB)), READS["a.xplane.pb"], bomb)
    yield Case("zip step.npz", archive(head=much), READS["step.npz"], "expected at most")
    yield Case("zip model.npz", archive(header=much), READS["model.npz"], "unpacked")


def documents() -> Iterator[Case]:
    """Yield documents with too many values, or too deep ones."""
    yamls = [name for name in READS if name.endswith(".yaml") and name != "device.yaml"]
    for name in yamls:
        yield Case(f"merges {name}", text(merges()), READS[name], "aliases written out")
        yield Case(f"aliases {name}", text(aliases()), READS[name], "aliases written out")
        yield Case(f"itself {name}", text("a: &a [*a]\n"), READS[name], "within itself")
        yield Case(f"deep {name}", text("a: " + "[" * 2000 + "]" * 2000), READS[name], "nested too deeply")
        yield Case(f"values {name}", text(lambda: "a:\n" + "- 1\n" * 2_000_000), READS[name], "values")
        yield Case(f"long {name}", text(lambda: b"#" * (17 * MIB)), READS[name], "expected at most 16 MiB")
    jsons = ("results.json", "plan.json", "logical.json", "capture.json")
    for name in ("system.json", "groups.json", "w.0.json", "measured.json", *jsons):
        yield Case(f"deep {name}", text('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"), READS[name], "deep")
        yield Case(f"values {name}", text(lambda: f'{{"a": {MANY}}}'), READS[name], "values")
    record = "record of more than"
    inside = text(lambda: f'{{"traceEvents": [{{"a": {MANY}}}]}}')
    yield Case("record device.json", inside, READS["device.json"], record)
    beside = text(lambda: f'{{"a": {MANY}, "traceEvents": []}}')
    yield Case("header device.json", beside, READS["device.json"], record)
    log = READS["requests.jsonl"]
    yield Case(
        "gzip rank_0.json.gz",
        of_rank(lambda: zeros_gzip(320 * MIB, b"[")),
        READS["rank_0.json.gz"],
        "unpacks",
    )
    yield Case("deep rank_0.json.gz", of_rank(lambda: b"[" * 50_000), READS["rank_0.json.gz"], "deep")
    yield Case("deep rank0.log", text("[" * 50_000), READS["rank0.log"], "deep")
    yield Case("values rank0.log", text(lambda: MANY), READS["rank0.log"], "values")
    yield Case("records rank0.log", text(lambda: "{}\n" * 2_100_000), READS["rank0.log"], "expected at most")
    yield Case("number rank0.log", text("9" * 5000), READS["rank0.log"], "not valid JSON")
    yield Case("gzip rank0.log", text(lambda: zeros_gzip(320 * MIB, b"[")), READS["rank0.log"], "unpacks")
    yield Case("endless a.sqlite", endless_view, READS["a.sqlite"], "has no work of a GPU")
    regions = text("module {\n" * 100_000)
    yield Case("deep step.mlir", regions, READS["step.mlir"], "regions are nested deeper than 100")
    brackets = text("func.func @main" + "(" * 100_000)
    yield Case("brackets step.mlir", brackets, READS["step.mlir"], "brackets are nested deeper than 100")
    many_results = text("module {\nfunc.func @main() -> i1 {\n%0:999999 = a.b\nreturn %0#1\n}\n}\n")
    yield Case("results step.mlir", many_results, READS["step.mlir"], "results and 0 types")
    files = "each of which becomes a file"
    yield Case("files x.goal", text("num_ranks 200000\n"), READS["x.goal"], files)
    yield Case("devices step.hlo", text(DEVICES), READS["step.hlo"], files)
    yield Case("ranks x.goal", text("num_ranks 99999999999\n"), READS["x.goal"], "num_ranks")
    binary = (4223).to_bytes(8, "little")
    yield Case("cut x.goal", text(binary), READS["x.goal"], "has a table of 0 ranks")
    many = binary + (40_000).to_bytes(4, "little") + b"\0\0" + b"\xff" * 640_000
    yield Case("parts x.goal", text(many), READS["x.goal"], "rank 0: its part is bytes")
    yield Case("number x.goal", text("num_ranks " + "9" * 5000), READS["x.goal"], "num_ranks")
    yield Case(
        "lines x.goal",
        text(lambda: "num_ranks 1\nrank 0 {\n" + "calc 1\n" * 2_100_000),
        READS["x.goal"],
        "expected at most",
    )
    row = text(TRIOSIM + "9" * 300_000 + ",a,[1],[1],1,1,1,1,0,forward,0\n")
    yield Case("field trace.csv", row, READS["trace.csv"], "field larger than field limit")
    yield Case("deep loggers.toml", text("a = " + "[" * 100_000), READS["loggers.toml"], "is no TOML")
    yield Case(
        "long loggers.toml", text(lambda: b"#" * (257 * MIB)), READS["loggers.toml"], "expected at most"
    )
    yield Case(
        "long version1.txt", text(lambda: b"a: 1\n" * (52 * MIB)), READS["version1.txt"], "expected at most"
    )
    yield Case(
        "number version1.txt",
        text("preferred-dataset-splits: 1\nlocal-mem-bw: 1" + "0" * 400),
        READS["version1.txt"],
        "local-mem-bw",
    )
    words = "TOPOLOGY_FILE ../sound/star.txt\nKMAX_MAP " + "9 " * 100_000
    yield Case("words config.txt", text(words), READS["config.txt"], "KMAX_MAP")
    yield Case("deep requests.jsonl", text('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"), log, "deep")
    yield Case("values requests.jsonl", text(lambda: f'{{"a": {MANY}}}'), log, "values")
    yield Case("lines requests.jsonl", text(lambda: "{}\n" * 2_100_000), log, "expected at most 2 M")
    yield Case("after requests.jsonl", text(NOBODY), log, "after: got 7, expected the id of an earlier line")
    yield Case("length requests.jsonl", text(LONG_REQUEST), log, "expected tokens from 1 to 10,000,000")
    long = text("Timestamp\n" + "9" * 300_000 + "\n")
    yield Case("field requests.csv", long, READS["requests.csv"], "field larger than field limit")
    yield Case("entities algo.xml", text(ENTITIES), READS["algo.xml"], "declares the entity")
    field = "m,n,k,time\n" + "9" * 300_000 + ",1,1,1\n"
    limit = "field larger than field limit"
    yield Case("field gemm.csv", text(field), READS["gemm.csv"], limit)
    yield Case("field measured.csv", text("#\n" + "a" * 300_000 + "\n"), READS["measured.csv"], limit)
    columns = "device,gemm_dtype,m,n,k,latency\n"
    returns = text(columns + "h100,bf16,1,1,1,1\r2,3\n")
    yield Case("return measured.csv", returns, READS["measured.csv"], "measured.csv:")


def counts() -> Iterator[Case]:
    """Yield what is to be repeated without end."""
    job = (
        "{name: a, npus: 1, every: 1 us, repeat: 1000000000, workload: {collective: all-reduce, size: 1 MiB}}"
    )
    yield Case("repeat study.yaml", text(f"jobs: [{job}]\n{MACHINE}"), READS["study.yaml"], "1 G of them")
    for key, value in {"batch": 2147483640, "iterations": 2147483640}.items():
        plan = {"model": "llama-2-7b", "batch": 8, "microbatch": 1, "sequence": 128, "parallel": {"tp": 8}}
        work = json.dumps({"workload": {"generate": plan | {key: value}}, "platform": {"preset": "dgx-h100"}})
        yield Case(f"{key} study.yaml", text(work), READS["study.yaml"], "expected at most")
    ring = "{topology: Ring, size: 2000000000, bandwidth: 1 GB/s, latency: 1 us}"
    work = f"workload: {{collective: all-reduce, size: 1 MiB}}\nplatform: {{network: [{ring}, {ring}]}}\n"
    yield Case("npus study.yaml", text(work), READS["study.yaml"], "expected at most")
    hosts = "Nodes 4000000000\nTiers 2\nPodsize 4000000000\n" + "".join(
        f"Tier {tier}\nDownlink_speed_Gbps 1\nDownlink_Latency_ns 1\nRadix_Down {down}\nRadix_Up 1\n"
        for tier, down in ((0, 1), (1, 4000000000))
    )
    yield Case("hosts four.topo", text(hosts), READS["four.topo"], "expected at most")
    infra = '{name: x, devices: [{name: h, components: [{name: xpu, count: 2000000000, choice: xpu}]}], ' \
        'instances: [{name: h, device: h, count: 2000000000}]}'  # fmt: skip
    yield Case("parts infra.yaml", text(infra), READS["infra.yaml"], "expected at most")
    dims = json.dumps({"logical-dims": ["9999999", "9999999"]})
    yield Case("npus logical.json", text(dims), READS["logical.json"], "expected at most")
    old = {"topologies-per-dim": ["Ring"] * 2, "units-count": [2**30] * 2, "links-count": [2] * 2}
    old |= {"link-latency": [1] * 2, "link-bandwidth": [1] * 2}
    yield Case("npus version1.json", text(json.dumps(old)), READS["version1.json"], "expected at most")
    layers = "DATA\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n"
    passes = (*READS["work.txt"], "--npus", "8", "--passes", "100000000")
    yield Case("passes work.txt", text(layers), passes, "fewer --passes")
    program = "  compute: {model: subprocess, command: [touch, STARTED]}\n"
    study = STUDY.replace("platform: {preset: hgx-h100}", f"platform:\n  preset: hgx-h100\n{program}")
    for command in (
        READS["study.yaml"], ("compare", "@", "+study.yaml"), ("plan", "cost", "@", "--costs", "h100"),
        ("plan", "whole-run", "@", "--tokens", "1e9"), ("machine", "gemm", "@", "64x64x64"),
        ("train", "llama-2-7b", "--machine", "@", "--batch", "8"),
        ("generate", "train", "llama-2-7b", "--ranks", "8", "--batch", "8", "--machine", "@"),
    ):  # fmt: skip
        yield Case(f"program {' '.join(command[:2])} study.yaml", text(study), command, "--allow-programs")
    swept = SWEEP.replace(
        "study: study.yaml", "study:\n" + "".join(f"  {line}\n" for line in study.splitlines())
    )
    for command in (("sweep", "@", "--store", "@.db"), READS["search.yaml"]):
        yield Case(f"program {command[0]} sweep.yaml", text(swept), command, "--allow-programs")


def sound(folder: Path) -> None:
    """Write the sound files that +NAME means."""
    folder.mkdir()
    (folder / "study.yaml").write_text(STUDY)
    (folder / "sweep.yaml").write_text(SWEEP)
    system = {"all-reduce-implementation": ["ring"], "preferred-dataset-splits": 1}
    (folder / "system.json").write_text(json.dumps(system))
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [100.0], "latency": [500.0]}
    (folder / "network.yaml").write_text(json.dumps(network))
    (folder / "logical.json").write_text('{"logical-dims": ["8"]}')
    (folder / "config.txt").write_text("TOPOLOGY_FILE star.txt\n")
    (folder / "star.txt").write_text("9 1 8\n8\n" + "".join(f"{i} 8 400Gbps 0.0005ms 0\n" for i in range(8)))
    from armillary.trace import GraphBuilder, write_graph

    for name, group in (("w", None), ("grouped", 1)):
        builder = GraphBuilder()
        builder.all_reduce("sum", "1 MiB", group=group)
        for rank in range(8):
            write_graph(folder / f"{name}.{rank}.et", builder.graph())
