"""Bad input over all commands: one clear line, exit code 2 or 3, no traceback, no file left behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from armillary.cli import main
from armillary.trace import GraphBuilder, Node, Trace, graph_of, write_graph, write_trace
from armillary.trace.columns import NodeType

from .conftest import STUDY

RUN = (
    "run --workload step --system system.json --network network.yml --memory memory.json "
    "--comm-groups groups.json --json out.json --save out.npz --timeline out.gz"
)
ASTRA = (
    "astra-sim --workload-configuration=step --system-configuration=system.json "
    "--network-configuration=network.yml --remote-memory-configuration=memory.json"
)
FROM_STUDY = "run study.yaml --json out.json"
Change = Callable[[], Any] | None


def put(name: str, content: str | bytes | dict[str, Any]) -> Change:
    """Write a file."""
    text = json.dumps(content) if isinstance(content, dict) else content
    return lambda: Path(name).write_bytes(text.encode() if isinstance(text, str) else text)


def edit(name: str, old: str, new: str) -> Change:
    """Replace a piece of a file."""

    def replace() -> None:
        text = Path(name).read_text()
        assert old in text
        Path(name).write_text(text.replace(old, new))

    return replace


def network(old: str, new: str) -> Change:
    return edit("network.yml", old, new)


def system(old: str, new: str) -> Change:
    return edit("system.json", old, new)


def study(old: str, new: str) -> Change:
    return edit("study.yaml", old, new)


def graph(more: str = "", keys: str = "") -> Change:
    """Let the study run on a graph, in profile physical, with more keys of it and of the platform."""
    links = "leaves: 2, spines: 1, npus_per_leaf: 2, bandwidth: 50 GB/s, latency: 500 ns"
    text = STUDY.replace("profile: astra-sim\n", "").replace(
        f"network:\n{STUDY.splitlines()[3]}", "{topology}"
    )
    text = text.replace("{topology}", f"topology: {{kind: leaf-spine, {links}{more}}}\n{keys}")
    return put("study.yaml", text)


def packets(keys: str) -> Change:
    return graph(keys=f"  packets: {{{keys}}}\n")


TO_ITSELF = [("comm_size", "int64", 64), ("comm_dst", "int32", 0)]


def ranks(*fills: Callable[[GraphBuilder], Any]) -> Change:
    """Write rank files; the last fill serves the remaining ranks."""

    def write() -> None:
        builders = [GraphBuilder(rank=rank) for rank in range(4)]
        for rank, builder in enumerate(builders):
            fills[min(rank, len(fills) - 1)](builder)
        write_trace("step", Trace.from_ranks([builder.graph() for builder in builders]))

    return write


def nodes(*given: Node) -> Change:
    """Write the same nodes for every rank."""
    return lambda: write_trace("step", Trace.replicate(graph_of(given), ranks=4))


def compute(number: int, *after: int, **fields: Any) -> Node:
    return Node(number, f"n{number}", NodeType.COMP_NODE, data_deps=after, duration_micros=1, **fields)


def collective(*attrs: tuple[str, str, Any]) -> Node:
    return Node(0, "sum", NodeType.COMM_COLL_NODE, attrs=[("is_cpu_op", "bool", False), *attrs])


def cut() -> None:
    path = Path("step.0.et")
    path.write_bytes(path.read_bytes()[:-7])


def damaged_gzip() -> None:
    path = Path("step.0.et")
    path.write_bytes(gzip.compress(path.read_bytes())[:-12])


def idle(builder: GraphBuilder) -> None:
    """Let a rank do nothing that others wait for."""
    builder.compute("idle", duration_micros=1)


def other_size(builder: GraphBuilder) -> None:
    builder.recv(0, 65, name="hello")


ALL_REDUCE = ("comm_type", "int64", 0)
SIZE = ("comm_size", "int64", 1 << 20)

TRACES: dict[str, tuple[Change, str, int]] = {
    "truncated": (cut, "step.0.et", 2),
    "empty": (put("step.0.et", b""), "step.0.et", 2),
    "text": (put("step.0.et", "nodes:\n  - all-reduce\n"), "step.0.et", 2),
    "noise": (put("step.0.et", bytes(range(256)) * 4), "step.0.et", 2),
    "gzip damaged": (damaged_gzip, "step.0.et: damaged gzip", 2),
    "rank missing": (lambda: Path("step.2.et").unlink(), "no file for rank 2", 2),
    "last rank missing": (lambda: Path("step.3.et").unlink(), "no file for rank 3", 2),
    "cyclic": (nodes(compute(0), compute(1, 2), compute(2, 1)), "cycle", 2),
    "waits for itself": (nodes(compute(0, 0)), "cycle", 2),
    "an id twice": (nodes(compute(5), compute(5)), "5", 2),
    "size 2^63": (nodes(collective(ALL_REDUCE, ("comm_size", "uint64", 2**63))), "comm_size", 2),
    "size 2^62": (nodes(collective(ALL_REDUCE, ("comm_size", "int64", 2**62))), "sum", 2),
    "size negative": (nodes(collective(ALL_REDUCE, ("comm_size", "int64", -8))), "-8", 2),
    "size is text": (nodes(collective(ALL_REDUCE, ("comm_size", "string", "big"))), "comm_size", 2),
    "type absent": (nodes(collective(SIZE)), "comm_type", 2),
    "type unknown": (nodes(collective(("comm_type", "int64", 99), SIZE)), "99", 2),
    "type barrier": (nodes(collective(("comm_type", "int64", 9), SIZE)), "BARRIER", 2),
    "group unknown": (nodes(collective(ALL_REDUCE, SIZE, ("pg_name", "string", "7"))), "7", 2),
    "duration 2^63 us": (nodes(Node(0, "long", NodeType.COMP_NODE, duration_micros=2**63)), "long", 2),
    "no remote memory": (ranks(lambda b: b.memory_load("load", 64)), "load", 2),
    "other operations": (
        ranks(lambda b: b.all_reduce("sum", 64), lambda b: b.all_gather("sum", 64)),
        "sum",
        3,
    ),
    "other sizes": (ranks(lambda b: b.all_reduce("sum", 64), lambda b: b.all_reduce("sum", 96)), "sum", 3),
    "collective of some": (ranks(lambda b: b.all_reduce("sum", 64), idle), "sum", 3),
    "receive without send": (ranks(lambda b: b.recv(1, 64, name="hello"), idle), "hello", 3),
    "receive of another size": (ranks(lambda b: b.send(1, 64, name="hello"), other_size, idle), "hello", 3),
    "send to nobody": (ranks(lambda b: b.send(99, 64), idle), "99", 2),
    "send to itself": (
        ranks(lambda b: b.add("odd", 5, [("comm_size", "int64", 64), ("comm_dst", "int32", 0)]), idle),
        "node 0",
        2,
    ),
}
"""What is changed, a piece of the error, the exit code; run with ASTRA-sim's files."""

