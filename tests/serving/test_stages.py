"""Pipeline stages and adapters: memory and times against those of a model without, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.compute.machine import machine_of
from armillary.serving.adapters import Adapters, adapters_of
from armillary.serving.load import load_requests
from armillary.serving.serve import serve
from armillary.serving.service import Service, service
from armillary.serving.spread import Wanted
from armillary.serving.stages import passed_ns
from armillary.workload.models import load_model

LOAD = "constant:rate=2,requests=4,input=256,output=16"


def built(machine: str = "4xh100", **options: Any) -> Service:
    wanted = Wanted(budget=512, sequences=16, **options)
    return service(load_model("llama-3.1-8b"), machine_of(machine), load_requests(LOAD), wanted)


def test_stages_divide_weights_and_cache_and_pass_tokens_on() -> None:
    whole, staged = built("1xh100", tp=1), built("4xh100", tp=1, pp=4)
    assert whole.capacity and staged.capacity
    # Four stages have 32 layers, an embedding and a head; the fullest has one of these two.
    assert 1 / 4 < staged.capacity.weights / whole.capacity.weights < 0.32
    lanes = staged.replicas
    assert (lanes, staged.devices) == (4, 4)
    # All lanes together hold what four devices hold beside the weights of one model.
    assert whole.engine.blocks < staged.engine.blocks < 4 * whole.engine.blocks
    passed = passed_ns(load_model("llama-3.1-8b"), machine_of("4xh100"), 1, 4, 512)  # type: ignore[arg-type]
    assert passed[0] == 0 and 0 < passed[1] < passed[512]
    assert (staged.table.dense - whole.table.dense[: len(staged.table.dense)] == passed).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 1, "pp": 3}, r"pp 3: expected a divisor of 4"),
        ({"pp": 0}, r"pp 0: expected a divisor"),
        ({"tp": 2, "pp": 2, "drafts": 1, "accepted": 1.5}, r"pp 2: with drafts 1 it is not modelled"),
        ({"tp": 2, "pp": 2, "kv_host": "1GiB"}, r"pp 2: with kv-host or kv-ssd it is not modelled"),
        ({"tp": 2, "pp": 2, "fail": "mtbf=1h,repair=1min"}, r"fail: with pp 2 it is not modelled"),
        ({"tp": 2, "pp": 2, "attention_precision": "bf16"}, r"attention-precision bf16: with pp 2 it is not"),
        (
            {"tp": 1, "pp": 2, "prefill_replicas": 1, "decode_replicas": 1},
            r"pp 2: with prefill-replicas it is not modelled",
        ),
        ({"lora_rank": 8}, r"lora-rank 8: expected it with lora above 0"),
        ({"lora": -1}, r"lora -1: expected a number of adapters"),
        ({"lora": 2, "lora_rank": 0}, r"lora-rank 0: expected a whole number"),
        ({"lora": 4096, "lora_rank": 512}, r"lora 4096: adapters of .* leave no room"),
        ({"expert_kernels": "triton"}, r"expert-kernels: Llama 3\.1 8B has no experts"),
    ],
)
def test_what_is_wrong_or_not_modelled_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        serve("llama-3.1-8b", "4xh100", LOAD, budget=512, sequences=16, **options)


def test_adapters_take_memory_and_time() -> None:
    plain, few, many = built(tp=4), built(tp=4, lora=1), built(tp=4, lora=64, lora_rank=64)
    assert plain.engine.blocks > few.engine.blocks > many.engine.blocks
    for tokens in (1, 16, 512):
        times = [int(each.table.dense[tokens]) for each in (plain, few, many)]
        assert times == sorted(times) and len({*times}) == 3
    assert any("64 adapters of rank 64" in each for each in many.assumptions) and not many.measured


def test_tokens_of_requests_of_their_own_touch_adapters() -> None:
    assert Adapters(1, 16).touched(5) == pytest.approx(1)
    assert Adapters(8, 16).touched(1) == pytest.approx(1)
    assert 7.9 < Adapters(8, 16).touched(64) < 8
    assert adapters_of(0, None) is None
