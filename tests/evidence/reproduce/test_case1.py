"""`armillary validate reproduce case1`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.engine import simulate
from armillary.evidence.reproduce.case1 import Assumptions, run
from armillary.evidence.reproduce.case_machines import machine
from armillary.evidence.reproduce.case_workloads import WorkloadAssumptions, measure, workloads
from armillary.workload.models import flops, load_model


def test_a_wafer_of_one_dimension_is_best_if_bandwidths_are_of_npus() -> None:
    outcome = run(Assumptions())
    assert [claim.verdict for claim in outcome.claims] == ["holds", "holds", "holds"]
    # 2 * 1 GB * 511/512 / 600 GB/s is 3.327 ms; the last chunk ends its latencies and its own time after that.
    row = {cells[0]: cells for cells in outcome.grids[0].rows}["W-1D-600"]
    assert row[1] == row[3] == "3.349 ms" and row[2] == row[4] == "0 ns"


def test_and_is_not_if_they_are_of_links() -> None:
    best, overhead, *_ = run(Assumptions(per="link")).claims
    assert (best.verdict, overhead.verdict) == ("does not hold", "partly")
    assert "All-Reduce (Conv-4D) 0." in best.ours


def test_parts_add_up_and_compute_is_what_the_model_needs() -> None:
    chosen = WorkloadAssumptions()
    trace = workloads(chosen)["GPT-3"]
    platform = machine("W-2D", chosen, "physical")
    time = measure(trace, platform, "physical")
    assert time.total == time.compute + time.exposed == simulate(trace, platform).total_ticks
    model = load_model("gpt-3-175b")
    step = flops(model, batch=chosen.gpt_3_batch, sequence=2048).training / chosen.gpt_3_tp
    # What is bound by memory comes on top.
    assert 1 < time.compute / (step / 234e12 * 1e9) < 1.25


def test_heads_that_tensor_parallelism_does_not_divide_become_wider() -> None:
    products = [
        measure(
            workloads(chosen)["Transformer-1T"], machine("W-1D-600", chosen, "physical"), "physical"
        ).compute
        for chosen in (
            # Memory so fast that only operations take time.
            WorkloadAssumptions(memory=1e9, transformer_tp=32),
            WorkloadAssumptions(memory=1e9, transformer_tp=128, transformer_batch=32),
        )
    ]
    # Four times the ranks for four times the sequences.
    assert products[1] / products[0] == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    drawn, page = tmp_path / "case1.png", tmp_path / "case1.html"
    words = ["validate", "reproduce", "case1", "--plot", str(drawn), "--html", str(page)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert drawn.read_bytes().startswith(b"\x89PNG") and "<svg" in page.read_text()
