# ruff: noqa: E501 - a table of kinds and rules
"""Hostile files for every reader, made of seeds by rules, and the command that reads each.

Usage: python tests/fuzz/hostile_set.py FOLDER   (writes them all, and a line for each with its command)
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

import fuzz_files
import fuzz_front_ends
import fuzz_readers
import fuzz_seeds
from fuzz_mutations import JSON, mutated

from armillary.trace import Graph, GraphBuilder, Trace, write_trace
from armillary.trace._encode import encode

FLEXFLOW = """digraph taskgraph {
  node1 [color=red,label="{device_id=0|Dense|Forward|COMP_NODE|simulated_run_time=0.5}",shape=record];
  node1 -> node2;
  node2 [label="{device_id=9|Comm|Comm|COMM_SEND_RECV_NODE|src_device_id=0|dst_device_id=1|comm_size=4096|run_time=1}"];
}
"""
TEXT = "MICRO\n1\nconv1 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n"
MSCCL = """<algo name="swap" nchunksperloop="1" ngpus="2" coll="allgather" inplace="0">
<gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/>
<step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1"/></tb></gpu>
<gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1"/>
<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/></tb></gpu></algo>
"""
EG = b"\x07\x08\x01\x12\x01n\x18\x03\x07\x08\x02\x12\x01n\x18\x03"
"""Two nodes of ASTRA-sim 1.0's own graphs: id, name, type."""
NS3 = b"ENABLE_QCN 1\nTOPOLOGY_FILE eight.txt\nPACKET_PAYLOAD_SIZE 1000\nCC_MODE 12\nBUFFER_SIZE 32\n"
EIGHT = "9 1 8\n8\n" + "".join(f"{i} 8 400Gbps 0.0005ms 0\n" for i in range(8))
PLAN = "ranks: 8\nbatch: 16\nparallel: {tp: 2, pp: 2, dp: 2}\nnumbers: {gradients: bf16}\n"
STORED = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Kind:
    """A kind of file: what it is called, a good one, and the command that reads it."""

    file: str
    seed: Callable[[], bytes]
    words: str


