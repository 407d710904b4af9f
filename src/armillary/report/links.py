"""Use of the links of a network: the busiest links, and hot spots by kind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.text import csv_text
from armillary.base.units import format_bytes
from armillary.engine.common.timeline import Timeline
from armillary.engine.transport.layout import PS
from armillary.engine.transport.use import NetworkUse
from armillary.platform.topology.graph import Topology

LINKS_IN_JSON = 100


@dataclass(frozen=True)
class LinkRow:
    """One link, one way."""

    link: int
    """Its number in the topology."""
    name: str
    tail: str
    head: str
    kind: str
    size: int
    """Bytes carried."""
    busy: float
    """Time in ns during which it carried them."""
    mean: float
    """Share of its bandwidth used over the run."""
    peak: float
    """The same in the busiest time bin."""
    depth: int
    """Most bytes that waited for it."""
    drops: int
    marks: int
    paused: float
    """Time in ns during which it was paused although bytes waited."""


@dataclass(frozen=True)
class KindRow:
    """The links of one kind that are not down."""

    kind: str
    links: int
    used: int
    """Number of links that carried bytes."""
    size: int
    mean: float
    """Mean share of the bandwidth that its links used over the run."""
    most: float
    """Share that the busiest used."""
    depth: int
    drops: int
    marks: int
    paused: float
    """Sum over the links, in ns."""

    @property
    def hot_spot(self) -> float | None:
        """Share of the busiest link ÷ mean share: 1 is even; None if no link was used."""
        return self.most / self.mean if self.mean else None


def network_of(timeline: Timeline) -> NetworkUse:
    """Return the recorded use of links.

    Raises:
        InputError: The timeline has none.
    """
    if timeline.network is None:
        model = timeline.info.get("network_model", "unknown")
        raise InputError(
            f"the result has no links: its network model is '{model}', expected one that simulates links, "
            "e.g. --network-model congestion"
        )
    return timeline.network


def link_name(topology: Topology, link: int) -> str:
    """Return the name of a link, with a number if several links join the same nodes."""
    # Parallel links are consecutive: the offset from the first is the number.
    first = int(topology.between(topology.tail[link], topology.head[link]))
    return topology.link_name(link) + (f" ({link - first + 1})" if link > first else "")


def busiest(network: NetworkUse, limit: int | None = None) -> list[int]:
    """Return the links that carried bytes, the largest used share of bandwidth first."""
    # By share; of equal shares the link that carried more.
    order = np.lexsort((-network.use.size, -network.mean))
    found: list[int] = order[network.use.size[order] > 0][:limit].tolist()
    return found


def link_rows(network: NetworkUse, links: Sequence[int]) -> list[LinkRow]:
    """Return rows about links, given by number."""
    top, use = network.topology, network.use
    return [
        LinkRow(
            link, link_name(top, link), top.node_name(int(top.tail[link])), top.node_name(int(top.head[link])),
            top.kinds[top.kind[link]], int(use.size[link]), int(use.busy[link]) / PS, float(network.mean[link]),
            float(network.peak[link]), int(use.depth[link]), int(use.drops[link]), int(use.marks[link]),
            int(use.paused[link]) / PS,
        )
        for link in links
    ]  # fmt: skip


def kind_rows(network: NetworkUse) -> list[KindRow]:
    """Return a row for each kind of links, in the order of the topology."""
    top, use, rows = network.topology, network.use, []
    for number, kind in enumerate(top.kinds):
        # Links that are down have bandwidth 0 and would lower the mean.
        of = np.flatnonzero((top.kind == number) & (top.bandwidth > 0))
        if len(of):
            rows.append(
                KindRow(
                    kind, len(of), int((use.size[of] > 0).sum()), int(use.size[of].sum()),
                    float(network.mean[of].mean()), float(network.mean[of].max()), int(use.depth[of].max()),
                    int(use.drops[of].sum()), int(use.marks[of].sum()), int(use.paused[of].sum()) / PS,
                )
            )  # fmt: skip
    return rows


def hot_spot_line(network: NetworkUse) -> str:
    """Return "Busiest link leaf 0 → npu 3: 93.2 % of its bandwidth over the run, 4.1 x the mean of leaf-npu"."""
    found = busiest(network, 1)
    if not found:
        return "No link carried anything"
    (row,) = link_rows(network, found)
    text = f"Busiest link {row.name}: {100 * row.mean:.1f} % of its bandwidth over the run"
    factor = next((kind.hot_spot for kind in kind_rows(network) if kind.kind == row.kind), None)
    text += f", {factor:.1f} x the mean of {row.kind}" if factor else ""
    return text + (f"; up to {format_bytes(row.depth)} waited for it" if row.depth else "")


def links_json(network: NetworkUse) -> dict[str, Any]:
    """Return kinds and the busiest `LINKS_IN_JSON` links as plain values; units as in the JSON report."""
    shown = busiest(network, LINKS_IN_JSON)
    return {
        "topology": network.topology.name,
        "links_count": network.topology.links,
        "used_links_count": int((network.use.size > 0).sum()),
        "end_ns": network.end / PS,
        "bin_ns": network.use.bin / PS,
        "kinds": [
            {
                "kind": row.kind,
                "links_count": row.links,
                "used_links_count": row.used,
                "mean_utilisation_ratio": row.mean,
                "highest_mean_utilisation_ratio": row.most,
                "hot_spot_ratio": row.hot_spot,
                **_amounts(row),
            }
            for row in kind_rows(network)
        ],
        "busiest_links": [
            {
                "link": row.link,
                "name": row.name,
                "from": row.tail,
                "to": row.head,
                "kind": row.kind,
                "busy_ns": row.busy,
                "mean_utilisation_ratio": row.mean,
                "peak_utilisation_ratio": row.peak,
                **_amounts(row),
            }
            for row in link_rows(network, shown)
        ],
    }


def write_links_csv(network: NetworkUse, path: str | os.PathLike[str]) -> None:
    """Write a line for each link, grouped by node.

    Raises:
        InputError: The file cannot be written.
    """
    top = network.topology
    header = (
        "link", "from", "to", "kind", "bandwidth_bytes_per_ns", "latency_ns", "carried_bytes", "busy_ns",
        "mean_utilisation_ratio", "peak_utilisation_ratio", "deepest_queue_bytes", "dropped_packets_count",
        "marked_packets_count", "paused_ns",
    )  # fmt: skip
    rows = (
        (
            row.link, row.tail, row.head, row.kind, float(top.bandwidth[row.link]), float(top.latency[row.link]),
            row.size, row.busy, f"{row.mean:.6f}", f"{row.peak:.6f}", row.depth, row.drops, row.marks, row.paused,
        )
        for row in link_rows(network, range(top.links))
    )  # fmt: skip
    write_text(path, csv_text(header, rows))


def _amounts(row: LinkRow | KindRow) -> dict[str, int | float]:
    return {
        "carried_bytes": row.size,
        "deepest_queue_bytes": row.depth,
        "dropped_packets_count": row.drops,
        "marked_packets_count": row.marks,
        "paused_ns": row.paused,
    }
