"""Links: numbers against hand-made use, every file, and networks drawn where they are busy."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import defaultdict

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.engine.common.timeline import Timeline
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.offer import offer
from armillary.engine.transport.use import LinkUse, NetworkUse, left
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    DimensionOrder,
    Ecmp,
    Failure,
    Rail,
    Shortest,
    degraded,
    dragonfly,
    edges,
    fat_tree,
    from_dimensions,
    hypercube,
    leaf_spine,
    optical_torus,
    rail_optimised,
    wafer_mesh,
)
from armillary.platform.topology.graph import Topology
from armillary.report import (
    busiest,
    kind_rows,
    link_rows,
    links_picture,
    print_summary,
    to_json,
    write_perfetto,
)
from armillary.report.link_picture import busiest_panels, link_shares, write_links
from armillary.report.links import hot_spot_line, write_links_csv


def made(topology, size, *, end=4000, bin=1000, series=None, **columns):
    """Use with `size` bytes by link, all in the first bin unless `series` says otherwise."""
    whole = np.zeros(topology.links, np.int64)
    for link, value in size.items():
        whole[link] = value
    spread = np.zeros((topology.links, -(-end // bin)), np.int64)
    spread[:, 0] = whole
    rest = {
        name: np.zeros(topology.links, np.int64) for name in ("busy", "depth", "drops", "marks", "paused")
    }
    for name, values in columns.items():
        for link, value in values.items():
            rest[name][link] = value
    use = LinkUse(
        whole, bin=bin, series=spread if series is None else series, depths=np.zeros_like(spread), **rest
    )
    return NetworkUse(topology, use, end)


@pytest.fixture(scope="module")
def incast() -> NetworkUse:
    """All others send 100 kB to NPU 3 of 16 on leaves and spines."""
    top = leaf_spine(4, 2, 4, 50.0, 500.0)
    source = [npu for npu in range(16) if npu != 3]
    found = offer(Congestion(), Ecmp(top), source, 3, 100_000, mode="interpreted")
    return NetworkUse(top, found.use, int(found.arrived.max()))


@pytest.fixture
def line(timeline, incast) -> Timeline:
    return dataclasses.replace(timeline, network=incast)


def test_shares_of_the_bandwidth():
    top = leaf_spine(1, 1, 2, 2.0, 0.0)  # 2 bytes per ns: 2 in a bin of 1000 ps, 8 in the run
    network = made(top, {0: 2, 1: 4}, drops={1: 7})
    assert network.mean[:2].tolist() == [0.25, 0.5] and network.peak[:2].tolist() == [1.0, 2.0]
    one, two = link_rows(network, busiest(network))
    assert (one.link, one.size, one.drops, two.mean) == (1, 4, 7, 0.25)
    down = degraded(top, [Failure(node="npu 0")])
    assert made(down, {0: 2, 1: 4}).mean[:2].tolist() == [0.0, 0.5]
    assert {row.kind: row.links for row in kind_rows(made(down, {}))} == {"npu-leaf": 2, "leaf-spine": 2}


def test_the_last_bin_ends_with_the_run():
    top = leaf_spine(1, 1, 2, 2.0, 0.0)
    series = np.zeros((top.links, 2), np.int64)
    series[0] = 2, 1
    assert made(top, {0: 3}, end=1500, series=series).series[0].tolist() == [1.0, 1.0]


def test_kinds_and_hot_spots(incast):
    rows = {row.kind: row for row in kind_rows(incast)}
    hosts = rows["npu-leaf"]
    assert (hosts.links, hosts.used, hosts.size) == (32, 16, 2 * 15 * 100_000)
    # One of 32 links carries half of the bytes.
    assert hosts.hot_spot == pytest.approx(16)
    # 15 messages of 2 us, after 100 kB have waited behind none: 2 hops of 500 ns before, 1 behind.
    assert hosts.most == pytest.approx(30 / (incast.end / 1e6), rel=1e-6)
    assert hot_spot_line(incast).startswith("Busiest link leaf 0 → npu 3: ")
    assert hosts.depth == incast.use.depth.max() and incast.use.depths.max() == hosts.depth
    assert "No link" in hot_spot_line(made(incast.topology, {}))


def test_queues_drain():
    assert left(np.array([[5, 5, 5, 0]]), np.array([[12, 0, 4, 0]])).tolist() == [[12, 7, 4, 0]]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 6_000_000)), min_size=1, max_size=12))
def test_queues_are_never_said_to_be_longer_than_they_are(messages):
    """One link of a byte per ns; a reference adds up what waits at the beginning of each bin and at each arrival."""
    messages.sort(key=lambda message: message[1])
    pair = edges("pair", [("npu 0", "npu 1", 1.0, 0.0, 1, "link"), ("npu 1", "npu 0", 1.0, 0.0, 1, "link")])
    size, begin = zip(*messages, strict=True)
    use = offer(Congestion(), Shortest(pair), 0, 1, size, begin, mode="interpreted").use
    waits, free = [], 0
    for number, (bytes_, at) in enumerate(messages):
        free = max(free, at) + 1000 * bytes_
        later = messages[number + 1][1] if number + 1 < len(messages) else free
        waits.append((at, (free - at) / 1000))
        edge = -(-at // use.bin) * use.bin
        waits += [(time, (free - time) / 1000) for time in range(edge, min(later, free), use.bin)]
    for i, found in enumerate(use.depths[0].tolist()):
        most = max((wait for time, wait in waits if time // use.bin == i), default=0)
        assert found <= most + 2
        assert found >= most - max(size) - use.bin / 1000 - 2


def test_links_that_join_the_same_nodes_have_names_of_their_own():
    ways = [("npu 0", "npu 1"), ("npu 1", "npu 0")] * 2
    pair = edges("pair", [(*way, 1.0, 1.0, 1, "link") for way in ways])
    names = [row.name for row in link_rows(made(pair, {}), range(pair.links))]
    assert sorted(names) == ["npu 0 → npu 1", "npu 0 → npu 1 (2)", "npu 1 → npu 0", "npu 1 → npu 0 (2)"]


def test_a_file_holds_everything(line, tmp_path):
    torus = [Dimension(f"t.{i}", "Torus", 3, 1.5, 2.0) for i in range(2)]
    top = from_dimensions([*torus, Dimension("s", "Switch", 2, 9.0, 1.0)])
    for number, network in enumerate((line.network, made(top, {3: 1 << 40}, marks={1: 5}))):
        path = tmp_path / f"{number}.result"
        dataclasses.replace(line, network=network).save(path)
        read = Timeline.load(path).network
        assert (read.end, read.use.bin) == (network.end, network.use.bin)
        for ours, theirs in ((network.topology, read.topology), (network.use, read.use)):
            for field in dataclasses.fields(ours):
                one, two = getattr(ours, field.name), getattr(theirs, field.name)
                assert np.array_equal(one, two) and type(one) is type(two), field.name
                assert getattr(one, "dtype", 0) == getattr(two, "dtype", 0), field.name
    assert Timeline.load(path).network.topology.link_name(0) == top.link_name(0)


def test_a_large_network_makes_a_small_file(timeline, tmp_path):
    tree = fat_tree(16, 50.0, 500.0)
    rng = np.random.default_rng(0)
    series = rng.integers(0, 50_000, (tree.links, 256)) * (rng.random((tree.links, 256)) < 0.2)
    use = made(tree, {}, bin=1_000_000, end=256_000_000, series=series)
    dataclasses.replace(timeline, network=use).save(tmp_path / "r")
    assert (tmp_path / "r").stat().st_size < 6144 * 256  # a byte for each link and bin


@pytest.mark.parametrize("broken", ["use.size", "topology.head"])
def test_a_file_without_a_column_is_refused(line, tmp_path, broken):
    line.save(tmp_path / "whole")
    with np.load(tmp_path / "whole") as data:
        np.savez(tmp_path / "part.npz", **{name: data[name] for name in data if name != f"network.{broken}"})
    with pytest.raises(InputError, match=r"part\.npz: cannot be read as a saved timeline"):
        Timeline.load(tmp_path / "part.npz")


def test_the_summary_names_the_busiest(line):
    stream = io.StringIO()
    print_summary(line, Console(file=stream, width=100, highlight=False))
    text = stream.getvalue()
    assert "leaf 0 → npu 3    npu-leaf" in text and "5 of 24" in text and "drops" not in text
    assert max(map(len, text.splitlines())) <= 100
    lossy = made(line.network.topology, {0: 9}, drops={0: 12}, paused={0: 5000})
    stream = io.StringIO()
    print_summary(dataclasses.replace(line, network=lossy), Console(file=stream, width=100, highlight=False))
    assert "drops" in stream.getvalue() and "paused" in stream.getvalue() and "marks" not in stream.getvalue()


def test_json(line, timeline):
    found = to_json(line)["network_use"]
    assert json.loads(json.dumps(found)) == found
    assert found["links_count"] == 48 and found["used_links_count"] == len(found["busiest_links"])
    assert found["busiest_links"][0]["to"] == "npu 3"
    assert found["kinds"][0]["hot_spot_ratio"] == pytest.approx(16)
    assert to_json(timeline)["network_use"] is None


def test_csv(incast, tmp_path):
    write_links_csv(incast, tmp_path / "l.csv")
    rows = list(csv.DictReader((tmp_path / "l.csv").open()))
    assert len(rows) == 48
    assert [int(row["carried_bytes"]) for row in rows] == incast.use.size.tolist()
    assert all(0 <= float(row["mean_utilisation_ratio"]) <= 1 for row in rows)


def test_counters(line, tmp_path):
    write_perfetto(line, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (process,) = [e for e in events if e["name"] == "process_name" and e["args"]["name"] == "network links"]
    series = defaultdict(list)
    for event in events:
        if event["ph"] == "C" and event["pid"] == process["pid"]:
            ((unit, value),) = event["args"].items()
            series[event["name"], unit].append((event["ts"], value))
    assert series["leaf 0 → npu 3: utilisation", "percent"][-1] == (31.0, 0)
    assert max(value for _, value in series["leaf 0 → npu 3: queue", "bytes"]) == line.network.use.depth.max()
    for (name, unit), values in series.items():
        times = [time for time, _ in values]
        assert times == sorted(set(times)) and values[-1][1] == 0, name
        assert unit == "bytes" or max(value for _, value in values) <= 100.0
    assert len({event["pid"] for event in events if event["name"] == "process_name"}) == 4


@pytest.mark.parametrize("name", ["t.json.gz", "t.pftrace"])
def test_perfetto_reads_them(line, tmp_path, trace_processor, name):
    from perfetto.trace_processor import TraceProcessor

    write_perfetto(line, tmp_path / name)
    with TraceProcessor(trace=str(tmp_path / name), config=trace_processor) as processor:
        query = (
            "select max(c.value) as most from counter c join process_counter_track t on c.track_id = t.id "
            "join process using (upid) where process.name = 'network links' and t.name like 'leaf 0 → npu 3: queue%'"
        )
        assert [row.most for row in processor.query(query)] == [line.network.use.depth.max()]


TORUS = [Dimension(f"t.{i}", "Torus", 4, 1.0, 1.0) for i in range(3)]
MIXED = [Dimension("n", "FullyConnected", 4, 1.0, 1.0), Dimension("s", "Switch", 3, 1.0, 1.0), TORUS[0]]
SHAPES = {
    "leaf-spine": (leaf_spine(8, 4, 8, 1.0, 1.0), Ecmp),
    "fat-tree": (fat_tree(8, 1.0, 1.0), Ecmp),
    "torus": (from_dimensions(TORUS), DimensionOrder),
    "mixed": (from_dimensions(MIXED), DimensionOrder),
    "ring of 2": (from_dimensions([Dimension("r", "Ring", 2, 1.0, 1.0)]), DimensionOrder),
    "dragonfly": (dragonfly(2, 4, 2, 1.0, 1.0), Shortest),
    "rails": (rail_optimised(40, 8, 1.0, 1.0, 1.0, 1.0, hosts_per_unit=20, spines=4), Rail),
    "wafer": (wafer_mesh((6, 6), 1.0, 1.0, die=(3, 2)), Shortest),
    "optical": (optical_torus((8, 8, 4), 1.0, 1.0), Shortest),
    "cube": (hypercube(4, 1.0, 1.0), Shortest),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_link_is_found_where_it_is_drawn(name):
    """One link at a time is busy: some line shows it, and in the right direction."""
    top: Topology = SHAPES[name][0]
    for link in np.linspace(0, top.links - 1, 12).astype(int).tolist():
        network, seen = made(top, {link: 4}), 0
        for panel in busiest_panels(network):
            ways = [
                way
                for one in panel.lines
                if -1 not in one.members
                for way in (one.members, one.members[::-1])
            ]
            share, _ = link_shares(panel, network, ways)
            tail, head = (int(panel.ends[side, link]) for side in (0, 1))
            hot = {ways[i] for i in np.flatnonzero(share)}
            assert hot <= {(tail, head)}
            seen += len(hot)
        # The way around the cube of an optical torus of one cube's height is not drawn.
        assert seen or (name == "optical" and top.kinds[top.kind[link]] == "optical"), top.link_name(link)


@pytest.mark.parametrize("name", ["leaf-spine", "torus", "mixed", "cube"])
def test_pictures(name, tmp_path):
    top, routing = SHAPES[name]
    found = offer(Congestion(), routing(top), np.arange(top.npus), 0, 1000, mode="interpreted")
    links_picture(NetworkUse(top, found.use, int(found.arrived.max())), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_of_nothing(tmp_path):
    links_picture(made(leaf_spine(1, 1, 2, 2.0, 0.0), {}), tmp_path / "p.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["p.svg"]


def test_the_command(line, timeline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line.save("with.result")
    timeline.save("without.result")

    def call(text):
        return CliRunner().invoke(main, text.split())

    assert "wrote l.csv" in call("explain with.result --links l.csv").output
    assert "wrote l.svg" in call("explain with.result --links l.svg").output
    assert "Busiest link leaf 0 → npu 3" in call("explain with.result").output
    bad = call("explain without.result --links l.png")
    assert (
        bad.exit_code == 2
        and "its network model is 'analytical', expected one that simulates links" in bad.output
    )
    bad = call("explain with.result --links l.xyz")
    assert bad.exit_code == 2 and "--links l.xyz: suffix '.xyz', expected one of .csv, .png" in bad.output
    with pytest.raises(InputError, match="network model"):
        write_links(timeline, "l.csv")
