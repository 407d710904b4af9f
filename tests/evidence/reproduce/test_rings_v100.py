"""Rings of V100s: the embedded rows are the tables', and the errors are those of a ring worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from armillary.base.errors import InputError
from armillary.evidence.reproduce.assumptions import read
from armillary.evidence.reproduce.rings_v100 import (
    LARGEST,
    MEASURED_US,
    MIB,
    PAIR,
    SHEET,
    SIZES,
    Assumptions,
    measure,
    run,
)


@pytest.mark.shared
def test_the_rows_are_those_of_the_tables(shared: Path) -> None:
    for gpus, times in MEASURED_US.items():
        table = shared / "measured" / "vtrain" / f"trace_v100_AR_GPU{gpus}_1M_1024M_LUT"
        rows = [line.split(",") for line in table.read_text().splitlines()[1:] if line]
        found = {int(row[0]): fmean((float(row[3]), float(row[5]))) / 1e3 for row in rows}
        assert [found[size] for size in SIZES] == pytest.approx(times, abs=0.06)
        assert max(found) == 1024 * MIB == SIZES[-1]  # there is no 1.5 GB to judge


@pytest.mark.parametrize("network", ["analytical", "flow"])
def test_a_ring_by_hand(network: str) -> None:
    chosen = replace(Assumptions(), latency=0.0, network=network)
    rates = {2: 25, 4: 100, 8: 150}
    for curve in measure(chosen):
        if curve.way == SHEET:
            # 2 (n - 1) / n of the bytes leave a GPU, over all of its links.
            share = 2 * (curve.gpus - 1) / curve.gpus
            expected = [share * size / rates[curve.gpus] for size in SIZES]
            assert list(curve.times) == pytest.approx(expected, rel=1e-4)


def test_errors_leave_out_what_the_bandwidth_was_taken_from() -> None:
    curves = {(curve.gpus, curve.way): curve for curve in measure(Assumptions())}
    assert (2, PAIR) not in curves
    own = curves[4, LARGEST]
    assert own.errors[-1] == pytest.approx(0, abs=1e-3)
    assert own.error == pytest.approx(fmean(map(abs, own.errors[:-1])))
    assert curves[4, PAIR].error == pytest.approx(fmean(map(abs, curves[4, PAIR].errors)))
    assert curves[4, SHEET].error > curves[4, PAIR].error > own.error


def test_what_the_tables_do_not_have_is_open() -> None:
    outcome = run(Assumptions())
    assert [claim.verdict for claim in outcome.claims] == ["partly", "open", "open", "partly"]
    assert "no 16 V100, no 1.5 GB" in outcome.title
    assert {case.name.split(",")[0] for case in outcome.claims[0].cases} == {"4 GPUs"}


def test_links_are_three_counts() -> None:
    with pytest.raises(InputError, match="--links: got '1, 4', expected 3 numbers"):
        read(Assumptions, {"links": "1, 4"})