FILES: dict[str, tuple[Change, str]] = {
    "network missing": (lambda: Path("network.yml").unlink(), "network.yml"),
    "network empty": (put("network.yml", ""), "network.yml"),
    "network not YAML": (put("network.yml", "topology: [ Ring"), "network.yml"),
    "network key misspelt": (network("topology", "topolgy"), "topolgy"),
    "network key absent": (network(', "latency": [500.0]', ""), "latency"),
    "topology misspelt": (network("Ring", "Rnig"), "did you mean 'Ring'"),
    "lists of unequal length": (network("[500.0]", "[500.0, 500.0]"), "latency"),
    "no NPU": (network("[4]", "[0]"), "npus_count"),
    "2^63 NPUs": (network("[4]", f"[{2**63}]"), "npus_count"),
    "bandwidth negative": (network("[50.0]", "[-50.0]"), "bandwidth"),
    "bandwidth NaN": (network("[50.0]", "[.nan]"), "bandwidth"),
    "latency infinite": (network("[500.0]", "[.inf]"), "latency"),
    "system not JSON": (put("system.json", "{'a': 1}"), "system.json"),
    "system key misspelt": (system("active-chunks", "active-chunk"), "active-chunks-per-dimension"),
    "algorithm misspelt": (system('["ring"]', '["rign"]'), "did you mean 'ring'"),
    "splits zero": (system('splits": 4', 'splits": 0'), "preferred-dataset-splits"),
    "delay negative": (system('delay": 10', 'delay": -10'), "endpoint-delay"),
    "memory bandwidth NaN": (system("1600", "NaN"), "system.json:1: got NaN"),
    "roofline without FLOPs": (system("{", '{"roofline-enabled": 1, "peak-perf": 9, '), "num_ops"),
    "memory type misspelt": (put("memory.json", '{"memory-type": "MEMORY_POL"}'), "MEMORY_POOL"),
    "memory latency negative": (
        put("memory.json", '{"memory-type": "MEMORY_POOL", "remote-mem-latency": -1}'),
        "remote-mem-latency",
    ),
    "group of an absent rank": (put("groups.json", '{"1": [0, 9]}'), "9"),
    "group with a rank twice": (put("groups.json", '{"1": [2, 2]}'), "2"),
    "group number zero": (put("groups.json", '{"0": [0, 1]}'), "0"),
}

