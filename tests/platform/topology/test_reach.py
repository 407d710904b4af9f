from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.platform.files.topology import edges
from armillary.platform.topology import distances, layout
from armillary.platform.topology.graph import Topology


@st.composite
def graphs(draw: st.DrawFn) -> Topology:
    names = [f"npu {i}" for i in range(draw(st.integers(1, 5)))] + [
        f"s {i}" for i in range(draw(st.integers(1, 5)))
    ]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    ways = [(name, "s 0") for name in names if name != "s 0"]
    links = [*ways, *draw(st.lists(pairs, max_size=12))]
    one_way = draw(st.booleans())
    both = links if one_way else [*links, *((head, tail) for tail, head in links)]
    return edges("g", [(tail, head, 1.0, 1.0, 1, "link") for tail, head in both], forward=draw(st.booleans()))


@given(graphs(), st.data())
def test_to_the_nearest_of_several(topology: Topology, data: st.DataObject) -> None:
    ends = data.draw(st.sets(st.integers(0, topology.nodes - 1), min_size=1))
    each = np.array([distances(topology, end) for end in ends])
    each = np.where(each < 0, topology.nodes, each).min(axis=0)
    found = distances(topology, np.array(sorted(ends)))
    # A way to one of them may lead through another that does not forward, but then that one is nearer.
    assert found.tolist() == np.where(each == topology.nodes, -1, each).tolist()


def test_a_picture_searches_once_however_many_npus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(topology: Topology, destination: object) -> object:
        calls.append(destination)
        return distances(topology, destination)  # type: ignore[arg-type]

    monkeypatch.setattr(layout, "distances", counted)
    star = edges("star", [(f"npu {i}", "hub", 1.0, 1.0, 1, "link") for i in range(300)])
    assert layout.draw(star)[0].marks and len(calls) == 1
    assert star.node("npu 299") == 299 and star.node("hub") == 300
