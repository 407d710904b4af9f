"""The lines that ASTRA-sim prints of a run, in its grammar and order, as parsers of other people look for them."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.report.astra_log import LogText, read_logging, write_log_files
from armillary.report.astra_log.log_files import append_lines
from armillary.trace import GraphBuilder, NodeType, Trace

NOW = datetime(2026, 3, 4, 5, 6, 7, 890_000)
CLEAN = re.compile(r"\[[^]]+\] ")


def system(bandwidth: float = 1600, splits: int = 4, active: int = 1, **more: Any) -> dict[str, Any]:
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    return {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "collective-optimization": "localBWAware",
        "preferred-dataset-splits": splits, "active-chunks-per-dimension": active, "local-mem-bw": bandwidth,
        **{f"{kind}-implementation": ["ring"] for kind in kinds}, **more,
    }  # fmt: skip


def network(
    npus: int, topology: str = "Ring", bandwidth: float = 50.0, latency: float = 500.0
) -> dict[str, Any]:
    return {"topology": [topology], "npus_count": [npus], "bandwidth": [bandwidth], "latency": [latency]}


def one(kind: str, npus: int, size: str = "1 MiB") -> Trace:
    builder = GraphBuilder()
    getattr(builder, kind)("x", size=size)
    return Trace.replicate(builder.graph(), ranks=npus)


def lines(text: LogText) -> list[str]:
    """Return the lines of standard output without time, logger and level, as upstream's test cleans them."""
    return [CLEAN.sub("", line, count=3) for line in text.console.splitlines()]


def ring(npus: int) -> str:
    return (
        f"ring of node 0, id: 0 dimension: local total nodes in ring: {npus} index in ring: 0 offset: 1 total nodes in "
        f"ring: {npus}"
    )


def rank_lines(rank: int, ticks: int) -> list[str]:
    return [
        f"sys[{rank}] finished, {ticks} cycles, exposed communication {ticks} cycles.",
        f"sys[{rank}]. Post statistics processing start.",
        f"sys[{rank}]. Post statistics processing end.",
        f"sys[{rank}], Wall time: {ticks}",
        f"sys[{rank}], Comm time: {ticks}",
    ]


def test_the_reference_of_upstreams_regression_test() -> None:
    log = armillary.astra_sim.log(one("all_reduce", 8), system(50), network(8), network_model="congestion")
    expected = [ring(8)] * 4 + [line for rank in range(8) for line in rank_lines(rank, 117780)] + ["Exiting"]
    assert lines(log.text(NOW)) == expected and len(expected) == 45
    first, last = (log.text(NOW).console.splitlines()[at] for at in (4, -1))
    assert first.startswith("[2026-03-04 05:06:07.890] [workload] [info] sys[0] finished, 117780 cycles")
    assert last == "[2026-03-04 05:06:07.890] [system] [warning] Exiting"


@pytest.mark.parametrize("model", ["analytical", "congestion"])
def test_the_order_in_which_equal_ranks_finish(model: str) -> None:
    # ASTRA-sim's manual shows this order for an all-gather of 16 NPUs.
    log = armillary.astra_sim.log(one("all_gather", 16), system(), network(16), network_model=model)
    found = [int(word) for word in re.findall(r"sys\[(\d+)\] finished, 323560 cycles", log.text().console)]
    assert found == [12, 13, 14, 15, *range(12)]


def test_other_published_runs() -> None:
    switch = network(8, "Switch", 400.0, 936.25)
    log = armillary.astra_sim.log
    hgx = (one("all_reduce", 8), system(3350, active=2), switch)
    assert log(*hgx, network_model="congestion").timeline.finish_ticks.tolist() == [57426] * 8
    assert log(*hgx).timeline.finish_ticks.tolist() == [55222] * 8
    assert log(one("reduce_scatter", 4), system(), network(4)).timeline.finish_ticks.tolist() == [22240] * 4