STUDIES: dict[str, tuple[Change, str]] = {
    "missing": (lambda: Path("study.yaml").unlink(), "study.yaml"),
    "without workload": (study("workload: {trace: step}\n", ""), "workload"),
    "key misspelt": (study("bandwidth: 50", "bandwith: 50"), "did you mean 'bandwidth'"),
    "value without unit": (study("50 GB/s", "50"), "study.yaml:4"),
    "unit misspelt": (study("500 ns", "500 nanos"), "study.yaml:4"),
    "size negative": (study("size: 4", "size: -4"), "size"),
    "bandwidth NaN": (study("50 GB/s", "nan GB/s"), "bandwidth"),
    "trace missing": (study("trace: step", "trace: stpe"), "stpe"),
    "more NPUs than ranks": (study("size: 4", "size: 8"), "has 4 ranks"),
    "fewer NPUs than ranks": (study("size: 4", "size: 2"), "has 4 ranks"),
    "profile misspelt": (study("astra-sim", "astra-sin"), "did you mean 'astra-sim'"),
    "graph, key misspelt": (
        graph(", spine: 1"),
        "study.yaml:3: platform.topology.spine: unknown key (did you",
    ),
    "graph, routing misspelt": (graph(", routing: ecpm"), "did you mean 'ecmp'"),
    "graph, routing that does not fit": (graph(", routing: rail"), "study.yaml:3: platform.topology.routing"),
    "graph, static without table": (graph(", routing: static"), "needs a table"),
    "graph, table without static": (
        graph(", table: a.csv"),
        "platform.topology.table: expected with routing static",
    ),
    "graph, bandwidth 0": (graph(", uplink: 0 GB/s"), "uplink: got '0 GB/s', expected more than 0"),
    "graph, file missing": (
        edit(
            "study.yaml",
            STUDY[STUDY.index("  network:") : STUDY.index("  npu:")],
            "  topology: {kind: file, file: x.csv}\n",
        ),
        "study.yaml:3: platform.topology",
    ),
    "graph, failure of no node": (
        graph(", failures: [{node: spin 0}]"),
        "study.yaml:3: platform.topology.failures[0]: leaf-spine: no node 'spin 0' (did you mean 'spine 0'?)",
    ),
    "graph, link of one node": (graph(", failures: [{link: [spine 0]}]"), "expected at least 2 entries"),
    "graph, only way down": (
        graph(", failures: [{node: spine 0}]"),
        "study.yaml:3: platform.topology: leaf-spine: no way from npu ",
    ),
    "levels that do not fit": (
        edit("study.yaml", "{chunks: 4}", "{hierarchy: [4]}"),
        "study.yaml:6: platform.collectives.hierarchy: expected only with a topology",
    ),
    "packets in profile astra-sim": (
        study("  npu:", "  packets: {protocol: tcp}\n  npu:"),
        "study.yaml:5: platform.packets: profile astra-sim does not model this",
    ),
    "packets without protocol": (
        packets("mtu: 4 KiB"),
        "study.yaml:4: platform.packets: expected a mapping with a",
    ),
    "packets, protocol misspelt": (packets("protocol: tpc"), "did you mean 'tcp'"),
    "packets, key misspelt": (packets("protocol: tcp, algoritm: cubic"), "did you mean 'algorithm'"),
    "packets, key of another protocol": (
        packets("protocol: tcp, vcs: 2"),
        "platform.packets.vcs: unknown key",
    ),
    "Mesh in profile astra-sim": (study("Ring", "Mesh"), "profile physical does"),
}

COMMANDS: dict[str, str] = {
    "rnu study.yaml": "did you mean 'run'",
    "run": "STUDY",
    "run study.yaml --no-flod": "--no-fold",
    "run study.yaml --workload step": "exclude each other",
    "run study.yaml --network-model flow": "(profile physical has it)",
    "run --workload step --network network.yml": "--system",
    f"{RUN.replace('step', 'stpe')}": "stpe",
    "run study.yaml --json study.yaml/out.json": "study.yaml' is not a folder",
    "run study.yaml --json .": "is a folder",
    "run study.yaml --json a --save a": "the same file",
    "run study.yaml --plot out.xyz": "out.xyz",
    f"{ASTRA} --num-queues-per-dim=0": "num-queues-per-dim",
    f"{ASTRA} --rendezvous-protocol=maybe": "rendezvous-protocol",
    f"{ASTRA} --network-model congested": "expected one of",
    "astra-sim --workload-configuration=step": "--system-configuration",
    "collective show rnig --ranks 4": "did you mean 'ring'",
    "collective show ring --ranks 1": "at least 2",
    "collective show halvingDoubling --ranks 6": "power of two",
    "explain out.npz": "out.npz",
    "explain study.yaml": "study.yaml",
    "machine show here.yaml": "here.yaml",
    "machine show network.yml": "system",
    "trace info step.9.et": "step.9.et",
    "trace dump study.yaml": "study.yaml",
}

