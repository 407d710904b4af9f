"""Machines compared by a training step: the numbers are those of `train` and `plan`, and differences are judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.cost import load_costs, price
from armillary.explore.training.fabrics import TIERS, compare_machines
from armillary.explore.training.fabrics_show import headline
from armillary.platform import load_platform

SMALL = {"batch": 16, "sequence": 1024, "recompute": "none"}


def machine(folder: Path, name: str, bandwidth: int) -> str:
    """Two nodes of 8 H100 whose fabric has so many GB/s."""
    path = folder / f"{name}.yaml"
    path.write_text(
        f"platform:\n  preset: 2xdgx-h100\n  network:\n    fabric: {{bandwidth: {bandwidth} GB/s}}\n"
        "software: megatron-core\n"
    )
    return str(path)


def test_each_machine_has_the_step_of_its_fastest_plan() -> None:
    found = compare_machines("llama-2-7b", ["8xa100", "8xh100"], **SMALL)
    for name, each in zip(("8xa100", "8xh100"), found.fabrics, strict=True):
        best = armillary.plan("llama-2-7b", name, top=1, **SMALL).best
        assert each.prediction.step_time_s == best.step_time_s
        assert 0 < each.bound_s <= best.step_time_s * 1.001
        assert each.cost_per_year is None and each.power_w is None
    assert found.fastest.name == "8xh100"
    slow, fast = found.verdicts
    assert slow.differs and not slow.shared
    assert slow.interval[0] < slow.slower < slow.interval[1]
    assert (fast.slower, fast.differs) == (0.0, False)


def test_a_plan_that_is_given_is_the_plan_of_all_and_the_same_machine_is_not_told_apart(
    tmp_path: Path,
) -> None:
    paths = [machine(tmp_path, "a", 50), machine(tmp_path, "b", 51), machine(tmp_path, "c", 1)]
    found = compare_machines("llama-2-7b", paths, tp=2, **SMALL)
    assert {each.prediction.plan.parallel.tp for each in found.fabrics} == {2}
    a, b, c = found.verdicts
    # A fabric that is 2 % faster is within what steps of one software differ by; one that is 50 times slower is not.
    assert a.shared and not a.differs
    assert not b.differs
    assert c.differs and c.slower > 0.5


def test_costs_are_for_all_or_for_each(tmp_path: Path) -> None:
    costs = load_costs("h100")
    twice = costs.model_copy(update={"other": 2 * costs.other})
    found = compare_machines("llama-2-7b", ["8xh100", "16xh100"], costs=[costs], tp=2, **SMALL)
    first, second = (each.cost_per_year for each in found.fabrics)
    assert first is not None and second is not None and second > 1.5 * first
    assert found.same_costs
    dearer = compare_machines("llama-2-7b", ["8xh100", "16xh100"], costs=[costs, twice], tp=2, **SMALL)
    assert dearer.fabrics[0].cost_per_year == first
    more = dearer.fabrics[1].cost_per_year
    assert more is not None and more > second
    # The price is written off over its years, whatever part of them the machine works.
    power = found.fabrics[0].power_w
    assert power is not None
    bought = price(load_platform("8xh100"), costs).total / 4
    electricity = power / 1000 * 0.08 * 24 * 365.25 * costs.utilisation
    assert first == pytest.approx(bought + electricity, rel=1e-6)


@pytest.mark.parametrize(
    ("machines", "more", "says"),
    [
        (["8xh100"], {}, "got 1 machine, expected two or more"),
        (["8xh100", "8xh10"], {}, "8xh10"),
        (["8xh100", "8xa100", "8xb200"], {"costs": ["h100", "h100"]}, "got 2 costs for 3 machines"),
        (["8xh100", "8xa100"], {"tp": 3}, "^8xh100: .*tp"),
    ],
)
def test_mistakes_are_refused(machines: list[str], more: dict[str, object], says: str) -> None:
    costs = [load_costs(str(each)) for each in more.pop("costs", [])]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=says):
        compare_machines("llama-2-7b", machines, costs=costs, **SMALL, **more)


def test_the_command_prints_and_writes_the_same(tmp_path: Path) -> None:
    out, drawn = tmp_path / "out.json", tmp_path / "out.png"
    words = ["machine", "compare", "8xh100", "8xa100", "--workload", "llama-2-7b", "--batch", "16"]
    words += ["--sequence", "1024", "--tp", "2", "--costs", "h100"]
    ran = CliRunner().invoke(main, [*words, "--json", str(out), "--plot", str(drawn)])
    assert ran.exit_code == 0, ran.output
    found = json.loads(out.read_text())
    assert found["fastest"] == "8xh100"
    assert [each["machine"] for each in found["machines"]] == ["8xh100", "8xa100"]
    assert "Fastest: 8xh100" in ran.output
    assert "taken to cost the same" in ran.output
    assert drawn.stat().st_size > 1000
    alone = CliRunner().invoke(main, words[:3] + words[4:])
    assert alone.exit_code == 2


def rails(folder: Path, name: str, bandwidth: int, hosts: int = 8) -> str:
    """Hosts of 8 H100 whose rails have so many GB/s, as a graph."""
    path = folder / f"{name}.yaml"
    path.write_text(f"""