@pytest.fixture
def demo() -> LogText:
    """Demo 1-2 of the tutorial at Hot Interconnects 2024."""
    builder = GraphBuilder()
    first = builder.all_reduce("first", size="1 MiB")
    builder.all_gather("second", size="2 MiB", after=[first])
    builder.compute("kernel", duration_micros=50, after=[first])
    trace = Trace.replicate(builder.graph(), ranks=8)
    return armillary.astra_sim.log(trace, system(50), network(8), network_model="congestion").text(NOW)


def test_times_by_type_and_overlap(demo: LogText) -> None:
    found = lines(demo)
    at = found.index("sys[0] finished, 405520 cycles, exposed communication 355520 cycles.")
    assert found[at + 3 : at + 7] == [
        "sys[0], Wall time: 405520",
        "sys[0], GPU time: 50000",
        "sys[0], Comm time: 405520",
        "sys[0], Total compute-communication overlap: 50000",
    ]


@pytest.mark.parametrize(
    "idiom",
    [
        r"sys\[(\d+)\] finished, (\d+) cycles",
        r"\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles",
        r"finished, (\d+) cycles",
        r"sys\[(\d+)\], ([A-Za-z][A-Za-z \-]*): ([-\d\.]+)%?",
        r"sys\[(\d+)\]\,\s*([^:]+):\s*(\d+)",
        r"sys\[\d+\], (Wall|GPU|Comm) time: (\d+)",
        r"\[statistics\] \[info\] sys\[(\d+)\], Wall time: (\d+)",
        r"sys\[0\][^\n]*Total compute-communication overlap: (\d+)",
    ],
)
def test_idioms_of_public_scripts(demo: LogText, idiom: str) -> None:
    assert len(re.findall(idiom, demo.console)) >= (1 if r"sys\[0\]" in idiom else 8)


def test_awk_takes_the_last_word(demo: LogText, tmp_path: Path) -> None:
    write_log_files(demo, tmp_path / "log")
    program = "/sys\\[0\\], Wall time:/ {print $NF}"
    found = subprocess.run(
        ["awk", program, tmp_path / "log/log.log"], capture_output=True, text=True, check=True
    )
    assert found.stdout == "405520\n"


def test_gaps_make_the_overlap_huge_as_there() -> None:
    builder = GraphBuilder()
    host = builder.compute("host", duration_micros=5, cpu=True)
    kernel = builder.compute("kernel", duration_micros=50, after=[host])
    builder.all_reduce("sum", size="1 MiB", after=[kernel])
    log = armillary.astra_sim.log(Trace.replicate(builder.graph(), ranks=8), system(50), network(8))
    assert log.statistics[0].overlap == 2**64 - 5000
    assert "below 0" in log.warnings[0]
    assert "sys[0], CPU time: 5000" in lines(log.text())


def test_the_roofline_adds_its_means() -> None:
    builder = GraphBuilder()
    builder.compute("kernel", flops=4_000_000, bytes=1_000_000)
    settings = system(1600, **{"roofline-enabled": 1, "peak-perf": 3.2})
    log = armillary.astra_sim.log(Trace.replicate(builder.graph(), ranks=2), settings, network(2))
    # What public scripts look for.
    console = log.text(NOW).console
    assert re.findall(r"sys\[0\].*Average (compute|memory) utilization: ([\d.]+)", console) == [
        ("compute", "99.920"), ("memory", "49.960"),
    ]  # fmt: skip
    found = re.findall(r"sys\[(\d+)\], ([A-Za-z][A-Za-z \-]*): ([-\d\.]+)%?", console)
    assert ("1", "Average operation intensity", "3.997") in found and len(found) == 12
    # 4 FLOP per byte at 1.6 TB/s is above the peak of 3.2 TFLOP/s: 1,250 ns, of 1,251 that the means divide by.
    text = log.text(NOW)
    assert [line.removeprefix("sys[0], ") for line in lines(text) if line.startswith("sys[0], ")] == [
        "Wall time: 1250",
        "GPU time: 1250",
        "Compute bound percentage: 99.920%",
        "Average compute utilization: 99.920%",
        "Average memory utilization: 49.960%",
        "Average operation intensity: 3.997",
    ]
    assert "[workload] [debug] operation_intensity=4, perf=3.2e+12, elapsed_time=1250" in text.detail
    assert "debug" not in text.console