OVER_PACKETS: dict[str, tuple[Change, str]] = {
    "mtu": (
        packets("protocol: lossless, mtu: 2 GiB"),
        "study.yaml:4: platform.packets: packet: mtu is 2147483648",
    ),
    "rate control without marks": (packets("protocol: lossless, dcqcn: true"), "expected kmin too"),
    "buffer, lossless": (packets("protocol: lossless, buffer: 1 KiB"), "smaller than a packet"),
    "buffer, credit": (packets("protocol: credit, depth: 1"), "expected room for a packet of 4096 bytes"),
    "buffer, tcp": (packets("protocol: tcp, buffer: 1 KiB"), "tcp: buffer is 1024, expected at least 1538"),
    "timeout, tcp": (
        packets("protocol: tcp, min_rto: 1 ns"),
        "tcp: min_rto is 1e-06, expected 0.001 to 60000 ms",
    ),
    "buffers of the graph, lossless": (
        graph(", buffer: 1 KiB"),
        "study.yaml:3: platform.topology: leaf-spine: the buffer at the end of npu 0 → leaf 0 has 1024 bytes",
    ),
}

CASES = (
    {f"trace {name}": (change, RUN, text, status) for name, (change, text, status) in TRACES.items()}
    | {name: (change, RUN, text, 2) for name, (change, text) in FILES.items()}
    | {f"study {name}": (change, FROM_STUDY, text, 2) for name, (change, text) in STUDIES.items()}
    | {
        f"packets {name}": (change, f"{FROM_STUDY} --network-model packet", text, 2)
        for name, (change, text) in OVER_PACKETS.items()
    }
    | {
        "graph, analytical": (
            graph(),
            f"{FROM_STUDY} --network-model analytical",
            "knows dimensions, not graphs",
            2,
        )
    }
    | {f"armillary {words}": (None, words, text, 2) for words, text in COMMANDS.items()}
)


@pytest.mark.parametrize(("change", "words", "fragment", "status"), CASES.values(), ids=CASES)
def test_bad_input_is_one_clear_error(
    change: Change, words: str, fragment: str, status: int, inputs: Path, call: Callable[[str], Result]
) -> None:
    if change is not None:
        change()
    before = set(inputs.iterdir())
    result = call(words)
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    message = result.stderr
    assert message.startswith("armillary: error: ")
    assert fragment in message
    assert "Traceback" not in message
    assert status == 3 or message.count("\n") == 1, "the error is one line"
    assert set(inputs.iterdir()) == before, "nothing is left behind"


def test_a_read_only_folder_is_an_error_not_a_traceback(inputs: Path, call: Callable[[str], Result]) -> None:
    (inputs / "out.json").mkdir()
    result = call("run study.yaml --save out.json")
    assert result.exit_code == 2
    assert "is a folder" in result.stderr


def test_single_graph_files_can_be_read_only(inputs: Path, call: Callable[[str], Result]) -> None:
    write_graph("one.et", GraphBuilder().graph())
    Path("one.et").chmod(0o400)
    assert call("trace info one.et").exit_code == 0


def test_check_reports_a_cycle_and_fails(inputs: Path, call: Callable[[str], Result]) -> None:
    write_graph("cyclic.et", graph_of([compute(1, 2), compute(2, 1)]))
    result = call("trace check cyclic.et step.0.et")
    assert result.exit_code == 2
    assert (
        result.stdout
        == "cyclic.et: error: dependency cycle of 2 nodes, expected none: 2 'n2' -> 1 'n1' -> 2\n"
        "verdict: cannot be simulated: 1 error\n"
    )


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sweep", ""], "SWEEP"), (["validate", "--data", ""], "--data"), (["validate", "--data="], "--data"),
        (["validate", "astra-sim-hgx-h100", "--json", ""], "--json"),
        (["plan", "llama-3-8b", "--machine", "8xh100", "--plan", ""], "--plan"),
        (["calibrate", "observe", "a.json", ""], "FILE"),
    ],
)  # fmt: skip
def test_an_empty_name_is_no_folder(words: list[str], name: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2, result.output
    assert name in result.output and "got '', expected the name of a file or folder" in result.output
