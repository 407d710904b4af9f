"""Open loads: which of them cannot have been served as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.evidence.validate.sim_to_real import COLUMNS, held_back, read_points

ROW = {
    "experiment": "1", "simulator": "other", "model": "meta-llama/Llama-3.1-8B-Instruct", "workload": "roleplay",
    "stage_index": "-1", "metric_name": "e2e_mean", "predicted": "", "actual": "2000", "hardware": "H100",
    "precision": "FP16", "tp": "1", "max_num_batched_tokens": "2048",
}  # fmt: skip


def put(path: Path, *rows: dict[str, str]) -> Path:
    lines = [",".join((ROW | row)[name] for name in COLUMNS) for row in rows]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


@pytest.mark.parametrize(("seconds", "held"), [(21, False), (22, True)])
def test_a_load_that_needs_more_sequences_than_there_are_was_held_back(
    seconds: int, held: bool, tmp_path: Path
) -> None:
    """6 requests/s of 21.2 s each are 127.2 at a time, of 22.2 s 133; an engine runs 128. TTFT does not count."""
    rows = (
        {"actual": str(seconds * 1000 + 700)},
        {"metric_name": "ttft_mean", "actual": "500"},
        {"experiment": "2"},
        {"experiment": "3", "workload": "unknown", "actual": "1e6"},
        {"experiment": "3", "workload": "unknown", "metric_name": "ttft_mean"},
    )
    assert held_back(read_points([put(tmp_path / "r.csv", *rows)])) == ["1"] * held
