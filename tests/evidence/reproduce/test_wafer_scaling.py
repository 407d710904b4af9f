"""`armillary validate reproduce wafer-scaling`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from armillary.cli import main
from armillary.evidence.reproduce.wafer_scaling import Assumptions, blocks, gains, run, time


def test_base_and_grown_machines_are_those_of_the_slides() -> None:
    base = blocks(Assumptions())
    assert [(block.topology, block.size, block.bandwidth) for block in base] == [
        ("Ring", 2, 1000.0), ("FullyConnected", 8, 200.0), ("Ring", 8, 100.0), ("Switch", 4, 50.0)
    ]  # fmt: skip
    assert [block.size for block in blocks(Assumptions(), up=8)] == [16, 8, 8, 4]
    assert [block.size for block in blocks(Assumptions(), out=8)] == [2, 8, 8, 32]


def test_the_narrowest_dimension_is_the_time() -> None:
    """Bytes through a dimension over its bandwidth, in ms; what chunks pay first and last is 1 %."""
    chosen = Assumptions()
    second = 2 * 7 / 8 * 0.5 / 200e9 * 1e9 * 1e3
    wafer = 2 * 7 / 8 / 1000e9 * 1e9 * 1e3
    assert time(chosen) / 1e6 == pytest.approx(second, rel=0.01)
    assert time(chosen, up=4) / 1e6 == pytest.approx(wafer, rel=0.01)


def test_scaling_up_gains_what_is_said_with_the_bandwidth_that_the_number_picks() -> None:
    up, out = gains(Assumptions())
    assert up == pytest.approx([1.98, 2.507, 2.335], abs=0.002)
    assert out == pytest.approx([1, 1, 1], abs=1e-3)
    outcome = run(Assumptions())
    assert [claim.verdict for claim in outcome.claims] == ["holds", "holds"]
    assert "only 1 TB/s and 1.1 TB/s agree" in outcome.claims[0].why
    assert "1 TB/s on the wafer assumed" in outcome.title
    figure = Figure()
    outcome.draw(figure)
    assert [len(axes.lines) for axes in figure.axes] == [3, 3]


def test_the_bandwidth_of_the_slides_makes_larger_wafers_slower() -> None:
    slides = run(replace(Assumptions(), wafer=250.0))
    assert [claim.verdict for claim in slides.claims] == ["does not hold", "does not hold"]


def test_the_command() -> None:
    result = CliRunner().invoke(main, ["validate", "reproduce", "wafer-scaling", "--size", "100 MB"])
    assert result.exit_code == 0, result.output
    assert "2.51x ± 10 %" in result.output
