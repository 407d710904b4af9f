"""The table of options without effect, held against runs: what counts changes something, the rest warns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from armillary import simulate
from armillary.base.errors import StuckError
from armillary.engine.common.assumptions import MODELS, OPTIONS, PROTOCOLS, without_effect
from armillary.engine.transport.ns3.library import available
from armillary.platform.files.native import load_platform
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import NETWORK_MODELS, Dimension
from armillary.trace import GraphBuilder, Trace

MACHINE: dict[str, Any] = {
    "npu": {"memory": {"bandwidth": "2 TB/s"}},
    "collectives": {"chunks": 6},
}
NETWORK = {
    "network": [{"name": "n", "topology": "Switch", "size": 4, "bandwidth": "10 GB/s", "latency": "500 ns"}]
}
TWO = {
    "network": [
        {"name": "a", "topology": "Ring", "size": 2, "bandwidth": "10 GB/s", "latency": "500 ns"},
        {"name": "b", "topology": "Switch", "size": 2, "bandwidth": "8 GB/s", "latency": "500 ns"},
    ]
}
GRAPH = {
    "topology": {
        "kind": "leaf-spine", "leaves": 2, "spines": 1, "npus_per_leaf": 2, "bandwidth": "10 GB/s", "latency": "500 ns",
    }
}  # fmt: skip
WIDE = {
    "topology": {
        "kind": "leaf-spine", "leaves": 2, "spines": 4, "npus_per_leaf": 2, "bandwidth": "10 GB/s", "latency": "500 ns",
        "uplink": "3 GB/s",
    }
}  # fmt: skip
DETOURS = {
    "topology": {
        "kind": "leaf-spine", "leaves": 4, "spines": 2, "npus_per_leaf": 1, "bandwidth": "10 GB/s", "latency": "500 ns",
        "uplink": "2 GB/s", "routing": "ugal",
    }
}  # fmt: skip
MARKED = {"kmin": "5 kB", "kmax": "60 kB", "pmax": "20 %"}
SMALL = {"buffer": "8 kB"}
PROBES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # What is set, and what is set besides in both runs.
    "collectives.active_chunks": ({"collectives": {"active_chunks": 1}}, {}),
    "collectives.within_dimension": (
        {"collectives": {"within_dimension": "smallest-first", "chunks": 5}},
        TWO,
    ),
    "collectives.queues": ({"collectives": {"queues": 3}}, {}),
    "collectives.optimization": ({"collectives": {"optimization": "baseline"}}, TWO),
    "rendezvous": ({"rendezvous": True}, {}),
    "scheduling": ({"scheduling": "lifo"}, {}),
    "topology.buffer": ({"topology": {"buffer": "40 kB"}}, GRAPH),
    "packets.mtu": ({"packets": {"mtu": "1 KiB"}}, {}),
    "packets.header": ({"packets": {"header": 200}}, {}),
    "packets.buffer": ({"packets": {"buffer": "40 kB"}}, {}),
    "packets.xoff": ({"packets": {"xoff": "9 kB"}}, {"packets": {"buffer": "60 kB"}}),
    "packets.xon": ({"packets": {"xon": "1 kB"}}, {"packets": {"buffer": "60 kB"}}),
    "packets.kmin": ({"packets": {"kmin": "5 kB"}}, {}),
    "packets.kmax": ({"packets": {"kmax": "60 kB"}}, {"packets": {"kmin": "5 kB"}}),
    "packets.dcqcn": ({"packets": {"dcqcn": True}}, {"packets": {"kmin": "5 kB"}}),
    "packets.pmax": ({"packets": {"pmax": "90 %"}}, {"packets": {"kmin": "5 kB", "kmax": "60 kB"}}),
    "packets.spread": ({"packets": {"spread": "packet"}}, WIDE),
    "packets.qps": ({"packets": {"qps": 4}}, WIDE),
    "packets.flowlet_gap": ({"packets": {"flowlet_gap": "1 ns"}}, WIDE | {"packets": {"spread": "flowlet"}}),
    "packets.ugal_bias": ({"packets": {"ugal_bias": "1 MB"}}, DETOURS),
    "packets.seed": ({"packets": {"seed": 5}}, {"packets": MARKED}),
}
TCP = {
    "algorithm": ({"algorithm": "newreno"}, SMALL),
    "mss": ({"mss": "512 B"}, {}),
    "buffer": (SMALL, {}),
    "initial_window": ({"initial_window": 2}, {}),
    "min_rto": ({"min_rto": "1 ms"}, {"buffer": "2 kB"}),
    "max_rto": ({"max_rto": "2 us"}, {"min_rto": "2 us"}),
    "retries": ({"retries": 1}, {"min_rto": "2 us", "max_rto": "2 us", "mss": "30 kB"}),
    "sack": ({"sack": False}, SMALL),
    "mark": ({"mark": "2 kB"}, {"algorithm": "dctcp"}),
    "ack_every": ({"ack_every": 1}, {}),
    "ack_delay": ({"ack_delay": "1 us"}, {"initial_window": 1}),
    "quick_acks": ({"quick_acks": 20}, {"initial_window": 1}),
    "window": ({"window": "4 kB"}, {}),
    "handshake": ({"handshake": True}, {}),
    "header": ({"header": "200 B"}, {}),
    "growth": ({"growth": 2}, {"initial_window": 1}),
    "persistent": ({"persistent": False}, {}),
    "jitter": ({"jitter": "3 us"}, {}),
    "seed": ({"seed": 5}, {}),
}
RDMA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "control": ({"control": "nscc"}, {}),
    "full": ({"full": "drop"}, {"buffer": "40 kB"}),
    "recovery": ({"recovery": "go-back-n"}, {**SMALL, "full": "drop"}),
    "spread": ({"spread": "packet"}, {}),
    "qps": ({"qps": 4}, {}),
    "ugal_bias": ({"ugal_bias": "1 MB"}, {}),
    "mtu": ({"mtu": "1 KiB"}, {}),
    "header": ({"header": "200 B"}, {}),
    "ack": ({"ack": "200 B"}, {}),
    "buffer": ({"buffer": "40 kB"}, {"full": "drop"}),
    "window": ({"window": "5 kB"}, {}),
    "kmin": ({"kmin": "5 kB"}, {}),
    "kmax": ({"kmax": "60 kB"}, {"kmin": "5 kB"}),
    "rto": ({"rto": "2 us"}, {**SMALL, "full": "drop"}),
    "retries": ({"retries": 1}, {**SMALL, "full": "drop", "rto": "1 us"}),
    "target": ({"target": "1 us"}, {"control": "swift"}),
    "paths": ({"paths": 1}, {"spread": "packet"}),
    "flowlet_gap": ({"flowlet_gap": "1 ns"}, {"spread": "flowlet"}),
    "pmax": ({"pmax": "90 %"}, {"kmin": "5 kB", "kmax": "60 kB"}),
    "seed": ({"seed": 5}, {"kmin": "5 kB", "kmax": "60 kB", "pmax": "20 %"}),
}
ON_GRAPHS = dict.fromkeys(("spread", "qps", "paths", "flowlet_gap"), WIDE) | {"ugal_bias": DETOURS}
"""What has an effect only where there are several ways."""
CREDIT = {
    "packet": {"packet": "1 KiB"},
    "flit": {"flit": "32 B"},
    "vcs": {"vcs": 4},
    "depth": {"depth": 80},
    "router_delay": {"router_delay": "10 ns"},
    "switching": {"switching": "store-and-forward"},
}


def probe(key: str, protocol: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what sets a key, and what is set besides."""
    name = key.removeprefix("packets.")
    if protocol == "tcp":
        return tuple({"packets": part} for part in TCP[name])  # type: ignore[return-value]
    if protocol == "rdma":
        new, besides = RDMA[name]
        return {"packets": new}, {"packets": besides} | ON_GRAPHS.get(name, {})
    return ({"packets": CREDIT[name]}, {}) if protocol == "credit" else PROBES[key]


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            made[key] = merged(made[key], value) if isinstance(made.get(key), dict) else value
    return made


