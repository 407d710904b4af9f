"""Annotations of InfraGraph files: ranks, bandwidths and latencies have an effect, everything else is named."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.platform.topology import read_infragraph
from tests.platform.files.test_infragraph import CLOS, links

UPLINK = "host.1.nic.7 → leaf.1.asic.0"
OTHER = "host.1.nic.6 → leaf.1.asic.0"


def noted(**lists: Any) -> dict[str, Any]:
    return {"infrastructure": CLOS, "annotations": lists}


def told(**values: Any) -> list[dict[str, Any]]:
    return [{"attribute": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    "values",
    [{"link_bandwidth_gbps": "200", "link_latency_ms": 0.001}, {"bandwidth": "25 GBps", "latency": "1 us"}],
)
def test_a_link_has_the_numbers_of_its_annotation(values: dict[str, Any]) -> None:
    found = read_infragraph(noted(links=[{"name": "eth400", "attributes": told(**values)}]))
    assert links(found)[UPLINK] == links(found)[OTHER] == (25.0, 1000.0)
    assert not found.assumed and not found.warnings


def test_a_study_says_more_than_an_annotation() -> None:
    slow = noted(links=[{"name": "eth400", "attributes": told(link_bandwidth_gbps="8", latency="1 us")}])
    assert links(read_infragraph(slow, links={"eth400": (3.0, None)}))[UPLINK] == (3.0, 1000.0)


@pytest.mark.parametrize("end", ["leaf.1.port.7", "leaf[1].port[7]", "leaf[1]port[6:8]"])
def test_an_edge_has_numbers_of_its_own(end: str) -> None:
    edge = {"ep1": "host[1]nic[7]", "ep2": end, "attributes": told(bandwidth="100 Gbps")}
    found = read_infragraph(noted(edges=[edge]))
    assert links(found)[UPLINK] == (12.5, 600.0)
    assert links(found)[OTHER] == (50.0, 600.0)


def test_the_first_form_of_the_service() -> None:
    ranks = [{"rank_identifier": i, "npu_identifier": f"host.{1 - i // 8}.xpu.{i % 8}"} for i in range(16)]
    found = read_infragraph(
        noted(
            rank_assignment=ranks,
            device_specifications=[{"device_name": "sw", "device_type": "switch", "radix_up": 2}],
            link_specifications=[{"link_name": "eth400", "packet_loss_rate": 0.1, "link_bandwidth_gbps": 80}],
        )
    )
    assert found.topology.labels[0] == "host.1.xpu.0"
    assert links(found)[UPLINK] == (10.0, 600.0)
    assert [text.rpartition(": ")[2] for text in found.warnings] == [
        "links lose packets, which is not simulated", "radix_up",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"links": [{"name": "eth40"}]}, "no edge is of link 'eth40' .did you mean 'eth400'"),
        ({"links": [{"name": "eth400", "attributes": told(bandwidth="fast")}]}, "bandwidth: got 'fast'"),
        ({"links": [{"name": "eth400", "attributes": told(latency="1e99 s")}]}, "latency: got '1e99 s'"),
        ({"edges": [{"ep1": "host[9]nic", "ep2": "leaf[0]port", "attributes": told(latency="1 us")}]}, "no node 'host"),
        ({"nodes": [{"name": "host[0]xpu[0:2]", "attributes": told(rank=0)}]}, "expected a whole number of an xpu"),
        ({"nodes": [{"name": "host.0.nic.0", "attributes": told(rank="0")}]}, "expected a whole number of an xpu"),
        ({"nodes": [{"name": "host[0]xpu[0]", "attributes": told(rank="0")}]}, "1 ranks of 16 xpus"),
        ({"nods": []}, "annotations.nods: unknown key .did you mean 'nodes'"),
        ({"link_specifications": [{"link": "x"}]}, "link_name is nothing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(lists: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_infragraph(noted(**lists))
