"""Files made by copying against those that are encoded one by one."""

from __future__ import annotations

import pytest

from armillary.trace import Trace
from armillary.trace._encode import encode
from armillary.trace.expand import Expansion
from armillary.trace.stamp import Stamps
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PLANS = {
    "one rank": {"ranks": 1, "batch": 1},
    "groups of more digits": {"ranks": 64, "batch": 16, "parallel": {"tp": 4, "pp": 2}},
    "ranks of more bytes": {"ranks": 288, "batch": 72, "parallel": {"pp": 4}},
    "sharded": {"ranks": 16, "batch": 16, "data": {"sharding": "hsdp", "shard": 4}},
    "uneven experts in another order": {
        "ranks": 16, "batch": 8, "experts": {"skew": 0.8},
        "parallel": {"tp": 2, "ep": 4, "pp": 2, "cp": 2, "order": "pp-dp-ep-cp-tp"},
    },
}  # fmt: skip


def trace(name: str) -> Trace:
    model = Decoder(
        name="small", layers=4, hidden=64, vocabulary=100, context=32, tied=True, norm="rms", activation="swiglu",
        attention=Attention(heads=4), mlp=Mlp(size=64), experts=Experts(count=4, top_k=2, size=32),
    )  # fmt: skip
    return generate(model, Plan.model_validate(PLANS[name]))


@pytest.mark.parametrize("name", PLANS)
def test_copies_are_what_encoding_each_rank_gives(name: str) -> None:
    made = trace(name)
    stamps, expansion = Stamps(made), Expansion(made)
    for rank in range(made.n_ranks):
        assert stamps.file(rank) == encode(expansion.graph(rank), stamps.mode), rank


def test_few_files_are_encoded() -> None:
    """Numbers of 1, 2 and 3 mesh dimensions and ranks of 1 and 2 bytes make some layouts, not 288."""
    made = trace("ranks of more bytes")
    assert len(made.graphs) < len(Stamps(made).samples) <= 16


def test_ranks_without_groups() -> None:
    made = generate(load_model("resnet-50"), Plan(ranks=2, batch=2, optimizer="none"))
    assert Stamps(made).file(1) == encode(Expansion(made).graph(1))
