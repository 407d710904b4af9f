"""The compute-scaling study: the torus of the tutorial, and what must hold whatever is assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.evidence.reproduce.compute_scaling import Assumptions, Point, crossover, machine, measure, run


def test_the_machine_is_the_torus_of_the_tutorial() -> None:
    platform = machine(Assumptions(), 4)
    assert [(each.topology, each.size, each.bandwidth) for each in platform.dimensions] == [
        ("Torus", 2, 200), ("Torus", 4, 25), ("Torus", 4, 25),
    ]  # fmt: skip
    assert platform.npu.peak_flops == pytest.approx(4 * 123e12)
    assert platform.compute.options["clock"] == pytest.approx(4 * 123e12 / (2 * 256**2))


@pytest.mark.parametrize("model", ["systolic", "roofline"])
def test_compute_shrinks_by_the_factor_and_exposed_communication_does_not(model: str) -> None:
    points = measure(replace(Assumptions(), model=model), "resnet-50", 32)
    for point in points:
        assert point.compute == pytest.approx(points[0].compute / point.factor, rel=1e-3)
    assert points[-1].exposed > points[0].exposed


def test_a_peak_alone_leaves_what_memory_bounds() -> None:
    points = measure(replace(Assumptions(), model="roofline", scales="peak"), "resnet-50", 32)
    assert points[-1].compute > points[0].compute / 16


def test_the_crossover_is_between_points() -> None:
    points = [Point(1, 100, 80, 20), Point(2, 50, 40, 10), Point(4, 50, 10, 40)]
    assert crossover(points) == pytest.approx(2 * 2**0.5)
    assert crossover(points[:2]) is None
    assert crossover(points[2:]) == 4


def test_verdicts_follow_from_all_batches_and_not_from_one() -> None:
    few, many = Assumptions(workload=("resnet-50",), samples=(8,)), Assumptions(("resnet-50",), (256,))
    assert [claim.verdict for claim in run(few).claims] == ["holds", "holds", "holds", "open"]
    assert run(many).claims[1].verdict == "does not hold"
    both = run(replace(few, samples=(8, 256)))
    assert [claim.verdict for claim in both.claims] == ["holds", "partly", "holds", "open"]
    assert [case.name for case in both.claims[1].cases] == ["resnet-50 8", "resnet-50 256"]
    assert "resnet-50 up to 8 samples" in both.claims[1].why and "not public" in both.title


def test_what_the_plot_leaves_open_is_swept_by_default() -> None:
    outcome = run(Assumptions())
    assert outcome.claims[1].verdict == "partly" and len(outcome.claims[1].cases) == 20


def test_the_command_runs() -> None:
    result = CliRunner().invoke(
        main, ["validate", "reproduce", "compute-scaling", "--samples", "8"], catch_exceptions=False
    )
    assert "resnet-50 8 " in result.output and "not public: 4 x 1 tried" in result.output

    wrong = CliRunner().invoke(main, ["validate", "reproduce", "compute-scaling", "--workload", "resnet-51"])
    assert wrong.exit_code == 2 and "--workload: got 'resnet-51', expected one of resnet-50" in str(
        wrong.output
    )