def machine(*parts: dict[str, Any], protocol: str = "", tmp: Any) -> Platform:
    made = merged(MACHINE, *parts)
    if "network" not in made and "topology" not in made:
        made |= NETWORK
    if protocol and (protocol != "lossless" or "packets" in made):
        made["packets"] = {"protocol": protocol} | made.get("packets", {})
    (tmp / "p.yaml").write_text(yaml.safe_dump({"platform": made}))
    return load_platform(tmp / "p.yaml")


def workload() -> Trace:
    """Return collectives beside each other, and messages of all to one, some of them issued together."""
    builders = [GraphBuilder(rank=rank) for rank in range(4)]
    for rank, b in enumerate(builders):
        work = b.compute("w", duration_micros=1 + rank)
        b.all_reduce("a", 100_000, after=[work])
        b.all_to_all("b", 80_000, after=[b.all_gather("g", 20_001)])
        later = b.compute("v", duration_micros=2 + 3 * rank)
        b.send((rank + 1) % 4, 60_000, 7, after=[later])
        b.recv((rank - 1) % 4, 60_000, 7)
    for tag in range(2):
        for rank in (1, 2, 3):
            builders[rank].send(0, 30_000, tag)
            builders[0].recv(rank, 30_000, tag)
    return Trace.from_ranks([b.graph() for b in builders])


def result(platform: Platform, network_model: str) -> Any:
    """Return all ticks, and what links did; or why the run cannot finish."""
    try:
        timeline = simulate(workload(), platform, network_model=network_model)
    except StuckError as error:
        return str(error), None, None, []
    use = timeline.network.use if timeline.network else None
    links = (
        [getattr(use, name).tolist() for name in ("size", "depth", "drops", "marks", "paused")]
        if use
        else None
    )
    return timeline.node_start.tolist(), timeline.node_end.tolist(), links, timeline.info["warnings"]


