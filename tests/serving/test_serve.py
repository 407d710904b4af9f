"""Serving from end to end, as Python and as the command offer it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.serving.kernels import INGEST_NS, TOKEN_PS
from armillary.serving.load import load_requests
from armillary.serving.result import Serving
from armillary.serving.service import share_of, shares_of

TINY = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 2048,
    "tied": False, "norm": "rms", "activation": "swiglu",
    "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 512},
}  # fmt: skip
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
    assert {*alone.outcome.waits["queue"]} == {INGEST_NS + 64 * TOKEN_PS // 1000}
    assert alone.outcome.e2e[0] == pytest.approx(alone.outcome.ttft[0] + 7 * alone.outcome.tpot[0])


def test_replicas_share_a_load(serve: Callable[..., Serving]) -> None:
    one, two = (serve("2xh100", LOAD, tp=tp) for tp in (2, 1))
    assert (one.service.replicas, two.service.replicas) == (1, 2)
    assert two.outcome.replica.tolist() == [0, 1] * 6
    # Each replica is served as if it were alone.
    requests = load_requests(LOAD)
    for at, mine in enumerate(shares_of(requests, 2)):
        alone = serve("1xh100", share_of(requests, mine, 2, at))
        assert two.outcome.last[mine].tolist() == alone.outcome.last.tolist()


@pytest.mark.parametrize(("clients", "replicas"), [(5, 2), (1, 4), (3, 3)])
def test_clients_are_divided(clients: int, replicas: int) -> None:
    requests = load_requests(f"closed:clients={clients},requests=11,input=4,output=2")
    shares = shares_of(requests, replicas)
    parts = [share_of(requests, mine, len(shares), at) for at, mine in enumerate(shares)]
    assert sum(each.clients for each in parts) == clients and all(each.clients for each in parts)
    assert sorted(np.concatenate(shares)) == list(range(11))
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
    plain, slow = serve("1xh100", LOAD), serve("1xh100", LOAD, overhead_ns=50_000)
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
