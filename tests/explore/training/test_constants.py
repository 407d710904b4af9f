"""Constants of a software, as they enter a plan."""

from __future__ import annotations

from armillary.explore.training.constants import Constants


def test_what_a_plan_says_of_the_host_replaces_its_own_times_only() -> None:
    constants = Constants(issue=5.0, synchronise=20.0)
    usual = {"issue": "5000 ns", "synchronise": "20000 ns"}
    assert constants.plan({})["host"] == usual
    assert constants.plan({"host": {"issue": "1 us"}})["host"] == usual | {"issue": "1 us"}
    assert constants.plan({"host": {"graphs": ["router"]}})["host"] == usual | {"graphs": ["router"]}
    # No work at all, and servers, whose graphs leave the CPU out.
    assert constants.plan({"host": {}})["host"] == {}
    assert "host" not in constants.plan({"data": {"sharding": "parameter-server"}})
