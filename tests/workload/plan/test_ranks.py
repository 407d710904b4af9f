"""The grid of a plan: whatever comes first in the order, no group but those of pp leaves a stage."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from armillary.base.errors import InputError
from armillary.trace.grid import RankGrid
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Plan

SIZES = [
    {"tp": tp, "cp": cp, "pp": 2, "ep": ep, "etp": etp, "dp": dp}
    for tp, cp, ep, etp, dp in product((1, 2), (1, 2), (1, 2), (1, 2), (1, 4))
]


def grid(order: tuple[str, ...], sizes: dict[str, int], **data: object) -> RankGrid:
    """Return the grid of an order, of as many ranks as it takes."""
    ranks = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp"]
    parallel = {**sizes, "order": "-".join(order)}
    return rank_grid(
        Plan.model_validate({"ranks": ranks, "batch": ranks, "parallel": parallel, "data": data})
    )


@pytest.mark.parametrize("order", list(permutations(("tp", "cp", "ep", "dp", "pp"))), ids="-".join)
def test_ranks_that_share_weights_or_tokens_are_of_one_stage(order: tuple[str, ...]) -> None:
    possible = 0
    for sizes in SIZES:
        try:
            found = grid(order, sizes)
        except InputError:
            continue
        possible += 1
        stages = set(found.mesh_dims("pp"))
        for axis in set(found.axes) - {"pp"}:
            assert not stages & set(found.mesh_dims(axis)), (axis, sizes)
        shared = set(found.mesh_dims("cp")) | set(found.mesh_dims("dp"))
        assert set(found.mesh_dims("fsdp+replicate")) == shared, sizes
        assert set(found.mesh_dims("etp+ep+edp")) == set(found.mesh_dims("tp+cp+dp")), sizes
    assert possible >= 8, possible


def test_shards_of_hsdp_are_neighbours_within_a_stage() -> None:
    found = grid(
        ("tp", "cp", "ep", "pp", "dp"),
        {"tp": 1, "cp": 1, "pp": 2, "ep": 1, "dp": 4},
        sharding="hsdp",
        shard=2,
    )
    assert (found.sizes, found.axes["pp"], found.axes["fsdp"], found.axes["replicate"]) == (
        (2, 2, 2),
        (0,),
        (1,),
        (2,),
    )


def test_an_order_that_puts_experts_into_other_stages_is_refused() -> None:
    with pytest.raises(
        InputError, match="pp 2 has neighbours 2 ranks apart among experts, and 1 among other"
    ):
        grid(("tp", "cp", "ep", "pp", "dp"), {"tp": 1, "cp": 1, "pp": 2, "ep": 2, "dp": 4})
