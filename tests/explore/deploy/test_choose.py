"""Which replicas serve a load on the fewest devices: no fewer would do, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.deploy.choose import Deployments, plan_serving
from armillary.explore.deploy.flags import launch
from armillary.serving.load import load_requests
from armillary.serving.pools import apart
from armillary.serving.service import Service, limits_of

TINY: dict[str, Any] = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 2048,
    "tied": False, "norm": "rms", "activation": "swiglu",
    "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 512},
}  # fmt: skip
LOAD = "poisson:rate=20000,requests=40,input=64-128,output=8-16"
SLO = "ttft=3ms,tpot=150us"
SMALL: dict[str, Any] = {
    "engine": "vllm", "budget": 128, "sequences": 8, "ingest_ns": 0, "overhead_ns": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.yaml"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.fixture(scope="module")
def found(tiny: str) -> Deployments:
    return plan_serving(tiny, "4xh100", LOAD, slo=SLO, **SMALL)


def test_no_fewer_devices_would_do(found: Deployments) -> None:
    requests, limits, most = load_requests(LOAD), limits_of(SLO), 4
    alone = [each.service for each in found.tried if not each.service.prefill]
    kinds = [*{each.replica_devices: each for each in alone}.values()]
    assert {each.replica_devices for each in kinds} == {1, 2, 4}
    good: dict[int, float] = {}

    def note(devices: int, share: float) -> None:
        good[devices] = max(share, good.get(devices, 0.0))

    for each in kinds:
        for count in range(1, most // each.replica_devices + 1):
            note(
                count * each.replica_devices, replace(each, replicas=count).run(requests).good(limits).mean()
            )
    for one in kinds:
        for other in kinds:
            for x in range(1, most + 1):
                for y in range(1, most + 1):
                    used = x * one.replica_devices + y * other.replica_devices
                    if used <= most:
                        note(used, apart(one, other, x, y, requests).run(requests).good(limits).mean())
    enough = [devices for devices, share in good.items() if share >= 0.9]
    assert 1 < min(enough) < most
    assert found.best.meets and found.best.devices == min(enough)


def test_what_was_tried_is_in_order(found: Deployments, tiny: str) -> None:
    meets = [each for each in found.tried if each.meets]
    assert [each.meets for each in found.tried] == [True] * len(meets) + [False] * (
        len(found.tried) - len(meets)
    )
    assert [each.devices for each in meets] == sorted(each.devices for each in meets)
    # None on the front is beaten in both by another that is enough; each other one is.
    for each, on in zip(meets, found.front, strict=False):
        beaten = [
            other for other in meets
            if other.per_device >= each.per_device and other.per_user >= each.per_user
            and (other.per_device > each.per_device or other.per_user > each.per_user)
        ]  # fmt: skip
        assert on == (not beaten)
    assert not any(found.front[len(meets) :])
    assert len({each.name for each in found.tried}) == len(found.tried)
    assert any(each.service.prefill for each in found.tried)
    # A deployment is what serve makes of it.
    alone = next(each for each in found.tried if each.name == "2 x tp 1")
    same = armillary.serve(tiny, "2xh100", LOAD, tp=1, slo=SLO, **SMALL)
    assert alone.served.outcome.last.tolist() == same.outcome.last.tolist()
    assert found.best.name in repr(found) and found.to_html() is not None


def test_what_no_number_of_replicas_meets(tiny: str) -> None:
    found = armillary.plan_serving(tiny, "2xh100", LOAD, slo="ttft=1us", share=0.5, **SMALL)
    assert not found.best.meets and found.headline.startswith("None of ")


def test_engine_and_precision_are_chosen(tiny: str) -> None:
    options = SMALL | {"engine": ["trtllm", "vllm"], "precision": ["bf16", "fp8"]}
    found = plan_serving(tiny, "2xh100", LOAD, slo=SLO, **options)
    which = {(each.service.engine.rule, each.service.plan.numbers.compute) for each in found.tried}
    assert which == {(engine, each) for engine in ("trtllm", "vllm") for each in ("bf16", "fp8")}
    for each in found.tried:
        before = each.service.prefill
        assert before is None or before.engine.rule == each.service.engine.rule
        assert before is None or before.plan.numbers == each.service.plan.numbers
    one = next(each for each in found.tried if each.name == "1 x tp 2, trtllm, fp8")
    own = SMALL | {"engine": "trtllm", "precision": "fp8"}
    same = armillary.serve(tiny, "2xh100", LOAD, tp=2, slo=SLO, **own)
    assert one.served.outcome.last.tolist() == same.outcome.last.tolist()
    # What decides between engines and precisions is said.
    assert sum("devices needed: " in each or "quantising" in each for each in found.assumptions) == 2
    assert f"precision {options['precision'][0]}" not in found.headline


def test_engines_are_those_that_were_measured_on_the_device(tiny: str) -> None:
    small = {key: value for key, value in SMALL.items() if key != "engine"}
    known = {
        machine: {
            each.service.engine.rule for each in plan_serving(tiny, machine, LOAD, slo=SLO, **small).tried
        }
        for machine in ("1xh100", "1xa100")
    }
    assert known == {"1xh100": {"vllm", "sglang", "trtllm"}, "1xa100": {"vllm"}}
    assert "engine sglang" in plan_serving(tiny, "1xa100", LOAD, slo=SLO, **small).rejected


BURSTS = "poisson:rate=12,requests=100,input=3500,output=64"


def test_other_limits_of_a_step_save_devices() -> None:
    def tried(**options: Any) -> Deployments:
        return plan_serving(
            "llama-3.1-8b", "2xh100", BURSTS, slo="ttft=3s,tpot=25ms", engine="vllm", **options
        )

    usual, found = tried(budget=8192, sequences=1024), tried()
    assert usual.best.meets and found.best.meets and found.best.devices < usual.best.devices
    own = found.best.service.engine
    assert own.sequences < 100 and f"--max-num-seqs {own.sequences}" in launch(found.best.service)[0]
    same = armillary.serve(
        "llama-3.1-8b", "1xh100", BURSTS, slo="ttft=3s,tpot=25ms", budget=own.budget, sequences=own.sequences
    )
    assert same.good == found.best.good
    # Of several that are given only these are tried.
    given = tried(sequences=[1024, own.sequences])
    assert {each.service.engine.sequences for each in given.tried} <= {1024, own.sequences}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": []}, "plan serve: engine: got [], expected one or several"),
        ({"engine": ["vllm", "tgi"]}, "engine 'tgi': expected one of vllm, sglang, trtllm"),
        ({"precision": ["bf16", "fp9"]}, "precision 'fp9': expected "),
        ({"budget": [128, "much"]}, "budget: got 'much', expected a whole number"),
        ({"sequences": [8, 0]}, "sequences 0: expected a whole number from 1 to "),
        ({"tp": 2}, "plan serve: tp is chosen"),
        ({"slots": 2}, "plan serve: no option 'slots'"),
        ({"share": 0.0}, "share 0 %: expected a share of the requests"),
        ({"slo": ""}, "there is no objective"),
        ({"memory": 1e-4}, "no replica fits on 2xh100; tiny does not fit"),
    ],
)
def test_what_is_refused(tiny: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        plan_serving(tiny, "2xh100", LOAD, **{"slo": SLO} | SMALL | options)
    assert words in str(error.value)
    with pytest.raises(InputError, match="expected an open load"):
        plan_serving(tiny, "2xh100", "closed:clients=2,requests=4,input=8,output=2", slo=SLO)


def test_the_command_prints_and_writes(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    words = [
        "plan",
        "serve",
        tiny,
        "--machine",
        "2xh100",
        "--load",
        LOAD,
        "--slo",
        SLO,
        "--budget",
        "128",
        "--top",
        "30",
    ]
    done = CliRunner().invoke(main, [*words, "--json", str(path), "--html", str(tmp_path / "plan.html")])
    assert done.exit_code == 0, done.output
    for word in ("tried", "tokens/s per device", "How to start it", "vllm serve", "Assumed: "):
        assert word in done.output
    read = json.loads(path.read_text())
    assert read["tried"][0]["devices"] == read["best"]["devices"] and len(read["launch"]) in (1, 2)
    assert CliRunner().invoke(main, [*words, "--share", "all"]).exit_code == 2
    # As an option of `plan`, too.
    other = CliRunner().invoke(main, ["plan", tiny, "--serve", *words[3:], "--engine", "vllm,sglang"])
    assert other.exit_code == 0 and "sglang" in other.output, other.output
    wrong = CliRunner().invoke(main, [*words, "--sequences", "8,x"])
    assert wrong.exit_code == 2 and "--sequences '8,x': expected whole numbers" in wrong.output


def test_commands_start_what_was_simulated(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.yaml"
    sparse.write_text(json.dumps(TINY | {"name": "sparse", "experts": {"count": 8, "top_k": 2, "size": 256}}))
    load = "poisson:rate=2000,requests=4,input=64,output=8"
    small = {"budget": 64, "sequences": 8, "cached": False}
    one, ranks = (
        armillary.serve(str(sparse), "4xh100", load, **small | keys).service
        for keys in ({"tp": 4, "cache_precision": "fp8"}, {"dp": 4, "ep": 4})
    )

    def lines(of: Service, rule: str) -> list[str]:
        return launch(replace(of, engine=replace(of.engine, rule=rule)))

    own = lines(one, "vllm")
    assert len(own) == 1 and "--tensor-parallel-size 4" in own[0] and "--no-enable-prefix-caching" in own[0]
    assert "--max-num-batched-tokens 64" in own[0] and "--kv-cache-dtype fp8" in own[0]
    own = lines(ranks, "vllm")
    assert "--data-parallel-size 4" in own[0] and "--enable-expert-parallel" in own[0]
    # SGLang counts the devices and sequences of all ranks.
    own = lines(ranks, "sglang")
    for word in (
        "--tp-size 4", "--dp-size 4", "--enable-dp-attention", "--ep-size 4", "--max-running-requests 32",
        "--disable-radix-cache",
    ):  # fmt: skip
        assert word in own[0]
    own = lines(ranks, "trtllm")
    assert "enable_attention_dp: true" in own[0] and "--tp_size 4" in own[0]
    kind = replace(one, engine=replace(one.engine, rule="sglang"), plan=ranks.plan)
    pair = launch(apart(kind, kind, 1, 2, load_requests(load)))
    assert "--disaggregation-mode prefill" in pair[0] and pair[1].startswith("2 replicas (decode)")
    assert f"--num-gpu-blocks-override {one.engine.blocks}" in lines(replace(one, capacity=None), "vllm")[0]
