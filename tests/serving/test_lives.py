"""Replicas that fail, start and stop: equal to a plain reference, and true to what every such fleet keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.serving import columns as c
from armillary.serving import lives
from armillary.serving.changes import Changes, Fail, Scale, changes_of
from armillary.serving.fleet import routed
from armillary.serving.lives import Fleet
from armillary.serving.load import load_requests
from armillary.serving.outcome import Outcome, joined
from armillary.serving.replica import Engine
from armillary.serving.requests import Requests

from .conftest import engines, loads, sessions, table
from .reference import Reference
from .reference_rules import RULES
from .test_replica import price


@dataclass(frozen=True)
class Listed(Fail):
    """Failures after these times, and then none."""

    listed: tuple[tuple[int, ...], ...] = ()

    def times(self, replica: int) -> Iterator[int]:
        yield from self.listed[replica]
        while True:
            yield 10**15


@st.composite
def opens(draw: st.DrawFn) -> Requests:
    """Draw requests without clients."""
    found = draw(loads(6) | sessions(6))
    return replace(found, clients=0, arrival=0 * found.arrival) if found.clients else found


def alone(requests: Requests, engine: Engine, of: list[tuple[int, int, int]]) -> Reference:
    """Return one life of a replica, of requests (number, ns, tokens that they have)."""
    numbers = [r for r, _, _ in of]
    had = np.array([each for _, _, each in of], np.int64)
    own = replace(
        requests, arrival=np.array([ns for _, ns, _ in of], np.int64), prompt=requests.prompt[numbers] + had,
        output=requests.output[numbers] - had, follows=None, shared=None,
    )  # fmt: skip
    found = RULES[engine.rule](own, engine, price)
    found.run()
    return found


def slow(
    requests: Requests, replicas: int, engine: Engine, fail: Fail, router: str
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Return ns of each token of each request, and replica and ns of each of its lives: all anew at each event."""
    n = len(requests)
    times = [fail.times(k) for k in range(replicas)]
    lives: list[list[tuple[int, int, int]] | None] = [[] for _ in range(replicas)]
    # When it fails, or, where it has no life, when it begins.
    change = [next(each) for each in times]
    tokens: list[list[int]] = [[] for _ in range(n)]
    places: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    arrival = requests.arrival.tolist()
    queue: list[int] = []
    came = [False] * n
    last = -1
    while True:
        runs = [alone(requests, engine, life) if life else None for life in lives]
        new: dict[int, list[int]] = {}
        for life, found in zip(lives, runs, strict=True):
            if life and found:
                new |= {r: each.ends for (r, _, _), each in zip(life, found.requests, strict=True)}
        ends = {r: (tokens[r] + new.get(r, []))[-1:] for r in range(n)}
        whole = {r: len(tokens[r]) + len(new.get(r, [])) == requests.output[r] for r in range(n)}
        if (
            all(came)
            and not queue
            and all(whole.values())
            and all(ends[r][0] <= min(change) for r in range(n))
        ):
            return [tokens[r] + new.get(r, []) for r in range(n)], places
        coming = []
        for r in range(n):
            former = requests.follows.of(r).tolist() if requests.follows else []
            if not came[r] and not former:
                coming.append((arrival[r], r))
            elif not came[r] and all(whole[each] for each in former):
                assert requests.follows
                coming.append((max(ends[each][0] for each in former) + int(requests.follows.delay[r]), r))
        now = min([at for at, _ in coming] + change)
        for kind in ("fail", "begin"):
            for k in range(replicas):
                if change[k] != now or (kind == "fail") != (lives[k] is not None):
                    continue
                if kind == "begin":
                    lives[k] = []
                    change[k] = now + next(times[k])
                    continue
                back = []
                for r, _, _ in lives[k] or []:
                    got = [ns for ns in new[r] if ns <= now]
                    tokens[r] += got
                    if len(tokens[r]) < requests.output[r]:
                        back.append(r)
                    new.pop(r)
                queue = back + queue
                lives[k], change[k] = None, now + fail.repair
                if fail.repair == 0:
                    lives[k], change[k] = [], now + next(times[k])
        due = [r for at, r in sorted(coming) if at == now]
        for r in due[:1]:
            came[r] = True
        for r in [*queue, *due[:1]]:
            up = [k for k in range(replicas) if lives[k] is not None]
            if not up:
                queue = [*queue, r] if r not in queue else queue
                continue
            queue = [each for each in queue if each != r]
            waiting = [
                sum(
                    len(tokens[each]) + sum(ns <= now for ns in new.get(each, [])) < requests.output[each]
                    for each, _, _ in lives[k] or []
                )
                for k in range(replicas)
            ]
            turn = [(k - last - 1) % replicas for k in range(replicas)]
            last = min(up, key=lambda k: (waiting[k] if router == "least-loaded" else 0, turn[k]))
            own = lives[last]
            assert own is not None
            own.append((r, now, len(tokens[r])))
            places[r].append((last, now))


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=40)
@given(st.data())
def test_replicas_that_fail_are_the_reference(rule: str, data: st.DataObject) -> None:
    requests = replace(data.draw(opens()), shared=None)
    if requests.follows:
        requests = replace(requests, follows=replace(requests.follows, reused=0 * requests.follows.reused))
    engine = data.draw(engines(requests, (rule,)))
    replicas = data.draw(st.integers(1, 3))
    times = st.lists(st.integers(1, 60_000), max_size=3).map(tuple)
    listed = tuple(data.draw(times) for _ in range(replicas))
    fail = Listed(10**9, data.draw(st.sampled_from((0, 1, 5_000, 10**6))), listed=listed)
    router = data.draw(st.sampled_from(("round-robin", "least-loaded")))
    fleet = Fleet(requests, replicas, engine, table(), router, Changes(fail), "interpreted")
    found = fleet.run()
    tokens, places = slow(requests, replicas, engine, fail, router)
    assert found.first.tolist() == [each[0] for each in tokens]
    assert found.last.tolist() == [each[-1] for each in tokens]
    assert found.replica.tolist() == [each[-1][0] for each in places]
    mine: list[list[tuple[int, int]]] = [[] for _ in requests.prompt]
    for life in fleet.lives:
        for r, ns in zip(life.sent.tolist(), life.served.requests.arrival.tolist(), strict=True):
            mine[r].append((life.replica, ns))
    assert [sorted(each, key=lambda one: one[1]) for each in mine] == places
    check(requests, found, fleet)