def kinds() -> Mapping[str, Kind]:
    """Return all kinds by name."""
    rows = {row[0]: row for row in fuzz_files.rows()}

    def of(name: str, words: str) -> Kind:
        _, file, seeds, *_ = rows[name]
        return Kind(file, lambda: seeds()[0], words.replace("@", file))

    def text(file: str, content: str, words: str) -> Kind:
        return Kind(file, content.encode, words.replace("@", file))

    astra = "astra-sim --workload-configuration=step --system-configuration={} --network-configuration={} {}"
    ns3 = (
        "astra-sim ns3 --terse --workload-configuration=tiny --system-configuration=rings.json "
        "--network-configuration={} --logical-topology-configuration={}"
    )
    hlo = STORED / "convert" / "hlo" / "mlp_dp4_tp2.hlo"
    mlir = STORED / "convert" / "stablehlo" / "sharded.mlir"
    return {
        "et": Kind("w.0.et", lambda: fuzz_readers.wire_seeds()[0], "trace check w.0.et"),
        "et-run": Kind("step.0.et", step, "run --workload step --system system.json --network network.yml --memory memory.json"),
        "json": Kind("w.json", lambda: fuzz_readers.json_seeds()[0], "trace json w.json --out x.et"),
        "eg": Kind("w.0.eg", lambda: EG, "trace convert --from eg w.0.eg --out x"),
        "hlo": Kind("m.hlo", hlo.read_bytes, "trace convert --from hlo m.hlo --out x"),
        "msccl": text("a.xml", MSCCL, "trace convert --from msccl @ --size 1MiB --out x"),
        "mscclpp": Kind("p.json", lambda: fuzz_front_ends.mscclpp_seeds()[0], "trace convert --from mscclpp p.json --out x"),
        "infragraph": of("infragraph", "machine show @"),
        "text": text("t.txt", TEXT, "trace convert --from text @ --out x"),
        "flexflow": text("f.graph", FLEXFLOW, "trace convert --from flexflow @ --out x"),
        "host": text("host.json", json.dumps(HOST), "trace convert --from pytorch @ --out x"),
        "device": text("device.json", json.dumps(DEVICE), "trace link --host host.json --device @ --out x.json"),
        "groups": text("own-groups.json", '{"1": [0, 1]}', "trace check step.0.et --comm-groups @"),
        "study": of("study", "run @ --json x.json"),
        "machine": of("platform", "machine show @"),
        "edges": of("edges", "machine show uses-csv.yaml"),
        "edges-yaml": of("edges-yaml", "machine show uses-yaml.yaml"),
        "edges-graphml": of("edges-graphml", "machine show uses-graphml.yaml"),
        "ns3-topology": of("ns3-topology", "machine show uses-txt.yaml"),
        "ns3-config": Kind("config.txt", lambda: NS3, ns3.format("config.txt", "logical.json")),
        "ns3-dims": text("dims.json", '{"logical-dims": ["8"]}', ns3.format("ns3.txt", "@")),
        "htsim-topology": of("htsim-topology", "machine show uses-topo.yaml"),
        "routed-tokens": of("routed-tokens", "collective exchange 2xdgx-h100 --experts 16 --routing @"),
        "nccl": Kind("rank0.json", lambda: fuzz_front_ends.nccl_seeds()[0], "trace convert --from nccl rank0.json --out x"),
        "triosim": Kind("trace.csv", lambda: fuzz_front_ends.TRIOSIM, "trace convert --from triosim trace.csv --out x"),
        "goal": Kind("w.goal", lambda: fuzz_front_ends.GOAL, "trace convert --from goal w.goal --out x"),
        "goal-binary": Kind("w.bin", lambda: fuzz_front_ends.goal_binary()[0], "trace convert --from goal w.bin --out x"),
        "nsight": Kind("a.sqlite", lambda: fuzz_front_ends.nsight_seeds()[0], "trace convert --from nsight a.sqlite --out x"),
        "rocprof": Kind("results.json", lambda: fuzz_front_ends.rocprof_seeds()[0], "trace convert --from rocprof results.json --out x"),
        "xplane": Kind("a.xplane.pb", lambda: fuzz_front_ends.xplane_seeds()[0], "trace convert --from xplane a.xplane.pb --out x"),
        "stablehlo": Kind("w.mlir", mlir.read_bytes, "trace convert --from stablehlo w.mlir --out x"),
        "network": of("astra-network", astra.format("system.json", "@", "--remote-memory-configuration=memory.json")),
        "system": of("astra-system", astra.format("@", "network.yml", "--remote-memory-configuration=memory.json")),
        "memory": of("astra-memory", astra.format("system.json", "network.yml", "--remote-memory-configuration=@")),
        "comm-groups": of("astra-groups", astra.format("system.json", "network.yml", "--comm-group-configuration=@")),
        "sweep": of("sweep", "sweep @ --dry-run"),
        "costs": of("costs", "plan cost good.yaml --costs @"),
        "failures": of("failures", "plan whole-run --ranks 8 --step-time 1s --tokens 1T --tokens-per-step 4M --checkpoint 10s --mtbf @"),
        "plans": of("plans", "plan llama-2-7b --machine dgx-h100 --batch 8 --among @"),
        "plan": text("plan-of.yaml", PLAN, "generate memory llama-2-7b --plan @"),
        "learn-plan": of("learn-plan", "generate learn corpus x --generate @"),
        "model": of("model", "generate show @"),
        "config": of("config", "generate show @"),
        "device-file": of("device", "run uses-device.yaml"),
        "fit": of("fit", "collective time @ all-reduce 1MiB --gpus-per-node 8"),
        "gemms": of("gemm-table", "run uses-table.yaml"),
        "nccl-log": of("nccl-log", "calibrate nccl @ --device h100-sxm --operation all-reduce"),
        "nccl-csv": of("nccl-csv", "calibrate nccl @ --device h100-sxm"),
        "measured-csv": of("measured-csv", "validate --data @"),
        "measured-md": of("measured-md", "validate --data @"),
        "measured-log": of("measured-log", "validate --data @"),
        "measured-json": of("measured-json", "validate --data @"),
        "legend": of("legend", "trace obfuscate step --restore @ --out x"),
        "issues": of("issue-log", "chakra timeline_visualizer --input_filename @ --output_filename x.json --num_npus 1 --npu_frequency 1000"),
        "timeline": of("timeline", "explain @"),
        "store": of("store", "sweep results @"),
        "learned": Kind("model.npz", lambda: fuzz_readers.model_files()[0], "generate learn show model.npz"),
    }  # fmt: skip


HOST = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [
    {"id": i, "name": "aten::mm", "ctrl_deps": 1, "attrs": [{"name": "rf_id", "type": "uint64", "value": i}],
     "inputs": {"values": [], "shapes": [], "types": []}, "outputs": {"values": [], "shapes": [], "types": []}}
    for i in range(1, 4)
]}  # fmt: skip
DEVICE = {"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": cat, "name": "aten::mm", "pid": 0, "tid": 7, "ts": 10 * i, "dur": 5,
     "args": {"External id": i, "correlation": i, "stream": 7, "Record function id": i, "Ev Idx": i}}
    for cat, i in [("cpu_op", 1), ("cpu_op", 2), ("cpu_op", 3), ("kernel", 3), ("cuda_runtime", 3)]
]}  # fmt: skip


