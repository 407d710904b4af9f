"""The machine of the most goodput within a budget: what is proved is true, bounds hold, and nonsense is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import fsum, inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.compute.machine import Machine, machine_of
from armillary.explore.codesign import search as searching
from armillary.explore.codesign.found import Designs
from armillary.explore.codesign.kept import Kept
from armillary.explore.codesign.load import Codesign, load_codesign
from armillary.explore.codesign.search import plan_machine
from armillary.explore.codesign.show import codesign_json
from armillary.explore.codesign.workload import Taken, Training
from armillary.explore.codesign.worth import worth
from armillary.explore.cost import load_costs
from armillary.explore.training.choose import SlowerError, plan

TINY: dict[str, Any] = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 2048,
    "tied": False, "norm": "rms", "activation": "swiglu",
    "attention": {"heads": 8, "kv_heads": 4}, "mlp": {"size": 512},
}  # fmt: skip
ROOFLINE: dict[str, Any] = {
    "network": [
        {"name": "up", "topology": "Switch", "size": 2, "bandwidth": "450 GB/s", "latency": "1 us"},
        {"name": "out", "topology": "Switch", "size": 2, "bandwidth": "50 GB/s", "latency": "5 us"},
    ],
    "npu": {"peak": {"bf16": "989 TFLOP/s"}, "memory": {"capacity": "80 GB", "bandwidth": "3350 GB/s"}},
    "compute": {"roofline": True, "efficiency": "60 %"},
}
COSTS: dict[str, Any] = {
    "npu": {"price": "1 kUSD", "busy": "500 W", "idle": "100 W"},
    "host": {"npus": 2, "price": "2 kUSD", "power": "1 kW"},
    "links": {"node": {"link": "1 USD"}, "pod": {"link": "2 USD", "switch": "3 USD", "power": "1 W"}},
    "years": 4, "electricity": "0.1 USD", "pue": 1.1,
}  # fmt: skip
TRAIN: dict[str, Any] = {"train": "tiny.yaml", "batch": 16, "plan": {"sequence": 512}, "weight": "60 %"}
SERVE: dict[str, Any] = {
    "serve": "tiny.yaml", "load": "poisson:rate=20000,requests=60,input=64-128,output=8-16",
    "slo": "ttft=5ms,tpot=200us", "options": {"budget": 128, "sequences": 8, "ingest_ns": 0, "overhead_ns": 0},
    "weight": "40 %",
}  # fmt: skip


def document(**more: Any) -> dict[str, Any]:
    """Return a mix on four machines."""
    vary = {"platform.network.out.size": [2, 4], "platform.network.out.bandwidth": ["5 GB/s", "50 GB/s"]}
    return {
        "mix": [TRAIN, SERVE], "machines": [{"machine": ROOFLINE, "name": "r", "costs": COSTS, "vary": vary}],
        "budget": {"power": "20 kW"}, **more,
    }  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(json.dumps(TINY))
    return tmp_path


@dataclass(frozen=True)
class Drawn:
    """A workload whose bounds and times are drawn, by the name of a machine."""

    weight: float
    bounds: Mapping[str, float]
    seconds: Mapping[str, float]
    key: Any = "drawn"
    name: str = "drawn"
    unit: str = "units"

    def least(self, machine: Machine) -> float:
        return self.bounds[machine.name]

    def take(self, machine: Machine, within: float, tell: Any) -> Taken:
        if self.seconds[machine.name] == inf:
            raise InputError("impossible")
        # Plans have better bounds than peaks: halfway to the time.
        better = (self.bounds[machine.name] + self.seconds[machine.name]) / 2
        if better > within:
            raise SlowerError(better)
        return Taken(self.seconds[machine.name], None, 0.01, "how", "limits", ())


MACHINE = machine_of(ROOFLINE)


def drawn_space(count: int, mix: tuple[Drawn, ...], over: frozenset[int]) -> Codesign:
    """Return a space of so many machines, of which the first is the reference, and those `over` too dear."""
    cheap, dear = (load_costs({"npu": {"price": price}, "years": 1}) for price in ("1 USD", "1 kUSD"))

    def entry(number: int) -> Any:
        def machines() -> Iterator[Machine]:
            yield replace(MACHINE, name=str(number))

        return SimpleNamespace(
            machines=machines,
            costs=dear if number in over else cheap,
            space=SimpleNamespace(size=1),
            by_links=False,
        )

    entries = tuple(entry(number) for number in range(count))
    return Codesign(
        Path(),
        mix,
        entries,
        {"capital": 100.0},
        replace(MACHINE, name="0"),
        Document("drawn", {}),
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_is_proved_is_the_best_of_all_machines(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    number = st.floats(0.1, 10)
    mix = []
    for _ in range(data.draw(st.integers(1, 3))):
        seconds = {str(each): data.draw(number) for each in range(count)}
        bounds = {name: each * data.draw(st.floats(0.05, 1)) for name, each in seconds.items()}
        for each in range(1, count):
            if data.draw(st.integers(0, 6)) == 0:
                seconds[str(each)] = inf
        mix.append(Drawn(data.draw(number), bounds, seconds))
    weights = fsum(each.weight for each in mix)
    mix = [replace(each, weight=each.weight / weights) for each in mix]
    over = frozenset(data.draw(st.sets(st.integers(1, count))))
    asked = drawn_space(count, tuple(mix), over)
    most = data.draw(st.none() | st.integers(1, count))
    with Kept(None, Path()) as kept:
        found = searching._Search(asked, kept, lambda *_: None)
        try:
            got = found.run(most)
        except InputError:
            assert most is not None
            return
    goodputs = {
        name: 1 / fsum(each.weight * each.seconds[name] / each.seconds["0"] for each in mix)
        for name in map(str, range(count)) if int(name) not in over
        and all(each.seconds[name] < inf for each in mix)
    }  # fmt: skip
    best = max(goodputs.values())
    if most is None:
        assert not got.left
    if not got.left:
        assert got.best.goodput == pytest.approx(best, rel=1e-12)
    assert got.best.goodput * (1 + got.gap) >= best * (1 - 1e-12)
    assert got.ideal >= best * (1 - 1e-12)
    assert [each.goodput for each in got.designs] == sorted(
        (each.goodput for each in got.designs), reverse=True
    )
    for design in got.designs:
        assert design.goodput == pytest.approx(goodputs[design.name], rel=1e-12)
        assert fsum(design.shares) == pytest.approx(1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Designs:
    (folder := tmp_path_factory.mktemp("mix")).joinpath("tiny.yaml").write_text(json.dumps(TINY))
    (folder / "mix.json").write_text(json.dumps(document()))
    return plan_machine(folder / "mix.json")


def test_a_search_is_that_of_all_machines(found: Designs) -> None:
    assert found.points == 4
    assert found.affordable == 4
    assert not found.left
    asked = found.asked
    whole = {}
    for machine in asked.entries[0].machines():
        taken = [each.take(machine, inf, lambda *_: None) for each in asked.mix]
        reference = found.reference.taken
        whole[machine.name] = 1 / fsum(
            each.weight * one.seconds / other.seconds
            for each, one, other in zip(asked.mix, taken, reference, strict=True)
        )
        # No machine beats what peaks allow.
        for each, one in zip(asked.mix, taken, strict=True):
            assert each.least(machine) <= one.seconds
    assert found.best.goodput == pytest.approx(max(whole.values()))
    assert found.best.name == max(whole, key=lambda name: whole[name])
    assert found.reference.goodput == pytest.approx(1)


@pytest.mark.parametrize(
    "machine",
    ["8xh100", *(pytest.param(each, marks=pytest.mark.slow) for each in ("dgx-b200", "8xmi300x"))],
)
def test_bounds_hold_on_measured_devices(here: Path, machine: str) -> None:
    asked = load_codesign(document(machines=[{"machine": machine, "costs": COSTS}]))
    of = next(asked.entries[0].machines())
    for each in asked.mix:
        taken = each.take(of, inf, lambda *_: None)
        assert 0 < each.least(of) < taken.seconds


def test_prices_and_power_follow_from_the_parts() -> None:
    known = worth(MACHINE.platform, load_costs(COSTS))
    capital = 4 * 1000 + 2 * 2000 + 4 * 450 * (1 + 0) + 4 * 50 * (2 + 3)
    power = 1.1 * (4 * 500 + 2 * 1000 + 4 * 50 * 1)
    assert known.capital == pytest.approx(capital)
    assert known.power == pytest.approx(power)
    assert known.cost_per_year == pytest.approx(capital / 4 + power / 1000 * 0.1 * 365.25 * 24)


def test_a_rented_machine_has_no_price_and_no_power(here: Path) -> None:
    rent = {"npu": {"rent": "2 USD"}}
    machines = [{"machine": ROOFLINE, "costs": rent}]
    assert worth(MACHINE.platform, load_costs(rent)).cost_per_year == pytest.approx(4 * 2 * 365.25 * 24)
    for budget, needed in (("capital", "npu.price, not npu.rent"), ("power", "npu.busy and npu.idle")):
        most = {"capital": "1 MUSD", "power": "1 MW"}[budget]
        with pytest.raises(InputError, match=needed):
            plan_machine(document(machines=machines, budget={budget: most}))


def test_a_plan_that_cannot_be_fast_enough_is_not_simulated(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = plan("tiny.yaml", MACHINE, batch=16, sequence=512, top=1).best.step_time_s
    assert plan("tiny.yaml", MACHINE, batch=16, sequence=512, top=1, within=best).best.step_time_s == best
    with monkeypatch.context() as patched:
        patched.setattr("armillary.explore.training.choose.timed", None)
        with pytest.raises(SlowerError) as raised:
            plan("tiny.yaml", MACHINE, batch=16, sequence=512, top=1, within=best / 100)
    assert best / 100 < raised.value.seconds <= best


def test_a_store_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan_machine(document(), store="s.db")
    monkeypatch.setattr(Training, "take", None)
    again = plan_machine(document(), store="s.db")
    assert [each.goodput for each in again.designs] == [each.goodput for each in first.designs]
    assert again.best.taken == first.best.taken


def test_links_that_vary_are_not_hidden_by_a_fit(here: Path) -> None:
    machine = {"machine": "2xdgx-h100", "costs": "h100"}
    by_fit = load_codesign(document(machines=[machine | {"vary": {"platform.network.fabric.size": [2, 4]}}]))
    assert not by_fit.entries[0].by_links
    rates = {"platform.network.fabric.bandwidth": ["25 GB/s", "50 GB/s"]}
    both = load_codesign(document(machines=[machine, machine | {"vary": rates}], reference="dgx-h100"))
    assert all(each.by_links for each in both.entries)
    for each in (both.reference, *both.entries[0].machines(), *both.entries[1].machines()):
        assert each.platform.collectives.fit is None


def bad(**keys: Any) -> dict[str, Any]:
    """Return a mix whose machine has other keys."""
    return document(machines=[{"machine": "2xdgx-h100", "costs": "h100", **keys}])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (document(mix=[]), "mix"),
        (document(mix=[{"batch": 4}]), "mix.0: expected a mapping with the key train, or serve"),
        (document(mix=[TRAIN | {"weigth": "3 %"}]), "weigth.*did you mean 'weight'"),
        (document(mix=[TRAIN | {"train": "llama-3-8"}]), "did you mean"),
        (document(mix=[TRAIN | {"plan": {"batch": 4}}]), "plan.batch: expected it beside the plan"),
        (document(mix=[TRAIN | {"plan": {"sequense": 4}}]), "sequense"),
        (document(mix=[SERVE | {"slo": "tft=3ms"}]), "slo: .*tft"),
        (document(mix=[SERVE | {"load": "poison:rate=3"}]), "load"),
        (
            document(mix=[SERVE | {"load": "closed:clients=3,requests=9,input=8,output=8"}]),
            "expected an open load",
        ),
        (document(mix=[SERVE | {"options": {"slots": 3}}]), "slots: no such option"),
        (document(mix=[SERVE | {"options": {"replicas": 3}}]), "replicas are chosen"),
        (document(mix=[SERVE | {"slo": "ttft=1ns"}]), "which goodput is relative to"),
        (document(budget={}), "there is none, expected capital, cost_per_year or power"),
        (document(budget={"power": "1 W"}), "no machine is within it; the nearest is r: .*kW"),
        (document(budget={"power": "60 USD"}), "power"),
        (document(budget={"power": "0 W"}), "budget.power: got '0 W', expected more than 0, e.g. '60 kW'"),
        (document(reference="dgx-h10"), "reference: .*did you mean 'dgx-h100'"),
        (bad(costs="h10"), "costs: .*did you mean 'h100'"),
        (bad(machine="dgx-h10"), "machine: .*did you mean 'dgx-h100'"),
        (bad(machine=3), "got 3, expected a name, a file, or its content"),
        (bad(vary={"platform.network.fabrik.size": [2]}), "fabrik"),
        (bad(vary={"platform.network.fabric.size": [0]}), "size"),
        (bad(vary={"workload.generate.batch": [2]}), "expected a key of the machine"),
        (bad(vary={"platform.npu.memory.bandwidth": ["4 TB/s"]}), "so it has no effect"),
        (
            bad(vary={"platform.network.fabric.size": {"from": 2, "to": 90000, "step": 1}}),
            "expected at most 20,000",
        ),
    ],
)
def test_nonsense_is_refused_in_a_line(here: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        plan_machine(given)
    assert "\n" not in str(raised.value)


def test_the_command_says_what_python_says(here: Path) -> None:
    (here / "mix.yaml").write_text(json.dumps(document()))
    result = CliRunner().invoke(main, ["plan", "machine", "mix.yaml", "--json", "m.json", "--html", "m.html"])
    assert result.exit_code == 0, result.output
    for word in (
        "Best: r: size",
        "Proved: ",
        "What is left: ",
        "Binds: the space",
        "train tiny: ",
        "serve tiny: ",
    ):
        assert word in result.output
    told = json.loads((here / "m.json").read_text())
    assert told["proved"] and told["gap_ratio"] == 0
    assert told["designs"][0]["goodput"] <= told["ideal_goodput"]
    page = (here / "m.html").read_text()
    for word in (told["designs"][0]["machine"], "Goodput against power", "The mix on ", "Binds: the space"):
        assert word in page
    for options, message in (
        (["--power", "4 kw"], "power: got '4 kw'"),
        (["--capital", "1 USD"], "budget: no machine is within it"),
        (["--most", "0"], "--most"),
    ):
        result = CliRunner().invoke(main, ["plan", "machine", "mix.yaml", *options])
        assert result.exit_code == 2
        assert message in result.output
        assert result.output.count("\n") == 1
    with pytest.raises(InputError, match="power: got '4 kw'"):
        armillary.plan_machine("mix.yaml", power="4 kw")


def test_a_search_that_was_ended_says_what_another_may_be(here: Path, found: Designs) -> None:
    ended = plan_machine(document(), most=1, store="s.db")
    assert ended.left
    assert ended.best.goodput * (1 + ended.gap) >= found.best.goodput
    (here / "mix.yaml").write_text(json.dumps(document()))
    result = CliRunner().invoke(main, ["plan", "machine", "mix.yaml", "--most", "1", "--store", "s.db"])
    assert "Not proved: 1 of 4" in result.output


def test_a_budget_that_binds_is_named(here: Path) -> None:
    found = plan_machine(document(budget={"power": "6 kW", "capital": "10 MUSD"}))
    assert found.affordable == 2
    assert found.beyond.keys() == {("power",)}
    assert found.beyond["power",].count == 2
    assert found.beyond["power",].most > found.best.goodput
    told = json.loads(json.dumps(codesign_json(found)))["binding"]
    assert told == [{"budgets": ["power"], "machines": 2, "goodput_at_most": found.beyond["power",].most}]


def test_machines_that_cannot_run_the_mix_are_named(here: Path) -> None:
    vary = {"platform.network.out.size": [2, 3]}
    given = document(mix=[TRAIN], machines=[{"machine": ROOFLINE, "name": "r", "costs": COSTS, "vary": vary}])
    (here / "mix.yaml").write_text(json.dumps(given))
    result = CliRunner().invoke(main, ["plan", "machine", "mix.yaml"])
    assert result.exit_code == 0, result.output
    assert "Proved: 1 of 2 within the budget simulated, 1 impossible (below)" in result.output
    assert "Impossible on r: size 3: no plan of batch 16 on 6 devices is possible" in result.output
