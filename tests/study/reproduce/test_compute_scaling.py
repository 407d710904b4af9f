"""The compute-scaling study: the torus of the tutorial, and what must hold whatever is assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.study.reproduce.compute_scaling import Assumptions, Point, crossover, machine, measure, run


def test_the_machine_is_the_torus_of_the_tutorial() -> None:
    platform = machine(Assumptions(), 4)
    assert [(each.topology, each.size, each.bandwidth) for each in platform.dimensions] == [
        ("Torus", 2, 200), ("Torus", 4, 25), ("Torus", 4, 25),
    ]  # fmt: skip
    assert platform.system.peak_performance == pytest.approx(4 * 123e12)
    assert platform.kernel_model.options["clock"] == pytest.approx(4 * 123e12 / (2 * 256**2))


@pytest.mark.parametrize("model", ["systolic", "roofline"])
def test_compute_shrinks_by_the_factor_and_exposed_communication_does_not(model: str) -> None:
    points = measure(replace(Assumptions(), model=model))
    for point in points:
        assert point.compute == pytest.approx(points[0].compute / point.factor, rel=1e-3)
    assert points[-1].exposed > points[0].exposed


def test_a_peak_alone_leaves_what_memory_bounds() -> None:
    points = measure(replace(Assumptions(), model="roofline", scales="peak"))
    assert points[-1].compute > points[0].compute / 16


def test_the_crossover_is_between_points() -> None:
    points = [Point(1, 100, 80, 20), Point(2, 50, 40, 10), Point(4, 50, 10, 40)]
    assert crossover(points) == pytest.approx(2 * 2**0.5)
    assert crossover(points[:2]) is None
    assert crossover(points[2:]) == 4


def test_verdicts_follow_the_numbers() -> None:
    assert [claim.verdict for claim in run(Assumptions()).claims] == ["partly", "partly", "open"]
    small = run(replace(Assumptions(), samples=8))
    assert [claim.verdict for claim in small.claims] == ["holds", "holds", "open"]
    assert "it is more than half from x" in small.claims[0].why


def test_the_command_runs() -> None:
    result = CliRunner().invoke(
        main, ["reproduce", "compute-scaling", "--samples", "8"], catch_exceptions=False
    )
    assert "resnet-50, 8 samples per NPU, torus of 2 x 4 x 4" in result.output
