"""A router that looks at the replicas: its choices are those of a plain reference, and each replica is served alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.serving import columns as c
from armillary.serving.fleet import routed
from armillary.serving.load import load_requests
from armillary.serving.outcome import joined
from armillary.serving.replica import Engine, serve_replica
from armillary.serving.requests import Ints, Requests
from armillary.serving.router import shares

from .conftest import engines, loads, sessions, table
from .reference import Reference
from .reference_parts import Request, text_of
from .reference_rules import RULES
from .test_replica import price

NAMES = ("begun", "first", "last", "preempted", "hit", "again", "interfered", "stalled", "steps")


def chosen(requests: Requests, replicas: int, engine: Engine, router: str) -> tuple[list[int], list[int]]:
    """Return the replica of each request, and when it came: at each arrival, all that replicas have is served anew.

    What comes later changes nothing before it, so the next arrival follows from what is there.
    """
    found: list[list[int]] = [[] for _ in range(replicas)]
    arrival, picks = requests.arrival.copy(), [-1] * len(requests)
    last = -1

    def mine(k: int) -> Requests:
        own = found[k]
        shared = requests.shared and tuple(requests.shared[r] for r in own)
        return replace(
            requests, arrival=arrival[own], prompt=requests.prompt[own], output=requests.output[own], shared=shared,
            follows=None,
        )  # fmt: skip

    for _ in range(len(requests)):
        ends = {}
        for k, own in enumerate(found):
            if own:
                done = serve_replica(mine(k), engine, table(), "interpreted")
                ends |= dict(zip(own, done.last.tolist(), strict=True))
        coming = []
        for r in range(len(requests)):
            former = requests.follows.of(r).tolist() if requests.follows else []
            if picks[r] < 0 and all(each in ends for each in former):
                at = (
                    max(ends[each] for each in former) + int(requests.follows.delay[r])
                    if former
                    else int(arrival[r])
                )
                coming.append((at, r))
        now, r = min(coming)
        waiting = [sum(ends[each] > now for each in own) for own in found]
        turn = [(k - last - 1) % replicas for k in range(replicas)]
        last = min(range(replicas), key=lambda k: (waiting[k] if router == "least-loaded" else 0, turn[k]))
        found[last].append(r)
        arrival[r], picks[r] = now, last
    return picks, arrival.tolist()


@pytest.mark.parametrize("router", ["round-robin", "least-loaded"])
@settings(max_examples=40)
@given(st.data())
def test_it_is_the_reference_and_each_replica_by_itself(router: str, data: st.DataObject) -> None:
    requests = data.draw(loads(10) | sessions(8))
    if requests.clients:
        requests = replace(requests, clients=0, arrival=np.zeros(len(requests), np.int64))
    engine = data.draw(engines(requests, c.RULES))
    if requests.follows:
        # What a request finds in a replica's cache depends on the whole load: here nothing does.
        requests = replace(requests, follows=replace(requests.follows, reused=0 * requests.follows.reused))
    if data.draw(st.booleans()):
        engine = replace(engine, ranks=2, balance=data.draw(st.sampled_from((0, 3))))
    replicas = data.draw(st.integers(1, 4))
    served, parts = routed(requests, replicas, engine, table(), router, "interpreted")
    picks: Ints = np.full(len(requests), -1)
    for number, mine in enumerate(parts):
        picks[mine] = number
    # Those without any are not among them.
    wanted, arrival = chosen(requests, replicas, engine, router)
    used = sorted({*wanted})
    assert [used[each] for each in picks] == wanted
    for fast, mine in zip(served, parts, strict=True):
        assert fast.requests.arrival.tolist() == [arrival[r] for r in mine]
        alone = replace(fast.requests, shared=requests.shared and tuple(requests.shared[r] for r in mine))
        slow = serve_replica(alone, engine, table(), "interpreted")
        for name in NAMES:
            assert getattr(fast, name).tolist() == getattr(slow, name).tolist(), name
        assert fast.most_blocks == slow.most_blocks


@settings(max_examples=40)
@given(st.data())
def test_one_replica_of_a_fleet_is_the_loop_that_knows_who_follows(data: st.DataObject) -> None:
    requests = data.draw(sessions())
    engine = data.draw(engines(requests, c.RULES))
    router = data.draw(st.sampled_from(("round-robin", "least-loaded", "prefix")))
    (fast,), (mine,) = routed(requests, 1, engine, table(), router, "interpreted")
    slow = serve_replica(requests, engine, table(), "interpreted")
    # SGLang's ranks and drafts go by the number of a request, which is here that of its arrival.
    assert fast.steps.tolist() == slow.steps.tolist()
    for name in NAMES[:-1]:
        assert getattr(fast, name).tolist() == getattr(slow, name)[mine].tolist(), name


def sent(requests: Requests, engine: Engine, own: list[tuple[int, int]]) -> Reference:
    """Return a replica that gets requests (number, ns), with the text that they have in the whole load."""
    numbers = [r for r, _ in own]
    load = replace(
        requests, arrival=np.array([ns for _, ns in own], np.int64), prompt=requests.prompt[numbers],
        output=requests.output[numbers], shared=None, follows=None,
    )  # fmt: skip
    found = RULES[engine.rule](load, engine, price)
    for each, r in zip(found.requests, numbers, strict=True):
        each.text = text_of(requests, r)
    return found


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=40)
@given(st.data())
def test_who_has_most_of_a_prompt_is_that_of_the_reference(rule: str, data: st.DataObject) -> None:
    requests = data.draw(sessions(9))
    follows = requests.follows
    assert follows
    engine = replace(
        data.draw(engines(requests, (rule,))), cached=True, block=data.draw(st.sampled_from((1, 2)))
    )
    engine = replace(engine, blocks=int((requests.prompt + requests.output).max()) + 10)
    replicas = data.draw(st.integers(2, 3))
    own: list[list[tuple[int, int]]] = [[] for _ in range(replicas)]
    came: dict[int, int] = {}
    last = -1
    while len(came) < len(requests):
        ends: dict[int, int] = {}
        for mine in own:
            if mine:
                done = sent(requests, engine, mine)
                done.run()
                ends |= {r: each.last for (r, _), each in zip(mine, done.requests, strict=True)}
        coming = []
        for r in set(range(len(requests))) - {*came}:
            former = follows.of(r).tolist()
            if all(each in ends for each in former):
                at = (
                    max(ends[each] for each in former) + int(follows.delay[r])
                    if former
                    else requests.arrival[r]
                )
                coming.append((int(at), r))
        now, r = min(coming)
        whole = Request(r, now, int(requests.prompt[r]), int(requests.output[r]), text_of(requests, r))
        has, many = [], []
        for mine in own:
            there = sent(requests, engine, mine)
            if mine:
                there.run(now)
            has.append(len(there.cache.found(whole, whole.prompt)) * engine.block)
            many.append(sum(ends[each] > now for each, _ in mine))
        order = sorted(range(replicas), key=lambda k: (k - last - 1) % replicas)
        last = min(order, key=lambda k: (-has[k], many[k]))
        if has[last] <= 0.3 * whole.prompt:
            last = min(order, key=lambda k: many[k])
        own[last].append((r, now))
        came[r] = now
    served, parts = routed(requests, replicas, engine, table(), "prefix", "interpreted")
    used = [mine for mine in own if mine]
    assert [mine.tolist() for mine in parts] == [[r for r, _ in mine] for mine in used]
    for fast, mine in zip(served, used, strict=True):
        slow = sent(requests, engine, mine)
        slow.run()
        assert fast.requests.arrival.tolist() == [ns for _, ns in mine]
        for name in ("begun", "first", "last", "preempted", "hit", "again"):
            assert getattr(fast, name).tolist() == [getattr(each, name) for each in slow.requests], name


@settings(max_examples=40)
@given(st.data())
def test_a_session_stays_and_each_replica_is_served_alone(data: st.DataObject) -> None:
    requests, replicas = data.draw(sessions(8)), data.draw(st.integers(1, 3))
    engine = data.draw(engines(requests, c.RULES))
    parts = shares(requests, replicas, "session")
    assert parts is not None and requests.follows
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(requests)))
    assert all(len({*requests.follows.sessions[mine] % replicas}) == 1 for mine in parts)
    found = joined(
        requests,
        [serve_replica(requests.part(mine), engine, table(), "interpreted") for mine in parts],
        parts,
    )
    for r in range(len(requests)):
        former = requests.follows.of(r)
        if len(former):
            assert found.requests.arrival[r] == found.last[former].max() + requests.follows.delay[r]
            assert {*found.replica[former].tolist()} == {int(found.replica[r])}
    assert (sum(found.waits.values()) == found.last - found.requests.arrival).all()


def test_who_finds_its_prompt_goes_there() -> None:
    # Two sessions of two turns, of which each second one comes when the first replica would be next.
    requests = load_requests("sessions:rate=1e6,sessions=3,turns=3,input=20,output=4,think=1s,prefix=4")
    engine = Engine(64, 16, 4, 200)
    prefix, turns = (
        joined(requests, *routed(requests, 2, engine, table(), router, "interpreted"))
        for router in ("prefix", "round-robin")
    )
    assert requests.follows
    for r in range(len(requests)):
        for former in requests.follows.of(r):
            assert prefix.replica[r] == prefix.replica[former]
    assert prefix.hit.sum() > turns.hit.sum()


@pytest.mark.slow
def test_compiled_and_interpreted_are_equal() -> None:
    random = np.random.RandomState(5)
    n = 60
    requests = Requests(np.cumsum(random.randint(0, 3000, n)), *random.randint(1, 40, (2, n)))
    linked = load_requests("sessions:rate=1e5,sessions=20,turns=3,input=1-9,output=1-9,think=0s-10us")
    engine = Engine(32, 16, 4, 40)
    for each, router in ((requests, "least-loaded"), (linked, "round-robin"), (linked, "prefix")):
        one, other = (routed(each, 3, engine, table(), router, mode) for mode in ("interpreted", "compiled"))  # type: ignore[arg-type]
        assert [own.tolist() for own in one[1]] == [own.tolist() for own in other[1]]
        assert [own.last.tolist() for own in one[0]] == [own.last.tolist() for own in other[0]]
    engine = replace(engine, blocks=20, slots=(100, 300), load_ps=(1000, 3000))
    alone, compiled = (serve_replica(linked, engine, table(), mode) for mode in ("interpreted", "compiled"))  # type: ignore[arg-type]
    assert alone.steps.tolist() == compiled.steps.tolist() and alone.loaded.sum() > 0
    assert alone.loaded.tolist() == compiled.loaded.tolist()


LOAD = "poisson:rate=100,requests=8,input=16-200,output=4-20"


def test_long_answers_are_not_all_of_one_replica() -> None:
    # Every second answer is long: in turn one replica would have all of these.
    n = 24
    load = Requests(50_000_000 * np.arange(n), np.full(n, 200), np.where(np.arange(n) % 2, 4, 150))
    turns, least = (
        armillary.serve("llama-3.1-8b", "2xh100", load, tp=1, sequences=2, router=router)
        for router in ("round-robin", "least-loaded")
    )
    assert least.e2e_s.mean < turns.e2e_s.mean and least.output_tokens_per_s > 1.1 * turns.output_tokens_per_s
    assert (sum(least.outcome.waits.values()) == least.outcome.last - least.outcome.requests.arrival).all()
    assert any("fewest" in each for each in least.service.assumptions)
    alone = armillary.serve("llama-3.1-8b", "1xh100", LOAD, router="least-loaded")
    assert any("no effect" in each for each in alone.service.assumptions)
    apart = {"prefill_replicas": 2, "decode_replicas": 2, "router": "least-loaded"}
    assert armillary.serve("llama-3.1-8b", "4xh100", LOAD, **apart).outcome.moved  # type: ignore[arg-type]


def test_what_no_router_is() -> None:
    for load, router, words in (
        (LOAD, "least-load", "router least-load: expected one of round-robin, least-loaded, session, prefix"),
        (
            "closed:clients=2,requests=4,input=8,output=2",
            "least-loaded",
            "stay with a replica, expected an open load",
        ),
    ):
        with pytest.raises(InputError, match=words):
            armillary.serve("llama-3.1-8b", "4xh100", load, tp=1, router=router)