def test_lines_of_nodes_go_to_files() -> None:
    settings = system(50, **{"trace-enabled": 1})
    log = armillary.astra_sim.log(one("all_reduce", 4), settings, network(4))
    detail = log.text(NOW).detail.splitlines()
    node = "node->id=0, node->name=x, node->type=7"
    stamp = "[2026-03-04 05:06:07.890] [workload] [debug]"
    assert f"{stamp} issue,sys->id=3, tick=0, {node}" in detail
    assert f"{stamp} callback,sys->id=3, tick={log.timeline.total_ticks}, {node}" in detail
    assert "issue" not in log.text().console
    assert not log.timeline.info["warnings"]


def test_rings_of_groups() -> None:
    builder = GraphBuilder()
    first = builder.all_reduce("half", size="1 MiB", group="1")
    builder.all_reduce("again", size="1 MiB", group="1", after=[first])
    other = GraphBuilder()
    other.compute("alone", duration_micros=1)
    trace = Trace([builder.graph(), other.graph()], [0, 1, 0, 1])
    log = armillary.astra_sim.log(trace, system(50), network(4), comm_groups={"1": [2, 0]})
    text = "dimension: local total nodes in ring: 2 index in ring:"
    found = [line for line in lines(log.text()) if line.startswith("custom ring")]
    # The second collective takes the ring of the first.
    assert sorted(found) == [
        f"custom ring, id: 0, {text} 1 total nodes in ring 2",
        f"custom ring, id: 2, {text} 0 total nodes in ring 2",
    ]


def test_rings_of_several_dimensions() -> None:
    net = {
        "topology": ["Ring", "Switch"],
        "npus_count": [2, 4],
        "bandwidth": [50.0] * 2,
        "latency": [500.0] * 2,
    }
    kinds = {"all-reduce-implementation": ["direct", "ring"], "all-gather-implementation": ["oneRing"]}
    settings = {key: value for key, value in system(50).items() if "implementation" not in key} | kinds
    found = lines(armillary.astra_sim.log(one("all_reduce", 8), settings, net).text())
    assert [re.findall(r"in ring: (\d+) .* offset: (\d+)", line)[0] for line in found[:3]] == [
        ("2", "1"), ("4", "2"), ("8", "1"),
    ]  # fmt: skip
    assert found[3].startswith("sys[")


def tensors(*words: str) -> Any:
    return ("string_list", list(words))


def test_local_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    builder = GraphBuilder()
    kernel = [("is_cpu_op", "bool", False)]
    inputs, outputs = ("inputs", *tensors("w", "1024")), ("outputs", *tensors("a", "2048", "none", "0"))
    one = builder.add("one", NodeType.COMP_NODE, [*kernel, inputs, outputs], duration_micros=1)
    inputs, outputs = ("inputs", *tensors("a", "2048")), ("outputs", *tensors("b", "512"))
    builder.add("two", NodeType.COMP_NODE, [*kernel, inputs, outputs], after=[one], duration_micros=2)
    settings = system(50, **{"track-local-mem": 1, "local-mem-trace-filename": "mem"})
    log = armillary.astra_sim.log(Trace.replicate(builder.graph(), ranks=2), settings, network(2))
    # w lives from 0 on (nothing writes it) to 1,000; a from 0 to 3,000; b from 1,000 on.
    ticks, live = log.memory_use[0].steps()
    assert list(zip(ticks.tolist(), live.tolist(), strict=True)) == [(0, 3072), (1000, 2560), (3000, 512)]
    assert "sys[1] peak memory usage: 3.00 KB" in lines(log.text())
    idiom = r"\[workload\] \[info\] sys\[(\d+)\] peak memory usage: (\d+)"
    assert re.findall(idiom, log.text().console) == [("0", "3"), ("1", "3")]
    log.write_memory()
    found = json.loads(Path("mem.1.json").read_text())["traceEvents"]
    write = next(each for each in found if each["cat"] == "tensorWrite" and each["name"] == "w")
    assert write["ph"] == "B" and write["pid"] == 1
    assert write["args"] == {"size": 1024, "node_name": "UNDEFINED", "node_id": 2**64 - 1}
    assert {each["ph"] for each in found} == set("BECXMi")