def check(requests: Requests, found: Outcome, fleet: Fleet) -> None:
    """Check what each fleet keeps."""
    n = len(requests)
    given, spans = [0] * n, [[] for _ in range(n)]  # type: ignore[var-annotated]
    for life in fleet.lives:
        own = life.served
        for at, r in enumerate(life.sent.tolist()):
            # It begins with what it has, and no token is given twice.
            assert (
                own.requests.prompt[at] + own.requests.output[at] == requests.prompt[r] + requests.output[r]
            )
            given[r] += int(life.given[at])
            spans[r].append((int(own.requests.arrival[at]), int(life.before[at]), int(life.given[at])))
            # No token before the prompt is computed.
            if life.given[at]:
                assert own.requests.arrival[at] <= own.begun[at] < own.first[at] <= life.latest[at]
        assert own.most_blocks <= own.capacity
        assert (own.steps[1:, c.L_START] >= own.steps[:-1, c.L_END]).all()
    assert given == requests.output.tolist()
    for parts in spans:
        had = 0
        for _, before, more in sorted(parts):
            assert before == had
            had += more
    # One life after another.
    assert (found.begun >= found.requests.arrival).all() and (found.first > found.begun).all()
    assert (found.last >= found.first).all()
    assert all((each >= 0).all() for each in found.waits.values()), found.waits
    assert (sum(found.waits.values()) == found.last - found.requests.arrival).all()
    if requests.follows:
        for r in range(n):
            if len(former := requests.follows.of(r)):
                assert found.requests.arrival[r] == found.last[former].max() + requests.follows.delay[r]
    assert found.there is not None and found.there <= len(fleet._places) * int(found.last.max())


@settings(max_examples=60)
@given(st.data())
def test_what_fleets_keep_that_fail_start_and_stop(data: st.DataObject) -> None:
    requests = data.draw(opens())
    engine = data.draw(engines(requests, c.RULES))
    replicas = data.draw(st.integers(2, 4))
    fail = Fail(
        data.draw(st.sampled_from((10**5, 10**6))),
        data.draw(st.sampled_from((0, 20_000))),
        data.draw(st.integers(0, 9)),
    )
    scale = Scale(
        data.draw(st.integers(1, 3)), data.draw(st.integers(1, replicas - 1)), data.draw(st.sampled_from((0, 30_000))),
        data.draw(st.sampled_from((5_000, 10**6))), data.draw(st.sampled_from((0, 40_000))),
    )  # fmt: skip
    changes = Changes(data.draw(st.sampled_from((None, fail))), data.draw(st.sampled_from((None, scale))))
    routers = ["round-robin", "least-loaded"] + ["session"] * (requests.follows is not None)
    routers += ["prefix"] * (engine.cached and requests.alike)
    fleet = Fleet(
        requests, replicas, engine, table(), data.draw(st.sampled_from(routers)), changes, "interpreted"
    )
    check(requests, fleet.run(), fleet)


