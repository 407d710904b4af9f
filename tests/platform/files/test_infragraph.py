"""InfraGraph files: what they stand for, what is assumed, what is refused; the machine equals the same one by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import armillary
from armillary.base.errors import InputError
from armillary.platform.topology import InfraGraph, Widest, edges, read_infragraph
from armillary.trace import GraphBuilder, Trace

Part = dict[str, Any]
NVLINK = {
    "bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 112.5},
    "latency": {"choice": "ns", "ns": 500},
}
PCIE = {"bandwidth": {"gigabytes_per_second": 64}, "latency": {"choice": "ns", "ns": 300}}
ETHERNET = {
    "bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 400},
    "latency": {"choice": "us", "us": 0.6},
}
MEMORY = {"memory": {"bandwidth": "2 TB/s"}}


def component(name: str, count: int, choice: str, **more: Any) -> Part:
    return {"name": name, "count": count, "choice": choice, choice: {}} | more


def within(ep1: str, ep2: str, scheme: str, link: str) -> Part:
    return {"ep1": {"component": ep1}, "ep2": {"component": ep2}, "scheme": scheme, "link": link}


def between(ep1: str, ep2: str, link: str = "eth400") -> Part:
    ends = [dict(zip(("instance", "component"), end.split("."), strict=True)) for end in (ep1, ep2)]
    return {"ep1": ends[0], "ep2": ends[1], "scheme": "one2one", "link": link}


HOST: Part = {
    "name": "host8",
    "components": [component("xpu", 8, "xpu"), component("nvsw", 4, "switch"), component("nic", 8, "nic")],
    "links": [{"name": "nvlink", "physical": NVLINK}, {"name": "pcie", "physical": PCIE}],
    "edges": [
        within("xpu", "nvsw", "many2many", "nvlink"),
        within("xpu[0:8]", "nic[0:8]", "one2one", "pcie"),
    ],
}
SWITCH: Part = {
    "name": "sw",
    "components": [component("asic", 1, "switch"), component("port", 16, "port")],
    "links": [{"name": "ic"}],
    "edges": [within("asic", "port", "many2many", "ic")],
}
ALONE: Part = {
    "name": "one", "devices": [HOST], "instances": [{"name": "host", "device": "host8", "count": 1}], "edges": [],
}  # fmt: skip
CLOS: Part = {
    "name": "clos", "devices": [HOST, SWITCH], "links": [{"name": "eth400", "physical": ETHERNET}],
    "instances": [
        {"name": "host", "device": "host8", "count": 2}, {"name": "leaf", "device": "sw", "count": 2},
        {"name": "spine", "device": "sw", "count": 2},
    ],
    "edges": [
        *(between(f"host[{i}].nic[0:8]", f"leaf[{i}].port[0:8]") for i in (0, 1)),
        *(between(f"leaf[{i}].port[{8 + 4 * s}:{12 + 4 * s}]", f"spine[{s}].port[{4 * i}:{4 * i + 4}]")
          for i in (0, 1) for s in (0, 1)),
    ],
}  # fmt: skip


def changed(base: Part, change: Callable[[Part], Any]) -> Part:
    found = copy.deepcopy(base)
    change(found)
    return found


def links(found: InfraGraph) -> dict[str, tuple[float, float]]:
    t = found.topology
    return {t.link_name(i): (float(t.bandwidth[i]), float(t.latency[i])) for i in range(t.links)}


def all_reduce(ranks: int, size: str) -> Trace:
    step = GraphBuilder()
    step.all_reduce("gradients", size=size)
    return Trace.replicate(step.graph(), ranks=ranks)


def ticks(platform: Part, ranks: int, size: str, model: str) -> list[int]:
    machine = armillary.load_platform({**platform, "npu": MEMORY})
    return armillary.simulate(all_reduce(ranks, size), machine, network_model=model).finish_ticks.tolist()


@pytest.mark.parametrize("model", ["congestion", "flow", "packet"])
@pytest.mark.parametrize("size", ["64 KiB", "16 MiB"])
def test_an_all_reduce_on_a_host_takes_as_long_as_on_a_switch(tmp_path: Path, model: str, size: str) -> None:
    (tmp_path / "host.yaml").write_text(yaml.safe_dump(ALONE))
    graph = {"topology": {"kind": "infragraph", "file": str(tmp_path / "host.yaml")}}
    switch = {"network": [{"topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "500 ns"}]}
    assert ticks(graph, 8, size, model) == ticks(switch, 8, size, model)


@pytest.mark.parametrize("model", ["flow", "packet"])
def test_an_all_reduce_on_a_clos_takes_as_long_as_on_the_same_by_hand(tmp_path: Path, model: str) -> None:
    (tmp_path / "clos.json").write_text(json.dumps(CLOS))
    rows = [(f"npu {i}", f"nvsw {i // 8}", "450 GB/s", "500 ns") for i in range(16)]
    rows += [(f"npu {i}", f"nic {i}", "64 GB/s", "300 ns") for i in range(16)]
    rows += [(f"nic {i}", f"leaf {i // 8}", "400 Gb/s", "600 ns") for i in range(16)]
    rows += [(f"leaf {i}", f"spine {s}", "1600 Gb/s", "600 ns") for i in (0, 1) for s in (0, 1)]
    keys = ("from", "to", "bandwidth", "latency")
    (tmp_path / "hand.yaml").write_text(
        yaml.safe_dump({"links": [dict(zip(keys, row, strict=True)) for row in rows]})
    )
    graph = {"topology": {"kind": "infragraph", "file": str(tmp_path / "clos.json")}}
    # A graph by hand does not say which NPUs are a host.
    hand = {
        "topology": {"kind": "file", "file": str(tmp_path / "hand.yaml")},
        "collectives": {"hierarchy": [8, 2]},
    }
    assert ticks(graph, 16, "16 MiB", model) == ticks(hand, 16, "16 MiB", model)


def test_ports_are_parts_of_their_switch_and_cables_add_up() -> None:
    found = read_infragraph(CLOS)
    topology = found.topology
    assert [(tier.name, tier.count) for tier in topology.tiers] == [("npu", 16), ("switch", 6), ("nic", 16)]
    assert topology.host == 8 and topology.labels[9] == "host.1.xpu.1"
    assert links(found)["leaf.0.asic.0 → spine.1.asic.0"] == (200.0, 600.0)
    assert links(found)["host.1.nic.7 → leaf.1.asic.0"] == (50.0, 600.0)
    assert not found.assumed and not found.warnings


def test_what_is_not_stated_is_assumed_and_said_above_the_result(tmp_path: Path) -> None:
    bare = changed(ALONE, lambda file: [link.pop("physical") for link in file["devices"][0]["links"]])
    found = read_infragraph(bare)
    # NICs lead nowhere in one host: what they are taken for moves nothing and is not said.
    assert len(found.assumed) == 1
    assert (
        "nvlink" in found.assumed[0]
        and "112.5 GB/s each way, 450 GB/s of an NPU and 500 ns" in found.assumed[0]
    )
    assert links(found)["host.0.xpu.0 → host.0.nvsw.0"] == (450.0, 500.0)
    (tmp_path / "host.yaml").write_text(yaml.safe_dump(bare))
    result = armillary.simulate(all_reduce(8, "1 MiB"), armillary.load_platform(tmp_path / "host.yaml"))
    assert set(found.assumed) <= set(result.info["assumptions"])
    given = {
        "kind": "infragraph",
        "file": str(tmp_path / "host.yaml"),
        "links": {"nvlink": {"bandwidth": "1 GB/s"}},
    }
    network = armillary.load_platform({"topology": given}).topology
    assert network is not None and network.topology.bandwidth.max() == 4.0
    assert [text for text in network.assumed if "states no latency: 500 ns" in text]


@pytest.mark.parametrize(
    ("physical", "rate", "delay", "said"),
    [
        ({"bandwidth": {"gigatransfers_per_second": 32}, "latency": {"ms": 1}}, 64.0, 1e6, "of 16 lanes"),
        ({"bandwidth": {"gigabits_per_second": 100}, "latency": {"choice": "ns", "ns": 0}}, 12.5, 0.0, ""),
        ({"bandwidth": {"choice": "gigatransfers_per_second"}}, 25.0, 600.0, "200 Gb/s, by its name"),
        ({"bandwidth": {"gigabytes_per_second": 0}, "latency": {"us": 1}}, 25.0, 1000.0, "no bandwidth"),
    ],
)  # fmt: skip
def test_units_of_links(physical: Part, rate: float, delay: float, said: str) -> None:
    device = {
        "name": "pair", "components": [component("xpu", 2, "xpu")], "links": [{"name": "eth200", "physical": physical}],
        "edges": [within("xpu[0]", "xpu[-1]", "one2one", "eth200")],
    }  # fmt: skip
    found = read_infragraph({"devices": [device], "instances": [{"name": "p", "device": "pair", "count": 1}]})
    assert links(found)["p.0.xpu.0 → p.0.xpu.1"] == (rate, delay)
    assert said in " ".join(found.assumed) and bool(said) == bool(found.assumed)


def test_rings_slices_devices_in_devices_and_ranks() -> None:
    nic = {
        "name": "card", "components": [component("asic", 1, "nic"), component("port", 2, "port")],
        "links": [{"name": "serdes"}], "edges": [within("asic", "port", "many2many", "serdes")],
    }  # fmt: skip
    box: Part = {
        "name": "box", "components": [component("xpu", 4, "xpu"), component("card", 2, "device")],
        "links": [{"name": "ici", "physical": PCIE}],
        "edges": [
            within("xpu", "xpu", "ring", "ici"), within("xpu[0:4:3]", "card.asic", "one2one", "ici"),
            {"ep1": {"component": "port[1]", "device": "card[0]"}, "ep2": {"component": "card[1].port[1]"},
             "scheme": "one2one", "link": "ici"},
        ],
    }  # fmt: skip
    file = {"devices": [box, nic], "instances": [{"name": "b", "device": "box", "count": 1}]}
    found = read_infragraph(file)
    names = {name for name in links(found) if name < " → ".join(reversed(name.split(" → ")))}
    assert names == {
        "b.0.xpu.0 → b.0.xpu.1", "b.0.xpu.1 → b.0.xpu.2", "b.0.xpu.2 → b.0.xpu.3", "b.0.xpu.0 → b.0.xpu.3",
        "b.0.card.0.asic.0 → b.0.xpu.0", "b.0.card.1.asic.0 → b.0.xpu.3", "b.0.card.0.asic.0 → b.0.card.1.asic.0",
    }  # fmt: skip
    assert found.topology.forwards.all() and "nothing else joins" in found.assumed[-1]
    assert not read_infragraph(file, forward=False).topology.forwards[0]
    ranks = {
        "nodes": [
            {"name": f"b.0.xpu.{3 - i}", "attributes": [{"attribute": "rank", "value": str(i)}]}
            for i in range(4)
        ]
    }
    assert read_infragraph({"infrastructure": file, "annotations": ranks}).topology.labels[0] == "b.0.xpu.3"
    ranks["nodes"][0]["attributes"][0]["value"] = "1"
    with pytest.raises(InputError, match="both have rank 1"):
        read_infragraph({"infrastructure": file, "annotations": ranks})


def test_the_widest_of_the_shortest_ways() -> None:
    slow = [(f"npu {i}", "pcie", 64.0, 1.0, 1 << 40, "link") for i in range(3)]
    fast = [(f"npu {i}", "nvlink", 450.0, 1.0, 1 << 40, "link") for i in range(2)]
    graph = edges(
        "host",
        [row for tail, head, *rest in slow + fast for row in ((tail, head, *rest), (head, tail, *rest))],
    )
    taken = [graph.link_name(int(link)) for link in Widest(graph).paths([0, 0], [1, 2], flow=[0, 1]).link]
    assert taken == ["npu 0 → nvlink", "nvlink → npu 1", "npu 0 → pcie", "pcie → npu 2"]


def device(change: Callable[[Part], Any]) -> Callable[[Part], Any]:
    return lambda file: change(file["devices"][0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file["instances"][0].update(device="host9"), "no device 'host9' .did you mean 'host8'"),
        (lambda file: file["instances"][0].update(count=10**6), "nodes: 20 M of them"),
        (lambda file: file["instances"][0].update(count="2"), "count: got '2', expected a whole number"),
        (lambda file: file["instances"].append(file["instances"][0]), "name 'host' is used twice"),
        (lambda file: file["edges"][0].update(link="eth40"), "no link 'eth40' .did you mean 'eth400'"),
        (lambda file: file["edges"][0]["ep1"].update(instance="hots[0]"), "no instance 'hots' .did you mean 'host'"),
        (lambda file: file["edges"][0]["ep1"].update(instance="host[2]"), "beyond the 2 of 'host'"),
        (lambda file: file["edges"][0].update(scheme="some"), "scheme: got 'some', expected one of one2one"),
        (device(lambda each: each["edges"][0].update(link="nvlonk")), "no link 'nvlonk' .did you mean 'nvlink'"),
        (device(lambda each: each["edges"][1]["ep1"].update(component="xpu[0:9]")), "beyond the 8 of 'xpu'"),
        (device(lambda each: each["edges"][1]["ep1"].update(component="xpu[3:3]")), "chooses none of the 8"),
        (device(lambda each: each["edges"][1]["ep1"].update(component="xpu[::0]")), "step is 0"),
        (device(lambda each: each["edges"][1]["ep1"].update(component="xpu[0,1]")), r"got 'xpu\[0,1\]', expected a"),
        (device(lambda each: each["edges"][1]["ep2"].update(component="xpu")), "to itself, expected two"),
        (device(lambda each: each["components"][1].update(name="host8", choice="device")), "contains itself"),
        (device(lambda each: each["components"].pop(0)), "no component of choice xpu"),
        (device(lambda each: each["links"][0]["physical"].update(speed=1)), "unknown key"),
        (device(lambda each: each["components"][0].update(count=0)), "count: got 0"),
        (lambda file: file.update(connections=[]), "connections: unknown key"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: Callable[[Part], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_infragraph(changed(CLOS, change))


def test_what_the_reference_reads_past_is_said() -> None:
    few = changed(CLOS, lambda file: file["edges"][0]["ep2"].update(component="port[0:4]"))
    assert "one2one of 8 and 4 components: the first 4 are joined" in read_infragraph(few).warnings[0]
    # A blueprint of the reference names a component that is not there, which leaves its GPUs without NVLink.
    lost = changed(ALONE, device(lambda each: each["edges"][0]["ep2"].update(component="nvlsw")))
    assert "no 'nvlsw' (did you mean 'nvsw'?): it joins nothing" in read_infragraph(lost).assumed[0]


def test_keys_without_a_value_and_blanks_in_slices_are_read() -> None:
    def loosely(file: Part) -> None:
        file |= {"edges": None, "links": None, "description": None}
        file["devices"][0]["edges"][1]["ep1"]["component"] = "xpu[ 0 : 8 ]"

    assert links(read_infragraph(changed(ALONE, loosely))) == links(read_infragraph(ALONE))


def test_many_links_are_refused_before_they_are_made() -> None:
    large = changed(
        ALONE, device(lambda each: [part.update(count=50_000) for part in each["components"][:2]])
    )
    with pytest.raises(InputError, match=r"edges: 2\.5 G of them"):
        read_infragraph(large)


@pytest.mark.slow
def test_blueprints_load_and_run(tmp_path: Path) -> None:
    """All of the package `infragraph`, where it is installed: each with an xpu runs an all-reduce."""
    pytest.importorskip("infragraph")
    from tests.platform.files.infragraph_blueprints import blueprints

    for name, build in blueprints().items():
        infrastructure = build()
        path = tmp_path / f"{name}.yaml"
        path.write_text(infrastructure.serialize(encoding=infrastructure.YAML))
        machine = armillary.load_platform(path)
        ranks = machine.npus
        result = armillary.simulate(all_reduce(ranks, "1 MiB"), machine)
        assert result.finish_ticks.min() > 0, name
