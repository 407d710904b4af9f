"""The graph of a platform file or preset: read, as a table, as plain values, as a picture."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_bandwidth, format_bytes, format_count, format_time
from armillary.platform.topology.failures import Failure, stages
from armillary.platform.topology.graph import UNBOUNDED
from armillary.platform.topology.network import Network
from armillary.platform.topology.reach import check_connected

if TYPE_CHECKING:
    from rich.console import Group

# The check is one graph search per NPU, for every stage of failures.
_CHECKED = 1024
"""NPUs up to which a table says whether all reach each other."""


def describe(network: Network) -> dict[str, Any]:
    """Return a graph as plain values, ready for JSON."""
    topology = network.topology
    return {
        "name": topology.name,
        "npus": topology.npus,
        # The first tier are the NPUs.
        "switches": {tier.name: tier.count for tier in topology.tiers[1:] if tier.count},
        "links": [
            # Distinct values, not one per link: a graph may have millions.
            {"kind": kind, "count": int(of.sum())}
            | {
                key: sorted(set((values[of] * scale).tolist()))
                for key, values, scale in (
                    ("bandwidth_bytes_per_s", topology.bandwidth, 1e9),
                    ("latency_ns", topology.latency, 1),
                )
            }
            for number, kind in enumerate(topology.kinds)
            if (of := topology.kind == number).any()
        ],
        "routing": network.routing,
        "planes": topology.planes,
        "seed": network.seed,
        "failures": [vars(failure) for failure in network.failures],
        "assumed": list(network.assumed),
    }


def table(network: Network) -> Group:
    """Return a graph as a rich table: sorts of nodes, kinds of links, routing and failures."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    topology = network.topology
    nodes = Table(title=topology.name, title_justify="left", box=None)
    nodes.add_column("nodes")
    nodes.add_column("count", justify="right")
    for tier in topology.tiers:
        if tier.count:
            nodes.add_row(tier.name, format_count(tier.count))
    links = Table(box=None)
    for column in ("links", "count", "bandwidth", "latency", "buffer"):
        links.add_column(column, justify="left" if column == "links" else "right")
    for number, kind in enumerate(topology.kinds):
        of = topology.kind == number
        # The smallest: where buffers differ, it is the one that fills first.
        room = int(topology.buffer[of].min())
        links.add_row(
            kind,
            format_count(int(of.sum())),
            _span(topology.bandwidth[of], format_bandwidth),
            _span(topology.latency[of], format_time),
            "unlimited" if room == UNBOUNDED else format_bytes(room),
        )
    rest = Table(box=None, show_header=False)
    rest.add_row("routing", network.routing + (f", seed {network.seed}" if network.seed else ""))
    if topology.planes > 1:
        rest.add_row("planes", f"{topology.planes}, over which messages are spread")
    for failure in network.failures:
        rest.add_row("failure", failure_text(failure))
    # Larger machines would make `machine show` wait for a search per NPU.
    if topology.npus <= _CHECKED:
        rest.add_row("reachable", _reachable(network))
    for text in network.assumed:
        rest.add_row("assumed", Text(text))
    return Group(nodes, "", links, "", rest)


def _reachable(network: Network) -> str:
    """Return whether all NPUs reach each other, at every time."""
    for time, topology in stages(network.topology, network.failures):
        # Routing 'rail' passes through NPUs, which the graph itself does not let forward.
        if network.routing == "rail":
            topology = dataclasses.replace(topology, forwards=np.ones(topology.nodes, np.bool_))
        try:
            # The table's title names the source already.
            check_connected(dataclasses.replace(topology, source=""))
        except InputError as error:
            return (f"from {format_time(time)}: " if time else "") + str(error)
    return "every NPU from every other"


def failure_text(failure: Failure) -> str:
    """Return a failure in words."""
    way = " → " if failure.one_way else " ↔ "
    what = str(failure.node) if failure.link is None else way.join(map(str, failure.link))
    how = "down" if failure.bandwidth == 0 else f"{100 * failure.bandwidth:g} % of the bandwidth"
    if failure.latency:
        how += f", {format_time(failure.latency)} more"
    when = f" from {format_time(failure.at)}" if failure.at else ""
    return f"{what}: {how}{when}" + (f" to {format_time(failure.until)}" if failure.until is not None else "")


def _span(values: Any, write: Any) -> str:
    ends = dict.fromkeys(write(float(value)) for value in (np.min(values), np.max(values)))
    return " to ".join(ends)
