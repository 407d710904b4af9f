"""What no schedule that adds and copies at NPUs can beat on a network."""

from __future__ import annotations

import numpy as np

from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.spread import levels_of, regions_of
from armillary.platform.topology.graph import Ints


def lower_bound(edges: Edges, operation: str, size: int) -> float:
    """Return a lower bound in ns on an operation of `size` bytes (`SynthesizedSchedule.size`).

    What must come into NPUs, and into the regions that faster edges join, over the bandwidth of links by which it can.
    Of g parts of a network, each needs in an all-gather what the others have. An all-reduce moves 2 (g - 1) size bytes
    between them in all (each result needs all parts; Patarasuk and Yuan, JPDC 2009, section 3, for single NPUs).
    """
    found = [0.0]
    # A reduce-scatter is an all-gather on reversed edges: what must leave there must come in here.
    if operation == "reduce-scatter":
        edges = edges.reversed(edges.after)
    rows, _ = regions_of(edges, levels_of(edges.cost))
    for row in rows:
        # Regions are numbered over all levels: from 0 within this one.
        part = row - row.min()
        count = int(part.max()) + 1
        if count < 2:
            continue
        into, latency = _ways_in(edges, part, count)
        if operation == "all-reduce":
            # All sums of the parts together, and each part alone.
            found += [
                float(2 * (count - 1) * size / into.sum()) + latency,
                float(np.max(size / into)) + latency,
            ]
        else:
            share = np.bincount(part, minlength=count) / edges.n
            found.append(float(np.max((1 - share) * size / into)) + latency)
    return max(found)


def _ways_in(edges: Edges, part: Ints, count: int) -> tuple[Ints, float]:
    """Return (parts) the bandwidth of links into each, bytes/ns, and the least latency of a path into one, ns."""
    crosses = part[edges.source] != part[edges.target]
    last = edges.paths.link[edges.paths.first[1:] - 1][crosses]
    # Paths that end in the same link share its bandwidth: each link counts once.
    links, at = np.unique(last, return_index=True)
    into = np.bincount(part[edges.target[crosses][at]], edges.topology.bandwidth[links], count)
    delays = np.add.reduceat(edges.latency[edges.paths.link], edges.paths.first[:-1])
    return into, float(delays[crosses].min()) / 1000
