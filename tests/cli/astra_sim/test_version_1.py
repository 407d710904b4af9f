"""Files and flags of ASTRA-sim 1.0: network, system and text workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NETWORK = {
    "topology-name": "Hierarchical", "dimensions-count": 1, "topologies-per-dim": ["Ring"], "dimension-type": ["T"],
    "units-count": [4], "links-count": [2], "link-latency": [500], "link-bandwidth": [25.0],
}  # fmt: skip
SYSTEM = """\
scheduling-policy: LIFO
endpoint-delay: 10
active-chunks-per-dimension: 1
preferred-dataset-splits: 4
boost-mode: 0
all-reduce-implementation: ring
all-gather-implementation: ring
reduce-scatter-implementation: ring
all-to-all-implementation: ring
collective-optimization: localBWAware
inter-dimension-scheduling: baseline
"""
WORKLOAD = "DATA\n1\nlayer -1 0 NONE 0 0 NONE 0 1000 ALLREDUCE 1048576 0\n"
FLAGS = (
    "astra-sim --terse --network-configuration=net.json --system-configuration=sys.txt "
    "--workload-configuration=work.txt"
)


@pytest.fixture
def old(inputs: Path) -> Path:
    (inputs / "net.json").write_text(json.dumps(NETWORK))
    (inputs / "sys.txt").write_text(SYSTEM)
    (inputs / "work.txt").write_text(WORKLOAD)
    return inputs


def ticks(result) -> int:
    assert result.exit_code == 0, result.output
    return int(result.stdout.split()[2])


def test_old_files_have_the_ticks_of_new_ones(old, call):
    """A message has both links: 50 GB/s, of 10^9 bytes here and 2^30 bytes in the new file."""
    new = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50e9 / 2**30], "latency": [500.0]}
    Path("net.yml").write_text(json.dumps(new))
    system = json.loads(Path("system.json").read_text()) | {"local-mem-bw": 0}
    Path("new.json").write_text(json.dumps(system))
    assert call("trace convert --from text work.txt --dims 4 -o work").exit_code == 0
    theirs = call(
        "astra-sim --terse --network-configuration=net.yml --system-configuration=new.json "
        "--workload-configuration=work"
    )
    assert ticks(call(FLAGS)) == ticks(theirs)


def test_flags_of_text_workloads(old, call):
    # By hand: 4 chunks, 6 steps each, of 64 KiB at 50 bytes per ns; before them 1 µs of compute.
    step = 65536 // 50 + 500
    once = ticks(call(FLAGS))
    assert once == pytest.approx(1000 + 4 * 6 * step, rel=0.05)
    assert ticks(call(f"{FLAGS} --num-passes=3")) == pytest.approx(3 * once, rel=0.01)
    more = ticks(call(f"{FLAGS} --comm-scale 50"))
    assert more == pytest.approx(1000 + 4 * 6 * (50 * 65536 // 50 + 500), rel=0.05)
    assert ticks(call(f"{FLAGS} --compute-scale 8")) == once + 7000
    without = call(f"{FLAGS} --run-name=x --path out --stat-row 0 --total-stat-rows 1")
    assert ticks(without) == once
    assert without.stderr.count("tables of ASTRA-sim 1.0 are not written") == 4


def test_flags_instead_of_the_network_file(old, call):
    wide = call(f"{FLAGS} --units-count 8 --links-count 4 --link-bandwidth 12.5 --link-latency 100")
    assert len(wide.stdout.splitlines()) == 8
    network = NETWORK | {
        "units-count": [8],
        "links-count": [4],
        "link-bandwidth": [12.5],
        "link-latency": [100],
    }
    Path("net.json").write_text(json.dumps(network))
    assert call(FLAGS).stdout == wide.stdout


@pytest.mark.parametrize(
    ("kind", "links", "words"),
    [
        ("Ring", 3, ""),
        ("Ring", 1, "links-count[0]: got 1, expected 2 or more"),
        ("FullyConnected", 2, "links-count[0]: got 2, expected 3 or more, a link to each other NPU"),
        ("FullyConnected", 6, ""),
        ("Switch", 2, ""),
        ("Swich", 2, "did you mean 'Switch'"),
    ],
)
def test_links_of_a_dimension(old, call, kind, links, words):
    """An odd ring leaves one link unused; the links of a full mesh are divided by its pairs."""
    network = NETWORK | {"topologies-per-dim": [kind], "links-count": [links]}
    Path("net.json").write_text(json.dumps(network))
    result = call(FLAGS)
    assert (result.exit_code == 2 and words in result.stderr) if words else ticks(result) > 0
    if kind in ("Ring", "FullyConnected") and not words:
        Path("net.json").write_text(json.dumps(network | {"links-count": [2 if kind == "Ring" else 7]}))
        assert call(FLAGS).stdout == result.stdout


@pytest.mark.parametrize(
    ("name", "old_text", "new_text", "words"),
    [
        ("sys.txt", "LIFO", "LIFA", "sys.txt:1: scheduling-policy: got 'LIFA'"),
        ("sys.txt", "endpoint-delay", "endpont-delay", "sys.txt:2: endpont-delay: unknown key (did you mean"),
        (
            "sys.txt",
            "boost-mode: 0",
            "boost-mode",
            "sys.txt:5: got 'boost-mode', expected a line 'key: value'",
        ),
        ("sys.txt", ": LIFO", ": LIFO\nendpoint-delay: 9", "endpoint-delay is given twice"),
        (
            "sys.txt",
            "implementation: ring\n",
            "implementation: ring_ring\n",
            "lists 2 algorithms, expected at most 1",
        ),
        (
            "net.json",
            '"units-count": [4]',
            '"units-count": [4, 2]',
            "units-count: got [4, 2], expected a list of 1",
        ),
        ("net.json", "500", "-1", "link-latency[0]: got -1"),
        ("net.json", "links-count", "link-count", "unknown key (did you mean 'links-count'"),
        ("work.txt", "ALLREDUCE", "ALLREDUZE", "work.txt: line 3, column 33"),
    ],
)
def test_what_is_wrong_has_a_place(old, call, name, old_text, new_text, words):
    text = Path(name).read_text()
    assert old_text in text
    Path(name).write_text(text.replace(old_text, new_text, 1))
    result = call(FLAGS)
    assert result.exit_code == 2 and words in result.stderr, result.output


def test_flags_of_version_1_with_files_of_version_2(inputs, call):
    result = call(
        "astra-sim --terse --network-configuration=network.yml --system-configuration=system.json "
        "--workload-configuration=step --num-passes=2 --link-latency=3"
    )
    assert result.exit_code == 0
    assert "--num-passes has no effect" in result.stderr and "--link-latency has no effect" in result.stderr
