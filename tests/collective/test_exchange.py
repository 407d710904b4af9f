"""Exchanges of tokens: each schedule delivers what was chosen, and none beats the bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.collective.exchange import SCHEDULES, Routing, balanced, counted, drawn, least_time
from armillary.explore.exchange import exchange, read_routing
from armillary.platform import load_platform


@st.composite
def routings(draw: st.DrawFn) -> tuple[Routing, int]:
    node = draw(st.integers(1, 4))
    ranks = node * draw(st.integers(1, 4))
    if ranks < 2:
        ranks, node = 2, 1
    experts = ranks * draw(st.integers(1, 3))
    tokens = draw(st.integers(1, 12))
    row = st.lists(st.integers(-1, experts - 1), min_size=3, max_size=3)
    return (
        Routing(
            ranks,
            experts,
            np.array(draw(st.lists(st.integers(0, ranks - 1), min_size=tokens, max_size=tokens)), np.int64),
            np.array(draw(st.lists(row, min_size=tokens, max_size=tokens)), np.int64),
            np.array(draw(st.lists(st.integers(1, 3), min_size=tokens, max_size=tokens)), np.int64),
        ),
        node,
    )


def by_hand(routing: Routing, node: int, name: str) -> list[Any]:
    """Send every token on its own, step by step."""
    steps: list[Counter[tuple[int, int]]] = [
        Counter() for _ in range({"direct": 1, "two-level": 2, "balanced": 3}[name])
    ]
    per = routing.experts // routing.ranks
    queue: Counter[tuple[int, int]] = Counter()
    total: Counter[tuple[int, int]] = Counter()
    wants = []
    for source, chosen, count in zip(
        routing.source.tolist(), routing.chosen.tolist(), routing.count.tolist(), strict=True
    ):
        targets = sorted({expert // per for expert in chosen if expert >= 0})
        wants.append((source, targets, count))
        for there in {target // node for target in targets}:
            total[source // node, there] += count
    # The queue of a pair of nodes is in order of the ranks that have the tokens.
    rails = {}
    for number in sorted(range(len(wants)), key=lambda i: wants[i][0]):
        source, targets, count = wants[number]
        for there in {target // node for target in targets}:
            pair = source // node, there
            inside = pair[0] == pair[1]
            rails[number, there] = source % node if inside else queue[pair] * node // max(1, total[pair])
            queue[pair] += count
    for number, (source, targets, count) in enumerate(wants):
        if name == "direct":
            for target in targets:
                steps[0][source, target] += count
            continue
        for there in {target // node for target in targets}:
            rail = source % node if name == "two-level" else rails[number, there]
            out, into = source // node * node + rail, there * node + rail
            hops = [(source, into)] if name == "two-level" else [(source, out), (out, into)]
            for step, hop in zip(steps, hops, strict=False):
                step[hop] += count
            for target in targets:
                if target // node == there:
                    steps[-1][into, target] += count
    tables = []
    for step in steps:
        table = np.zeros((routing.ranks, routing.ranks), np.int64)
        for (a, b), count in step.items():
            table[a, b] += count if a != b else 0
        tables.append(table)
    return tables


@settings(max_examples=50, deadline=None)
@given(routings())
def test_schedules_send_what_each_token_alone_would(case: tuple[Routing, int]) -> None:
    routing, node = case
    for name, schedule in SCHEDULES.items():
        made = schedule(routing, node)
        for step, expected in zip(made, by_hand(routing, node, name), strict=True):
            assert step.tolist() == expected.tolist(), name


@settings(max_examples=30, deadline=None)
@given(routings(), st.integers(1, 9000))
def test_no_schedule_moves_less_than_the_bound_counts(case: tuple[Routing, int], size: int) -> None:
    """With 1 byte per ns within nodes and out of them, each rank and node is busy at least as long."""
    routing, node = case
    least, _ = least_time(routing, node, 1.0, 1.0, size)
    nodes = np.arange(routing.ranks) // node
    far = nodes[:, None] != nodes
    for schedule in SCHEDULES.values():
        moved = np.sum(schedule(routing, node), axis=0) * size
        busy = [moved.sum(0).max() / 2, moved.sum(1).max() / 2]
        for axis in (0, 1):
            of_ranks = (moved * far).sum(axis)
            busy.append(max(of_ranks[nodes == n].sum() / node for n in np.unique(nodes)))
        assert max(busy) >= least * (1 - 1e-9)


def test_balancing_evens_out_nics_where_ranks_have_unequal_tokens() -> None:
    """A rank of a node of 4 has all tokens, for one rank: its NIC carries all in two-level, a quarter in balanced."""
    routing = Routing(8, 8, np.zeros(400, np.int64), np.full((400, 1), 4), np.ones(400, np.int64))
    assert SCHEDULES["two-level"](routing, 4)[0].sum(1).tolist() == [400, *[0] * 7]
    assert balanced(routing, 4)[1].sum(1).tolist() == [100, 100, 100, 100, 0, 0, 0, 0]
    machine = {
        "network": [
            {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "400 GB/s", "latency": "0 ns"},
            {"name": "fabric", "topology": "Switch", "size": 2, "bandwidth": "50 GB/s", "latency": "0 ns"},
        ],
        "npu": {"memory": {"bandwidth": "1 TB/s"}},
    }
    found = exchange(load_platform(machine), routing, 7168, 4)
    times = {each.name: each.time for each in found.schedules}
    # 400 tokens over one NIC, or over four.
    assert times["direct"] == times["two-level"] == pytest.approx(400 * 7168 / 50, rel=0.01)
    assert found.bound == pytest.approx(100 * 7168 / 50)
    assert found.bound <= times["balanced"] < 1.6 * found.bound < times["two-level"]


def test_draws_are_without_repeats_and_follow_the_law() -> None:
    routing = drawn(4, 16, 500, 3, 1.0, seed=3)
    assert all(len(set(row)) == 3 for row in routing.chosen.tolist())
    often = np.sort(np.bincount(routing.chosen.ravel(), minlength=16))[::-1]
    assert often[0] > 4 * often[-1]
    even = np.bincount(drawn(4, 16, 500, 3, 0.0).chosen.ravel(), minlength=16)
    assert even.max() < 1.3 * even.min()
    with pytest.raises(InputError, match="17 of 16 experts"):
        drawn(4, 16, 500, 17, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=4, max_size=12), st.integers(1, 30), st.integers(1, 4))
def test_choices_fall_on_experts_as_counted(counts: list[int], tokens: int, choices: int) -> None:
    counts = [1 + counts[0], *counts[1:], *([0] * (len(counts) % 2))]
    if max(counts) * choices > sum(counts):
        with pytest.raises(InputError, match="of the choices, expected at most"):
            counted(2, tokens, choices, counts, 3)
        return
    routing = counted(2, tokens, choices, counts, 3)
    for rank in range(2):
        chosen = routing.chosen[routing.source == rank]
        assert all(len(set(each)) == choices for each in chosen.tolist())
        often = np.bincount(chosen.ravel(), minlength=len(counts))
        assert (np.abs(often - np.array(counts) / sum(counts) * tokens * choices) < 1).all()


def test_a_file_of_choices(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("rank,experts,count\n0,0 5,2\n3,7,1\n")
    routing = read_routing(path, 4, 8)
    assert routing.tokens == 3 and routing.chosen.tolist() == [[0, 5], [7, -1]]
    for text, told in (
        ("rank\n0\n", "got columns rank, expected rank, experts"),
        (
            "rank,experts\n0,1 x\n",
            "tokens.csv:2: got rank '0', experts '1 x' and count '1', expected whole numbers",
        ),
        ("rank,experts\n4,1\n", "tokens.csv:2: got rank 4 and expert 1, expected ranks below 4"),
        ("rank,experts,count\n0,1,0\n", "got count 0, expected 1 or more"),
        ("rank,experts\n", "has 0 tokens"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=told):
            read_routing(path, 4, 8)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            [
                "collective",
                "exchange",
                "2xdgx-h100",
                "--experts",
                "16",
                "--choices",
                "2",
                "--tokens",
                "4",
                "--chunks",
                "1",
            ]
        )
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("64 tokens of 7 KiB on 16 NPUs in nodes of 8; lower bound")
    assert [line.split()[0] for line in lines[2:5]] == list(SCHEDULES)