@settings(max_examples=30)
@given(st.data())
def test_a_fleet_that_does_not_change_is_the_other_one(data: st.DataObject) -> None:
    requests = data.draw(opens())
    engine = data.draw(engines(requests, c.RULES))
    replicas, router = (
        data.draw(st.integers(1, 3)),
        data.draw(st.sampled_from(("round-robin", "least-loaded"))),
    )
    changes = Changes(Fail(10**16, 1), None)
    one = Fleet(requests, replicas, engine, table(), router, changes, "interpreted").run()
    other = joined(requests, *routed(requests, replicas, engine, table(), router, "interpreted"))
    for name in ("begun", "first", "last", "preempted", "hit", "interfered", "stalled"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert not one.waits["failed"].any() and one.failures == 0


def test_replicas_are_started_when_requests_wait_and_stopped_later() -> None:
    # Ten at once, and one long after.
    n = 11
    requests = Requests(np.array([0] * 10 + [10**7]), np.full(n, 10), np.full(n, 20))
    changes = Changes(None, Scale(target=3, least=1, start=30_000, every=10_000, hold=50_000))
    fleet = Fleet(requests, 4, Engine(64, 2, 4, 200), table(), "least-loaded", changes)
    found = fleet.run()
    # All ten are with the first replica when the others are there: who waits stays where it was sent.
    assert found.replica.tolist()[:10] == [0] * 10 and found.there is not None
    one = int(found.last.max())
    # 4 of them are there from the first look on, until nobody wanted them for a while.
    assert one < found.there < one + 3 * (int(found.last[9]) + 2 * 50_000)
    alike = load_requests("constant:rate=300000,requests=60,input=10,output=20")
    fleet = Fleet(alike, 4, Engine(64, 2, 4, 200), table(), "least-loaded", changes)
    assert len({*fleet.run().replica.tolist()}) > 1


def test_looks_without_end_are_refused_while_one_waits() -> None:
    requests = Requests(np.zeros(9, np.int64), np.full(9, 10), np.full(9, 20))
    changes = Changes(None, Scale(target=3, least=1, start=30_000, every=1, hold=3 * 10**11))
    fleet = Fleet(requests, 4, Engine(64, 2, 4, 200), table(), "least-loaded", changes)
    with pytest.raises(InputError, match="scale: more than 100,000 looks"):
        fleet.run()


def test_failures_are_drawn_and_cost_time() -> None:
    requests = load_requests("poisson:rate=20000,requests=60,input=10,output=20")
    engine = Engine(64, 8, 4, 200)
    fail = changes_of("mtbf=300us,repair=50us", "", 3, 2)
    runs = [Fleet(requests, 2, engine, table(), "least-loaded", fail).run() for _ in range(2) if fail]
    assert runs[0].last.tolist() == runs[1].last.tolist() and runs[0].failures > 2
    other = changes_of("mtbf=300us,repair=50us", "", 4, 2)
    assert (
        other
        and Fleet(requests, 2, engine, table(), "least-loaded", other).run().last.tolist()
        != runs[0].last.tolist()
    )
    assert runs[0].waits["failed"].any()


@pytest.mark.parametrize(
    ("fail", "scale", "words"),
    [
        (
            "mtbf=1h",
            "",
            "fail mtbf=1h: missing key 'repair', expected one of mtbf, repair, as in mtbf=24h,repair=10min",
        ),
        ("mtbt=1h", "", "no key 'mtbt' (did you mean 'mtbf'?)"),
        ("mtbf=0s,repair=1s", "", "mtbf: got 0s, expected 1 ns to"),
        ("mtbf=5,repair=1s", "", "fail mtbf=5,repair=1s: mtbf: "),
        ("mtbf=1h,mtbf=2h,repair=1s", "", "mtbf is given twice"),
        ("", "min=1", "scale min=1: missing key 'target'"),
        ("", "target=0", "target: got '0', expected a whole number from 1 to 1,000,000"),
        ("", "target=4,min=4", "min: got '4', expected a whole number from 1 to 3"),
        ("", "target=4,every=0s", "every: got 0s, expected 1 ns to"),
    ],
)
def test_what_changes_cannot_be(fail: str, scale: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        changes_of(fail, scale, 0, 4)
    assert words in str(error.value)


def test_who_fails_too_often_is_told() -> None:
    requests = Requests(np.zeros(1, np.int64), np.array([60]), np.array([4]))
    with pytest.raises(InputError, match="fail: more than 10,000 failures until all requests are served"):
        Fleet(requests, 1, Engine(8, 2, 4, 200), table(), "round-robin", Changes(Fail(10, 1))).run()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (Changes(Fail(1000, 1000)), "fail: more than 10,000 failures"),
        (Changes(None, Scale(3, 1, 30_000, 9, 0)), "scale: more than 100,000 looks"),
    ],
)
def test_what_must_happen_too_often_is_refused_before_it_runs(changes: Changes, words: str) -> None:
    requests = Requests(np.array([0, 10**9]), np.full(2, 10), np.full(2, 20))
    with pytest.raises(InputError, match=words):
        Fleet(requests, 4, Engine(64, 2, 4, 200), table(), "round-robin", changes)


def test_requests_that_lose_their_replica_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "MOST_RETURNED", 20)
    requests = Requests(np.zeros(9, np.int64), np.full(9, 60), np.full(9, 4))
    with pytest.raises(InputError, match="fail: more than 20 times a request lost its replica"):
        Fleet(requests, 1, Engine(8, 2, 4, 200), table(), "round-robin", Changes(Fail(10, 1))).run()
