"""Prefill and decoding apart: equal to a plain reference, and true to what every such pair of pools keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.compute.machine import machine_of
from armillary.serving import columns as c
from armillary.serving.outcome import Outcome
from armillary.serving.pools import Pools
from armillary.serving.replica import Engine, serve_replica
from armillary.serving.requests import Ints, Requests
from armillary.serving.result import Serving
from armillary.serving.service import Service
from armillary.serving.transfer import PART, Links, Side, links_of, moved

from .conftest import apart, engines, loads, table
from .reference import Reference
from .reference_rules import RULES
from .test_replica import price

EACH = 50
"""Bytes of keys and values of a token in these tests."""


def moved_slowly(starts: Ints, sizes: Ints, sources: Ints, sinks: Ints, links: Links) -> list[int]:
    """Return ns at which transfers end: ns by ns."""
    left: dict[int, int] = {}
    ends = [0] * len(starts)
    waiting, now = set(range(len(starts))), 0
    while waiting or left:
        for each in [each for each in left if left[each] <= 0]:
            ends[each] = now + int(links.latency[sources[each], sinks[each]])
            del left[each]
        for each in [each for each in waiting if starts[each] == now]:
            waiting.remove(each)
            left[each] = int(sizes[each]) * PART
        for each in left:
            rate = int(links.rate[sources[each], sinks[each]])
            senders = sum(sources[other] == sources[each] for other in left)
            takers = sum(sinks[other] == sinks[each] for other in left)
            left[each] -= max(1, min(rate, rate * links.most[0] // senders, rate * links.most[1] // takers))
        now = now + 1 if left else min((int(starts[each]) for each in waiting), default=0)
    return ends


@st.composite
def links(draw: st.DrawFn, shape: tuple[int, int]) -> Links:
    """Draw links on which a transfer takes some hundred ns."""
    many = shape[0] * shape[1]
    rate = draw(st.lists(st.sampled_from((PART, 3 * PART, 7_654_321)), min_size=many, max_size=many))
    latency = draw(st.lists(st.integers(0, 30), min_size=many, max_size=many))
    most = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return Links(np.array(rate).reshape(shape), np.array(latency).reshape(shape), most)


@settings(max_examples=60)
@given(st.data())
def test_transfers_share_links_as_ns_by_ns(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    carry, n = data.draw(links(shape)), data.draw(st.integers(1, 6))

    def numbers(low: int, high: int) -> Ints:
        return np.array(data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n)), np.int64)

    given_ = numbers(0, 300), numbers(1, 900), numbers(0, shape[0] - 1), numbers(0, shape[1] - 1)
    found = moved(*given_, carry)
    assert found.tolist() == moved_slowly(*given_, carry)
    # None beats its own links.
    alone = [carry.alone(int(size), *ends) for size, *ends in zip(*given_[1:], strict=True)]
    assert (found - given_[0] >= alone).all()


class Sized(Pools):
    """Pools whose requests have keys and values of `EACH` bytes a token."""

    def bytes_of(self, prompt: Ints) -> Ints:
        return prompt * EACH


def pair(prefill: Engine, decode: Engine, x: int, y: int, carry: Links) -> Pools:
    """Return two pools without a model."""
    plan: Any = SimpleNamespace(parallel=SimpleNamespace(tp=1))
    own: dict[str, Any] = {"model": None, "machine": None, "plan": plan, "capacity": None, "assumptions": ()}
    before = Service(**own, engine=prefill, table=table(), replicas=x)
    after = replace(decode, cached=False, brought=True, ingest_ns=0, token_ps=0, poll=1)
    return Sized(**own, engine=after, table=table(), replicas=y, before=before, links=carry)


def reference(requests: Requests, pools: Pools) -> list[tuple[int, ...]]:
    """Return (begun, sent, there, begun to decode, first, last) of each request: replica by replica, with objects."""
    assert pools.before and pools.links
    rule, n = pools.engine.rule, len(requests)
    rows: list[dict[str, int]] = [{} for _ in range(n)]

    def part(mine: list[int], load: Requests, engine: Engine) -> Reference:
        own = replace(
            load, arrival=load.arrival[mine], prompt=load.prompt[mine], output=load.output[mine],
            shared=load.shared and tuple(load.shared[each] for each in mine),
        )  # fmt: skip
        found = RULES[rule](own, engine, price)
        found.run()
        return found

    prompts = replace(requests, output=np.ones(n, np.int64))
    for k in range(pools.before.replicas):
        mine = list(range(k, n, pools.before.replicas))
        for r, each in zip(
            mine, part(mine, prompts, pools.before.engine).requests if mine else [], strict=True
        ):
            rows[r] |= {"begun": each.begun, "sent": each.last, "source": k}
    goes = [r for r in range(n) if rule == "vllm" or requests.output[r] > 1]
    goes.sort(key=lambda r: rows[r]["sent"])
    for at, r in enumerate(goes):
        rows[r]["sink"] = at % pools.replicas
    columns = [np.array([rows[r][name] for r in goes], np.int64) for name in ("sent", "source", "sink")]
    there = moved_slowly(columns[0], requests.prompt[goes] * EACH, *columns[1:], pools.links) if goes else []
    arrival = requests.arrival.copy()
    for r, at in zip(goes, there, strict=True):
        rows[r]["there"] = arrival[r] = at
    again = int(rule == "vllm")
    answers = replace(
        requests, arrival=arrival, prompt=requests.prompt - again, output=requests.output + again, shared=None
    )
    for k in range(pools.replicas):
        mine = sorted((r for r in goes if rows[r]["sink"] == k), key=lambda r: (rows[r]["there"], r))
        for r, each in zip(mine, part(mine, answers, pools.engine).requests if mine else [], strict=True):
            rows[r] |= {"joined": each.begun, "made": each.first, "last": each.last}
    found = []
    for row in rows:
        sent = row["sent"]
        first = {"vllm": row.get("made", sent), "sglang": row.get("there", sent), "trtllm": sent}[rule]
        ends = (row.get("there", sent), row.get("joined", sent), first, row.get("last", sent))
        found.append((row["begun"], sent, *ends))
    return found


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=40)
@given(st.data())
def test_pools_are_the_reference(rule: str, data: st.DataObject) -> None:
    requests = data.draw(loads())
    if requests.clients:
        requests = replace(requests, clients=0, arrival=np.zeros(len(requests), np.int64))
    one, other = (data.draw(engines(requests, (rule,))) for _ in range(2))
    x, y = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pools = pair(one, other, x, y, data.draw(links((x, y))))
    found = pools.run(requests)
    assert found.moved
    own = (found.begun, found.moved.sent, found.moved.there, found.moved.begun, found.first, found.last)
    assert [tuple(int(each[r]) for each in own) for r in range(len(requests))] == reference(requests, pools)
    check(requests, found, pools)


def check(requests: Requests, found: Outcome, pools: Pools) -> None:
    """Check what each pair of pools keeps."""
    own = found.moved
    assert own and pools.before
    # No token before the prompt, and none of the decode pool before keys and values are there.
    assert (requests.arrival <= found.begun).all() and (found.begun < own.sent).all()
    assert (
        (own.sent <= own.there).all() and (own.there <= own.begun).all() and (own.begun <= found.last).all()
    )
    assert (found.first >= own.sent).all() and (found.last >= found.first).all()
    # None is lost, or served twice: each pool has each request that it must have once.
    goes = requests.output > (0 if pools.engine.rule == "vllm" else 1)
    assert sum(len(each.requests) for each in own.replicas) == len(requests)
    assert sum(len(each.requests) for each in found.replicas) == goes.sum() == (found.replica >= 0).sum()
    assert ((own.bytes > 0) == goes).all()
    made = sum(int((each.requests.output - 1).sum()) for each in found.replicas)
    assert made == (requests.output - (pools.engine.rule != "vllm"))[goes].sum()
    # What a pool holds, its blocks can.
    for replicas, engine in ((own.replicas, pools.before.engine), (found.replicas, pools.engine)):
        assert all(each.most_blocks <= engine.blocks for each in replicas)
    # Where the time went adds up.
    assert all((each >= 0).all() for each in found.waits.values())
    assert (sum(found.waits.values()) == found.last - requests.arrival).all()


def test_one_replica_of_each_is_a_replica_that_waits_for_its_transfers() -> None:
    requests = Requests(np.array([0, 10**6]), np.array([16, 16]), np.array([4, 4]))
    engine = Engine(64, 16, 4, 40, ahead=False)
    far = pair(engine, engine, 1, 1, Links(np.array([[PART]]), np.array([[1000]])))
    found = far.run(requests)
    assert found.waits["transfer"].tolist() == [16 * EACH + 1000] * 2
    alone = serve_replica(requests, engine, table())
    # The prompt takes what it takes there, then comes the transfer.
    assert (found.moved.sent == alone.first).all() if found.moved else False
    assert not found.waits["room"].any() and not found.waits["interference"].any()


def test_transfers_go_over_the_network_of_the_machine() -> None:
    platform = machine_of("16xh100").platform
    inside = links_of(platform, Side(0, 1, 4, 1), Side(4, 1, 4, 1))
    between = links_of(platform, Side(0, 1, 8, 1), Side(8, 1, 8, 1))
    one = links_of(platform, Side(0, 1, 1, 8), Side(8, 1, 1, 8))
    assert inside.rate[0, 0] / 4 > 5 * between.rate[0, 0] / 8
    assert between.rate[0, 0] == pytest.approx(8 * one.rate[0, 0], rel=1e-3) and one.most == (8, 8)
    # Fewer senders than takers are as fast as the senders.
    few = links_of(platform, Side(0, 1, 2, 1), Side(8, 1, 8, 1))
    assert few.rate[0, 0] == pytest.approx(between.rate[0, 0] / 4, rel=0.01)
    # The takers have links left for three more.
    assert few.most == (1, 4)


TINY = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 2048,
    "tied": False, "norm": "rms", "activation": "swiglu",
    "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 512},
}  # fmt: skip
LOAD = "poisson:rate=2000,requests=12,input=64,output=8"
APART = {"prefill_replicas": 1, "decode_replicas": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.yaml"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.fixture(scope="module")
def serve(tiny: str) -> Callable[..., Serving]:
    small: dict[str, Any] = {"budget": 16, "sequences": 8}
    return lambda machine, load, **options: armillary.serve(tiny, machine, load, **small | options)


@pytest.mark.parametrize("engine", c.RULES)
def test_a_load_is_served_by_two_pools(serve: Callable[..., Serving], engine: str) -> None:
    found = serve("4xh100", LOAD, prefill_replicas=2, prefill_tp=1, decode_replicas=1, tp=2, engine=engine)
    own = found.service.prefill
    assert own and (own.replicas, found.service.replicas, found.service.devices) == (2, 1, 4)
    assert found.outcome.moved and set(found.outcome.moved.replica) == {0, 1}
    # Keys and values of 64 tokens: two of 4 heads of 32 in bf16, of 2 layers.
    assert set(found.outcome.moved.bytes) == {64 * 2 * 4 * 32 * 2 * 2}
    assert found.interval_s("tpot") is None
    assert (sum(found.outcome.waits.values()) == found.outcome.last - found.outcome.requests.arrival).all()
    # No prompt of others is between tokens.
    assert not found.outcome.interfered.any()
    assert any("GB/s" in each for each in found.service.assumptions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"decode_replicas": 0},
            "decode-replicas 0: expected a whole number from 1, as the other pool has some",
        ),
        ({"prefill_replicas": -1}, "prefill-replicas -1: expected a whole number from 1"),
        ({"tp": 2}, "prefill-replicas 1 of 2 devices and decode-replicas 1 of 2: 4 devices, expected 2"),
        ({"replicas": 2}, "replicas 2: expected prefill-replicas and decode-replicas alone"),
        ({"prefill_dp": 2}, "3 devices, expected 2, those of machine 2xh100"),
        ({"blocks": 2}, "request 0: 72 tokens of prompt and output, expected at most 32"),
    ],
)
def test_pools_that_cannot_be(serve: Callable[..., Serving], options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        serve("2xh100", LOAD, **APART | options)
    assert words in str(error.value)


def test_what_needs_two_pools_or_one(serve: Callable[..., Serving]) -> None:
    with pytest.raises(InputError, match="expected an open load"):
        serve("2xh100", "closed:clients=2,requests=4,input=8,output=2", **APART)
    for name in ("prefill_tp", "prefill_dp"):
        with pytest.raises(InputError, match="expected it with prefill-replicas and decode-replicas only"):
            serve("2xh100", LOAD, **{name: 1})


def test_the_command_has_two_pools(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "served.json"
    words = ["serve", tiny, "--machine", "2xh100", "--load", LOAD, "--budget", "16", "--sequences", "8"]
    words += ["--prefill-replicas", "1", "--decode-replicas", "1"]
    done = CliRunner().invoke(
        main, [*words, "--requests", "--json", str(path), "--html", str(tmp_path / "a.html")]
    )
    assert done.exit_code == 0, done.output
    for word in ("Prefill: 1 replica", "Decode: 1 replica", "transfer: ", "between the pools", "GB/s"):
        assert word in done.output
    found = json.loads(path.read_text())
    assert found["devices"] == 2 and found["prefill"]["replicas"] == 1 and found["prefill"]["moved_bytes"] > 0
    for each in found["requests"]:
        parts = [each[f"{name}_s"] for name in found["waits_s"]]
        assert "transfer" in found["waits_s"] and sum(parts) == pytest.approx(each["e2e_s"], abs=1e-12)
        assert each["prefill_replica"] == 0 and each["moved_bytes"] > 0


def test_requests_come_with_their_prompts() -> None:
    requests = apart(Requests(np.zeros(1, np.int64), np.array([1]), np.array([1])), "vllm")
    found = serve_replica(requests, Engine(64, 16, 4, 40, cached=False, brought=True), table())
    assert found.steps[:, c.L_DECODING].tolist() == [1] and found.last[0] > 0
