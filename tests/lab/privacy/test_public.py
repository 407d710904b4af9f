"""The attack that names a public model by the total of its gradients."""

from __future__ import annotations

import json

import pytest

from armillary.lab.privacy.evaluate import Setting
from armillary.lab.privacy.obfuscate import LEVELS
from armillary.lab.privacy.public import PUBLIC, Named, draw_public, gradient_bytes, name_public, named
from armillary.lab.privacy.show import not_hidden, public_table
from armillary.trace.expand import expand
from armillary.workload.generate import generate
from armillary.workload.models.counts import parameters
from armillary.workload.models.read import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Parallel, Plan


@pytest.mark.parametrize(("tp", "pp", "sharding"), [(4, 2, "ddp"), (1, 4, "zero-1"), (2, 1, "ddp")])
def test_gradients_of_replicas_are_the_parameters(tp: int, pp: int, sharding: str) -> None:
    model = load_model("llama-2-7b")
    assert isinstance(model, Decoder)
    plan = Plan(
        ranks=16, batch=16, parallel=Parallel(tp=tp, pp=pp), data=Data.model_validate({"sharding": sharding})
    )
    trace = generate(model, plan)
    assert gradient_bytes(trace) == pytest.approx(4 * parameters(model).total, rel=1e-3)
    assert named(trace) == named(expand(trace)) == "llama-2-7b"


def test_without_collectives_there_is_nothing_to_name() -> None:
    model = load_model("llama-2-7b")
    assert isinstance(model, Decoder)
    assert named(generate(model, Plan(ranks=1, batch=1))) is None


def test_names_and_sizes_hide_no_public_model() -> None:
    found = name_public(6, 3, (Setting("names", LEVELS[1]), Setting("sizes", LEVELS[2])))
    assert [each.right for each in found[:2]] == [6, 6]
    assert found[2].right >= 5
    assert [name for name, _ in draw_public(6, 3)] == [name for name, _ in draw_public(6, 3)]
    assert public_table(found).row_count == 4
    assert "names, sizes" in not_hidden(found)
    assert json.loads(json.dumps(found[0].document()))["right"] == 6


def test_intervals() -> None:
    """Against the values of Wilson's interval for 8 of 10, as in Agresti and Coull (1998), rounded."""
    low, high = Named("x", 8, 10).interval
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)
    assert Named("x", 10, 10).interval[1] == pytest.approx(1)
    for runs in range(1, 120):
        for right in (0, runs // 3, runs):
            low, high = Named("x", right, runs).interval
            assert 0 <= low <= right / runs <= high <= 1
    assert not_hidden([Named("x", 1, 12)]).endswith(f"1 in {len(PUBLIC)}")
