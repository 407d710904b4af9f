"""Serving from end to end, as Python and as the command offer it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.deploy.cost import bill
from armillary.serving import columns as c
from armillary.serving.kernels import INGEST_NS, TOKEN_PS
from armillary.serving.load import load_requests
from armillary.serving.replica import serve_replica
from armillary.serving.result import Serving, engine_lines
from armillary.serving.router import shares
from armillary.serving.serve import find_rate
from armillary.serving.service import serve_all, share_of

from .conftest import engines, loads, sessions, table

TINY = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 2048,
    "tied": False, "norm": "rms", "activation": "swiglu",
    "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 512},
}  # fmt: skip
APART = {"prefill_replicas": 1, "decode_replicas": 1}
LOAD = "poisson:rate=2000,requests=12,input=64,output=8"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.yaml"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.fixture(scope="module")
def serve(tiny: str) -> Callable[..., Serving]:
    small: dict[str, Any] = {"budget": 16, "sequences": 8}
    return lambda machine, load, **options: armillary.serve(tiny, machine, load, **small | options)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def test_a_load_is_served(serve: Callable[..., Serving]) -> None:
    found = serve("1xh100", LOAD, slo="ttft=1s,tpot=1ns")
    assert 0 < found.ttft_s.p50 <= found.ttft_s.p90 <= found.ttft_s.p99 < found.e2e_s.p99
    assert found.good == 0.0 and found.output_tokens_per_s > 0
    assert found.service.replicas == 1 and found.service.capacity is not None
    alone = serve("1xh100", "constant:rate=1,requests=3,input=64,output=8")
    # Far apart, all are served alike, and wait for the front end only.
    assert len({*alone.outcome.e2e}) == 1
    assert {*alone.outcome.waits["queue"]} == {INGEST_NS["vllm"] + 64 * TOKEN_PS // 1000}
    assert alone.outcome.e2e[0] == pytest.approx(alone.outcome.ttft[0] + 7 * alone.outcome.tpot[0])


def test_requests_are_drawn(serve: Callable[..., Serving], tmp_path: Path) -> None:
    found = serve("1xh100", LOAD)
    drawn = found.plot()
    assert drawn is not None
    first, each, over = (axes.lines[0].get_xydata() for axes in drawn.axes)
    assert first[-1] == pytest.approx((found.outcome.ttft.max() * 1e9, 100))
    assert each[-1][1] == pytest.approx(100)
    assert over[:, 1].max() == pytest.approx(found.outcome.ttft.max() * 1e9)
    assert found.plot(tmp_path / "times.png") is None
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")


def test_replicas_share_a_load(serve: Callable[..., Serving]) -> None:
    one, two = (serve("2xh100", LOAD, tp=tp) for tp in (2, 1))
    assert (one.service.replicas, two.service.replicas) == (1, 2)
    assert two.outcome.replica.tolist() == [0, 1] * 6
    # Each replica is served as if it were alone.
    requests = load_requests(LOAD)
    for at, mine in enumerate(shares(requests, 2, "round-robin") or ()):
        alone = serve("1xh100", share_of(requests, mine, 2, at))
        assert two.outcome.last[mine].tolist() == alone.outcome.last.tolist()


@pytest.mark.parametrize(("clients", "replicas"), [(5, 2), (1, 4), (3, 3)])
def test_clients_are_divided(clients: int, replicas: int) -> None:
    requests = load_requests(f"closed:clients={clients},requests=11,input=4,output=2")
    found = shares(requests, replicas, "round-robin")
    assert found is not None
    parts = [share_of(requests, mine, len(found), at) for at, mine in enumerate(found)]
    assert sum(each.clients for each in parts) == clients and all(each.clients for each in parts)
    assert sorted(np.concatenate(found)) == list(range(11))
    assert all((each.arrival == 0).sum() == min(each.clients, len(each)) for each in parts)


def test_a_shared_prefix_is_computed_once(serve: Callable[..., Serving]) -> None:
    load = "constant:rate=1000,requests=6,input=64,output=4,prefix=48"
    one, other = serve("1xh100", load), serve("1xh100", load, cached=False)
    assert one.outcome.hit.tolist() == [0, *[48] * 5] and not other.outcome.hit.any()
    assert one.ttft_s.p50 <= other.ttft_s.p50


def test_too_few_blocks_preempt(serve: Callable[..., Serving]) -> None:
    found = serve("1xh100", "closed:clients=4,requests=4,input=16,output=60", blocks=10)
    assert found.outcome.preempted.sum() > 0 and found.outcome.waits["preempted"].sum() > 0
    assert found.service.capacity is None


def test_what_takes_longer_is_later(serve: Callable[..., Serving]) -> None:
    plain, slow = (serve("1xh100", LOAD, overhead_ns=each) for each in (0, 50_000))
    assert slow.tpot_s.mean >= plain.tpot_s.mean + 40e-6
    assert any("CPU" in each for each in plain.service.assumptions)
    assert not any("CPU" in each for each in slow.service.assumptions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tp": 3}, "tp 3: expected a divisor of 2, the devices of machine 2xh100 (nearest: 2)"),
        ({"precision": "bf17"}, "numbers.compute: got 'bf17'"),
        ({"budget": 0}, "budget 0: expected a whole number from 1"),
        ({"memory": 1.5}, "memory 1.5: expected a share"),
        ({"memory": 1e-4}, "tiny does not fit"),
        ({"blocks": 2}, "request 0: 72 tokens of prompt and output, expected at most 32"),
        ({"slo": "ttfb=1s"}, "slo ttfb=1s: no limit 'ttfb'"),
        ({"slo": "ttft=1"}, "slo ttft=1: ttft: "),
        ({"slots": 1}, "serve: no option 'slots'"),
        ({"first": 0}, "first: got 0"),
    ],
)
def test_what_cannot_be_served_is_refused(
    options: dict[str, Any], words: str, serve: Callable[..., Serving]
) -> None:
    with pytest.raises(InputError) as error:
        serve("2xh100", LOAD, **options)
    assert words in str(error.value)


def test_the_command_prints_and_writes(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "served.json"
    words = ("serve", tiny, "--machine", "1xh100", "--load", LOAD, "--budget", "16", "--sequences", "8")
    done = run(*words, "--slo", "ttft=1s", "--requests", "--json", str(path))
    assert done.exit_code == 0, done.output
    for word in ("TTFT", "TPOT", "Assumed: ", "Load: ", "Engine: ", "Use: ", "end to end", "queue"):
        assert word in done.output
    found = json.loads(path.read_text())
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert [*found[name]] == ["mean", "p50", "p90", "p99"]
        mean = np.mean([each[name] for each in found["requests"]])
        assert mean == pytest.approx(found[name]["mean"])
    assert len(found["requests"]) == 12 and found["good"] == 1.0
    for each in found["requests"]:
        parts = sum(each[f"{name}_s"] for name in ("queue", "prefill", "decode", "interference", "preempted"))
        assert parts == pytest.approx(each["e2e_s"], abs=1e-12)
    again = partial(run, *words)
    assert "requests" not in json.loads((again("--json", str(path)), path.read_text())[1])
    assert again("--requests").exit_code == 2
    assert again("--overhead", "fast").exit_code == 2
    assert again("--speed", "0").exit_code == 2


def test_a_model_that_is_no_decoder_is_refused() -> None:
    done = run("serve", "resnet-50", "--machine", "1xh100", "--load", LOAD)
    assert done.exit_code == 2 and "expected a model of kind 'decoder'" in done.output


@settings(max_examples=25)
@given(st.data())
def test_a_fleet_by_classes_is_each_replica_by_itself(data: st.DataObject) -> None:
    one = data.draw(loads(4) | sessions(4))
    # Some later, some equal, some longer.
    parts = [
        one,
        one,
        *(replace(one, arrival=np.where(one.arrival < 0, -1, one.arrival + by)) for by in (0, 777)),
    ]
    parts.append(replace(one, output=one.output[::-1].copy()))
    parts = [each for each in parts if not one.clients or each.arrival[0] == 0]
    # Other outputs may make a longer request than those of `one`: its engine has room for all.
    longest = max(parts, key=lambda each: int((each.prompt + each.output).max()))
    engine = data.draw(engines(longest, c.RULES))
    for fast, part in zip(serve_all(parts, engine, table()), parts, strict=True):
        slow = serve_replica(part, engine, table(), "interpreted")
        for name in ("begun", "first", "last", "preempted", "hit", "again", "interfered", "stalled", "steps"):
            assert getattr(fast, name).tolist() == getattr(slow, name).tolist(), name
        assert fast.requests.arrival.tolist() == slow.requests.arrival.tolist()


def test_replicas_take_turns(serve: Callable[..., Serving]) -> None:
    found = serve("1xh100", "constant:rate=40,requests=12,input=64,output=8", replicas=4)
    assert found.service.replicas == found.service.devices == 4
    assert found.outcome.replica.tolist() == [0, 1, 2, 3] * 3
    # Each comes alone to a replica, so all are served alike.
    assert len({*found.outcome.e2e}) == 1
    with pytest.raises(InputError, match="replicas 3: expected a multiple of 2, those of a machine 2xh100"):
        serve("2xh100", LOAD, tp=1, replicas=3)


def test_the_largest_load_keeps_within_the_objective(tiny: str) -> None:
    load, small = (
        "poisson:rate=1000,requests=60,input=64,output=8",
        {"budget": 64, "sequences": 8, "ingest_ns": 0},
    )
    found = find_rate(tiny, "1xh100", load, slo="ttft=2ms", share=0.8, **small)  # type: ignore[arg-type]
    assert found.good is not None and found.good >= 0.8 and found.found is not None
    more = armillary.serve(tiny, "1xh100", load, slo="ttft=2ms", speed=found.found.beyond, **small)  # type: ignore[arg-type]
    assert more.good is not None and more.good < 0.8
    for wrong, slo, message in (
        (load, "", "there is no objective"),
        ("closed:clients=2,requests=4,input=8,output=2", "ttft=1s", "expected an open load"),
        ("poisson:rate=1,requests=1,input=8,output=2", "ttft=1s", "one request has no rate"),
        ("sessions:rate=1,sessions=1,turns=3,input=8,output=2,think=1s", "ttft=1s", "come at once"),
    ):
        with pytest.raises(InputError, match=message):
            find_rate(tiny, "1xh100", wrong, slo=slo)


def test_replicas_fail_and_are_started(serve: Callable[..., Serving]) -> None:
    load, more = "poisson:rate=20000,requests=40,input=64,output=8", {"replicas": 3, "ingest_ns": 0}
    calm = serve("1xh100", load, router="least-loaded", **more)
    found = serve(
        "1xh100", load, router="least-loaded", fail="mtbf=2ms,repair=100us",
        scale="target=4,start=200us,every=100us,hold=1ms", **more,
    )  # fmt: skip
    own = found.outcome
    assert own.failures > 0 and own.waits["failed"].any() and found.interval_s("tpot") is None
    assert 1 / 3 < own.there_share < 1 == calm.outcome.there_share and own.busy < calm.outcome.busy
    assert "failures; " in repr(found) and "of 3 replicas on average" in repr(found)
    assert (
        sum("fails by itself" in each or "are wanted as" in each for each in found.service.assumptions) == 2
    )
    one, other = (bill(each, {"npu": {"rent": "1 USD"}}) for each in (found, calm))
    # Who is not there costs nothing.
    assert one.per_hour and other.per_hour
    assert one.per_hour == pytest.approx(own.there_share * other.per_hour)
    for options, words in (
        ({"prefill_replicas": 1, "decode_replicas": 1}, "fail: where prefill and decoding are apart"),
        ({"fail": "", "scale": "target=1"}, "scale target=1: there is one replica, expected more"),
    ):
        with pytest.raises(InputError, match=words):
            serve("2xh100", LOAD, **{"fail": "mtbf=1s,repair=1s"} | options)
    with pytest.raises(InputError, match="fail: clients of a closed loop stay with a replica"):
        serve("1xh100", "closed:clients=2,requests=4,input=8,output=2", fail="mtbf=1s,repair=1s")


def test_the_host_keeps_blocks(serve: Callable[..., Serving]) -> None:
    load = "sessions:rate=2000,sessions=12,turns=3,input=40,output=8,think=1ms"
    few = {"blocks": 12, "sequences": 2}
    none, some = (
        serve("1xh100", load, **few),
        serve("1xh100", load, kv_host="4MiB", kv_host_rate="50GB/s", **few),
    )
    # Of a token two of 4 heads of 32 in bf16, of 2 layers.
    assert some.service.engine.slots[0] == 4 * 2**20 // (16 * 2 * 4 * 32 * 2 * 2)
    assert some.outcome.hit.sum() > none.outcome.hit.sum() and some.interval_s("ttft") is None
    assert "% from the host" in repr(some) and "host" not in repr(none)
    assert (sum(some.outcome.waits.values()) == some.outcome.last - some.outcome.requests.arrival).all()
    slow = serve("1xh100", load, kv_host="4MiB", kv_host_rate="10MB/s", **few)
    assert slow.ttft_s.mean > some.ttft_s.mean
    pools = serve(
        "2xh100", "constant:rate=900,requests=9,input=64,output=4,prefix=48", kv_host="1MiB", **APART
    )
    assert (
        pools.service.prefill
        and pools.service.prefill.engine.slots[0]
        and not any(pools.service.engine.slots)
    )
    disk = serve("1xh100", load, kv_host="64KiB", kv_ssd="4MiB", **few)
    assert disk.service.engine.slots == (4, 256) and disk.outcome.hit.sum() == some.outcome.hit.sum()
    told = "its disk 256, back at 10 GB/s to each replica, as of two NVMe drives"
    assert any(told in each for each in disk.service.assumptions)
    for options, words in (
        ({"kv_host": "4"}, "kv-host 4: "),
        ({"kv_host": "1kB"}, "kv-host 1kB: 0 blocks of 16 KiB for each rank, expected 1 to"),
        ({"kv_host": "1GB", "kv_host_rate": "fast"}, "kv-host-rate fast: "),
        ({"kv_host_rate": "1GB/s"}, "kv-host-rate 1GB/s: expected it with kv-host only"),
        ({"kv_host": "1GB", "kv_ssd_rate": "1GB/s"}, "kv-ssd-rate 1GB/s: expected it with kv-ssd only"),
        ({"kv_ssd": "1GB", "kv_ssd_rate": "0GB/s"}, "kv-ssd-rate 0GB/s: expected a rate above 0"),
        ({"kv_host": "1GB", "cached": False}, "no blocks are kept on the devices"),
    ):
        with pytest.raises(InputError, match=words):
            serve("1xh100", LOAD, **options)


def test_means_have_an_interval_where_kernels_were_measured(serve: Callable[..., Serving]) -> None:
    found = serve("1xh100", LOAD)
    ends = found.interval_s("tpot")
    assert ends is not None and ends[0] < found.tpot_s.mean < ends[1]
    assert found.interval_s("e2e") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "vlm"}, "engine vlm: expected one of vllm, sglang, trtllm"),
        ({"scales": "row"}, "scales row: expected one of tensor, block"),
        ({"experts": "fp4"}, "experts: tiny has no experts, expected none"),
        ({"ep": 3}, "ep 3: expected 1 or tp 1"),
        ({"dp": 1, "balance": 3}, "balance 3: expected it with engine trtllm and dp above 1 only"),
        ({"dp": 3}, "dp 3: expected a divisor of 1"),
        ({"ingest_ns": -1}, "ingest -1 ns: expected 0 to"),
        ({"replicas": 0}, "replicas 0: expected a whole number from 1 to"),
    ],
)
def test_what_an_engine_cannot_be(
    serve: Callable[..., Serving], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        serve("1xh100", LOAD, **options)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "sparse.yaml"
    path.write_text(json.dumps(TINY | {"name": "sparse", "experts": {"count": 8, "top_k": 2, "size": 256}}))
    return str(path)


def test_ranks_with_requests_of_their_own_share_experts(sparse: str) -> None:
    load, small = "closed:clients=8,requests=16,input=64,output=8", {"budget": 64, "sequences": 8}
    one = armillary.serve(sparse, "4xh100", load, **small)
    own = armillary.serve(sparse, "4xh100", load, dp=4, ep=4, **small)
    assert (one.service.replicas, own.service.replicas) == (1, 1)
    assert "tp 1, dp 4" in engine_lines(own)[0] and "dp" not in engine_lines(one)[0]
    assert any("half the time of a two-shot" in each for each in own.service.assumptions)
    # Each has the weights of all but experts, of which it has a quarter, and a cache of its own.
    one_memory, own_memory = one.service.capacity, own.service.capacity
    assert one_memory and own_memory and own_memory.weights > one_memory.weights
    assert own_memory.per_token == 4 * one_memory.per_token
    assert own.outcome.replicas[0].capacity == 4 * own.service.engine.blocks
    waits = sum(own.outcome.waits.values())
    assert (waits == own.outcome.last - own.outcome.requests.arrival).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dp": 2, "tp": 2}, "dp 2: with tp 2 it is not modelled, expected tp 1"),
        ({"dp": 2, "ep": 3}, "ep 3: expected 1 or dp 2"),
        ({"dp": 8}, "dp 8: expected a divisor of 4, the devices of machine 4xh100 by tp 1"),
    ],
)
def test_how_ranks_cannot_share_experts(sparse: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        armillary.serve(sparse, "4xh100", LOAD, **options)


def test_without_experts_ranks_share_nothing(serve: Callable[..., Serving]) -> None:
    with pytest.raises(InputError, match="tiny has no experts that ranks could share"):
        serve("2xh100", LOAD, dp=2)


@pytest.mark.parametrize(("tokens", "said"), [(8_000, False), (9_000, True)])
def test_what_is_longer_than_a_model_reads_is_said(tokens: int, said: bool) -> None:
    found = armillary.serve("llama-3-8b", "1xh100", f"poisson:rate=1,requests=2,input={tokens},output=2")
    assert any("8,192" in text for text in found.service.assumptions) == said


def test_scales_without_fp8_have_no_effect(serve: Callable[..., Serving]) -> None:
    found = serve("1xh100", LOAD, scales="block")
    assert "scales block has no effect: no operand is in fp8" in found.service.assumptions
    assert found.ttft_s == serve("1xh100", LOAD).ttft_s
