"""What served tokens cost: closed forms."""

from __future__ import annotations

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.explore.deploy.cost import bill
from armillary.serving.result import Serving

LOAD = "constant:rate=4,requests=8,input=64,output=32"


@pytest.fixture(scope="module")
def found() -> Serving:
    return armillary.serve("llama-3.1-8b", "2xh100", LOAD, tp=1)


def test_rented_devices_cost_their_hours(found: Serving) -> None:
    cost = bill(found, {"npu": {"rent": "3 USD"}})
    hours = found.outcome.duration_s / 3600
    assert cost.per_hour == 6
    assert cost.per_output == pytest.approx(1e6 * 6 * hours / (8 * 32))
    assert cost.per_token == pytest.approx(1e6 * 6 * hours / (8 * 96))
    assert cost.power is None and cost.energy is None
    assert "$6.00 an hour for 2 devices" in cost.text


def test_energy_goes_by_how_long_devices_work(found: Serving) -> None:
    cost = bill(found, {"npu": {"busy": "700 W", "idle": "100 W"}, "electricity": "0.1 USD"})
    power = 2 * (100 + 600 * found.outcome.busy)
    assert cost.power == pytest.approx(power)
    assert cost.energy == pytest.approx(1e6 * power * found.outcome.duration_s / (8 * 32) / 3.6e6)


def test_devices_have_their_share_of_a_host(found: Serving) -> None:
    costs = {"npu": {"price": "8 USD"}, "host": {"npus": 8, "price": "80 USD"}, "years": 1}
    cost = bill(found, costs)
    # Two devices, and a quarter of a host.
    assert cost.per_hour == pytest.approx((2 * 8 + 80 / 4) / (365.25 * 24))
    assert "of hosts of 8 devices: 25 %" in cost.notes


def test_costs_by_operations_are_refused(found: Serving) -> None:
    with pytest.raises(InputError, match=r"npu\.flop: operations of served requests are not counted"):
        bill(found, "h100-operations")
    with pytest.raises(InputError, match="nothing says what an hour or its energy is"):
        bill(found, {"years": 3})
