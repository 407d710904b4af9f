"""Prices by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from armillary.base.errors import InputError
from armillary.explore.cost import Costs, load_costs, price
from armillary.explore.cost.presets import cost_preset_names, read_cost_preset
from armillary.explore.cost.price import classes, per_bandwidth
from armillary.explore.cost.schema import unverified
from armillary.platform import Dimension, Platform
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Npu
from armillary.platform.network import Port

LIBRA_4D = Platform(
    tuple(
        Dimension(name, topology, size, 1.0, 500.0, Port(rate, rate))  # type: ignore[arg-type]
        for name, topology, size, rate in (
            ("a", "Ring", 4, 400.0),
            ("b", "FullyConnected", 8, 300.0),
            ("c", "Ring", 4, 200.0),
            ("d", "Switch", 32, 100.0),
        )
    )
)


def libra(rates: tuple[float, ...]) -> float:
    """The cost of LIBRA's 4D network, as its model counts: instances x links x bandwidth of a link x price."""
    a, b, c, d = rates
    ring_a = 1024 * (4 * 2) * (a / 2) * 2.0
    full_b = 512 * (8 * 7) * (b / 7) * 4.0
    ring_c = 1024 * (4 * 2) * (c / 2) * 4.0
    switch_d = 1 * 4096 * d * (7.8 + 18.0 + 31.6)
    return ring_a + full_b + ring_c + switch_d


def test_libra_network_costs_what_its_own_model_says() -> None:
    found = price(LIBRA_4D, load_costs("libra"))
    assert found.total == pytest.approx(libra((400, 300, 200, 100)))
    assert found.missing == ("NPUs (npu.price)", "hosts (host.price)")
    each = per_bandwidth(LIBRA_4D, load_costs("libra"))
    assert sum(a * b for a, b in zip(each, (400, 300, 200, 100), strict=True)) == pytest.approx(found.total)


def test_all_parts_by_hand() -> None:
    costs = Costs.model_validate(
        {
            "npu": {"price": "20 kUSD"},
            "memory": {"price": "10 USD"},
            "host": {"npus": 32, "price": "5 kUSD"},
            "links": {"pod": {"link": "1 USD", "switch": "2 USD", "nic": "3 USD"}, "node": {"link": "1 USD"}},
            "other": "10 %",
        }
    )
    platform = Platform(
        LIBRA_4D.dimensions[1:], npu=Npu(memory=LocalMemory(capacity=80 * 10**9))
    )  # 8 x 4 in a host, 32 of them
    npus = 1024
    assert [kind for kind, _ in classes(platform, costs)] == ["package", "node", "pod"]
    found = price(platform, costs)
    assert found.missing == ("dimension b (links.package)",)
    machine = npus * 20_000 + npus * 80 * 10 + 32 * 5000 + npus * 200 * 1 + npus * 100 * 6
    assert found.total == pytest.approx(1.1 * machine)


def test_a_dimension_may_be_of_a_named_class() -> None:
    costs = Costs(preset="libra", dimensions={"d": "node"})
    assert price(LIBRA_4D, costs).total == pytest.approx(libra((400, 300, 200, 0)) + 4096 * 100 * 17)
    with pytest.raises(InputError, match=r"dimensions: got 'e', expected one of a, b, c, d"):
        price(LIBRA_4D, replace_dimensions(costs, {"e": "node"}))
    with pytest.raises(InputError, match=r"dimensions.d: got 'nod', expected .*did you mean 'node'"):
        load_costs({"preset": "libra", "dimensions": {"d": "nod"}})


def replace_dimensions(costs: Costs, dimensions: dict[str, str]) -> Costs:
    return costs.model_copy(update={"dimensions": dimensions})


def test_what_is_multiplied_by_an_unknown_capacity_is_refused() -> None:
    with pytest.raises(InputError, match=r"memory.price: the machine says no npu.memory.capacity"):
        price(LIBRA_4D, load_costs({"memory": {"price": "10 USD"}}))
    assert price(LIBRA_4D, Costs()).items == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"npu": {"busy": "700 W", "flop": {"bf16": "1 pJ"}}}, "npu: got busy and flop"),
        ({"npu": {"busy": "700 W"}}, "got busy without idle"),
        ({"npu": {"price": 5}}, "npu.price: got 5, expected a price with a unit, e.g. '250 USD'"),
        ({"npu": {"prize": "5 USD"}}, "npu.prize: unknown key.*did you mean 'price'"),
        ({"pue": 0.5}, "pue: got 0.5, expected 1"),
        ({"preset": "h10"}, "got 'h10', expected .*did you mean 'h100'"),
    ],
)
def test_errors_name_the_key(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_costs(given)


@pytest.mark.parametrize("name", cost_preset_names())
def test_every_number_of_a_preset_says_where_it_is_from(name: str) -> None:
    preset = read_cost_preset(name)
    from armillary.platform.files.preset import leaves

    assert {key for key, _ in leaves(preset.document.data["costs"])} == {each.key for each in preset.numbers}
    assert all(each.says for each in preset.numbers)
    assert set(unverified(load_costs(name))) == {each.key for each in preset.numbers if each.unverified}


def test_a_number_that_is_changed_is_no_longer_unverified() -> None:
    changed = load_costs({"preset": "h100", "years": 5, "npu": {"idle": "90 W"}})
    assert "npu.idle" not in unverified(changed) and "years" not in unverified(changed)
    assert changed.npu.price == 27500 and "other" in unverified(changed)


def test_capacity_of_the_platform_is_used() -> None:
    platform = replace(LIBRA_4D, npu=Npu(memory=LocalMemory(capacity=10**9)))
    assert price(platform, load_costs({"memory": {"price": "2 USD"}})).total == 8192