COLUMNS = [
    (model, protocol, column)
    for model in NETWORK_MODELS.built_in
    for protocol, column in PROTOCOLS.get(model, {"": model}).items()
]
CASES = [
    pytest.param(option, *column, id=f"{option.protocol or 'any'}-{option.key}-{column[2]}")
    for option in OPTIONS
    for column in COLUMNS
    if not option.protocol or option.protocol == column[1]
]


def test_the_table_has_all_columns() -> None:
    assert sorted(column for _, _, column in COLUMNS) == sorted(MODELS)
    assert all(option.counts <= set(MODELS) for option in OPTIONS)


@pytest.mark.parametrize(("option", "network_model", "protocol", "column"), CASES)
def test_the_table_is_true(
    option: Any, network_model: str, protocol: str, column: str, tmp_path: Any
) -> None:
    new, besides = probe(option.key, option.protocol)
    if option.key == "topology.buffer" and network_model == "analytical":
        pytest.skip("has no graphs")
    before = machine(besides, protocol=protocol, tmp=tmp_path)
    after = machine(besides, new, protocol=protocol, tmp=tmp_path)
    if option.key == "topology.buffer" and protocol == "tcp":
        after = machine(besides, {"topology": SMALL}, protocol=protocol, tmp=tmp_path)
    key = (
        "buffers have no end"
        if option.key == "topology.buffer"
        else f"platform.{option.key} has no effect in"
    )
    warned = any(key in text for text in without_effect(after, network_model))
    assert warned == (column not in option.counts)
    assert not any(key in text for text in without_effect(before, network_model))
    if network_model == "ns3" and not available():
        return
    first, second = (result(each, network_model) for each in (before, after))
    assert (first[:3] != second[:3]) == (column in option.counts)
    assert any(key in text for text in second[3]) == warned


@pytest.mark.parametrize(
    ("protocol", "packets", "text"),
    [
        ("tcp", {"mark": "2 kB"}, "packets.mark has no effect without algorithm dctcp"),
        ("tcp", {"seed": 3, "jitter": "0 ns"}, "packets.seed has no effect without a jitter"),
        ("lossless", {"pmax": "5 %"}, "packets.pmax has no effect without kmin, and kmax above it"),
        (
            "lossless",
            {"seed": 5, "kmin": "5 kB"},
            "packets.seed has no effect without kmin, and kmax above it",
        ),
    ],
)
def test_what_needs_something_else_says_so(protocol: str, packets: Any, text: str, tmp_path: Any) -> None:
    name = text.split(" ")[0].removeprefix("packets.")
    with_it = machine({"packets": packets}, protocol=protocol, tmp=tmp_path)
    without = {key: value for key, value in packets.items() if key != name}
    plain = machine({"packets": without} if without else {}, protocol=protocol, tmp=tmp_path)
    assert any(text in each for each in without_effect(with_it, "packet"))
    assert result(with_it, "packet")[:3] == result(plain, "packet")[:3]


def test_packets_have_none_where_there_are_none(tmp_path: Any) -> None:
    platform = machine({"packets": {"kmin": "5 kB", "dcqcn": True}}, protocol="lossless", tmp=tmp_path)
    for network_model in ("analytical", "congestion", "flow"):
        (text,) = without_effect(platform, network_model)
        assert f"platform.packets has no effect in network model {network_model}" in text


def test_every_key_of_packets_is_in_the_table() -> None:
    from armillary.platform.packet_options import PROTOCOLS as SCHEMAS

    for protocol, schema in SCHEMAS.items():
        known = {option.key.removeprefix("packets.") for option in OPTIONS if option.protocol == protocol}
        assert known == set(schema.model_fields) - {"protocol"}


def test_a_connection_that_gave_up_is_named(tmp_path: Any) -> None:
    new, besides = probe("packets.retries", "tcp")
    text = result(machine(besides, new, protocol="tcp", tmp=tmp_path), "packet")[0]
    assert "packets.retries" in text


@pytest.mark.parametrize(("order", "warns"), [("themis", True), ("optimal", True), ("baseline", False)])
def test_one_chunk_leaves_nothing_to_order(order: str, warns: bool) -> None:
    ports = [Dimension("a", "Ring", 4, 100.0, 500.0), Dimension("b", "Switch", 2, 25.0, 500.0)]
    one = Platform(dimensions=tuple(ports), collectives=Collectives(chunk_order=order))
    text = f"platform.collectives.chunk_order {order} has 1 chunk to order"
    assert any(text in each for each in without_effect(one, "analytical")) == warns
    more = replace(one, collectives=Collectives(chunk_order=order, chunks=2))
    assert not any("chunk_order" in each for each in without_effect(more, "analytical"))