software: megatron-core
platform:
  topology:
    {{kind: rail-optimised, hosts: {hosts}, npus_per_host: 8, host_bandwidth: 450 GB/s, host_latency: 1 us, spines: 2,
      hosts_per_unit: {min(hosts, 2)}, bandwidth: {bandwidth} GB/s, latency: 1 us, routing: rail}}
  npu: {{peak: {{bf16: 989 TFLOP/s}}, memory: {{bandwidth: 3.35 TB/s, capacity: 79 GiB}}}}
  compute: {{model: gpu, device: h100-sxm}}
""")
    return str(path)


def test_large_graphs_are_compared_by_their_levels_and_say_so(tmp_path: Path) -> None:
    paths = [rails(tmp_path, "fast", 50), rails(tmp_path, "slow", 5)]
    given = {**SMALL, "batch": 64}
    found = compare_machines("llama-2-7b", paths, costs=[load_costs("h100")], tp=2, **given)
    fast, slow = found.fabrics
    assert fast.prediction.approximate and slow.prediction.approximate and found.verdicts[1].differs
    text = headline(found)
    assert text.startswith(f"Fastest: {paths[0]}") and text.endswith(
        "approximate: by levels of the graph (all)"
    )
    for each in found.fabrics:
        said = [one for one in each.prediction.assumptions if one.startswith("approximate")]
        assert len(said) == 1 and "levels, 8 devices at 450 GB/s and 8 groups at" in said[0]
        assert 0 < each.bound_s <= each.prediction.step_time_s
        low, high = each.prediction.interval_s
        assert each.prediction.machine.name == each.name and low < each.prediction.step_time_s < high
        assert each.unknown == ()
    # Four links of 5 GB/s share a cable and a port.
    assert fast.cost_per_year is not None and slow.cost_per_year is not None
    assert 0.8 * fast.cost_per_year < slow.cost_per_year < fast.cost_per_year
    assert fast.cost_high is not None and fast.cost_high > fast.cost_per_year
    assert (
        "cables rail: 64 x optics of 50 GB/s" in fast.bill
        and "cables rail: 16 x optics of 50 GB/s" in slow.bill
    )
    flat = load_costs("h100").model_copy(update={"switches": {}})
    (same, _) = compare_machines("llama-2-7b", paths, costs=[flat], tp=2, **given).fabrics
    assert same.unknown == (TIERS,) and same.bill == () and same.cost_high == same.cost_per_year


def test_plans_of_a_graph_are_ranked_and_messages_move_where_there_are_few_devices(tmp_path: Path) -> None:
    large, small = (rails(tmp_path, name, 50, hosts) for name, hosts in (("large", 8), ("small", 1)))
    found = compare_machines("llama-2-7b", [large, large], **{**SMALL, "batch": 64})
    assert found.fabrics[0].prediction.step_time_s == found.fabrics[1].prediction.step_time_s
    assert not found.verdicts[1].differs
    few = compare_machines("llama-2-7b", [small, "8xh100"], tp=8, **SMALL)
    assert [each.prediction.approximate for each in few.fabrics] == [
        False,
        False,
    ] and "approximate" not in headline(few)
