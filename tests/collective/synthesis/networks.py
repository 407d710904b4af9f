"""Small networks to synthesise collectives for."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from armillary.platform.network import Dimension
from armillary.platform.topology import Topology, from_dimensions, leaf_spine
from armillary.platform.topology.wiring import Wiring


@st.composite
def dimensions(draw: st.DrawFn, mesh: bool = True) -> Topology:
    """One or two dimensions of 2 to 4 NPUs, with bandwidths and latencies that differ."""
    kinds = ["Ring", "FullyConnected", "Switch", "Torus"] + ["Mesh"] * mesh
    parts = [
        Dimension(
            f"d{i}",
            draw(st.sampled_from(kinds)),  # type: ignore[arg-type]
            draw(st.integers(2, 4)),
            draw(st.sampled_from([1.0, 10.0, 12.5, 40.0])),
            draw(st.sampled_from([0.0, 20.0, 500.0])),
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    return from_dimensions(parts)


@st.composite
def graphs(draw: st.DrawFn) -> Topology:
    """A ring in one direction, so that all reach each other, and more links at random, one way each."""
    n = draw(st.integers(2, 7))
    wiring = Wiring("random", n)
    nodes = np.arange(n)
    rate, latency = st.sampled_from([1.0, 8.0, 10.0]), st.sampled_from([0.0, 30.0, 300.0])
    wiring.connect(nodes, (nodes + 1) % n, "ring", draw(rate), draw(latency), one_way=True)
    pairs = [(a, b) for a in range(n) for b in range(n) if b not in (a, (a + 1) % n)]
    for a, b in draw(st.lists(st.sampled_from(pairs), max_size=6, unique=True)) if pairs else []:
        wiring.connect([a], [b], "more", draw(rate), draw(latency), one_way=True)
    return wiring.topology(forwards=True)


def fabric() -> Topology:
    """8 NPUs behind two leaves and two spines."""
    return leaf_spine(leaves=2, spines=2, npus_per_leaf=4, bandwidth=25.0, latency=300.0)


networks = st.one_of(dimensions(), graphs(), st.builds(fabric))
