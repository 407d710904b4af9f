"""FlexFlow task graphs: what becomes of tasks and transfers, on every graph given, and of broken ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end, report
from armillary.convert.flexflow.task_graph import read_tasks
from armillary.platform import Collectives, Dimension, LocalMemory, Npu, Platform
from armillary.trace import NodeType, Trace, nodes_of
from armillary.trace.structure import validate

NAMES = [
    "alexnet.1", "alexnet.4", "alexnet.16", "alexnet.64", "cifar10_cnn.64", "inception.1", "inception.4",
    "mnist_cnn.16", "mnist_mlp.1", "mnist_mlp.4", "mnist_mlp.64", "multi_head_attention.16",
]  # fmt: skip


def compute(node: str, device: int, name: str, ms: float | str = 0.5, phase: str = "Forward") -> str:
    label = f"device_id={device}|{name}|{phase}|COMP_NODE|simulated_run_time={ms}"
    return f'  {node} [color=red,label="{{{label}}}",shape=record];'


def transfer(node: str, source: int, target: int, size: int = 4096) -> str:
    label = f"device_id=9|Comm|Comm|COMM_SEND_RECV_NODE|src_device_id={source}|dst_device_id={target}"
    return f'  {node} [label="{{{label}|comm_size={size}|run_time=1e-06}}",shape=record];'


def graph(*lines: str) -> str:
    return "\n".join(["digraph taskgraph {", *lines, "}"])


def convert(text: str, folder: Path, all_reduce: bool = False) -> Converted:
    path = folder / "a.graph"
    path.write_text(text)
    return front_end("flexflow").convert([path], all_reduce=all_reduce)


def machine(npus: int) -> Platform:
    collectives = Collectives({"all-reduce": ("ring",)})
    return Platform(
        dimensions=(Dimension("node", "Switch", npus, bandwidth=100.0, latency=500.0),),
        npu=Npu(memory=LocalMemory(2000.0)),
        collectives=collectives,
    )


def ticks(trace: Trace, profile: str) -> int:
    return armillary.simulate(trace, machine(trace.n_ranks), profile=profile).total_ticks


def messages(trace: Trace, kind: NodeType) -> Counter[tuple[int, ...]]:
    """Count (source, target, tag, size) of the sends or receives of all ranks; each must name the rank it is on."""
    found: Counter[tuple[int, ...]] = Counter()
    own = "comm_src" if kind == NodeType.COMM_SEND_NODE else "comm_dst"
    for rank in range(trace.n_ranks):
        part = trace.graph(rank)
        mine = part.types == kind
        assert set(part.ints(own)[mine].tolist()) <= {rank}
        keys = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        found.update(zip(*(part.ints(key)[mine].tolist() for key in keys), strict=True))
    return found


TWO = graph(
    compute("node0", 0, "Dense_100", 0.0205856),
    "  node0 -> node2;",
    transfer("node2", 0, 1),
    "  node2 -> node1;",
    compute("node1", 1, "Barrier", 0, "Barrier"),
)


def test_a_transfer_is_a_send_and_a_receive(tmp_path: Path) -> None:
    found = convert(TWO, tmp_path)
    first, second = (nodes_of(found.trace.graph(rank)) for rank in range(2))
    assert [(n.id, n.name, n.type, list(n.data_deps)) for n in first] == [
        (0, "Dense_100 Forward", NodeType.COMP_NODE, []),
        (1, "Comm", NodeType.COMM_SEND_NODE, [0]),
    ]
    assert first[0].duration_micros == 21
    assert ("duration_ns", "int64", 20_586) in first[0].attrs
    assert [(n.name, n.type, list(n.data_deps)) for n in second] == [
        ("Comm", NodeType.COMM_RECV_NODE, []),
        ("Barrier", NodeType.COMP_NODE, [0]),
    ]
    assert second[0].attrs == [
        ("is_cpu_op", "bool", False),
        ("comm_size", "int64", 4096),
        ("comm_src", "int32", 0),
        ("comm_dst", "int32", 1),
        ("comm_tag", "int32", 0),
    ]
    assert report(found) | {"comm": 0} == {
        "ranks": 2, "nodes": 4, "comm": 0, "groups": {}, "tasks": 3, "transfers": 1, "all_reduced_updates": 0,
        "warnings": [],
    }  # fmt: skip


def test_what_no_transfer_says_becomes_a_message_of_one_byte(tmp_path: Path) -> None:
    text = graph(
        compute("b", 6, "later"),
        compute("c", 6, "too"),
        compute("a", 2, "first"),
        transfer("z", 6, 2, 0),
        transfer("own", 2, 2),
        "a -> b; a -> c; b -> z; a -> own",
    )
    found = convert(text, tmp_path)
    assert [n.name for n in nodes_of(found.trace.graph(0))] == [
        "first Forward",
        "first Forward done",
        "Comm",
        "Comm",
    ]
    sent = messages(found.trace, NodeType.COMM_SEND_NODE)
    assert sent == messages(found.trace, NodeType.COMM_RECV_NODE) == {(0, 1, 0, 1): 1, (1, 0, 0, 1): 1}
    assert [warning.partition(": ")[2] for warning in found.warnings] == [
        "devices 2, 6 become ranks 0 to 1",
        "1 tasks wait for another device without a transfer: messages of 1 byte",
        "1 transfers of no bytes become 1 byte",
    ]
    assert ticks(found.trace, "physical") > 1_000_000


def test_updates_become_all_reduces_of_the_devices_that_hold_the_weights(tmp_path: Path) -> None:
    lines = []
    for device in range(4):
        lines += [compute(f"{end}{device}", device, "Barrier", 0.5, "Barrier") for end in "be"]
    for name, root, others in (("u", 0, (1, 2, 3)), ("v", 1, (3,))):
        lines += [compute(name, root, "Update", 0, "Update"), f"b{root} -> {name};"]
        for other in others:
            lines += [transfer(f"{name}in{other}", other, root), transfer(f"{name}out{other}", root, other)]
            lines.append(f"b{other} -> {name}in{other}; {name}in{other} -> {name};")
            lines.append(f"{name} -> {name}out{other}; {name}out{other} -> e{other};")
    plain, reduced = (convert(graph(*lines), tmp_path, flag) for flag in (False, True))
    assert report(plain)["comm"]["SEND"] == {"count": 8, "bytes": 8 * 4096}
    assert report(reduced)["comm"] == {"ALL_REDUCE": {"count": 6, "bytes": 6 * 4096}}
    assert reduced.groups == {1: (1, 3)}
    assert [n.name for n in nodes_of(reduced.trace.graph(3))] == [
        "Barrier", "Update", "Update", "Barrier", "## process_group:init ##",
    ]  # fmt: skip
    for profile in ("physical", "astra-sim"):
        assert ticks(reduced.trace, profile) > 1_000_000


@pytest.mark.shared
@pytest.mark.parametrize("all_reduce", [False, True], ids=["transfers", "all-reduce"])
@pytest.mark.parametrize("name", NAMES)
def test_given_graphs_keep_their_tasks_and_run(shared: Path, name: str, all_reduce: bool) -> None:
    path = shared / "traces/chakra_flexflow" / f"{name}.graph"
    tasks = read_tasks(path.read_text(), str(path))
    found = front_end("flexflow").convert([path], all_reduce=all_reduce)
    trace = found.trace
    assert trace.n_ranks == int(name.rpartition(".")[2])
    assert not found.warnings
    sent = messages(trace, NodeType.COMM_SEND_NODE)
    assert sent == messages(trace, NodeType.COMM_RECV_NODE)
    assert max(sent.values(), default=1) == 1  # a tag of its own, so none can be taken for another
    busy = Counter[int]()
    for task in tasks:
        busy[task.target] += task.nanoseconds * (task.source is None)
    for rank in range(trace.n_ranks):
        assert int(trace.graph(rank).ints("duration_ns").sum()) == busy[rank]
    transfers = [task for task in tasks if task.source is not None]
    updates = [task for task in transfers if "Update" in task.name]
    if all_reduce:
        assert sum(sent.values()) == len(transfers) - len(updates)
        assert (
            report(found)["comm"].get("ALL_REDUCE", {"bytes": 0})["bytes"]
            >= sum(t.size for t in updates) // 2
        )
    else:
        assert sum(sent.values()) == len(transfers)
        assert sum(size * count for (*_, size), count in sent.items()) == sum(t.size for t in transfers)
    for profile in ("physical", "astra-sim"):
        assert ticks(trace, profile) >= max(busy.values()) * 0.98


@st.composite
def task_graphs(draw: st.DrawFn) -> tuple[str, dict[str, tuple[int, int]], list[tuple[str, str]]]:
    """Draw a graph, the devices (source, target) of its tasks and its edges, against the grain of all rules."""
    count = draw(st.integers(1, 12))
    tasks: dict[str, tuple[int, int]] = {}
    lines = []
    for at in range(count):
        source, target = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        moves = draw(st.booleans())
        tasks[f"t{at}"] = (source if moves else target, target)
        made = transfer(f"t{at}", source, target, draw(st.integers(0, 9999))) if moves else ""
        lines.append((made or compute(f"t{at}", target, f"t{at}")).replace("Comm|Comm", f"t{at}|Forward"))
    pairs = [(f"t{a}", f"t{b}") for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    lines += [f"  {parent} -> {child};" for parent, child in edges]
    return graph(*draw(st.permutations(lines))), tasks, edges


@settings(max_examples=60, deadline=None)
@given(task_graphs())
def test_any_graph_runs_in_its_order(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[str, dict[str, tuple[int, int]], list[tuple[str, str]]],
) -> None:
    text, tasks, edges = drawn
    found = convert(text, tmp_path_factory.mktemp("ff"))
    trace = found.trace
    assert messages(trace, NodeType.COMM_SEND_NODE) == messages(trace, NodeType.COMM_RECV_NODE)
    devices = sorted({device for ends in tasks.values() for device in ends})
    if len(devices) == 1:
        trace = Trace.replicate(trace.graphs[0], 2)
    result = armillary.simulate(trace, machine(trace.n_ranks), profile="physical", fold=False)
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for rank in range(len(devices)):
        start, end = result.spans(int(result.rank_class[rank]))
        for at, node in enumerate(nodes_of(trace.graph(rank))):
            name, _, rest = node.name.partition(" ")
            if rest == "Forward done":
                continue
            if node.type != NodeType.COMM_RECV_NODE:
                began[name] = int(start[at])
            if node.type != NodeType.COMM_SEND_NODE:
                ended[name] = int(end[at])
    assert began.keys() == ended.keys() == tasks.keys()
    for parent, child in edges:
        assert ended[parent] <= began[child]


BAD = {
    "empty": ("", "line 1: cut off, expected 'digraph NAME {'"),
    "no tasks": ("digraph g {\n}", "line 2: the graph has no tasks"),
    "cut in a label": (TWO[:90], "line 2: found 'node0 "),
    "cut after a line": (TWO[: TWO.index("  node2 [")], "line 4: cut off, expected 'NODE "),
    "two graphs": (TWO + TWO, "line 7: found 'digraph taskgraph {', expected nothing after"),
    "undirected": (TWO.replace("->", "--"), "line 3: found 'node0 -- node2;'"),
    "no label": (TWO.replace("label", "title"), 'line 2: node0 has no label="{…}"'),
    "another kind": (TWO.replace("COMP_NODE", "COMP"), "line 2: node0 has label '.*expected {device_id=…|…|…|COMP"),
    "too few parts": (TWO.replace("|comm_size=4096", ""), "line 4: node2 has label"),
    "another key": (TWO.replace("simulated_run_time", "time"), "line 2: node0 has 'time=0.0205856', expected sim"),
    "negative time": (TWO.replace("0.0205856", "-1"), "line 2: .*expected simulated_run_time= and milliseconds"),
    "infinite time": (TWO.replace("0.0205856", "inf"), "line 2: .*expected simulated_run_time= and milliseconds"),
    "endless time": (TWO.replace("0.0205856", "1e99"), "line 2: .*expected at most 1e"),
    "no device": (TWO.replace("{device_id=1|", "{device_id=x|"), "line 6: node1 has 'device_id=x', expected .* whole"),
    "twice": (TWO.replace("node2 [", "node0 ["), "line 4: node0 is defined twice"),
    "edge to nothing": (TWO.replace("-> node1", "-> node7"), "line 5: node7 has no label"),
    "cycle": (TWO.replace("\n}", "\nnode1 -> node0;\n}"), "line 2: node0 waits for itself"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_broken_graphs_are_refused_with_the_line(tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    with pytest.raises(InputError, match=r"a\.graph, " + message.replace("{", r"\{").replace("|", r"\|")):
        convert(text, tmp_path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    read = front_end("flexflow").convert
    with pytest.raises(InputError, match="2 FlexFlow files, expected one"):
        read([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(InputError, match="none: No such file"):
        read([tmp_path / "none"])
    (tmp_path / "bytes").write_bytes(b"digraph\xff")
    with pytest.raises(InputError, match="byte 7 is not UTF-8"):
        read([tmp_path / "bytes"])


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.tuples(st.integers(0, len(TWO)), st.integers(0, 12), st.text(max_size=4)).map(
            lambda cut: TWO[: cut[0]] + cut[2] + TWO[cut[0] + cut[1] :]
        ),
    )
)
def test_any_text_is_a_graph_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        text.encode()
        found = convert(text, tmp_path_factory.mktemp("ff"))
    except (InputError, UnicodeEncodeError):
        return
    for part in found.trace.graphs:
        validate(part)
    sent = messages(found.trace, NodeType.COMM_SEND_NODE)
    assert sent == messages(found.trace, NodeType.COMM_RECV_NODE)