def test_memory_needs_tensors_of_every_node() -> None:
    settings = system(50, **{"track-local-mem": 1})
    with pytest.raises(InputError, match="has no attribute inputs"):
        armillary.astra_sim.log(one("all_reduce", 2), settings, network(2))


def test_files(demo: LogText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.toml").write_text(
        '[[sink]]\nname = "f"\ntype = "basic_file_sink_mt"\nfilename = "s.txt"\n'
        '[[sink]]\nname = "away"\ntype = "basic_file_sink_mt"\nfilename = "../away.txt"\n'
        '[[logger]]\nname = "statistics"\nsinks = ["f", "away"]\nlevel = "trace"\n'
    )
    logging = read_logging("log.toml")
    assert "../away.txt is not below the current folder" in logging.warnings[0]
    write_log_files(demo, "log", logging)
    write_log_files(demo, "log")
    assert Path("log/log.log").read_text() == demo.detail * 2
    assert Path("log/err.log").read_text() == ""
    assert {line.split("] [")[1] for line in Path("s.txt").read_text().splitlines()} == {"statistics"}
    assert not Path("../away.txt").exists()
    with pytest.raises(InputError, match="cannot be made"):
        write_log_files(demo, "no/log")


SINK = '[[logger]]\nname = "x"\nsinks = ["s"]\n[[sink]]\nname = "s"\ntype = "basic_file_sink"\n{}\n'


def test_what_a_sink_does_not_use_may_be_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.toml").write_text(SINK.format('filename = "x"\nmax_files = "many"'))
    assert [sink.file for sink in read_logging("log.toml").sinks] == [Path("x")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = [", "is no TOML"),
        ('[[logger]]\nname = "x"\nsinks = ["s"]', "sink 's' is not defined"),
        ('[[logger]]\nname = "x"\nlevel = "loud"\nsinks = ["s"]\n[[sink]]\nname = "s"', "level 'loud'"),
        ('[[logger]]\nname = "x"\nlevel = []\nsinks = ["s"]\n[[sink]]\nname = "s"', "level \\[\\]"),
        ('[[logger]]\nname = "x"\nsinks = [{a = 1}]', "is not defined"),
        (SINK.format('filename = "\\u0000"'), "is not a file name"),
        ("a = " + "7" * 5000, "is no TOML"),
        ("a = " + "[" * 100_000, "is no TOML"),
        ("logger = 3", "expected \\[\\[logger\\]\\] tables"),
    ],
)
def test_wrong_configurations(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "log.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_logging(tmp_path / "log.toml")


def test_files_are_turned_over(tmp_path: Path) -> None:
    log = tmp_path / "log.log"
    for number in range(5):
        append_lines(log, "".join(f"{number}{row}{'x' * 8}\n" for row in range(4)), 25, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "log.1.log",
        "log.2.log",
        "log.3.log",
        "log.log",
    ]
    assert all(path.stat().st_size <= 25 for path in tmp_path.iterdir())
    assert log.read_text().endswith("43xxxxxxxx\n")
    append_lines(tmp_path / "wide.log", "y" * 40 + "\n", 25, 1)
    assert (tmp_path / "wide.log").read_text() == "y" * 40 + "\n"
    assert json.dumps(sorted(path.name for path in tmp_path.glob("wide*"))) == '["wide.log"]'
