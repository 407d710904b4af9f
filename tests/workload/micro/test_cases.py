"""What a sweep holds, and that its traces are sound."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import CollectiveType
from armillary.trace.check_ranks import check_trace
from armillary.trace.trace import read_groups
from armillary.workload.micro import COLLECTIVES, ELEMENTS, PATTERNS, Case, sizes, sweep
from armillary.workload.micro.collectives import group_sizes
from armillary.workload.micro.messages import busiest


def test_the_sizes_of_nccl_tests():
    """8 B to 1 GiB by 2, as in the README of nccl-tests: 28 sizes."""
    found = sizes(8, 1 << 30)
    assert (found[0], found[-1], len(found)) == (8, 1 << 30, 28)
    assert sizes(100, 5000, 7) == [100, 700, 4900]


@pytest.mark.parametrize(
    ("ends", "text"), [((0, 8), "from 0 B"), ((9, 8), "from 9 B to 8 B"), ((1, 8, 1), "factor 1")]
)
def test_sizes_that_do_not_grow(ends, text):
    with pytest.raises(InputError, match=text):
        sizes(*ends)


@given(st.integers(2, 5000))
def test_group_sizes_are_the_divisors(npus):
    assert group_sizes(npus) == [size for size in range(2, npus + 1) if npus % size == 0]


@pytest.mark.parametrize(
    ("test", "comm_size", "count"),
    [("all-reduce", 1000, 250), ("broadcast", 1000, 250), ("all-gather", 124, 31), ("all-to-all", 992, 31),
     ("reduce-scatter", 992, 31), ("gather", 992, 31), ("ring", 1000, 250)],
)  # fmt: skip
def test_sizes_are_whole_elements(test, comm_size, count):
    """1003 B over 8 ranks: 250 floats, or 31 for each."""
    (case,) = sweep([test], 8, [1003])
    assert (case.comm_size, case.count) == (comm_size, count)


def test_what_is_left_out():
    found = sweep(["all-gather", "all-reduce", "barrier"], 16, [8, 60, 64, 66, 127], [4, 16], "int32")
    assert [(case.test, case.members, case.size) for case in found] == [
        *(("all-gather", 4, size) for size in (48, 64, 112)), ("all-gather", 16, 64),
        *(("all-reduce", n, size) for n in (4, 16) for size in (8, 60, 64, 124)),
        ("barrier", 4, 0), ("barrier", 16, 0),
    ]  # fmt: skip
    assert len({case.name for case in found}) == len(found)


@pytest.mark.parametrize("members", [2, 3, 6, 12])
@pytest.mark.parametrize("test", [*COLLECTIVES, *PATTERNS])
def test_nothing_is_wrong_with_the_traces(test, members):
    (case,) = sweep([test], 12, [4096 * 3], [members])
    trace = case.trace()
    assert trace.n_ranks == 12 and check_trace(trace).all == []


@pytest.mark.parametrize("compute_ns", [0, 1, 2_500])
def test_a_group_shares_a_graph_and_knows_no_other(compute_ns):
    trace = Case("all-gather", 12, 4, 4800, compute_ns=compute_ns).trace()
    assert len(trace.graphs) == 3 and trace.rank_graph.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    groups = read_groups(trace)[0]
    assert {n: ranks.tolist() for n, ranks in groups.items() if n} == {
        1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9, 10, 11]
    }  # fmt: skip
    for graph in trace.graphs:
        assert (
            graph.ints("comm_size")[-1] == 1200 and graph.ints("comm_type")[-1] == CollectiveType.ALL_GATHER
        )
        assert graph.n_nodes == 2 + (compute_ns > 0)
        assert graph.ints("duration_ns", 0).max() == compute_ns
        assert graph.duration_micros.max() == {0: 0, 1: 1, 2_500: 2}[compute_ns]
    assert len(Case("all-reduce", 12, 12, 48).trace().graphs) == 1


@pytest.mark.parametrize("test", PATTERNS)
@given(members=st.integers(2, 9), groups=st.integers(1, 3))
def test_messages_stay_in_their_group_and_meet(test, members, groups):
    trace = Case(test, members * groups, members, 64).trace()
    sent, received = Counter(), Counter()
    for rank in range(trace.n_ranks):
        graph = trace.graph(rank)
        sent += Counter((rank, peer) for peer in graph.ints("comm_dst", -1)[graph.has("comm_dst")].tolist())
        received += Counter(
            (peer, rank) for peer in graph.ints("comm_src", -1)[graph.has("comm_src")].tolist()
        )
    assert sent == received and sent
    assert all(one // members == other // members and one != other for one, other in sent)
    ends = [Counter(pair[end] for pair in sent.elements()) for end in (0, 1)]
    assert max(max(counted.values()) for counted in ends) == busiest(test, members)


def test_the_patterns_by_hand():
    def pairs(test):
        return sorted(PATTERNS[test](4))

    assert pairs("ping-pong") == pairs("bidirectional") == [(0, 3), (3, 0)]
    assert pairs("unidirectional") == [(0, 3)]
    assert pairs("ring") == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert pairs("bisection") == [(0, 2), (1, 3)]
    assert pairs("bisection-bidirectional") == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert pairs("incast") == [(1, 0), (2, 0), (3, 0)]
    assert pairs("outcast") == [(0, 1), (0, 2), (0, 3)]
    assert pairs("all-pairs") == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert pairs("ring-bidirectional") == sorted([*pairs("ring"), *((b, a) for a, b in pairs("ring"))])


def test_like_ranks_of_a_pattern_share_a_graph():
    assert len(Case("incast", 1000, 1000, 8).trace().graphs) == 2
    assert len(Case("unidirectional", 1000, 1000, 8).trace().graphs) == 3


def test_only_the_pong_waits():
    for test in PATTERNS:
        trace = Case(test, 6, 6, 8).trace()
        waiting = [rank for rank in range(6) if np.diff(trace.graph(rank).parents()[0]).any()]
        assert waiting == ([5] if test == "ping-pong" else [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((["all-reduc"], 8, [8]), "test 'all-reduc'.*did you mean 'all-reduce'"),
        ((["ring"], 8, [8], None, "float31"), "type 'float31'.*did you mean 'float32'"),
        ((["ring"], 64, [8], [7]), "groups of 7 ranks on 64 NPUs.*nearest: 8"),
        ((["ring"], 64, [8], [1]), "groups of 1 ranks.*nearest: 2"),
        ((["ring"], 1, [8]), "1 NPUs"),
        ((["all-gather"], 64, [8]), "no size is large enough"),
    ],
)
def test_impossible_sweeps(arguments, text):
    with pytest.raises(InputError, match=text):
        sweep(*arguments)


def test_too_many_messages():
    with pytest.raises(InputError, match=r"all-pairs in groups of 4096.*smaller groups"):
        Case("all-pairs", 4096, 4096, 8).trace()


def test_types_have_sizes():
    assert all(ELEMENTS[name] * 8 == int("".join(filter(str.isdigit, name))) for name in ELEMENTS)