def numbers(data: bytes, other: bytes) -> bytes:
    """Put another word in the place of each third number."""
    count = iter(range(1 << 30))
    return re.sub(rb"\b\d+(\.\d+)?\b", lambda found: other if next(count) % 3 == 0 else found[0], data)


def values(data: bytes, other: bytes) -> bytes:
    """Put something else in the place of each fourth value behind a colon, a comma or an equals sign."""
    count = iter(range(1 << 30))
    return re.sub(
        rb"([:,=] ?)([\w.\"]+)", lambda found: found[1] + (other if next(count) % 4 == 0 else found[2]), data
    )


def runs(data: bytes, piece: bytes) -> bytes:
    """Put 300 kB of a piece behind the first line, a middle one and the last, and in the place of a value."""
    lines = data.split(b"\n")
    run = piece * (300_000 // len(piece))
    for at in {0, len(lines) // 2, len(lines) - 1}:
        lines[at] += run
    return re.sub(rb'([:=] ?"?)[\w. ]+', lambda found: found[1] + run, b"\n".join(lines), count=1)


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../x", data)
    return stream.getvalue()


RULES: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "blank": lambda data: b" \n\t\n" * 50,
    "half": lambda data: data[: len(data) // 2],
    "but one": lambda data: data[:-1],
    "first byte": lambda data: data[:1],
    "twice": lambda data: data + data,
    "huge": lambda data: numbers(data, b"9" * 400),
    "long digits": lambda data: numbers(data, b"7" * 5000),
    "int64": lambda data: numbers(data, b"9223372036854775807"),
    "int64 + 1": lambda data: numbers(data, b"9223372036854775808"),
    "1e308": lambda data: numbers(data, b"1e308"),
    "1e999": lambda data: numbers(data, b"1e999"),
    "negative": lambda data: numbers(data, b"-1"),
    "zero": lambda data: numbers(data, b"0"),
    "nan": lambda data: numbers(data, b"NaN"),
    ".nan": lambda data: numbers(data, b".nan"),
    "inf": lambda data: numbers(data, b"Infinity"),
    "lists": lambda data: values(data, b"[]"),
    "mappings": lambda data: values(data, b"{}"),
    "nulls": lambda data: values(data, b"null"),
    "texts": lambda data: values(data, b'"x"'),
    "true": lambda data: values(data, b"true"),
    "deep": lambda data: values(data, b"[" * 3000 + b"]" * 3000),
    "deeper": lambda data: b'{"a":' * 100_000 + data,
    "brackets": lambda data: b"[" * 200_000,
    "keys twice": lambda data: re.sub(rb'("?\w+"?\s*:)', rb"\1 1,\1", data),
    "lines twice": lambda data: b"\n".join(line for line in data.split(b"\n") for _ in (0, 1)),
    "lines back": lambda data: b"\n".join(reversed(data.split(b"\n"))),
    "utf-16": lambda data: data.decode("latin-1").encode("utf-16"),
    "latin": lambda data: data.replace(b"e", b"\xe9"),
    "halves": lambda data: data.replace(b"a", b"\xed\xa0\x80"),
    "escaped halves": lambda data: data.replace(b'":', b'\\ud800":'),
    "nul": lambda data: data.replace(b" ", b"\0 "),
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "boms": lambda data: b"\xef\xbb\xbf" * 3 + data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "cr": lambda data: data.replace(b"\n", b"\r"),
    "gzip head": lambda data: b"\x1f\x8b" + data,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "gzip cut": lambda data: gzip.compress(data, mtime=0)[:-9],
    "gzip gzip": lambda data: gzip.compress(gzip.compress(data, mtime=0), mtime=0),
    "zstd head": lambda data: b"\x28\xb5\x2f\xfd" + data,
    "zip": zipped,
    "elf": lambda data: b"\x7fELF\x02\x01\x01" + data,
    "sqlite head": lambda data: b"SQLite format 3\0" + data,
    "numpy": lambda data: b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + data,
    "aliases": lambda data: b"a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n" + data,
    "alias of itself": lambda data: b"a: &a [*a]\n" + data,
    "tag": lambda data: values(data, b"!!python/object/apply:os.system [touch pwned]"),
    "entities": lambda data: b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">'
    b'<!ENTITY c SYSTEM "file:///etc/passwd">]><algo name="&b;&c;"/>',
    "long line": lambda data: data.rstrip(b"\n") + b" " + b"x" * 300_000,
    "blanks": lambda data: runs(data, b" "),
    "digits": lambda data: runs(data, b"1,"),
    "opened": lambda data: runs(data, b"Tensor("),
    "footnotes": lambda data: runs(data, b"[^"),
    "backslashes": lambda data: runs(data, rb"\""),
    "logged": lambda data: runs(data, b"completed step: 1, seconds: 1 "),
    "words": lambda data: runs(data, b"on "),
    "commas": lambda data: data.replace(b",", b",,,,"),
    "quotes": lambda data: data.replace(b",", b'",'),
    "escapes": lambda data: values(data, b'"\\u001b[2J\\u202e"'),
}  # fmt: skip
LINKS = ("itself", "nowhere", "null", "folder", "each other")


@dataclass(frozen=True)
class Hostile:
    """A file of the set."""

    kind: str
    rule: str
    file: str
    data: bytes | None
    """None: no regular file, but a link or a folder, see `place`."""
    words: str


def hostile_set() -> Iterator[Hostile]:
    """Yield the set: every kind by every rule that changes it, some random ones, links and folders."""
    for name, kind in kinds().items():
        seed = kind.seed()
        for rule, change in RULES.items():
            if (data := change(seed)) != seed:
                yield Hostile(name, rule, kind.file, data, kind.words)
        for number in range(3):
            data = mutated([seed], JSON, Random(f"{name}:{number}"))
            yield Hostile(name, f"random {number}", kind.file, data, kind.words)
        for rule in LINKS:
            yield Hostile(name, rule, kind.file, None, kind.words)


def place(one: Hostile, folder: Path) -> None:
    """Put a file of the set where its command looks for it."""
    path = folder / one.file
    path.unlink(missing_ok=True)
    if one.data is not None:
        path.write_bytes(one.data)
    elif one.rule == "folder":
        path.mkdir()
    elif one.rule == "each other":
        path.symlink_to(folder / "other-end")
        (folder / "other-end").symlink_to(path)
    else:
        path.symlink_to({"itself": path, "nowhere": folder / "nothing", "null": Path("/dev/null")}[one.rule])


def step_graph() -> Graph:
    """Return a graph that every rank of a step has."""
    builder = GraphBuilder()
    builder.all_reduce("sum", size="1 MiB", after=[builder.compute("gemm", flops=1 << 30, bytes=1 << 20)])
    return builder.graph()


def step() -> bytes:
    return encode(step_graph())


def good_files(folder: Path) -> None:
    """Write the files that commands need beside the hostile one."""
    write_trace(folder / "step", Trace.replicate(step_graph(), ranks=8))
    tiny = GraphBuilder()
    tiny.all_reduce("sum", size="4 KiB")
    # A hostile configuration may ask for packets of a byte.
    write_trace(folder / "tiny", Trace.replicate(tiny.graph(), ranks=8))
    for name, content in (("network.yml", fuzz_seeds.NETWORK), ("system.json", fuzz_seeds.SYSTEM),
                          ("memory.json", fuzz_seeds.MEMORY), ("host.json", HOST)):  # fmt: skip
        (folder / name).write_text(json.dumps(content))
    (folder / "good.yaml").write_text(fuzz_seeds.STUDY)
    for name, compute in (
        ("device", {"model": "gpu", "device": "device.yaml"}),
        ("table", {"model": "table", "file": "gemm.csv", "columns": {"time": "us"}, "unit": "us"}),
    ):
        study = {
            "workload": {
                "generate": {"model": "llama-2-7b", "batch": 8, "sequence": 512, "parallel": {"tp": 8}}
            },
            "platform": {"preset": "hgx-h100", "compute": compute},
        }
        (folder / f"uses-{name}.yaml").write_text(json.dumps(study))
    rings = {key: ["ring"] for key in fuzz_seeds.SYSTEM if key.endswith("-implementation")}
    (folder / "rings.json").write_text(json.dumps(fuzz_seeds.SYSTEM | rings))
    (folder / "eight.txt").write_text(EIGHT)
    (folder / "ns3.txt").write_bytes(NS3)
    (folder / "logical.json").write_text('{"logical-dims": ["8"]}')
    for suffix, stem in (
        ("csv", "edges"),
        ("yaml", "edges"),
        ("graphml", "edges"),
        ("txt", "star"),
        ("topo", "tree"),
    ):
        machine = {
            "topology": {"kind": "file", "file": f"{stem}.{suffix}"},
            "npu": {"memory": {"bandwidth": "2 TB/s"}},
        }
        study = {"workload": {"collective": "all-reduce", "size": "1 MiB"}, "platform": machine}
        (folder / f"uses-{suffix}.yaml").write_text(json.dumps(study))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    for each_number, each in enumerate(hostile_set()):
        where = root / f"{each_number:05}"
        where.mkdir(parents=True)
        place(each, where)
        sys.stdout.write(f"{where / each.file}\t{each.kind}\t{each.rule}\tarmillary {each.words}\n")
