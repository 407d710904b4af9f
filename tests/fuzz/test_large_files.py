"""Large files of small ideas: an answer or one clear line, within the time and memory of the hostile set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_hostile_set import call

COUNT = 60_000
"""Links; squared, they are an hour."""
LONG = 15_000
"""Links on the way between two NPUs: an event looks at all of them, and messages have a row for every few."""
OPERATORS = 100_000
RUN = """workload: {collective: all-reduce, size: 1 MiB}
platform:
  topology: {kind: file, file: net.csv}
  npu: {memory: {bandwidth: 3350 GB/s}}
  network_model: flow
"""


def links(*pairs: tuple[str, str]) -> str:
    rows = (f"{tail},{head},50 GB/s,500 ns\n" for tail, head in pairs)
    return "from,to,bandwidth,latency\n" + "".join(rows)


GRAPHS = {
    "star": links(*((f"npu {i}", "hub") for i in range(COUNT))),
    "ring": links(*((f"npu {i}", f"npu {(i + 1) % COUNT}") for i in range(COUNT))),
    "line": links(
        ("npu 0", "n 0"), *((f"n {i}", f"n {i + 1}") for i in range(COUNT)), (f"n {COUNT}", "npu 1")
    ),
    "parallel": links(*[("npu 0", "npu 1")] * COUNT),
    "tree": links(
        *(
            (f"n {i}" if i < COUNT // 2 else f"npu {i - COUNT // 2}", f"n {(i - 1) // 2}")
            for i in range(1, COUNT)
        )
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("words", ["machine show net.csv --html x.html", "run run.yaml --json x.json"])
def test_links(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "net.csv").write_text(GRAPHS[name])
    (tmp_path / "run.yaml").write_text(RUN)
    status, said = call(words.split(), tmp_path)
    assert status in (0, 2), said[-300:]
    assert (status == 0) == (tmp_path / words.rpartition(" ")[2]).exists()
    assert status == 0 or len(said.splitlines()) == 1, said[-300:]
    # Two NPUs, however far apart, have an answer, and so has every picture.
    assert status == 0 or (name in ("star", "ring", "tree") and words.startswith("run")), said


def event(category: str, number: int, start: int, length: int, stream: int = 7) -> dict[str, Any]:
    args = {"External id": number, "correlation": number, "Record function id": number, "stream": stream}
    name = {"cuda_runtime": "cudaLaunchKernel"}.get(category, "aten::mm")
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": start,
        "dur": length,
        "args": args,
    }


def nested(number: int) -> list[dict[str, Any]]:
    return [event("cpu_op", number, number, 2 * (OPERATORS - number) + 2)]


def staggered(number: int) -> list[dict[str, Any]]:
    return [event("cpu_op", number, number, OPERATORS)]


def launched(number: int) -> list[dict[str, Any]]:
    calls = [event("cpu_op", number, 2 * number, 1), event("cuda_runtime", number, 2 * number, 1)]
    return [*calls, event("kernel", number, 2 * number + 1, OPERATORS)]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "status"), [(nested, 0), (staggered, 0), (launched, 2)])
def test_operators(tmp_path: Path, make: Callable[[int], list[dict[str, Any]]], status: int) -> None:
    records = [one for number in range(1, OPERATORS) for one in make(number)]
    if make is not launched:
        records += [event("cuda_runtime", 3, 5, 1), event("kernel", 3, OPERATORS + 9, 5)]
    (tmp_path / "k.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": records}))
    found, said = call(["trace", "convert", "--from", "pytorch", "k.json", "--out", "x"], tmp_path)
    assert found == status, said[-300:]
    if status:
        assert "k.json: stream 7 of device 0: more than 256 kernels overlap" in said


@pytest.mark.slow
def test_nodes_of_a_log_at_once(tmp_path: Path) -> None:
    nodes = [f"npu=0,cycle={{}},id={number},name=COMP_NODE_{number}\n" for number in range(OPERATORS)]
    rows = [f"issue,{node.format(100)}" for node in nodes] + [
        f"callback,{node.format(200)}" for node in nodes
    ]
    (tmp_path / "sim.log").write_text("".join(rows))
    words = "chakra timeline_visualizer --input_filename sim.log --output_filename x.json"
    status, said = call([*words.split(), "--num_npus", "1", "--npu_frequency", "1"], tmp_path)
    assert status == 0 and "100,000 nodes" in said, said[-300:]


MANY = 200_000
SWEEP = (
    "study: {workload: {collective: all-reduce, size: 1 MiB}, platform: {network: [{name: a, topology: Ring, size: 4, "
    "bandwidth: 50 GB/s, latency: 1 us}], npu: {memory: {bandwidth: 2 TB/s}}}}\nvary: {workload.size: [1 MiB]}\n"
)
JOB = "workload: {collective: all-reduce, size: 1 KiB}"
MACHINE = (
    "platform: {network: [{name: a, topology: Switch, size: 300000, bandwidth: 1 GB/s, latency: 1 us}], "
    "npu: {memory: {bandwidth: 2 TB/s}}}\n"
)
WIDE = {
    "columns": (
        "serve llama-3.1-8b --machine 1xh100 --load r.csv",
        "r.csv",
        lambda: ",".join(f"c{i}" for i in range(MANY)) + "\n" + ",".join("1" * MANY) + "\n",
        "no 'arrival_s'",
    ),
    "derived values": (
        "sweep w.yaml --store s.db",
        "w.yaml",
        lambda: f"{SWEEP}let: {{{', '.join(f'x{i}: x{i + 1}' for i in range(50_000))}}}\n",
        "expected at most 1,000",
    ),
    "NPUs of a job": (
        "run j.yaml --json x.json",
        "j.yaml",
        lambda: f"jobs: [{{npus: [{', '.join(map(str, (*range(MANY), 0)))}], {JOB}}}]\n{MACHINE}",
        "NPU 0 is given twice",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_many_names(tmp_path: Path, name: str) -> None:
    words, file, content, says = WIDE[name]
    (tmp_path / file).write_text(content())
    status, said = call(words.split(), tmp_path)
    assert (status, len(said.splitlines())) == (2, 1) and says in said, said[-300:]
