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
from armillary.serving.replica import Engine, serve_replica
from armillary.serving.requests import Ints, Requests
from armillary.serving.router import least_loaded
from armillary.serving.service import share_of

from .conftest import engines, loads, table

NAMES = ("begun", "first", "last", "preempted", "hit", "again", "interfered", "stalled", "steps")


def share(requests: Requests, mine: list[int]) -> Requests:
    return share_of(requests, np.array(mine, np.int64), 1, 0)


def chosen(requests: Requests, replicas: int, engine: Engine) -> list[int]:
    """Return the replica of each request: at each arrival, all that a replica has is served anew."""
    found: list[list[int]] = [[] for _ in range(replicas)]
    last, picks = -1, []
    for r, now in enumerate(requests.arrival.tolist()):
        waiting = [0] * replicas
        for k, mine in enumerate(found):
            if mine:
                done = serve_replica(share(requests, mine), engine, table(), "interpreted").last
                waiting[k] = int((done > now).sum())
        last = min(range(replicas), key=lambda k: (waiting[k], (k - last - 1) % replicas))
        found[last].append(r)
        picks.append(last)
    return picks


@settings(max_examples=60)
@given(st.data())
def test_it_is_the_reference_and_each_replica_by_itself(data: st.DataObject) -> None:
    requests = data.draw(loads(10))
    if requests.clients:
        requests = replace(requests, clients=0, arrival=np.zeros(len(requests), np.int64))
    engine = data.draw(engines(requests, c.RULES))
    if data.draw(st.booleans()):
        engine = replace(engine, ranks=2, balance=data.draw(st.sampled_from((0, 3))))
    replicas = data.draw(st.integers(1, 4))
    served, shares = least_loaded(requests, replicas, engine, table(), "interpreted")
    picks: Ints = np.full(len(requests), -1)
    for number, mine in enumerate(shares):
        picks[mine] = number
    # Those without any are not among them.
    wanted = chosen(requests, replicas, engine)
    used = sorted({*wanted})
    assert [used[each] for each in picks] == wanted
    for fast, mine in zip(served, shares, strict=True):
        slow = serve_replica(share(requests, mine.tolist()), engine, table(), "interpreted")
        for name in NAMES:
            assert getattr(fast, name).tolist() == getattr(slow, name).tolist(), name
        assert fast.most_blocks == slow.most_blocks
        assert fast.requests.arrival.tolist() == requests.arrival[mine].tolist()


@pytest.mark.slow
def test_compiled_and_interpreted_are_equal() -> None:
    random = np.random.RandomState(5)
    n = 60
    requests = Requests(np.cumsum(random.randint(0, 3000, n)), *random.randint(1, 40, (2, n)))
    engine = Engine(32, 16, 4, 40)
    one, other = (least_loaded(requests, 3, engine, table(), mode) for mode in ("interpreted", "compiled"))  # type: ignore[arg-type]
    assert [each.tolist() for each in one[1]] == [each.tolist() for each in other[1]]
    assert [each.last.tolist() for each in one[0]] == [each.last.tolist() for each in other[0]]


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
        (LOAD, "least-load", "router least-load: expected one of round-robin, least-loaded"),
        (
            "closed:clients=2,requests=4,input=8,output=2",
            "least-loaded",
            "stay with a replica, expected an open load",
        ),
    ):
        with pytest.raises(InputError, match=words):
            armillary.serve("llama-3.1-8b", "4xh100", load, tp=1, router=router)
