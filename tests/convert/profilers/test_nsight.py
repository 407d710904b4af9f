"""Files of Nsight Systems: what is read of old and new tables, who waits for whom, and what a stranger's file gets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import armillary
from armillary.base.allowed import allow
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end
from armillary.convert.profilers.nccl_ranges import nccl_call
from armillary.platform.model import recorded_machine
from armillary.trace import CollectiveType, check, nodes_of

from .exported import Export, step


def converted(path: Path, *more: Path) -> Converted:
    return front_end("nsight").convert([path, *more])


def named(made: Converted, rank: int = 0) -> dict[str, object]:
    return {node.name: node for node in nodes_of(made.trace.graph(rank))}


@pytest.mark.parametrize("old", [False, True])
def test_recorded_against_replayed(old: bool, tmp_path: Path) -> None:
    made = converted(step([501, 502], old=old).write(tmp_path / "a.sqlite"))
    assert made.trace.n_ranks == 2
    assert not [
        problem
        for rank in range(2)
        for problem in check(made.trace.graph(rank))
        if problem.severity == "error"
    ]
    for rank in made.facts["per_rank"]:
        assert rank["recorded_ns"] == rank["replayed_ns"] == 330_000
    run = armillary.simulate(made.trace, recorded_machine(made.trace.n_ranks))
    assert run.total_ticks == 330_000


def test_what_waits_for_what(tmp_path: Path) -> None:
    made = converted(step([501, 502]).write(tmp_path / "a.sqlite"))
    nodes = nodes_of(made.trace.graph(0))
    by = {node.id: node.name for node in nodes}
    gemms = [node for node in nodes if node.name.startswith("sm90")]
    reduced = next(node for node in nodes if node.name.startswith("ncclDevKernel"))
    about = {name: value for name, _, value in reduced.attrs}
    assert about["comm_type"] == CollectiveType.ALL_REDUCE and about["comm_size"] == 4 << 20
    assert gemms[0].id in reduced.data_deps
    waited = next(node for node in nodes if node.name == "cudaDeviceSynchronize")
    assert {by[at] for at in waited.data_deps} >= {reduced.name, gemms[1].name}


def test_files_of_one_rank_each_are_one_job(tmp_path: Path) -> None:
    """The communicator numbers them, whatever the order of the files."""
    both = step([501, 502]).write(tmp_path / "both.sqlite")
    alone = []
    for rank in range(2):
        found = step([501, 502])
        for table, rows in found.rows.items():
            key = "globalPid" if "globalPid" in rows[0] else "globalTid"
            found.rows[table] = [row for row in rows if row[key] >> 24 & 0xFFFFFF == 501 + rank]  # type: ignore[operator]
        alone.append(found.write(tmp_path / f"{rank}.sqlite"))
    one, two = converted(both), converted(alone[1], alone[0])
    assert [nodes_of(one.trace.graph(at)) for at in range(2)] == [
        nodes_of(two.trace.graph(at)) for at in range(2)
    ]
    missing = converted(alone[1])
    assert any("1 of 2 ranks are given (rank 1)" in text for text in missing.warnings)


def test_ranks_without_communicators_go_by_device(tmp_path: Path) -> None:
    made = step([501, 502])
    made.rows["NVTX_EVENTS"] = [row for row in made.rows["NVTX_EVENTS"] if row["end"] != 1000]
    found = converted(made.write(tmp_path / "a.sqlite"))
    assert any("in the order of their devices" in text for text in found.warnings)


def test_events_join_streams(tmp_path: Path) -> None:
    made = Export()
    made.range(9, "step", 0, 100_000)
    made.kernel(9, "first()", (0, 1000), 2000, 50_000, stream=1)
    recorded = made.call(9, "cudaEventRecord_v3020", 1500, 1600)
    waits = made.call(9, "cudaStreamWaitEvent_v3020", 1700, 1800)
    pid = made.thread(9, 0)
    made.add(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT", deviceId=1, contextId=1, streamId=1, correlationId=recorded, globalPid=pid,
        eventId=3,
    )  # fmt: skip
    made.add(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=1750, end=1790, deviceId=1, contextId=1, streamId=2,
        correlationId=waits, globalPid=pid, syncType=2, eventId=3,
    )  # fmt: skip
    made.kernel(9, "second()", (1900, 2500), 90_000, 95_000, stream=2)
    nodes = nodes_of(converted(made.write(tmp_path / "a.sqlite")).trace.graph(0))
    ids = {node.name: node.id for node in nodes}
    waiting = next(node for node in nodes if node.name == "second()")
    assert ids["first()"] in waiting.data_deps


def test_copies_fills_and_graphs(tmp_path: Path) -> None:
    made = Export()
    pid = made.thread(9, 0)
    common = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pid}
    for at, (table, more) in enumerate({
        "CUPTI_ACTIVITY_KIND_MEMCPY": {"bytes": 4096, "copyKind": 1},
        "CUPTI_ACTIVITY_KIND_MEMSET": {"bytes": 4096, "value": 0},
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {"graphId": 3},
    }.items()):  # fmt: skip
        call = made.call(9, "cudaMemcpyAsync_v3020", 1000 * at, 1000 * at + 500)
        made.add(table, start=50_000 * (at + 1), end=50_000 * (at + 2), correlationId=call, **common, **more)
    made.add("OSRT_API", start=1, end=2, globalTid=pid, nameId=made.text("poll"))
    found = converted(made.write(tmp_path / "a.sqlite"))
    assert {"Memcpy HtoD", "Memset", "CUDA graph 3"} <= named(found).keys()
    assert any("kernels of CUDA graphs" in text for text in found.warnings)
    assert any("left out: table OSRT_API" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("text", "payload", "args"),
    [
        ("ncclAllReduce", '{"Message size [bytes]": 4096, "Reduction operation": 0}',
         {"Collective name": "allreduce", "In msg nelems": 4096, "dtype": "Byte"}),
        ("ncclReduceScatter", '{"NCCL": {"NCCL communicator ID": 77, "Message size [bytes]": "512"}}',
         {"Collective name": "reducescatter", "Out msg nelems": 512, "dtype": "Byte", "Process Group Name": "77"}),
        ("ncclAllGather(): commHash 0xa, stream 0x1, data_size 64, type_size 2, pid 5", "",
         {"Collective name": "allgather", "In msg nelems": 64, "dtype": "Byte", "Process Group Name": "0xa"}),
        ("ncclAllReduce", "not json", {"Collective name": "allreduce"}),
        ("ncclBroadcast", "[" * 5000, {"Collective name": "broadcast"}),
    ],
)  # fmt: skip
def test_ranges_of_nccl(text: str, payload: str, args: dict[str, object]) -> None:
    found = nccl_call(text, payload)
    assert found is not None and found.args == args


def test_a_communicator_by_payload() -> None:
    found = nccl_call(
        "ncclCommInitRank", json.dumps({"NCCL communicator ID": 9, "No. of ranks": 8, "Rank": 3})
    )
    assert found is not None and (found.comm, found.values) == ("9", {"ranks": 8, "rank": 3})
    assert nccl_call("forward", "") is None and nccl_call("nccl:all_reduce", "") is None


def changed(sql: str) -> Callable[[Path], object]:
    """Return what writes a sound file and then runs SQL in it."""

    def write(path: Path) -> None:
        step([501]).write(path)
        with sqlite3.connect(path) as connection:
            connection.executescript(sql)
        connection.close()

    return write


KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
ENDLESS = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n"


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)), "cannot be read as a SQLite"),
        (lambda path: path.write_text("{}"), "is no SQLite database"),
        (changed(f"DROP TABLE {KERNEL};"), "has no work of a GPU"),
        (changed(f"DROP TABLE {KERNEL}; CREATE VIEW {KERNEL} AS {ENDLESS};"), "has no work of a GPU"),
        (changed("ALTER TABLE NVTX_EVENTS RENAME TO n; CREATE VIEW NVTX_EVENTS AS SELECT randomblob(1e9) AS a;"), ""),
        (changed(f"UPDATE {KERNEL} SET start = 'soon';"), "start: got 'soon', expected a whole number"),
        (changed(f"UPDATE {KERNEL} SET streamId = 1.5;"), "streamId: got 1.5"),
        (changed(f"UPDATE {KERNEL} SET start = 9e18, end = 9100000000000000000;"), "got 9"),
        (changed("UPDATE StringIds SET value = x'00ff';"), "expected a text"),
        (changed("UPDATE StringIds SET value = zeroblob(20000000);"), "cannot be read|expected a text"),
    ],
)  # fmt: skip
def test_files_of_strangers(write: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    write(path)
    before = path.read_bytes()
    if words:
        with pytest.raises(InputError, match=words) as raised:
            converted(path)
        assert "\n" not in str(raised.value)
    else:
        converted(path)  # a view is no table
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["a.sqlite"]


def test_more_rows_than_the_limit(tmp_path: Path) -> None:
    path = step([501, 502]).write(tmp_path / "a.sqlite")
    with allow(limits=1e-6), pytest.raises(InputError, match="ARMILLARY_LIMITS"):
        converted(path)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    whole = step(range(400, 440)).write(tmp_path / "a.sqlite").read_bytes()
    path = tmp_path / "b.sqlite"
    for part in (0.3, 0.6, 0.9):
        path.write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(InputError, match="cannot be read as a SQLite database"):
            converted(path)


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep"])
def test_a_report_says_how_to_export_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        converted(tmp_path / name)


def test_two_that_are_the_same_rank(tmp_path: Path) -> None:
    path = step([501, 502]).write(tmp_path / "a.sqlite")
    with pytest.raises(InputError, match="is rank 0 of communicator 0xabc, as"):
        converted(path, path)


@pytest.mark.parametrize("times", [{"end": 2**62 - 1}, {"start": 1 - 2**62}])
def test_times_that_no_trace_can_say(times: dict[str, int], tmp_path: Path) -> None:
    made = step([501])
    made.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0] |= times
    with pytest.raises(InputError, match=r"a\.sqlite, process 501: has events from"):
        converted(made.write(tmp_path / "a.sqlite"))
