"""Records of NCCL's inspector and profiler: what is read, matched and timed; recorded against replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end
from armillary.platform.model import recorded_machine
from armillary.trace import check, nodes_of

MIB = 1 << 20


def record(
    comm: str,
    rank: int,
    ranks: int,
    coll: str,
    number: int,
    size: int,
    us: float,
    factor: float = 1.0,
    **more: Any,
) -> dict[str, Any]:
    """Return a record of the inspector; `factor` is what its bandwidth counts of the size."""
    perf = {
        "coll": coll, "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": us,
        "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": size * factor / us / 1000, "coll_busbw_gbs": 1.0,
    }  # fmt: skip
    if "start" in more:
        perf["event_trace_ts"] = {"coll_start_ts": more["start"], "coll_stop_ts": more["start"] + us}
    return {
        "header": {"id": comm, "comm_name": "x", "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": more.get("pid", 100)},
        "coll_perf": perf,
    }


def written(folder: Path, ranks: dict[int, list[dict[str, Any]]], gap: str = "\n") -> list[Path]:
    paths = []
    for rank, records in ranks.items():
        path = folder / f"rank{rank}.log"
        for each in records:
            each["metadata"]["pid"] = rank
        path.write_text(gap.join(map(json.dumps, records)))
        paths.append(path)
    return paths


def run(paths: list[Path]) -> Any:
    return front_end("nccl").convert(paths)


def two_groups() -> dict[int, list[dict[str, Any]]]:
    """Four ranks: an all-reduce of all, and a reduce-scatter and an all-gather in pairs (0, 2) and (1, 3)."""
    found = {}
    for rank in range(4):
        pair, at = f"0xp{rank % 2}", rank // 2
        found[rank] = [
            record("0xworld", rank, 4, "AllReduce", 0, 8 * MIB, 100.5),
            record(pair, at, 2, "ReduceScatter", 0, MIB, 30, 2),
            record(pair, at, 2, "AllGather", 1, MIB, 20, 2),
        ]
    return found


@pytest.mark.parametrize("gap", ["\n", "", "\n\n  "])
def test_processes_are_ranks_and_communicators_groups(tmp_path: Path, gap: str) -> None:
    made = run(written(tmp_path, two_groups(), gap))
    assert made.trace.n_ranks == 4 and dict(made.groups) == {1: (0, 2), 2: (1, 3)}
    nodes = [node for node in nodes_of(made.trace.graph(3)) if node.type == 7]
    attrs = [{name: value for name, _, value, *_ in node.attrs} for node in nodes]
    # Of a reduce-scatter comm_size is all that a rank has, of an all-gather its own part.
    assert [each["comm_size"] for each in attrs] == [8 * MIB, 2 * MIB, MIB]
    assert [each.get("pg_name") for each in attrs] == [None, "2", "2"]
    assert [each["duration_ns"] for each in attrs] == [100_500, 30_000, 20_000]
    assert not made.warnings and not [each for graph in made.trace.graphs for each in check(graph)]


def test_a_bandwidth_tells_what_the_size_is(tmp_path: Path) -> None:
    """Without the factor of ranks in it, the recorded size is that of all ranks together."""
    records = {rank: [record("c", rank, 4, "AllGather", 0, 4 * MIB, 50, factor=1)] for rank in range(4)}
    made = run(written(tmp_path, records))
    assert made.trace.graphs[0].ints("comm_size").tolist() == [MIB]


def test_recorded_times_are_replayed(tmp_path: Path) -> None:
    starts = {rank: [
        record("c", rank, 2, "AllReduce", 0, MIB, 100, start=1e6 + rank),
        record("c", rank, 2, "AllReduce", 1, MIB, 50, start=1e6 + rank + 400),
        record("c", rank, 2, "AllGather", 2, MIB, 25.25, start=1e6 + rank + 500),
    ] for rank in range(2)}  # fmt: skip
    made = run(written(tmp_path, starts))
    replayed = armillary.simulate(made.trace, recorded_machine(2))
    assert replayed.total_ticks == 525_250
    assert made.facts == {"recorded_ns": 175_250, "collectives": 3, "gaps": True}
    assert "175.2 µs in all of 525.2 µs" in made.statements[0]
    without = dict(starts)
    for records in without.values():
        for each in records:
            del each["coll_perf"]["event_trace_ts"]
    made = run(written(tmp_path, without))
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 175_250


def test_calls_that_overlap_run_side_by_side(tmp_path: Path) -> None:
    both = {rank: [
        record("a", rank, 2, "AllReduce", 0, MIB, 100, start=0),
        record("b", rank, 2, "AllReduce", 0, MIB, 100, start=50),
        record("a", rank, 2, "AllReduce", 1, MIB, 10, start=160),
    ] for rank in range(2)}  # fmt: skip
    made = run(written(tmp_path, both))
    first, begun, second, wait, third = nodes_of(made.trace.graphs[0])
    assert (first.data_deps, begun.data_deps, second.data_deps) == ([], [], [begun.id])
    assert (wait.name, wait.data_deps, third.data_deps) == ("between", [second.id], [wait.id])
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 170_000


def test_one_file_stands_for_all_ranks(tmp_path: Path) -> None:
    made = run(written(tmp_path, {0: [record("c", 3, 16, "AllReduce", 0, MIB, 10)]}))
    assert made.trace.n_ranks == 16 and "all 16 ranks run what it recorded" in made.warnings[0]
    with pytest.raises(InputError, match="fewer than all 4 ranks, expected files of all"):
        run(written(tmp_path, {0: two_groups()[0]}))


def test_what_not_all_recorded_is_left_out(tmp_path: Path) -> None:
    found = two_groups()
    del found[2][2]
    found[1][0]["coll_perf"]["coll_msg_size_bytes"] = 7
    found[3].append({"header": {}, "metadata": {"hostname": "h"}, "p2p_perf": {}})
    found[3].append(record("0xworld", 3, 4, "NewThing", 9, MIB, 5))
    made = run(written(tmp_path, found))
    assert any("1 collectives left out: not all of their ranks" in text for text in made.warnings)
    assert any("different operations or sizes: ALL_REDUCE (1)" in text for text in made.warnings)
    assert any("1 left out: p2p" in text for text in made.warnings)
    assert any("1 left out: NewThing" in text for text in made.warnings)
    assert [graph.n_nodes for graph in made.trace.graphs].count(2) >= 1


def test_ranks_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    found = two_groups()
    paths = written(tmp_path, found)
    with pytest.raises(InputError, match="communicator 0xworld: no file of its rank 3"):
        run(paths[:3])
    paths[1].write_text(paths[0].read_text().replace('"pid": 0', '"pid": 9'))
    with pytest.raises(InputError, match="are both rank 0 of communicator 0xworld"):
        run(paths)


def events(rank: int, count: int = 2) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "Group", "cat": "GROUP", "ph": "b", "ts": 0, "id": 1, "pid": rank, "tid": 1}
    ]
    for at in range(count):
        args = {"SeqNum": at, "CommHash": 77, "Rank": rank, "Count": "262144", "Datatype": "ncclFloat32",
                "Algorithm": "RING", "Protocol": "SIMPLE", "nChannels": 8}  # fmt: skip
        common = {"name": "AllReduce", "cat": "COLL", "id": at, "pid": rank, "tid": 1}
        found.append(common | {"ph": "b", "ts": 100 * at + 1e5, "args": args})
        found.append(common | {"ph": "e", "ts": 100 * at + 1e5 + 40.5})
    return found


def test_traces_of_the_profiler(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        paths.append(tmp_path / f"p{rank}.json")
        paths[-1].write_text(json.dumps(events(rank)))
    made = run(paths)
    assert made.trace.n_ranks == 2 and made.trace.graphs[0].ints("comm_size").max() == MIB
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 140_500
    paths[1].write_text(json.dumps({"traceEvents": events(1)}))
    assert run([tmp_path]).trace.n_ranks == 2


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "coll_exec_time_us",
            -1,
            r"rank0.log: record 1: coll_perf: coll_exec_time_us: got -1, expected a time in µs",
        ),
        ("coll_exec_time_us", 1e300, "expected a time in µs"),
        ("coll_msg_size_bytes", "many", "expected a whole number"),
        ("coll_msg_size_bytes", 2**70, "expected a whole number"),
        ("coll_sn", None, "coll_sn: got nothing"),
        ("coll", 5.5, "coll: got 5.5"),
    ],
)
def test_values_that_are_none(tmp_path: Path, key: str, value: Any, words: str) -> None:
    found = two_groups()
    found[0][0]["coll_perf"][key] = value
    with pytest.raises(InputError, match=words):
        run(written(tmp_path, found))


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), ("{} {", ":1: not valid JSON"), ("[" * 100_000, "nested too deeply"), ("{}", "no collective"),
     ("3", "expected an object"), ("1" * 5000, "not valid JSON")],
)  # fmt: skip
def test_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        run([path])


def test_an_end_without_a_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(events(0)[2:]))
    with pytest.raises(InputError, match="event 1: ph 'e' without its beginning"):
        run([path])
